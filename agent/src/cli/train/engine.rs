//! Compute device of a run: planned during preparation, allocated at the start.

use std::{env, thread, time::Duration};

use headroom_kernels::{
    cpu_train::{Trainer, gemm_rate},
    cuda::CudaError,
    training::Training,
};
use headroom_planner::gpt::{
    GptConfig,
    buffers::{Buffers, cpu_training},
};
use headroom_text::units::human_size;

use super::{Error, options::Request};
use crate::cli::print;
use headroom_train::{
    gpu::{self, GpuError, HypotheticalGpu, SelectedGpu, TrainDevice},
    gpu_request::GpuRequest,
    memory::available_bytes,
    settings::{Precision, RunSettings},
};

/// Duration of the GEMM benchmark before a run on the CPU. Its rate is the peak for MFU.
const RATE_TIME: Duration = Duration::from_millis(100);
/// Environment variable with the peak rate of a run's CPU threads in FLOP/s. A run with it starts without the benchmark.
const RATE_VARIABLE: &str = "HEADROOM_CPU_FLOPS";

/// Compute device.
#[derive(Debug)]
pub enum Engine {
    /// CPU threads.
    Cpu {
        planned: Buffers,
        threads: usize,
    },
    Gpu(Box<SelectedGpu>),
    /// A GPU that is not present, for a plan only.
    Elsewhere(Box<HypotheticalGpu>),
}

/// A model that is ready to train.
pub struct ReadyModel {
    /// Trainer of the model.
    pub trainer: Box<dyn Training>,
    /// Peak rate in FLOP/s. `None` if unknown.
    pub peak_flops: Option<f64>,
}

fn asked<'a>(gpt: &'a GptConfig, run: &'a RunSettings, request: &Request) -> GpuRequest<'a> {
    GpuRequest {
        gpt,
        batch_size: run.batch_size,
        vram_bytes: request.vram_bytes,
        is_float32: run.precision == Some(Precision::Float32),
        recompute: request.recompute,
        attention_backend: request.attention_backend.unwrap_or_default(),
        out_dir: &run.out_dir,
    }
}

/// Returns the rate in [`RATE_VARIABLE`], or `None` if it is unset or no positive number.
fn given_rate() -> Option<f64> {
    let rate = env::var(RATE_VARIABLE).ok()?.trim().parse().ok()?;
    (rate > 0.0 && f64::is_finite(rate)).then_some(rate)
}

impl Engine {
    /// Selects the device and plans the run for it. Prints notes about surprising choices.
    ///
    /// # Errors
    /// The requested GPU is unavailable, or a tensor is larger than any machine's memory.
    pub fn of(request: &Request, run: &RunSettings, gpt: &GptConfig) -> Result<Self, Error> {
        let is_elsewhere = request.plan && request.vram_bytes.is_some();
        let why = match gpu::place(run.device, &asked(gpt, run, request)) {
            Ok(TrainDevice::Gpu(chosen)) => {
                if run.precision == Some(Precision::Float16) {
                    print::note(
                        "dtype is float16: the GPU trains in bfloat16, which has the same size and overflows less.\n",
                    );
                }
                return Ok(Self::Gpu(chosen));
            }
            Ok(TrainDevice::Cpu(why)) => why,
            // A plan does not require a GPU.
            Err(error) if is_elsewhere && error.is_without_gpu() => Some(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        if let (true, Some(vram_bytes), Some(why)) = (request.plan, request.vram_bytes, &why) {
            let size = human_size(vram_bytes);
            print::note(&format!("Planned for an unused GPU with {size}, which is not this machine's: {why}.\n"));
            return Ok(Self::Elsewhere(Box::new(HypotheticalGpu::of(&asked(gpt, run, request), vram_bytes)?)));
        }
        let of_gpus = [
            request.vram_bytes.map(|_| "--vram"),
            request.recompute.map(|_| "--recompute"),
            request.attention_backend.map(|_| "--attention"),
        ];
        for option in of_gpus.into_iter().flatten() {
            print::note(&format!("{option} has no effect on the CPU.\n"));
        }
        if let Some(why) = why {
            print::note(&format!("Trains on the CPU: {why}.\n"));
        }
        let threads = request.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        Ok(Self::Cpu { planned: cpu_training(gpt, run.batch_size, threads as u64)?, threads })
    }

    /// Planned memory in bytes.
    #[must_use]
    pub fn planned_bytes(&self) -> u64 {
        match self {
            Self::Cpu { planned, .. } => planned.bytes(),
            Self::Gpu(chosen) => chosen.plan.bytes,
            Self::Elsewhere(gpu) => gpu.plan.bytes,
        }
    }

    /// Name of the device, as in nanoGPT's `device`.
    #[must_use]
    pub fn device_name(&self) -> String {
        match self {
            Self::Cpu { .. } => "cpu".to_owned(),
            Self::Gpu(chosen) => chosen.device_name(),
            Self::Elsewhere(_) => "cuda".to_owned(),
        }
    }

    /// Rejects a run that does not fit, before anything is modified.
    ///
    /// # Errors
    /// [`Error::DoesNotFit`], or [`Error::Gpu`].
    pub fn check(&self, gpt: &GptConfig, run: &RunSettings, request: &Request) -> Result<(), Error> {
        match self {
            Self::Cpu { planned, .. } => {
                let planned_bytes = planned.bytes();
                match available_bytes().filter(|&available| available < planned_bytes) {
                    Some(available_bytes) => Err(Error::DoesNotFit { planned_bytes, available_bytes }),
                    None => Ok(()),
                }
            }
            Self::Gpu(chosen) => Ok(chosen.check(&asked(gpt, run, request))?),
            Self::Elsewhere(gpu) => Ok(gpu.check(&asked(gpt, run, request))?),
        }
    }

    /// Adds the other processes on the GPU to an out-of-memory error.
    #[must_use]
    pub fn explained(&self, error: Error) -> Error {
        match self {
            Self::Gpu(chosen) if error.is_out_of_memory() => {
                Error::OutOfMemory { error: Box::new(error), holders: chosen.holders() }
            }
            _ => error,
        }
    }

    /// Returns whether the peak rate of [`Self::ready`] is measured.
    #[must_use]
    pub fn measures_peak(&self) -> bool {
        matches!(self, Self::Cpu { .. }) && given_rate().is_none()
    }

    /// Allocates the memory of the run in one step.
    ///
    /// # Errors
    /// Other processes took the memory meanwhile, the threads cannot be started, or the GPU fails.
    pub fn ready(&mut self, gpt: &GptConfig, run: &RunSettings, request: &Request) -> Result<ReadyModel, Error> {
        match self {
            Self::Cpu { threads, .. } => {
                let trainer = Trainer::new(gpt, run.batch_size, *threads)?;
                let peak_flops = given_rate().unwrap_or_else(|| gemm_rate(trainer.thread_pool(), RATE_TIME));
                Ok(ReadyModel { trainer: Box::new(trainer), peak_flops: Some(peak_flops) })
            }
            Self::Elsewhere(_) => Err(GpuError::from(CudaError::NoGpu).into()),
            Self::Gpu(chosen) => {
                let trainer = chosen.trainer(&asked(gpt, run, request))?;
                for note in trainer.gemm().notes().into_iter().chain(trainer.attention().notes()) {
                    print::note(&format!("{note}\n"));
                }
                let peak_flops = chosen.peak_flops();
                if peak_flops.is_none() {
                    let name = &chosen.device.gpu().name;
                    print::note(&format!("How fast {name} could be is not known: no utilization (MFU) is reported.\n"));
                }
                Ok(ReadyModel { trainer: Box::new(trainer), peak_flops: peak_flops.map(|peak| peak as f64) })
            }
        }
    }
}
