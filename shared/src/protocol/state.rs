//! What state the agent's sources are in: every one that is not well says why, and what would help.

use serde::{Deserialize, Serialize};

use super::flat::FlatState;

/// Of the driver and the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Whether cards can be read.
    pub driver: DriverState,
    /// Whether what is read is kept.
    pub history: HistoryState,
}

/// Whether cards can be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", try_from = "FlatState")]
pub enum DriverState {
    /// It is being loaded for the first time.
    Starting,
    /// No NVML library is on this machine, so no NVIDIA driver.
    NoLibrary,
    /// The library is there, and no driver behind it: not loaded, or of another version than the library.
    NoDriver {
        /// What NVML says.
        reason: String,
    },
    /// It answered and does not any more; tried again every few seconds.
    Gone {
        /// What NVML says.
        reason: String,
    },
    /// Cards answer.
    Ready {
        /// As `580.95.05`.
        driver_version: String,
        /// The highest version of CUDA that the driver runs, as (13, 0).
        cuda_version: Option<(u32, u32)>,
        /// The system is Windows' own or runs under it (WSL).
        windows: bool,
    },
}

/// Whether history is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", try_from = "FlatState")]
pub enum HistoryState {
    /// It is.
    Kept {
        /// The file.
        bytes: u64,
        /// Where it began anew since the one before was damaged: what that one is called now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set_aside: Option<String>,
    },
    /// Nothing is written for now, and tried again: a full disk, a file that may not be written.
    Paused {
        /// What the system says.
        reason: String,
        /// Since when.
        since_ms: u64,
    },
}
