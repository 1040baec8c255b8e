//! Certainty and error bands of a plan's figures.

use serde::Serialize;

use crate::{memory::simulate::Outcome, request::Request, train_config::CrossEntropy};

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

/// Relative errors of allocated memory in recorded runs, per mille: eager, compiled, and with estimated parts.
const ALLOCATED_PER_MILLE: [u64; 3] = [5, 15, 60];
/// Relative errors of reserved memory, in the same order.
const RESERVED_PER_MILLE: [u64; 3] = [40, 40, 80];

impl Basis {
    pub(super) fn of(request: &Request, outcome: &Outcome) -> Self {
        let train = &request.train;
        // No recorded run is of these kinds: their sizes follow from the libraries' code.
        let follows_code = train.world_size > 1
            || train.resumes
            || !train.optimizer.spec().is_recorded
            || train.cross_entropy != CrossEntropy::Whole
            || (train.compile && train.activation_checkpointing)
            || !request.device.compute_capability.architecture().is_recorded;
        let kind = match (follows_code, train.compile) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        let within = |bytes: u64, per_mille: u64| bytes.saturating_add(bytes / 1000 * per_mille);
        let reserved = outcome.max_reserved_bytes;
        let low = reserved.saturating_sub(reserved / 1000 * RESERVED_PER_MILLE[kind]);
        let low = low.max(outcome.max_allocated_bytes - outcome.max_allocated_bytes / 1000 * ALLOCATED_PER_MILLE[kind]);
        let others = request.other_processes_bytes;
        let nccl = if train.world_size > 1 { NCCL_BYTES_MAX } else { 0 };
        Self {
            allocated: if kind == 0 { Certainty::Exact } else { Certainty::Estimated },
            reserved: Certainty::Estimated,
            context: if request.context.band_low == request.context.band_high {
                Certainty::Measured
            } else {
                Certainty::Estimated
            },
            band_bytes: [
                others.saturating_add(request.context.band_low).saturating_add(low),
                others
                    .saturating_add(request.context.band_high)
                    .saturating_add(within(reserved, RESERVED_PER_MILLE[kind]))
                    .saturating_add(nccl),
            ],
        }
    }
}

/// Upper bound of NCCL's channels and buffers outside PyTorch's allocator, in bytes.
const NCCL_BYTES_MAX: u64 = 1 << 30;
