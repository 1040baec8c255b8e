//! Certainty and error bands of a plan's figures.

use serde::Serialize;

use crate::{hardware::context::Estimate, memory::simulate::Outcome, request::Request, train_config::CrossEntropy};

/// Certainty of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// Matches recorded runs of that kind to the byte.
    Exact,
    /// Reported by a GPU or an out-of-memory message.
    Measured,
    /// Computed by a rule that fits the observations.
    Estimated,
}

impl Certainty {
    /// Name in the JSON schema and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Measured => "measured",
            Self::Estimated => "estimated",
        }
    }
}

/// Certainty of a plan's figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Basis {
    /// Certainty of `max_memory_allocated` and the live bytes.
    pub allocated: Certainty,
    /// Certainty of `max_memory_reserved`.
    pub reserved: Certainty,
    /// Certainty of the CUDA context's size.
    pub context: Certainty,
    /// Lower and upper bound of the memory in use on the whole GPU, in bytes.
    pub band_bytes: [u64; 2],
}

/// Kind of a run, with the relative errors of its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// An eager run of a kind that was recorded.
    Eager,
    /// A compiled run of a kind that was recorded.
    Compiled,
    /// A recording of the run itself on the same architecture.
    Recorded,
    /// A run with parts that follow from the libraries' code and were not recorded.
    FollowsCode,
}

impl RunKind {
    /// Relative errors of allocated and of reserved memory, per mille.
    const fn per_mille(self) -> [u64; 2] {
        match self {
            Self::Eager => [5, 40],
            Self::Compiled | Self::Recorded => [15, 40],
            Self::FollowsCode => [60, 80],
        }
    }
}

impl Basis {
    /// Certainty of a run's outcome. `outside` is the memory outside PyTorch's allocator besides the context, at its
    /// lower and upper bound.
    #[must_use]
    pub fn new(kind: RunKind, outcome: &Outcome, context: &Estimate, outside: [u64; 2]) -> Self {
        let [allocated_error, reserved_error] = kind.per_mille();
        let (allocated, reserved) = (outcome.max_allocated_bytes, outcome.max_reserved_bytes);
        let low = reserved.saturating_sub(reserved / 1000 * reserved_error);
        let low = low.max(allocated - allocated / 1000 * allocated_error);
        let high = reserved.saturating_add(reserved / 1000 * reserved_error);
        let sum = |outside: u64, context: u64, torch: u64| outside.saturating_add(context).saturating_add(torch);
        let is_measured = context.band_low == context.band_high;
        Self {
            allocated: if kind == RunKind::Eager { Certainty::Exact } else { Certainty::Estimated },
            reserved: Certainty::Estimated,
            context: if is_measured { Certainty::Measured } else { Certainty::Estimated },
            band_bytes: [sum(outside[0], context.band_low, low), sum(outside[1], context.band_high, high)],
        }
    }

    pub(super) fn of(request: &Request, outcome: &Outcome) -> Self {
        let train = &request.train;
        // No recorded run is of these kinds: their sizes follow from the libraries' code.
        let follows_code = train.world_size > 1
            || train.resumes
            || !train.optimizer.spec().is_recorded
            || train.cross_entropy != CrossEntropy::Whole
            || (train.compile && train.activation_checkpointing)
            || !request.machine.device.compute_capability.architecture().is_recorded;
        let kind = match (follows_code, train.compile) {
            (true, _) => RunKind::FollowsCode,
            (false, true) => RunKind::Compiled,
            (false, false) => RunKind::Eager,
        };
        let others = request.machine.other_processes_bytes;
        let nccl = if train.world_size > 1 { NCCL_BYTES_MAX } else { 0 };
        Self::new(kind, outcome, &request.machine.context, [others, others.saturating_add(nccl)])
    }
}

/// Upper bound of NCCL's channels and buffers outside PyTorch's allocator, in bytes.
const NCCL_BYTES_MAX: u64 = 1 << 30;
