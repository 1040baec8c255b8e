//! The registry of readings: one row for each, in `metric/rows.rs`.
//!
//! A row declares the field on the wire and its metric: the name in history and in files, the unit, the group with its
//! interval, the label of `headroom doctor`, the series of history, the chart, the family of `/metrics`, and the field
//! of `nvidia-smi`. Each column is a function of [`Metric`], so a program contains only the columns that it uses.

mod declare;
mod rows;

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::reading::{MissingReason, Reading};

    #[test]
    fn names_are_unique_and_end_with_the_unit() {
        let names: BTreeSet<&str> = Metric::ALL.into_iter().map(Metric::name).collect();
        assert_eq!(names.len(), Metric::ALL.len());
        let labels: BTreeSet<(u8, &str)> =
            Metric::ALL.into_iter().map(|metric| (metric.group() as u8, metric.label())).collect();
        assert_eq!(labels.len(), Metric::ALL.len());
        for metric in Metric::ALL {
            let (name, id) = (metric.name(), metric.id());
            assert_eq!(name.strip_suffix(metric.unit().suffix()), Some(id));
            assert_eq!(serde_json::to_value(metric).expect("a name"), id);
        }
    }

    #[test]
    fn families_have_base_units_and_one_help() {
        for metric in Metric::ALL {
            let Some(family) = metric.prometheus() else { continue };
            let is_counted = family.kind == FamilyKind::Counter;
            assert_eq!(is_counted, metric.unit().is_counted(), "{metric:?}");
            let name = if is_counted { family.name.strip_suffix("_total") } else { Some(family.name) };
            assert!(name.is_some_and(|name| name.ends_with(metric.unit().base_suffix())), "{}", family.name);
            for other in Metric::ALL.into_iter().filter(|other| *other != metric) {
                let Some(shared) = other.prometheus().filter(|other| other.name == family.name) else { continue };
                assert_eq!((shared.kind, shared.help), (family.kind, family.help), "{}", family.name);
                assert_eq!(other.group(), metric.group(), "{}", family.name);
                assert!(shared.label.is_some() && shared.label != family.label, "{}", family.name);
            }
        }
        assert_eq!(Unit::Percent.to_base(Number::Whole(45)), Number::Real(0.45));
        assert_eq!(Unit::Megahertz.to_base(Number::Whole(2475)), Number::Whole(2_475_000_000));
    }

    #[test]
    fn charts_show_series_of_one_unit() {
        for chart in Chart::ALL {
            let metrics: Vec<Metric> = chart.metrics().collect();
            assert!(!metrics.is_empty(), "{chart:?}");
            for metric in metrics {
                assert!(metric.series().is_some(), "{metric:?} has no history");
                assert_eq!((metric.group(), metric.unit()), (chart.group(), chart.unit()), "{metric:?}");
            }
        }
        let charts: usize = Chart::ALL.into_iter().map(|chart| chart.metrics().count()).sum();
        assert_eq!(charts, Metric::ALL.into_iter().filter(|metric| metric.chart().is_some()).count());
    }

    #[test]
    fn every_metric_is_a_field_of_its_group() {
        let why = MissingReason::OldDriver;
        let (mut fast, mut slow, mut host) =
            (Sample::missing(3, why), SlowSample::missing(3, why), HostSample::missing(why));
        for (metric, value) in Metric::ALL.into_iter().zip(1_u64..) {
            let number = if metric.is_whole() { Number::Whole(value) } else { Number::Real(value as f64) };
            let own = [fast.reading(metric), slow.reading(metric), host.reading(metric)];
            let expected = Group::ALL.map(|group| (group == metric.group()).then_some(Reading::missing(why)));
            assert_eq!(own, expected, "{metric:?}");
            fast.set(metric, Reading::Is(number));
            slow.set(metric, Reading::Is(number));
            host.set(metric, Reading::Is(number));
            let own = [fast.reading(metric), slow.reading(metric), host.reading(metric)];
            let expected = Group::ALL.map(|group| (group == metric.group()).then_some(Reading::Is(number)));
            assert_eq!(own, expected, "{metric:?}");
        }
    }

    #[test]
    fn an_example_has_a_value_of_every_metric() {
        for n in [0, 1, 7919, u64::MAX] {
            let (fast, slow, host) = (Sample::example(3, n), SlowSample::example(3, n), HostSample::example(n));
            assert_eq!((fast.gpu, slow.gpu), (3, 3));
            for metric in Metric::ALL {
                let own = [fast.reading(metric), slow.reading(metric), host.reading(metric)];
                let [Some(Reading::Is(number))] = own.into_iter().flatten().map(Some).collect::<Vec<_>>()[..] else {
                    panic!("{metric:?} has no value")
                };
                assert_eq!(matches!(number, Number::Whole(_)), metric.is_whole(), "{metric:?}");
            }
        }
    }

    #[test]
    fn a_reading_that_an_older_agent_lacks_is_missing() {
        let sample: SlowSample = serde_json::from_str(r#"{"gpu":1,"fan_percent":40}"#).expect("a sample");
        let expected = SlowSample { fan_percent: Reading::Is(40), ..SlowSample::missing(1, MissingReason::NotYet) };
        assert_eq!(sample, expected);
        serde_json::from_str::<SlowSample>(r#"{"fan_percent":40}"#).expect_err("no GPU");
        let host: HostSample = serde_json::from_str("{}").expect("a sample");
        assert_eq!(host, HostSample::missing(MissingReason::NotYet));
    }
}
