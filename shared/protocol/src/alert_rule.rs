//! Alert rules, and the other settings of the owner.

use serde::{Deserialize, Serialize};

/// An alert rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum Alert {
    /// A GPU is hotter than a limit.
    TemperatureAbove {
        /// The limit, in degrees Celsius.
        celsius: u64,
    },
    /// A GPU's memory use exceeds a limit.
    MemoryAbove {
        /// The limit, as a percentage of the GPU's memory.
        percent: u64,
    },
    /// A run has made no progress for some time.
    NoProgress {
        /// The limit, in minutes.
        minutes: u64,
    },
    /// A GPU stopped responding.
    #[serde(rename = "card_lost")]
    GpuLost,
    /// A run failed.
    RunFailed,
}

/// Maximum number of rules.
pub const ALERTS_MAX: usize = 32;

/// The owner's settings, always replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Alert rules, at most [`ALERTS_MAX`].
    pub alerts: Vec<Alert>,
    /// Energy price in the owner's currency. If `None`, no cost is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_kwh: Option<f64>,
    /// The owner's currency symbol, such as `€`; at most 8 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub currency: String,
}

impl Settings {
    /// Returns the default settings: one alert for failed runs.
    #[must_use]
    pub fn initial() -> Self {
        Self { alerts: vec![Alert::RunFailed], ..Self::default() }
    }
}
