//! The cause of a run's end, beyond its exit status.

use serde::{Deserialize, Serialize};

/// Cause of a run's end, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The run ran out of GPU memory.
    OutOfGpuMemory,
    /// The kernel killed the run because the machine ran out of memory.
    OutOfHostMemory,
    /// The driver reported an error of the run's GPU, an Xid.
    #[serde(rename = "card_error")]
    GpuError,
    /// The loss diverged or became non-finite.
    Diverged,
    /// A user stopped the run. It finished its iteration and saved, or ended at once.
    Stopped,
    /// A user removed the run from the queue before it started.
    Unqueued,
    /// A cause that a later version defines.
    #[serde(other)]
    Other,
}

impl Cause {
    /// Whether a user requested the end, so that it is not a failure.
    #[must_use]
    pub const fn is_wish(self) -> bool {
        matches!(self, Self::Stopped | Self::Unqueued)
    }
}
