//! The machine around the cards.

use serde::{Deserialize, Serialize};

use super::reading::Reading;

/// The machine at one moment, once a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Of all cores together, 100 where all are busy.
    pub cpu_percent: Reading<f64>,
    /// What programs use.
    pub memory_used_bytes: Reading<u64>,
    /// All there is.
    pub memory_total_bytes: Reading<u64>,
    /// Left on the disk that history lies on.
    pub disk_free_bytes: Reading<u64>,
    /// The whole of that disk.
    pub disk_total_bytes: Reading<u64>,
}
