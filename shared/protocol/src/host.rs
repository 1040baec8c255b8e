//! Readings of the machine that contains the GPUs.

use serde::{Deserialize, Serialize};

use super::reading::Reading;

/// Readings of the machine at one moment, once per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// CPU utilisation over all cores; 100 if all are busy.
    pub cpu_percent: Reading<f64>,
    /// Memory used by programs.
    pub memory_used_bytes: Reading<u64>,
    /// Total memory.
    pub memory_total_bytes: Reading<u64>,
    /// Free space on the disk that holds the history file.
    pub disk_free_bytes: Reading<u64>,
    /// Size of that disk.
    pub disk_total_bytes: Reading<u64>,
}
