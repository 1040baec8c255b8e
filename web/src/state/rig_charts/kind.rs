//! The subject of a history chart: one or two readings on a common axis, with their unit and their bounds.

use headroom_protocol::{
    gpu::Gpu,
    metric::{Group, Metric},
};
use headroom_text::{decimal, units::GIB};

use super::scale::Scale;
use crate::{
    state::format,
    text::{self, Key},
};

/// The factor by which the axis exceeds the highest value or bound.
const ROOM: f64 = 1.04;
/// The shortest span of a temperature axis, and its distance from the readings.
const CELSIUS_MIN: f64 = 30.0;
const CELSIUS_ROOM: f64 = 5.0;
/// The unit of PCIe's axis, in bytes.
const MEGABYTE: f64 = 1e6;
/// A bound is drawn if the readings reach this share of it; otherwise it would flatten them.
const BOUND_SHARE_MIN: f64 = 0.25;

/// A chart's subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Used memory.
    #[default]
    Memory,
    /// Utilisation: the share of time during which kernels ran, and during which memory was accessed.
    Utilization,
    /// Power.
    Power,
    /// Temperature.
    Temperature,
    /// Clocks of the multiprocessors and of the memory.
    Clocks,
    /// Fan speed.
    Fan,
    /// PCIe throughput, to the GPU and from it.
    Pcie,
    /// The machine's CPU utilisation.
    Cpu,
    /// The machine's memory.
    HostMemory,
}

/// A named upper bound of readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The value.
    pub value: f64,
    /// The name.
    pub name: Key,
    /// Whether the bound is a plan's rather than the GPU's.
    pub is_planned: bool,
}

impl Kind {
    /// All kinds, in the order of their buttons.
    pub const ALL: [Self; 9] = [
        Self::Memory,
        Self::Utilization,
        Self::Power,
        Self::Temperature,
        Self::Clocks,
        Self::Fan,
        Self::Pcie,
        Self::Cpu,
        Self::HostMemory,
    ];

    /// The metrics; the first one comes first in every list.
    pub const fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Memory => &[Metric::MemoryUsed],
            Self::Utilization => &[Metric::Utilization, Metric::MemoryUtilization],
            Self::Power => &[Metric::Power],
            Self::Temperature => &[Metric::Temperature],
            Self::Clocks => &[Metric::ClockSm, Metric::ClockMemory],
            Self::Fan => &[Metric::Fan],
            Self::Pcie => &[Metric::PcieReceive, Metric::PcieSend],
            Self::Cpu => &[Metric::HostCpu],
            Self::HostMemory => &[Metric::HostMemoryUsed],
        }
    }

    /// The group of the metrics.
    pub const fn group(self) -> Group {
        match self {
            Self::Memory | Self::Utilization | Self::Power | Self::Temperature | Self::Clocks => Group::Fast,
            Self::Fan | Self::Pcie => Group::Slow,
            Self::Cpu | Self::HostMemory => Group::Host,
        }
    }

    /// The label of its button.
    pub const fn name(self) -> Key {
        match self {
            Self::Memory => text::HISTORY_MEMORY,
            Self::Utilization => text::HISTORY_UTILIZATION,
            Self::Power => text::HISTORY_POWER,
            Self::Temperature => text::HISTORY_TEMPERATURE,
            Self::Clocks => text::HISTORY_CLOCKS,
            Self::Fan => text::HISTORY_FAN,
            Self::Pcie => text::HISTORY_PCIE,
            Self::Cpu => text::HISTORY_CPU,
            Self::HostMemory => text::HISTORY_HOST_MEMORY,
        }
    }

    /// The unit of the axis.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Memory | Self::HostMemory => "GiB",
            Self::Utilization | Self::Fan | Self::Cpu => "%",
            Self::Power => "W",
            Self::Temperature => "°C",
            Self::Clocks => "MHz",
            Self::Pcie => "MB/s",
        }
    }

    /// A value with its unit.
    pub fn words(self, value: f64) -> String {
        match self {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of memory")]
            Self::Memory | Self::HostMemory => format::size(value.max(0.0) as u64),
            Self::Pcie => {
                format!("{}\u{a0}{}", text::table().number(&decimal::fixed(value / MEGABYTE, 1)), self.unit())
            }
            _ => format!("{}\u{a0}{}", text::table().number(&decimal::fixed(value, 0)), self.unit()),
        }
    }

    /// The bounds of a GPU's readings.
    pub fn bounds(self, gpu: &Gpu, planned_bytes: Option<u64>) -> Vec<Bound> {
        let bound = |value: Option<f64>, name: Key| {
            value.map(|value| Bound { value, name, is_planned: name == text::HISTORY_BOUND_PLAN })
        };
        let bounds = match self {
            Self::Memory => [
                bound(gpu.memory_total_bytes.get().map(|bytes| *bytes as f64), text::HISTORY_BOUND_MEMORY),
                bound(planned_bytes.map(|bytes| bytes as f64), text::HISTORY_BOUND_PLAN),
            ],
            Self::Power => [bound(gpu.power_limit_watts.get().copied(), text::HISTORY_BOUND_POWER), None],
            Self::Temperature => {
                let celsius = gpu.temperature_slowdown_celsius.get().map(|celsius| *celsius as f64);
                [bound(celsius, text::HISTORY_BOUND_TEMPERATURE), None]
            }
            Self::Utilization | Self::Clocks | Self::Fan | Self::Pcie | Self::Cpu | Self::HostMemory => [None, None],
        };
        bounds.into_iter().flatten().filter(|bound| bound.value.is_finite() && bound.value > 0.0).collect()
    }

    /// The axis for readings between two values, and the bounds on it.
    pub fn scale(self, low: f64, high: f64, bounds: &[Bound]) -> (Scale, Vec<Bound>) {
        // The GPU's whole memory is always shown, so that the remaining memory is visible.
        let is_near = |bound: &&Bound| self == Self::Memory || high >= bound.value * BOUND_SHARE_MIN;
        let shown: Vec<Bound> = bounds.iter().filter(is_near).copied().collect();
        let high = shown.iter().fold(high, |high, bound| high.max(bound.value));
        let scale = match self {
            Self::Memory | Self::HostMemory => Scale::new(0.0, high * ROOM, GIB as f64),
            Self::Pcie => Scale::new(0.0, high * ROOM, MEGABYTE),
            Self::Utilization | Self::Fan | Self::Cpu => Scale::new(0.0, 100.0 * ROOM, 1.0),
            Self::Power | Self::Clocks => Scale::new(0.0, high * ROOM, 1.0),
            Self::Temperature => {
                let low = ((low - CELSIUS_ROOM) / 10.0).floor().max(0.0) * 10.0;
                Scale::new(low, (high + CELSIUS_ROOM).max(low + CELSIUS_MIN), 1.0)
            }
        };
        (scale, shown)
    }
}

/// The name of a metric in a sentence and in a table.
pub const fn metric_name(metric: Metric) -> Key {
    match metric {
        Metric::MemoryUsed => text::HISTORY_OF_MEMORY,
        Metric::Utilization => text::HISTORY_OF_UTILIZATION,
        Metric::MemoryUtilization => text::HISTORY_OF_MEMORY_UTILIZATION,
        Metric::Power => text::HISTORY_OF_POWER,
        Metric::Temperature => text::HISTORY_OF_TEMPERATURE,
        Metric::ClockSm => text::HISTORY_OF_CLOCK,
        Metric::ClockMemory => text::HISTORY_OF_MEMORY_CLOCK,
        Metric::Fan => text::HISTORY_OF_FAN,
        Metric::PcieReceive => text::HISTORY_OF_PCIE_RECEIVE,
        Metric::PcieSend => text::HISTORY_OF_PCIE_SEND,
        Metric::HostCpu => text::HISTORY_CPU,
        // No chart shows the others.
        _ => text::HISTORY_HOST_MEMORY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_is_on_one_chart() {
        let shown: Vec<Metric> = Kind::ALL.into_iter().flat_map(|kind| kind.metrics().iter().copied()).collect();
        assert_eq!(shown[..Metric::FAST.len()], Metric::FAST);
        for kind in Kind::ALL {
            assert!(kind.metrics().iter().all(|metric| metric.group() == kind.group()), "{kind:?}");
        }
    }

    #[test]
    fn a_bound_far_above_the_readings_does_not_press_them_flat() {
        let bound = Bound { value: 700.0, name: text::HISTORY_BOUND_POWER, is_planned: false };
        let (scale, shown) = Kind::Power.scale(60.0, 80.0, &[bound]);
        assert!(shown.is_empty() && scale.high < 100.0);
        let (scale, shown) = Kind::Power.scale(60.0, 400.0, &[bound]);
        assert!(shown == [bound] && scale.high > 700.0);
    }

    #[test]
    fn the_whole_of_a_gpus_memory_is_always_shown() {
        let bound = Bound { value: 80.0 * GIB as f64, name: text::HISTORY_BOUND_MEMORY, is_planned: false };
        let (scale, shown) = Kind::Memory.scale(0.0, GIB as f64, &[bound]);
        assert!(shown == [bound] && scale.y(bound.value) > 0.0);
    }

    #[test]
    fn temperatures_do_not_begin_at_zero_and_have_room() {
        let (scale, _) = Kind::Temperature.scale(58.0, 61.0, &[]);
        assert_eq!((scale.low, scale.high), (50.0, 80.0));
    }
}
