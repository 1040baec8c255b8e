//! What an owner wants to be told of.

use serde::{Deserialize, Serialize};

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
pub enum Alert {
    /// A card is hotter than this.
    TemperatureAbove {
        /// The bound.
        celsius: u64,
    },
    /// More of a card's memory is used than this.
    MemoryAbove {
        /// The bound, of the whole.
        percent: u64,
    },
    /// A run printed nothing new for so long.
    NoProgress {
        /// The bound.
        minutes: u64,
    },
    /// A card stopped answering.
    CardLost,
    /// A run ended by an error.
    RunFailed,
}

/// Rules at most.
pub const ALERTS_MAX: usize = 32;

/// What an owner set, all of it at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// At most [`ALERTS_MAX`].
    pub alerts: Vec<Alert>,
    /// Of energy, in the owner's currency; missing is no cost shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_kwh: Option<f64>,
    /// How the owner's currency is written, as `€`: at most 8 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub currency: String,
}
