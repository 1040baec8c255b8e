//! Tests of the registry: names, units, series, charts and families of its rows.

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
