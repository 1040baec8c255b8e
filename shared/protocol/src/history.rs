//! Recorded data: requested in ranges by REST, and sent unrequested to a returning viewer.

use serde::{Deserialize, Serialize};

use super::{SlowReadings, Telemetry, event::Event};

/// What a returning viewer missed, in several messages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MissedHistory {
    /// Full-rate samples of the last minutes, oldest first. Older samples are requested in ranges.
    pub telemetry: Vec<Telemetry>,
    /// The newest slow readings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slow: Option<SlowReadings>,
    /// Events, oldest first.
    pub events: Vec<Event>,
    /// Whether this is the last message.
    pub done: bool,
    /// Start of the available telemetry. If it is later than requested, a range request returns the rest.
    pub from_ms: u64,
}

/// One [`Group`](super::metric::Group) of metrics of a GPU or of the machine, over a range of time. The request specifies the group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The GPU's UUID; empty for the machine.
    pub gpu: String,
    /// Start of the range, inclusive.
    pub from_ms: u64,
    /// End of the range, exclusive.
    pub to_ms: u64,
    /// Width of a point. Full rate is 100, or 1000 for readings taken once per second. Widths 10,000 and 60,000 are
    /// kept longer.
    pub step_ms: u64,
    /// Start of each point, ascending. There are no points for times without samples.
    pub times_ms: Vec<u64>,
    /// One series per [`Metric`](super::metric::Metric) of the group, in their order.
    pub series: Vec<Series>,
}

/// Points of one metric, parallel to [`History::times_ms`]; null if the reading is missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Minimum of each point.
    pub min: Vec<Option<f64>>,
    /// Mean of each point.
    pub mean: Vec<Option<f64>>,
    /// Maximum of each point.
    pub max: Vec<Option<f64>>,
}

/// Maximum number of points in a range.
pub const POINTS_MAX: u64 = 2000;
