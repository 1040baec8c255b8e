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

/// Metrics that are read, stored and requested together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Metrics of a GPU, ten times per second.
    #[default]
    Fast,
    /// Metrics of a GPU, once per second.
    Slow,
    /// Metrics of the machine, once per second.
    Host,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Slow, Self::Host];

    /// Returns the group's metrics, in the order of [`History::series`].
    #[must_use]
    pub const fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Fast => &Metric::FAST,
            Self::Slow => &Metric::SLOW,
            Self::Host => &Metric::HOST,
        }
    }
}

/// The metric that a series shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Used GPU memory, in bytes.
    MemoryUsed,
    /// GPU utilisation, in percent.
    Utilization,
    /// Memory utilisation, in percent.
    MemoryUtilization,
    /// Power draw, in watts.
    Power,
    /// Temperature, in degrees Celsius.
    Temperature,
    /// Clock of the multiprocessors, in MHz.
    ClockSm,
    /// Memory clock, in MHz.
    ClockMemory,
    /// Speed of the first fan, as a percentage of its maximum.
    Fan,
    /// PCIe throughput to the GPU, in bytes per second.
    PcieReceive,
    /// PCIe throughput from the GPU, in bytes per second.
    PcieSend,
    /// Energy since the driver was loaded, in joules.
    Energy,
    /// Corrected memory errors since the driver was loaded.
    EccCorrected,
    /// Uncorrected memory errors since the driver was loaded.
    EccUncorrected,
    /// CPU utilisation over all cores, in percent.
    HostCpu,
    /// Used host memory, in bytes.
    HostMemoryUsed,
    /// Free bytes on the disk that holds the history file.
    HostDiskFree,
}

impl Metric {
    /// Metrics of [`Group::Fast`].
    pub const FAST: [Self; 7] = [
        Self::MemoryUsed,
        Self::Utilization,
        Self::MemoryUtilization,
        Self::Power,
        Self::Temperature,
        Self::ClockSm,
        Self::ClockMemory,
    ];
    /// Metrics of [`Group::Slow`].
    pub const SLOW: [Self; 6] =
        [Self::Fan, Self::PcieReceive, Self::PcieSend, Self::Energy, Self::EccCorrected, Self::EccUncorrected];
    /// Metrics of [`Group::Host`].
    pub const HOST: [Self; 3] = [Self::HostCpu, Self::HostMemoryUsed, Self::HostDiskFree];

    /// Returns the metric's group.
    #[must_use]
    pub const fn group(self) -> Group {
        match self {
            Self::MemoryUsed
            | Self::Utilization
            | Self::MemoryUtilization
            | Self::Power
            | Self::Temperature
            | Self::ClockSm
            | Self::ClockMemory => Group::Fast,
            Self::Fan
            | Self::PcieReceive
            | Self::PcieSend
            | Self::Energy
            | Self::EccCorrected
            | Self::EccUncorrected => Group::Slow,
            Self::HostCpu | Self::HostMemoryUsed | Self::HostDiskFree => Group::Host,
        }
    }

    /// Returns the metric's index among the series of its group.
    #[must_use]
    pub fn place(self) -> usize {
        self.group().metrics().iter().position(|metric| *metric == self).unwrap_or(0)
    }

    /// Returns the metric's name with its unit, as tables and files use it.
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
            Self::Fan => "fan_percent",
            Self::PcieReceive => "pcie_receive_bytes_per_second",
            Self::PcieSend => "pcie_send_bytes_per_second",
            Self::Energy => "energy_joules",
            Self::EccCorrected => "ecc_corrected",
            Self::EccUncorrected => "ecc_uncorrected",
            Self::HostCpu => "host_cpu_percent",
            Self::HostMemoryUsed => "host_memory_used_bytes",
            Self::HostDiskFree => "host_disk_free_bytes",
        }
    }
}

/// One [`Group`] of metrics of a GPU or of the machine, over a range of time. The request specifies the group.
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
    /// One series per [`Metric`] of the group, in their order.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_of_the_group_that_has_it() {
        for group in Group::ALL {
            for (place, metric) in group.metrics().iter().enumerate() {
                assert_eq!((metric.group(), metric.place()), (group, place), "{}", metric.name());
            }
        }
        let mut names: Vec<&str> =
            Group::ALL.into_iter().flat_map(Group::metrics).map(|metric| metric.name()).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "no two have one name: {names:?}");
    }
}
