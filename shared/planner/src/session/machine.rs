//! The machine that the options describe.

use thiserror::Error;

use super::{ASSUMED_CAPABILITY, Options, VRAM_BYTES_MIN};
use crate::{
    hardware::{self, Device, context},
    memory::{
        allocator::SegmentKind,
        message::{ParseTorchVersionError, TorchVersion},
    },
    request::Machine,
};
use headroom_text::{self as text, Text};

/// Why the options describe no machine.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("--{option}: {message}")]
pub struct MachineError {
    /// The option, as in `headroom plan`.
    pub option: &'static str,
    /// The reason.
    pub message: Text,
}

/// The GPU of the options.
pub(super) fn device_of(options: &Options) -> Result<Device, Text> {
    let named = options.gpu.trim();
    let found = (!named.is_empty()).then(|| hardware::find(named));
    match (found, options.vram_bytes) {
        (Some(Ok(device)), None) => Ok(device.clone()),
        (Some(Ok(device)), Some(bytes)) => {
            Ok(Device { total_bytes: bytes, total_provenance: hardware::Provenance::Given, ..device.clone() })
        }
        (Some(Err(error)), _) => Err(error.text()),
        (None, Some(bytes)) => Ok(Device::custom(bytes, ASSUMED_CAPABILITY)),
        (None, None) => Err(text::NAME_A_CARD.into()),
    }
}

/// The machine of the options with this GPU and this version of PyTorch.
pub(super) fn machine_of(options: &Options, device: Device, torch: TorchVersion) -> Machine {
    let estimated = || device.context(context::ModuleLoading::Lazy);
    Machine {
        segments: if options.expandable_segments { SegmentKind::Expandable } else { SegmentKind::Native },
        tuned: options.tuned,
        other_processes_bytes: options.other_processes_bytes,
        context: options.context_bytes.map_or_else(estimated, context::Estimate::given),
        torch,
        device,
    }
}

impl Options {
    /// The machine: the GPU, other processes, the CUDA context, and the allocator.
    ///
    /// # Errors
    /// The GPU is unknown, or the version of PyTorch is invalid.
    pub fn machine(&self) -> Result<Machine, MachineError> {
        if self.vram_bytes.is_some_and(|bytes| bytes < VRAM_BYTES_MIN) {
            return Err(MachineError { option: "vram", message: text::GPU_WITHOUT_MEMORY.into() });
        }
        let device = device_of(self).map_err(|message| MachineError { option: "gpu", message })?;
        let torch = self
            .torch
            .parse()
            .map_err(|error| MachineError { option: "torch", message: ParseTorchVersionError::text(&error) })?;
        Ok(machine_of(self, device, torch))
    }
}
