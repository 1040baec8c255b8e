//! The figures of a message that a run has to reproduce.

use crate::{
    memory::{program::Phase, simulate::Failure},
    oom::{Message, PhaseHint, explain::is_close, words},
};

/// Minimum size of a request that can be matched exactly. Smaller requests depend on a few MiB of capacity, and so on
/// the rounding of the figures.
const LARGE_REQUEST_BYTES: u64 = 128 << 20;

/// A message whose run is searched.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub message: Message,
    pub hint: PhaseHint,
    /// Memory available to PyTorch on the message's GPU, in bytes: the midpoint and both ends of the range that the
    /// figures allow.
    pub capacities: [u64; 3],
}

/// Agreement between a failure and the message.
pub(super) enum Agreement {
    /// The requested and allocated figures print the same; `exact` if the reserved figure does too.
    Printed { exact: bool, reserved_difference_bytes: u64 },
    /// The size is the same, and the allocated figure is close.
    Close,
}

impl Target {
    /// Creates a target on a GPU with `capacity` bytes for PyTorch.
    pub(super) fn new(message: &Message, hint: PhaseHint, capacity: u64) -> Self {
        let figures = [message.free, message.reserved].into_iter().flatten();
        let error = figures.map(|size| size.resolution_bytes).sum::<u64>() / 2;
        let capacities = [capacity, capacity.saturating_sub(error), capacity.saturating_add(error)];
        Self { message: message.clone(), hint, capacities }
    }

    /// Returns whether the request is so large that the rounding of the figures does not change where the run fails.
    pub(super) fn is_large(&self) -> bool {
        self.message.requested.is_some_and(|size| size.bytes >= LARGE_REQUEST_BYTES)
    }

    /// Compares a failure with the message. Returns `None` if its size or its phase differs.
    pub(super) fn agreement(&self, failure: &Failure) -> Option<Agreement> {
        let message = &self.message;
        if !message.requested?.is_printed_for(failure.request.segment_bytes)
            || !self.is_where_traceback_is(failure.phase)
        {
            return None;
        }
        let allocated = message.allocated?;
        if !allocated.is_printed_for(failure.allocated_bytes) {
            return is_close(failure.allocated_bytes, allocated).then_some(Agreement::Close);
        }
        let (reserved_difference_bytes, exact) = message.reserved_difference(failure)?;
        Some(Agreement::Printed { exact, reserved_difference_bytes })
    }

    /// Returns whether the traceback, if there is one, is in a phase.
    pub(super) fn is_where_traceback_is(&self, phase: Phase) -> bool {
        self.hint.phase.and_then(words::place).is_none_or(|(_, phases)| phases.contains(&phase))
    }
}
