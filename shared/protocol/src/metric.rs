//! The registry of readings: one row for each, in `metric/rows.rs`.
//!
//! A row declares the field on the wire and its metric: the name in history and in files, the unit, the group with its
//! interval, the label of `headroom doctor`, the series of history, the chart, the family of `/metrics`, and the field
//! of `nvidia-smi`. Each column is a function of [`Metric`], so a program contains only the columns that it uses.

mod declare;
mod rows;
#[cfg(test)]
mod tests;

use headroom_text::{self as text, Key};
use serde::{Deserialize, Serialize};

use crate::gpu::Throttle;
pub use rows::{HostSample, Metric, Sample, SlowSample};

/// Metrics that are read, stored and requested together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Metrics of a GPU, ten times per second: [`Sample`].
    #[default]
    Fast,
    /// Metrics of a GPU, once per second: [`SlowSample`].
    Slow,
    /// Metrics of the machine, once per second: [`HostSample`].
    Host,
}

impl Group {
    /// All groups.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Slow, Self::Host];

    /// Returns the name in requests and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
            Self::Host => "host",
        }
    }

    /// Returns the time between two readings, in milliseconds.
    #[must_use]
    pub const fn interval_ms(self) -> u64 {
        match self {
            Self::Fast => 100,
            Self::Slow | Self::Host => 1000,
        }
    }

    /// Returns the metrics that history keeps as series, in the order of [`History::series`].
    ///
    /// [`History::series`]: super::history::History::series
    #[must_use]
    pub const fn metrics(self) -> &'static [Metric] {
        match self {
            Self::Fast => &Metric::FAST,
            Self::Slow => &Metric::SLOW,
            Self::Host => &Metric::HOST,
        }
    }

    /// Returns all metrics, in the order of the wire.
    pub fn readings(self) -> impl Iterator<Item = Metric> {
        Metric::ALL.into_iter().filter(move |metric| metric.group() == self)
    }
}

/// The unit of a metric on the wire, in history and in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Percent.
    Percent,
    /// Watts.
    Watts,
    /// Joules since the driver was loaded.
    Joules,
    /// Degrees Celsius.
    Celsius,
    /// Megahertz.
    Megahertz,
    /// Errors since the driver was loaded.
    Errors,
    /// Bits of [`Throttle`].
    ThrottleBits,
}

impl Unit {
    /// Returns the unit in prose.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::BytesPerSecond => "bytes a second",
            Self::Percent => "percent",
            Self::Watts => "watts",
            Self::Joules => "joules",
            Self::Celsius => "celsius",
            Self::Megahertz => "MHz",
            Self::Errors => "errors",
            Self::ThrottleBits => "bit mask",
        }
    }

    /// Returns the end of a wire name.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Bytes => "_bytes",
            Self::BytesPerSecond => "_bytes_per_second",
            Self::Percent => "_percent",
            Self::Watts => "_watts",
            Self::Joules => "_joules",
            Self::Celsius => "_celsius",
            Self::Megahertz => "_mhz",
            Self::Errors | Self::ThrottleBits => "",
        }
    }

    /// Returns the end of a Prometheus name without `_total`.
    #[must_use]
    pub const fn base_suffix(self) -> &'static str {
        match self {
            Self::Percent => "_ratio",
            Self::Megahertz => "_hertz",
            _ => self.suffix(),
        }
    }

    /// Whether the value counts since the driver was loaded.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        matches!(self, Self::Joules | Self::Errors)
    }

    /// Returns a plausible value that varies with `n`.
    const fn example(self, n: u64) -> Number {
        Number::Whole(match self {
            Self::Bytes => (n % 64 + 1) << 30,
            Self::BytesPerSecond => n % 1009 * 1_000_000,
            Self::Percent => n % 101,
            Self::Watts => return Number::Real(100.0 + (n % 1009) as f64 / 7.0),
            Self::Joules => return Number::Real(n as f64 * 0.35),
            Self::Celsius => 30 + n % 60,
            Self::Megahertz => 1200 + n % 1009,
            Self::Errors => n / 100,
            Self::ThrottleBits => Throttle::PowerCap.bit(),
        })
    }

    /// Converts a value to the base unit of Prometheus: percent to a ratio, megahertz to hertz.
    #[must_use]
    pub fn to_base(self, number: Number) -> Number {
        match (self, number) {
            (Self::Percent, percent) => Number::Real(percent.as_f64() / 100.0),
            (Self::Megahertz, Number::Whole(mhz)) => Number::Whole(mhz.saturating_mul(1_000_000)),
            (Self::Megahertz, Number::Real(mhz)) => Number::Real(mhz * 1e6),
            (_, number) => number,
        }
    }
}

/// A value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Whole(u64),
    /// A real number.
    Real(f64),
}

impl Number {
    /// Returns the nearest real number.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Whole(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Whole(u64::from(value))
    }
}

/// The type of a field with a metric.
trait Scalar: Copy {
    /// Whether the type is an integer.
    const IS_WHOLE: bool;

    fn number(self) -> Number;

    fn of(number: Number) -> Self;
}

impl Scalar for u64 {
    const IS_WHOLE: bool = true;

    fn number(self) -> Number {
        Number::Whole(self)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
    fn of(number: Number) -> Self {
        match number {
            Number::Whole(value) => value,
            Number::Real(value) => value as Self,
        }
    }
}

impl Scalar for f64 {
    const IS_WHOLE: bool = false;

    fn number(self) -> Number {
        Number::Real(self)
    }

    fn of(number: Number) -> Self {
        number.as_f64()
    }
}

/// A chart of history on the rig page: one or two metrics on a common axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chart {
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

impl Chart {
    /// All charts, in the order of their buttons.
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

    /// Returns the label of its button.
    #[must_use]
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

    /// Returns the metrics with their names; the first one comes first in every list.
    pub fn named_metrics(self) -> impl Iterator<Item = (Metric, Key)> {
        let named = Metric::ALL.into_iter().filter_map(|metric| Some((metric, metric.chart()?)));
        named.filter(move |(_, (chart, _))| *chart == self).map(|(metric, (_, name))| (metric, name))
    }

    /// Returns the metrics.
    pub fn metrics(self) -> impl Iterator<Item = Metric> {
        self.named_metrics().map(|(metric, _)| metric)
    }

    /// Returns the group of the metrics.
    #[must_use]
    pub fn group(self) -> Group {
        self.metrics().next().map_or_else(Group::default, Metric::group)
    }

    /// Returns the unit of the metrics.
    #[must_use]
    pub fn unit(self) -> Unit {
        self.metrics().next().map_or(Unit::Percent, Metric::unit)
    }
}

/// The type of a family of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyKind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only increases, and restarts at 0 with its source.
    Counter,
}

impl FamilyKind {
    /// Returns the name in the text format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// The family of `/metrics` that has a metric's samples. Several metrics of a group may share a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrometheusFamily {
    /// The type.
    pub kind: FamilyKind,
    /// The name, with the base unit.
    pub name: &'static str,
    /// The help.
    pub help: &'static str,
    /// The value of the label `kind`, if several metrics share the family.
    pub label: Option<&'static str>,
}

/// Returns the number of a group's series.
const fn n_series(group: Group) -> usize {
    let (mut n, mut idx) = (0, 0);
    while idx < Metric::ALL.len() {
        let metric = Metric::ALL[idx];
        if metric.group() as u8 == group as u8 && metric.series().is_some() {
            n += 1;
        }
        idx += 1;
    }
    n
}

/// Returns a group's metrics in the order of their series. Compilation fails if a number is missing or used twice.
const fn in_series<const N: usize>(group: Group) -> [Metric; N] {
    let mut found = [None; N];
    let mut idx = 0;
    while idx < Metric::ALL.len() {
        let metric = Metric::ALL[idx];
        if metric.group() as u8 == group as u8
            && let Some(place) = metric.series()
        {
            assert!(found[place].is_none(), "two metrics of a group have one series");
            found[place] = Some(metric);
        }
        idx += 1;
    }
    let mut all = [Metric::ALL[0]; N];
    let mut idx = 0;
    while idx < N {
        all[idx] = found[idx].expect("the series of a group are numbered from 0");
        idx += 1;
    }
    all
}

impl Metric {
    /// Metrics of [`Group::Fast`] with a series.
    pub const FAST: [Self; n_series(Group::Fast)] = in_series(Group::Fast);
    /// Metrics of [`Group::Slow`] with a series.
    pub const SLOW: [Self; n_series(Group::Slow)] = in_series(Group::Slow);
    /// Metrics of [`Group::Host`] with a series.
    pub const HOST: [Self; n_series(Group::Host)] = in_series(Group::Host);

    /// Returns the name without the unit, as in JSON.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.name().strip_suffix(self.unit().suffix()).unwrap_or(self.name())
    }

    /// Returns a plausible value of the metric's type that varies with `n`. Metrics of one unit have different values.
    const fn example(self, n: u64) -> Number {
        match self.unit().example(n.saturating_add(self as u64)) {
            Number::Whole(value) if !self.is_whole() => Number::Real(value as f64),
            number => number,
        }
    }

    /// Returns the metric's index among the series of its group; 0 for a metric without a series.
    #[must_use]
    pub const fn place(self) -> usize {
        match self.series() {
            Some(place) => place,
            None => 0,
        }
    }
}
