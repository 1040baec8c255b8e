//! A run and the GPU to plan it for: what the planner, the estimates and the advice start from.

use crate::{
    gpt::{GptConfig, tensors::TensorTooLarge},
    hardware::{Device, context::Estimate},
    memory::{
        allocator::SegmentKind,
        context::GpuProperties,
        message::TorchVersion,
        program::Program,
        schedule::program,
        simulate::{Outcome, simulate},
        tuned::TunedAllocator,
    },
    train_config::TrainConfig,
};

/// Multiprocessors assumed for a GPU that is described only by its memory: an RTX 4070's.
pub const ASSUMED_SM_COUNT: u32 = 46;

/// The GPU of a run, with what PyTorch does not allocate on it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The GPU.
    pub device: Device,
    /// Kind of segments that PyTorch's caching allocator uses.
    pub segments: SegmentKind,
    /// Other settings of the allocator, if they differ from PyTorch's defaults.
    pub tuned: Option<TunedAllocator>,
    /// Memory of other processes on the GPU, in bytes.
    pub other_processes_bytes: u64,
    /// Estimated size of this process's CUDA context.
    pub context: Estimate,
    /// PyTorch version whose out-of-memory message is printed.
    pub torch: TorchVersion,
}

impl Machine {
    /// Memory on the GPU outside PyTorch, in bytes.
    #[must_use]
    pub fn outside_bytes(&self) -> u64 {
        self.other_processes_bytes.saturating_add(self.context.bytes)
    }

    /// Memory available to PyTorch, in bytes.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.device.total_bytes.saturating_sub(self.outside_bytes())
    }

    /// Memory of the GPU that is in use when a run reaches its limit: all of it, unless the settings of the allocator
    /// limit the process.
    #[must_use]
    pub(crate) fn budget_bytes(&self) -> u64 {
        let total = self.device.total_bytes;
        match self.tuned.and_then(|tuned| tuned.conf().allowed_bytes(total)) {
            Some(allowed) => total.min(self.outside_bytes().saturating_add(allowed)),
            None => total,
        }
    }

    /// Replays a program on this machine.
    pub(crate) fn simulate(&self, program: &Program) -> Outcome {
        self.simulate_segments(program, self.segments)
    }

    /// Replays a program on this machine with another kind of segments.
    pub(crate) fn simulate_segments(&self, program: &Program, kind: SegmentKind) -> Outcome {
        match self.tuned {
            None => simulate(program, kind, self.capacity_bytes()),
            Some(tuned) => tuned.simulate(program, kind, self.capacity_bytes(), Some(self.device.total_bytes)),
        }
    }

    /// Replays a program as if memory were unlimited.
    pub(crate) fn simulate_unlimited(&self, program: &Program) -> Outcome {
        match self.tuned {
            None => simulate(program, self.segments, u64::MAX),
            Some(tuned) => tuned.simulate(program, self.segments, u64::MAX, None),
        }
    }

    /// The properties of the GPU that determine allocations.
    #[must_use]
    pub fn gpu(&self) -> GpuProperties {
        GpuProperties {
            compute_capability: self.device.compute_capability,
            sm_count: self.device.sm_count.unwrap_or(ASSUMED_SM_COUNT),
        }
    }
}

/// A run of nanoGPT and the GPU to plan it for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Model configuration.
    pub gpt: GptConfig,
    /// Training configuration.
    pub train: TrainConfig,
    /// The GPU, other processes, and the allocator.
    pub machine: Machine,
    /// Vocabulary size that the input gives, if nanoGPT would use another one: it ignores the input's and reads the
    /// data set's meta.pkl, which must have this size.
    pub given_vocab_size: Option<u64>,
}

impl Request {
    /// The run as a program of allocations.
    ///
    /// # Errors
    /// A tensor exceeds the memory of every GPU.
    pub(crate) fn program(&self) -> Result<Program, TensorTooLarge> {
        program(&self.gpt, &self.train, self.machine.gpu())
    }
}

/// What a plan is made for: a run on a machine.
pub trait RunOnMachine {
    /// The machine.
    fn machine(&self) -> &Machine;
}

impl RunOnMachine for Request {
    fn machine(&self) -> &Machine {
        &self.machine
    }
}
