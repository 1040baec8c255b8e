//! The processes that hold memory of a GPU, read once for the error of a run that runs out of memory.

use headroom_protocol::gpu::Process;

use super::{gpus::GPUS_MAX, library, names::Names, nvml_errors::NvmlErrors, processes::users};

/// Returns the other processes on the GPU with this UUID, largest first. `None` if there is no NVML, or it does not
/// know the GPU or its processes.
#[must_use]
pub fn holders(uuid: &str) -> Option<Vec<Process>> {
    let library = library::load(None).ok()?;
    let nvml = &library.nvml;
    let n_gpus = nvml.device_count().ok()?.min(u32::try_from(GPUS_MAX).unwrap_or(u32::MAX));
    let mut gpus = (0..n_gpus).filter_map(|gpu| nvml.device_by_index(gpu).ok());
    let device = gpus.find(|device| device.uuid().is_ok_and(|its| its == uuid))?;
    let is_split = device.mig_mode().is_ok_and(|mode| mode.current != 0);
    let mut users = users(&device, library.windows, is_split, &mut NvmlErrors::default()).get()?.clone();
    // The context of this process is on the GPU too.
    users.retain(|user| user.pid != std::process::id());
    let mut names = Names::default();
    names.refresh(users.iter().map(|user| user.pid));
    Some(names.tell(users))
}
