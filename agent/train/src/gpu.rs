//! Selection of a run's GPU, and the memory plan, both made before anything is allocated.

use headroom_kernels::cuda::{
    self, Attention, BuiltinKernels, CublasLt, CudaError, Cudnn, Device, Gemm, Gpu, cublaslt, cudnn, gpus,
    libraries::{self, LibraryError},
    shape,
};
use headroom_planner::{
    dtype::Dtype,
    gpt::{
        buffers::cuda::{AttentionBackend, Backends, CudaTraining, RESERVE_BYTES, Recompute, size_with},
        tensors::TensorTooLarge,
    },
    hardware::{self, Device as Hardware, context::ModuleLoading},
    session::ASSUMED_CAPABILITY,
};
use headroom_protocol::gpu::Process;
use headroom_text::{self as text, Text, units::human_size};

use super::{
    device::DeviceSpec,
    gpu_request::{GpuRequest, MemoryBudget},
    out_of_memory::{self, DeviceOutOfMemory, ShortageStage},
};
use headroom_agent_core::telemetry;

/// Why no GPU can be used for a run.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub enum GpuError {
    /// An error of the CUDA driver or of the GPU.
    Cuda {
        error: Box<CudaError>,
        /// Other processes on the GPU, if memory ran out.
        holders: Vec<Process>,
    },
    /// The run requires float32; GPUs train in bfloat16.
    Float32,
    /// The GEMM library named by the user cannot be used.
    CublasLt(LibraryError),
    /// The attention library named by the user cannot be used.
    Cudnn(LibraryError),
    /// The model is too large for any GPU.
    Tensor(#[from] TensorTooLarge),
    /// The GPU has too little memory.
    Memory(#[from] Box<DeviceOutOfMemory>),
}

impl GpuError {
    /// Returns the error as a text.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Cuda { error, holders } => out_of_memory::held(error.text(), holders),
            Self::Float32 => {
                text::as_is("dtype is float32; GPUs train in bfloat16, with weights, gradients and moments in float32")
            }
            Self::CublasLt(error) => text::as_is(error.to_string()),
            Self::Cudnn(error) => text::as_is(error.to_string()),
            Self::Tensor(error) => error.text(),
            Self::Memory(error) => error.text(),
        }
    }
}

impl From<CudaError> for GpuError {
    fn from(error: CudaError) -> Self {
        Self::Cuda { error: Box::new(error), holders: vec![] }
    }
}

impl GpuError {
    /// Returns whether this machine has no GPU that any run could use.
    #[must_use]
    pub fn is_without_gpu(&self) -> bool {
        use CudaError::{DriverTooOld, GpuTooOld, NoDriver, NoGpu, NotTheDriver};
        let Self::Cuda { error, .. } = self else { return false };
        matches!(**error, NoGpu | NoDriver { .. } | NotTheDriver { .. } | DriverTooOld { .. } | GpuTooOld { .. })
    }

    /// Returns a suggestion for the user.
    #[must_use]
    pub fn hint(&self) -> Option<Text> {
        let cpu = text::TRY_CPU;
        match self {
            Self::Cuda { error, .. } => Some(match &**error {
                CudaError::NoDriver { .. } => {
                    out_of_memory::joined([text::try_driver(cuda::driver::VARIABLE), cpu.into()])
                }
                CudaError::DriverTooOld { .. } => {
                    out_of_memory::joined([text::try_newer_driver(cuda::driver::NEEDED_RELEASE), cpu.into()])
                }
                CudaError::NoSuchGpu { .. } => out_of_memory::joined([text::TRY_DOCTOR.into(), cpu.into()]),
                CudaError::NoRoomForContext { .. } => {
                    out_of_memory::joined([text::TRY_END_ITS_HOLDERS.into(), cpu.into()])
                }
                _ => cpu.into(),
            }),
            Self::Float32 => Some(text::as_is("--dtype=bfloat16 trains on the GPU; --device=cpu computes in float32")),
            Self::CublasLt(_) => Some(text::as_is(format!(
                "{}={} multiplies with our own kernels; unset, the library is looked for",
                cublaslt::VARIABLE,
                libraries::OFF
            ))),
            Self::Cudnn(_) => {
                let own = "--attention=own computes it with our kernels";
                Some(text::as_is(format!("{own}; {} may name the library", cudnn::VARIABLE)))
            }
            Self::Tensor(_) => None,
            Self::Memory(shortage) => Some(shortage.hint()),
        }
    }
}

/// A GPU that a run can use.
#[derive(Debug)]
pub struct SelectedGpu {
    /// The open device; its context has already taken its memory.
    pub device: Device,
    /// The memory, read after the context and the libraries were created.
    pub room: MemoryBudget,
    /// The run's memory plan. If nothing fits, the plan with the least memory.
    pub plan: CudaTraining,
    /// Whether the plan fits.
    pub fits: bool,
    /// The GEMM backend, moved into the trainer.
    gemm: Box<dyn Gemm>,
    /// The attention backend, moved into the trainer.
    attention: Box<dyn Attention>,
    /// Why the GEMM backend is not cuBLASLt.
    pub why_own: Option<LibraryError>,
}

/// The device that a run computes on.
#[derive(Debug)]
pub enum TrainDevice {
    /// The CPU, and the reason why no GPU was chosen, if one was considered.
    Cpu(Option<String>),
    Gpu(Box<SelectedGpu>),
}

/// A GPU that this machine does not have, with a given amount of memory, and a run's plan for it.
#[derive(Debug)]
pub struct HypotheticalGpu {
    /// Its memory, less an estimated CUDA context.
    pub room: MemoryBudget,
    /// The run's memory plan. If nothing fits, the plan with the least memory.
    pub plan: CudaTraining,
    /// Whether the plan fits.
    pub fits: bool,
}

impl HypotheticalGpu {
    /// Plans a run for a GPU with `vram_bytes` that no other process uses, with the built-in GEMM kernels.
    ///
    /// # Errors
    /// The run requires float32, or the model is too large for any GPU.
    pub fn of(asked: &GpuRequest<'_>, vram_bytes: u64) -> Result<Self, GpuError> {
        shape::check(asked.gpt)?;
        if asked.is_float32 {
            return Err(GpuError::Float32);
        }
        let context = Hardware::custom(vram_bytes, ASSUMED_CAPABILITY).context(ModuleLoading::Lazy);
        let free_bytes = vram_bytes.saturating_sub(context.bytes);
        let room = MemoryBudget { total_bytes: vram_bytes, free_bytes, reserve_bytes: RESERVE_BYTES };
        let libraries = Backends { attention_backend: asked.attention_backend, ..Backends::NONE };
        let (plan, fits) = planned(asked, room.usable_bytes(), libraries)?;
        Ok(Self { room, plan, fits })
    }

    /// Checks that the plan fits.
    ///
    /// # Errors
    /// [`GpuError::Memory`] if it does not.
    pub fn check(&self, asked: &GpuRequest<'_>) -> Result<(), GpuError> {
        if self.fits {
            return Ok(());
        }
        let gpu = format!("a GPU with {}", human_size(self.room.total_bytes));
        Err(shortage(gpu, &self.plan, self.room, ShortageStage::Plan, asked, None).into())
    }
}

/// Checks that a named GPU exists and can train, without using its memory.
///
/// # Errors
/// It does not exist or is not supported, or the run requires float32.
pub fn check_device(wanted: DeviceSpec, is_float32: bool) -> Result<(), GpuError> {
    let DeviceSpec::Cuda(wanted) = wanted else { return Ok(()) };
    if is_float32 {
        return Err(GpuError::Float32);
    }
    let gpus = gpus()?;
    let n_gpus = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
    let named = gpus.iter().filter(|gpu| wanted.is_none_or(|index| gpu.index == index));
    let missing = wanted.map_or(CudaError::NoGpu, |index| CudaError::NoSuchGpu { index, n_gpus });
    // The first usable GPU, else the reason for the first one.
    let checked = named.map(Gpu::check).reduce(|first, next| if first.is_ok() { first } else { next.or(first) });
    Ok(checked.unwrap_or(Err(missing))?)
}

/// Chooses the device of a run: the named GPU, or the first usable one. If a usable GPU has too little memory, the run
/// is still planned for it, so that the shortfall can be reported.
///
/// # Errors
/// A GPU is required and none is usable, or the model is too large for any GPU.
pub fn place(wanted: DeviceSpec, asked: &GpuRequest<'_>) -> Result<TrainDevice, GpuError> {
    let gpu = |chosen| Ok(TrainDevice::Gpu(Box::new(chosen)));
    match wanted {
        DeviceSpec::Cpu => Ok(TrainDevice::Cpu(None)),
        DeviceSpec::Cuda(_) if asked.is_float32 => Err(GpuError::Float32),
        DeviceSpec::Cuda(Some(index)) => gpu(open(index, asked)?),
        DeviceSpec::Cuda(None) => gpu(first(asked)?),
        DeviceSpec::Auto => match first(asked) {
            Ok(_) if asked.is_float32 => Ok(TrainDevice::Cpu(Some(GpuError::Float32.to_string()))),
            Ok(chosen) => gpu(chosen),
            // A usable GPU whose memory is full is an error, not a reason to fall back to the CPU.
            Err(GpuError::Cuda { error, .. }) if !matches!(*error, CudaError::NoRoomForContext { .. }) => {
                Ok(TrainDevice::Cpu(Some(error.to_string())))
            }
            Err(error) => Err(error),
        },
    }
}

/// Returns the first usable GPU; one on which the plan fits is preferred.
fn first(asked: &GpuRequest<'_>) -> Result<SelectedGpu, GpuError> {
    shape::check(asked.gpt)?;
    let (mut full, mut refused) = (None, None);
    for gpu in gpus()? {
        match open(gpu.index, asked) {
            Ok(chosen) if chosen.fits => return Ok(chosen),
            Ok(chosen) => full = full.or(Some(chosen)),
            Err(error @ GpuError::Cuda { .. }) => refused = refused.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    full.ok_or_else(|| refused.unwrap_or_else(|| CudaError::NoGpu.into()))
}

fn open(index: u32, asked: &GpuRequest<'_>) -> Result<SelectedGpu, GpuError> {
    shape::check(asked.gpt)?;
    let device = Device::open(index).map_err(|error| {
        let is_full = matches!(error, CudaError::NoRoomForContext { .. });
        let uuid = || gpus().ok()?.into_iter().find(|gpu| gpu.index == index).map(|gpu| gpu.uuid);
        let holders = is_full.then(|| telemetry::holders(&uuid()?)).flatten().unwrap_or_default();
        GpuError::Cuda { error: Box::new(error), holders }
    })?;
    let (gemm, why_own): (Box<dyn Gemm>, _) = match CublasLt::find(&device, Some(asked.out_dir)) {
        Ok(library) => (Box::new(library), None),
        Err(absent) if absent.is_error() => return Err(GpuError::CublasLt(absent)),
        Err(absent) => (Box::new(BuiltinKernels), Some(absent)),
    };
    let attention: Box<dyn Attention> = match asked.attention_backend {
        AttentionBackend::BuiltinKernels => Box::new(BuiltinKernels),
        AttentionBackend::Cudnn => Box::new(Cudnn::find(&device, Some(asked.out_dir)).map_err(GpuError::Cudnn)?),
    };
    // Read after the libraries are loaded, which allocate memory of their own.
    let room = MemoryBudget::of(&device, asked.vram_bytes)?;
    let libraries = Backends { gemm_backend: gemm.gemm_backend(), attention_backend: attention.attention_backend() };
    let (plan, fits) = planned(asked, room.usable_bytes(), libraries)?;
    Ok(SelectedGpu { device, room, plan, fits, gemm, attention, why_own })
}

/// Returns the run's plan, and whether it fits into `usable_bytes`.
fn planned(
    asked: &GpuRequest<'_>,
    usable_bytes: u64,
    libraries: Backends,
) -> Result<(CudaTraining, bool), TensorTooLarge> {
    let recompute = match asked.recompute {
        Some(level) => vec![level; usize::try_from(asked.gpt.n_layer()).unwrap_or(usize::MAX)],
        None => size_with(asked.gpt, asked.batch_size, usable_bytes, libraries)?.recompute,
    };
    let plan = CudaTraining::with_libraries(asked.gpt, asked.batch_size, recompute, libraries)?;
    let fits = plan.bytes <= usable_bytes;
    Ok((plan, fits))
}

impl SelectedGpu {
    /// Returns its name as a run's `device`, for example `cuda:0`.
    #[must_use]
    pub fn device_name(&self) -> String {
        format!("cuda:{}", self.device.gpu().index)
    }

    /// Returns the peak rate of its tensor cores in bfloat16, in operations per second, or `None` for an unknown GPU.
    #[must_use]
    pub fn peak_flops(&self) -> Option<u64> {
        let gpu = self.device.gpu();
        hardware::reported(&gpu.name, Some(gpu.total_bytes))?.peak_flops(Dtype::Bfloat16)
    }

    /// Checks that the plan fits.
    ///
    /// # Errors
    /// [`GpuError::Memory`] if it does not.
    pub fn check(&self, asked: &GpuRequest<'_>) -> Result<(), GpuError> {
        if self.fits { Ok(()) } else { Err(self.shortage(self.room, ShortageStage::Plan, asked).into()) }
    }

    /// Returns the name of the GEMM backend, for display.
    #[must_use]
    pub fn gemm_backend(&self) -> String {
        self.gemm.name()
    }

    /// Returns the name of the attention backend, for display. Before the run begins it is the one that will be tried.
    #[must_use]
    pub fn attention_backend(&self) -> String {
        self.attention.name()
    }

    /// Creates the trainer and allocates everything in the plan.
    ///
    /// # Errors
    /// [`GpuError::Memory`] if memory was taken since the plan was made; nothing is allocated then. Otherwise
    /// [`GpuError::Cuda`].
    pub fn trainer(&mut self, asked: &GpuRequest<'_>) -> Result<cuda::Trainer, GpuError> {
        let gemm = std::mem::replace(&mut self.gemm, Box::new(BuiltinKernels));
        let attention = std::mem::replace(&mut self.attention, Box::new(BuiltinKernels));
        cuda::Trainer::with(&self.device, asked.gpt, self.plan.clone(), gemm, attention).map_err(|error| match error {
            CudaError::OutOfDeviceMemory { free_bytes, .. } => {
                // The free memory that the driver reports now. If it would suffice, it is fragmented.
                let room = MemoryBudget::of(&self.device, asked.vram_bytes)
                    .unwrap_or(MemoryBudget { free_bytes, ..self.room });
                self.shortage(room, ShortageStage::Allocation, asked).into()
            }
            error => error.into(),
        })
    }

    /// Returns the other processes on the GPU, or nothing if the driver does not list them.
    #[must_use]
    pub fn holders(&self) -> Vec<Process> {
        telemetry::holders(&self.device.gpu().uuid).unwrap_or_default()
    }

    fn shortage(&self, room: MemoryBudget, moment: ShortageStage, asked: &GpuRequest<'_>) -> Box<DeviceOutOfMemory> {
        let gpu = self.device.gpu();
        let name = format!("{} (cuda:{})", gpu.name, gpu.index);
        shortage(name, &self.plan, room, moment, asked, telemetry::holders(&gpu.uuid))
    }
}

fn shortage(
    gpu: String,
    plan: &CudaTraining,
    room: MemoryBudget,
    moment: ShortageStage,
    asked: &GpuRequest<'_>,
    holders: Option<Vec<Process>>,
) -> Box<DeviceOutOfMemory> {
    let usable_bytes = room.usable_bytes();
    let least = size_with(asked.gpt, asked.batch_size, usable_bytes, plan.libraries);
    Box::new(DeviceOutOfMemory {
        gpu,
        needed_bytes: plan.bytes,
        room,
        moment,
        is_whole: plan.recompute.iter().all(|&level| level == Recompute::Block),
        is_least: least.is_ok_and(|least| least.bytes >= plan.bytes),
        batch_size: asked.batch_size,
        fitting_batch_size: out_of_memory::fitting_batch_size(asked, usable_bytes, plan.libraries),
        holders,
    })
}

#[cfg(test)]
mod tests {
    use headroom_text::size;

    use super::*;

    #[test]
    fn gpu_errors_have_texts() {
        let name = || "RTX 4070".to_owned();
        let reason = "libcuda.so.1: no such file";
        let errors = [
            (CudaError::NoDriver { reason: reason.to_owned() }, text::card_no_driver(reason)),
            (CudaError::NoGpu, text::CARD_NONE.into()),
            (
                CudaError::NotTheDriver { library: "libcuda.so".to_owned(), reason: reason.to_owned() },
                text::card_not_driver(cuda::driver::VARIABLE, "libcuda.so", reason),
            ),
            (
                CudaError::DriverTooOld { found: cuda::driver::Version(11_080) },
                text::card_driver_too_old("11.8", "12.4", cuda::driver::NEEDED_RELEASE),
            ),
            (
                CudaError::GpuTooOld { name: name(), capability: hardware::ComputeCapability::new(7, 5) },
                text::card_too_old(name(), "7.5", "8.0"),
            ),
            (CudaError::NoSuchGpu { index: 3, n_gpus: 1 }, text::card_not_there(3_u64, 1_u64)),
            (
                CudaError::NoRoomForContext { name: name(), total_bytes: 12 << 30 },
                text::card_no_room(name(), size(12 << 30)),
            ),
            (
                CudaError::OutOfDeviceMemory { requested_bytes: 5 << 30, free_bytes: 1 << 30 },
                text::card_out_of_memory(size(5 << 30), size(1 << 30)),
            ),
        ];
        for (error, text) in errors {
            assert_eq!(GpuError::from(error).text(), text);
        }
    }
}
