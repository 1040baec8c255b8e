//! Why a run failed, where that is more than a number.

use serde::{Deserialize, Serialize};

/// What a run died of, as far as its watcher knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It ran out of its card's memory.
    OutOfGpuMemory,
    /// The kernel killed it, for the machine ran out of memory.
    OutOfHostMemory,
    /// The driver reported an error of its card, an Xid.
    CardError,
    /// A later version's.
    #[serde(other)]
    Other,
}
