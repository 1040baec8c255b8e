//! The vertical axis of a history chart: its unit, its bounds and its scale.

pub use headroom_protocol::metric::Chart;

use headroom_protocol::{gpu::Gpu, metric::Unit};
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
/// The unit of a throughput's axis, in bytes.
const MEGABYTE: f64 = 1e6;
/// A bound is drawn if the readings reach this share of it; otherwise it would flatten them.
const BOUND_SHARE_MIN: f64 = 0.25;

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

/// The vertical axis of a chart.
pub trait Axis {
    /// The unit of the axis.
    fn axis_unit(self) -> &'static str;

    /// A value with its unit.
    fn words(self, value: f64) -> String;

    /// The bounds of a GPU's readings.
    fn bounds(self, gpu: &Gpu, planned_bytes: Option<u64>) -> Vec<Bound>;

    /// The axis for readings between two values, and the bounds on it.
    fn scale(self, low: f64, high: f64, bounds: &[Bound]) -> (Scale, Vec<Bound>);
}

impl Axis for Chart {
    fn axis_unit(self) -> &'static str {
        match self.unit() {
            Unit::Bytes => "GiB",
            Unit::BytesPerSecond => "MB/s",
            Unit::Percent => "%",
            Unit::Watts => "W",
            Unit::Celsius => "°C",
            Unit::Megahertz => "MHz",
            Unit::Joules => "J",
            Unit::Errors | Unit::ThrottleBits => "",
        }
    }

    fn words(self, value: f64) -> String {
        match self.unit() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of memory")]
            Unit::Bytes => format::size(value.max(0.0) as u64),
            Unit::BytesPerSecond => {
                format!("{}\u{a0}{}", text::table().number(&decimal::fixed(value / MEGABYTE, 1)), self.axis_unit())
            }
            _ => format!("{}\u{a0}{}", text::table().number(&decimal::fixed(value, 0)), self.axis_unit()),
        }
    }

    fn bounds(self, gpu: &Gpu, planned_bytes: Option<u64>) -> Vec<Bound> {
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
            _ => [None, None],
        };
        bounds.into_iter().flatten().filter(|bound| bound.value.is_finite() && bound.value > 0.0).collect()
    }

    fn scale(self, low: f64, high: f64, bounds: &[Bound]) -> (Scale, Vec<Bound>) {
        // The GPU's whole memory is always shown, so that the remaining memory is visible.
        let is_near = |bound: &&Bound| self == Self::Memory || high >= bound.value * BOUND_SHARE_MIN;
        let shown: Vec<Bound> = bounds.iter().filter(is_near).copied().collect();
        let high = shown.iter().fold(high, |high, bound| high.max(bound.value));
        let scale = match self.unit() {
            Unit::Bytes => Scale::new(0.0, high * ROOM, GIB as f64),
            Unit::BytesPerSecond => Scale::new(0.0, high * ROOM, MEGABYTE),
            Unit::Percent => Scale::new(0.0, 100.0 * ROOM, 1.0),
            Unit::Celsius => {
                let low = ((low - CELSIUS_ROOM) / 10.0).floor().max(0.0) * 10.0;
                Scale::new(low, (high + CELSIUS_ROOM).max(low + CELSIUS_MIN), 1.0)
            }
            Unit::Watts | Unit::Joules | Unit::Megahertz | Unit::Errors | Unit::ThrottleBits => {
                Scale::new(0.0, high * ROOM, 1.0)
            }
        };
        (scale, shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_far_above_the_readings_does_not_press_them_flat() {
        let bound = Bound { value: 700.0, name: text::HISTORY_BOUND_POWER, is_planned: false };
        let (scale, shown) = Chart::Power.scale(60.0, 80.0, &[bound]);
        assert!(shown.is_empty() && scale.high < 100.0);
        let (scale, shown) = Chart::Power.scale(60.0, 400.0, &[bound]);
        assert!(shown == [bound] && scale.high > 700.0);
    }

    #[test]
    fn the_whole_of_a_gpus_memory_is_always_shown() {
        let bound = Bound { value: 80.0 * GIB as f64, name: text::HISTORY_BOUND_MEMORY, is_planned: false };
        let (scale, shown) = Chart::Memory.scale(0.0, GIB as f64, &[bound]);
        assert!(shown == [bound] && scale.y(bound.value) > 0.0);
    }

    #[test]
    fn temperatures_do_not_begin_at_zero_and_have_room() {
        let (scale, _) = Chart::Temperature.scale(58.0, 61.0, &[]);
        assert_eq!((scale.low, scale.high), (50.0, 80.0));
    }
}
