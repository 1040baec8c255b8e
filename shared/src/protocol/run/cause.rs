//! Why a run ended, where that is more than a number.

use serde::{Deserialize, Serialize};

/// What a run died of, or who ended it, as far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It ran out of its card's memory.
    OutOfGpuMemory,
    /// The kernel killed it, for the machine ran out of memory.
    OutOfHostMemory,
    /// The driver reported an error of its card, an Xid.
    CardError,
    /// It lost what it had learnt, or a value was no number any more.
    Diverged,
    /// Somebody asked for its end: it finished its iteration and saved, or was ended at once.
    Stopped,
    /// Somebody took it out of the queue: it never began.
    Unqueued,
    /// A later version's.
    #[serde(other)]
    Other,
}

impl Cause {
    /// Whether it is somebody's wish, and no failure.
    #[must_use]
    pub const fn is_wish(self) -> bool {
        matches!(self, Self::Stopped | Self::Unqueued)
    }
}
