//! State of the agent's sources. A source that does not work reports the reason and a remedy.

use serde::{Deserialize, Serialize};

use super::message::{self, Message};

/// State of the driver and of history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Whether GPUs can be read.
    pub driver: DriverState,
    /// Whether readings are recorded.
    pub history: HistoryState,
}

/// Whether GPUs can be read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DriverState {
    /// The driver is being loaded for the first time.
    Starting,
    /// The machine has no NVML library, so no NVIDIA driver.
    NoLibrary,
    /// The library exists without a driver: the driver is not loaded, or has another version than the library.
    NoDriver {
        /// NVML's error.
        #[serde(flatten, with = "message::reason")]
        reason: Message,
    },
    /// The driver responded earlier and no longer does. The agent retries every few seconds.
    Gone {
        /// NVML's error.
        #[serde(flatten, with = "message::reason")]
        reason: Message,
    },
    /// GPUs respond.
    Ready {
        /// The driver's version, such as `580.95.05`.
        driver_version: String,
        /// The highest CUDA version that the driver supports, such as (13, 0).
        cuda_version: Option<(u32, u32)>,
        /// Whether the system is Windows or runs under Windows (WSL).
        windows: bool,
    },
}

/// Whether history is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum HistoryState {
    /// History is recorded.
    Kept {
        /// Size of the history file.
        bytes: u64,
        /// New name of the previous, damaged file, if the current file replaced one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set_aside: Option<String>,
    },
    /// History is paused and retried, because of a full disk or a read-only file.
    Paused {
        /// The system's error.
        #[serde(flatten, with = "message::reason")]
        reason: Message,
        /// Time at which history was paused.
        since_ms: u64,
    },
}
