//! What the figures of a plan rest on, and how far they may be off.

use serde::Serialize;

use super::Request;
use crate::{
    memory::simulate::Outcome,
    train_config::{CrossEntropy, Optimizer},
};

/// Multiprocessors of a card that was described by its memory alone: an RTX 4070's.
pub const ASSUMED_SM_COUNT: u32 = 46;

/// How sure a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// Follows from recorded runs of that kind to the byte.
    Exact,
    /// Read off a card or a message of one.
    Measured,
    /// Computed from a rule that fits what was seen.
    Estimated,
}

impl Certainty {
    /// The word for it, in the JSON contract and for a person.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Measured => "measured",
            Self::Estimated => "estimated",
        }
    }
}

/// What the figures of a plan rest on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Basis {
    /// `max_memory_allocated` and the live bytes.
    pub allocated: Certainty,
    /// `max_memory_reserved`.
    pub reserved: Certainty,
    /// The CUDA context.
    pub context: Certainty,
    /// Between which bytes the use of the whole card lies.
    pub band_bytes: [u64; 2],
}

/// Relative errors of recorded runs, in parts per thousand: eager, compiled, and where parts are estimated.
const ALLOCATED_PER_MILLE: [u64; 3] = [5, 15, 60];
/// The same of reserved memory.
const RESERVED_PER_MILLE: [u64; 3] = [40, 40, 80];

impl Basis {
    pub(super) fn of(request: &Request, outcome: &Outcome) -> Self {
        let train = &request.train;
        // No run of these kinds was recorded: their sizes follow the libraries' code.
        let follows_code = train.world_size > 1
            || train.resumes
            || train.optimizer != Optimizer::AdamwFused
            || train.cross_entropy != CrossEntropy::Whole
            || (train.compile && train.activation_checkpointing)
            || request.device.compute_capability.major < 8;
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

/// What NCCL's channels and buffers may take outside PyTorch's allocator.
const NCCL_BYTES_MAX: u64 = 1 << 30;
