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

/// Metrics that are read, kept and asked for together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Of a card, ten times a second.
    #[default]
    Fast,
    /// Of a card, once a second.
    Slow,
    /// Of the machine, once a second.
    Host,
}

impl Group {
    /// All.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Slow, Self::Host];

    /// Its metrics, in the order of a history's series.
    #[must_use]
    pub const fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Fast => &Metric::FAST,
            Self::Slow => &Metric::SLOW,
            Self::Host => &Metric::HOST,
        }
    }
}

/// What a series shows.
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
    /// Percent of what the first fan can do.
    Fan,
    /// Bytes a second to the card.
    PcieReceive,
    /// Bytes a second from the card.
    PcieSend,
    /// Joules since the driver was loaded.
    Energy,
    /// Errors of memory that were mended, since the driver was loaded.
    EccCorrected,
    /// Those that were not.
    EccUncorrected,
    /// Percent of all cores together.
    HostCpu,
    /// Bytes that programs use of the machine's memory.
    HostMemoryUsed,
    /// Bytes left on the disk that history lies on.
    HostDiskFree,
}

impl Metric {
    /// Those of [`Group::Fast`].
    pub const FAST: [Self; 7] = [
        Self::MemoryUsed,
        Self::Utilization,
        Self::MemoryUtilization,
        Self::Power,
        Self::Temperature,
        Self::ClockSm,
        Self::ClockMemory,
    ];
    /// Those of [`Group::Slow`].
    pub const SLOW: [Self; 6] =
        [Self::Fan, Self::PcieReceive, Self::PcieSend, Self::Energy, Self::EccCorrected, Self::EccUncorrected];
    /// Those of [`Group::Host`].
    pub const HOST: [Self; 3] = [Self::HostCpu, Self::HostMemoryUsed, Self::HostDiskFree];

    /// The group it is of.
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

    /// Its place among the series of its group.
    #[must_use]
    pub fn place(self) -> usize {
        self.group().metrics().iter().position(|metric| *metric == self).unwrap_or(0)
    }

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

/// A card, or the machine, over a range of time: one [`Group`] of metrics, which who asks names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The card's UUID; empty of the machine.
    pub gpu: String,
    /// From here on.
    pub from_ms: u64,
    /// Up to here, and not this.
    pub to_ms: u64,
    /// Width of a point: 100, and 1000 where it is read once a second, is full rate; 10,000 and 60,000 are kept longer.
    pub step_ms: u64,
    /// Beginning of each point, ascending; a time without samples has none.
    pub times_ms: Vec<u64>,
    /// One a [`Metric`] of the group, in their order.
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
