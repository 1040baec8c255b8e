//! What was: asked for by REST in ranges, and sent by itself to a viewer that was away.

use serde::{Deserialize, Serialize};

use super::{Slow, Telemetry, event::Event};

/// What a viewer missed, in several messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Samples at full rate, oldest first, of the last minutes; what is older is asked for in ranges.
    pub telemetry: Vec<Telemetry>,
    /// The newest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<Slow>,
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Whether this is the last of these messages.
    pub done: bool,
    /// Since when telemetry could be sent; where it is later than what was asked for, a range has the rest.
    pub from_ms: u64,
}

/// What a series of a card shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Bytes.
    MemoryUsed,
    /// Percent.
    Utilization,
    /// Percent.
    MemoryUtilization,
    /// Watts.
    Power,
    /// Celsius.
    Temperature,
    /// MHz.
    ClockSm,
    /// MHz.
    ClockMemory,
}

impl Metric {
    /// All, in the order of a history's series.
    pub const ALL: [Self; 7] = [
        Self::MemoryUsed,
        Self::Utilization,
        Self::MemoryUtilization,
        Self::Power,
        Self::Temperature,
        Self::ClockSm,
        Self::ClockMemory,
    ];

    /// Its name with its unit, as tables and files call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryUsed => "memory_used_bytes",
            Self::Utilization => "utilization_percent",
            Self::MemoryUtilization => "memory_utilization_percent",
            Self::Power => "power_watts",
            Self::Temperature => "temperature_celsius",
            Self::ClockSm => "clock_sm_mhz",
            Self::ClockMemory => "clock_memory_mhz",
        }
    }
}

/// A card over a range of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The card's UUID.
    pub gpu: String,
    /// From here on.
    pub from_ms: u64,
    /// Up to here, and not this.
    pub to_ms: u64,
    /// Width of a point: 100 is full rate, 10,000 and 60,000 are kept longer.
    pub step_ms: u64,
    /// Beginning of each point, ascending; a time without samples has none.
    pub times_ms: Vec<u64>,
    /// One a [`Metric`], in their order.
    pub series: Vec<Series>,
}

/// One metric's points, beside [`History::times_ms`]; null where the card did not give it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Least within each point.
    pub min: Vec<Option<f64>>,
    /// Mean of each.
    pub mean: Vec<Option<f64>>,
    /// Greatest of each.
    pub max: Vec<Option<f64>>,
}

/// Points of a range at most.
pub const POINTS_MAX: u64 = 2000;
