//! Folding of a history's points into a plot's columns, never more than are visible.

use headroom_protocol::{history::History, metric::Metric};

use super::view::Range;

/// Points more than this many steps apart have a gap between them. One missing point is bridged, because samples at
/// full rate are never exactly one step apart.
const GAP_STEPS: u64 = 2;

/// A reading over a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// Its middle, as a share of the range.
    pub x: f64,
    /// The minimum.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The maximum.
    pub max: f64,
}

/// A point of a history.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Its middle, in milliseconds.
    pub time_ms: u64,
    /// The minimum.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The maximum.
    pub max: f64,
}

/// The points of a metric in and next to a range, oldest first; points without a value are omitted.
pub fn points(history: &History, metric: Metric, range: Range) -> impl Iterator<Item = Point> + '_ {
    let times = &history.times_ms;
    // One more on either side, so that a line continues to the edge.
    let first = times.partition_point(|time_ms| *time_ms < range.from_ms).saturating_sub(1);
    let last = (times.partition_point(|time_ms| *time_ms < range.to_ms) + 1).min(times.len());
    let series = history.series.get(metric.place());
    let of =
        |values: &[Option<f64>], index: usize| values.get(index).copied().flatten().filter(|value| value.is_finite());
    (first..last.max(first)).filter_map(move |index| {
        let series = series?;
        let mean = of(&series.mean, index)?;
        Some(Point {
            time_ms: times[index].saturating_add(history.step_ms / 2),
            min: of(&series.min, index).map_or(mean, |min| min.min(mean)),
            mean,
            max: of(&series.max, index).map_or(mean, |max| max.max(mean)),
        })
    })
}

/// Points folded into at most about `n_columns` columns, in stretches without a gap.
pub fn columns(history: &History, metric: Metric, range: Range, n_columns: usize) -> Vec<Vec<Column>> {
    let mut stretches: Vec<Vec<Column>> = Vec::new();
    // The last column's index, and the number of its points.
    let (mut before, mut place, mut n) = (None::<u64>, i64::MIN, 0.0);
    for point in points(history, metric, range) {
        let x = range.share(point.time_ms);
        #[expect(clippy::cast_possible_truncation, reason = "points lie within a step of the range")]
        let at = (x * n_columns.max(1) as f64).floor() as i64;
        // A gap narrower than a column is invisible.
        let is_gap = before.is_none_or(|before| {
            at != place && point.time_ms.saturating_sub(before) > history.step_ms.max(1) * GAP_STEPS
        });
        before = Some(point.time_ms);
        let Point { min, mean, max, .. } = point;
        if is_gap {
            stretches.push(vec![]);
        }
        let Some(stretch) = stretches.last_mut() else { continue };
        match stretch.last_mut() {
            Some(last) if at == place && !is_gap => {
                n += 1.0;
                last.x += (x - last.x) / n;
                last.mean += (mean - last.mean) / n;
                (last.min, last.max) = (last.min.min(min), last.max.max(max));
            }
            _ => {
                stretch.push(Column { x, min, mean, max });
                n = 1.0;
            }
        }
        place = at;
    }
    stretches
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use headroom_protocol::history::Series;
    use proptest::prelude::*;

    /// A history whose every metric has these values.
    pub fn history(step_ms: u64, points: &[(u64, Option<f64>)]) -> History {
        let values: Vec<Option<f64>> = points.iter().map(|point| point.1).collect();
        let series = Series {
            min: values.iter().map(|value| value.map(|value| value - 1.0)).collect(),
            max: values.iter().map(|value| value.map(|value| value + 2.0)).collect(),
            mean: values,
        };
        History {
            gpu: "GPU-1".to_owned(),
            from_ms: points.first().map_or(0, |point| point.0),
            to_ms: points.last().map_or(1, |point| point.0 + step_ms),
            step_ms,
            times_ms: points.iter().map(|point| point.0).collect(),
            series: vec![series; Metric::FAST.len()],
        }
    }

    fn lengths(history: &History, n_columns: usize) -> Vec<usize> {
        let range = Range { from_ms: history.from_ms, to_ms: history.to_ms };
        columns(history, Metric::Power, range, n_columns).iter().map(Vec::len).collect()
    }

    #[test]
    fn a_time_without_samples_is_a_gap_and_a_late_sample_is_none() {
        let at = |times: &[u64]| history(100, &times.iter().map(|time| (*time, Some(1.0))).collect::<Vec<_>>());
        assert_eq!(lengths(&at(&[0, 103, 198, 398, 505]), 1000), [5]);
        assert_eq!(lengths(&at(&[0, 100, 500, 600, 700]), 1000), [2, 3]);
        assert_eq!(lengths(&at(&[0, 10_000]), 1000), [1, 1]);
        assert_eq!(lengths(&at(&[]), 1000), [0; 0]);
    }

    #[test]
    fn a_reading_that_the_gpu_did_not_give_is_a_gap() {
        let points: Vec<(u64, Option<f64>)> =
            (0..10).map(|index| (index * 100, (!(3..7).contains(&index)).then_some(1.0))).collect();
        assert_eq!(lengths(&history(100, &points), 1000), [3, 3]);
        assert_eq!(lengths(&history(100, &[(0, None), (100, None)]), 1000), [0; 0]);
    }

    #[test]
    fn a_column_of_several_points_keeps_their_extremes_and_their_mean() {
        let history = history(100, &[(0, Some(10.0)), (100, Some(40.0)), (200, Some(20.0)), (300, Some(30.0))]);
        let columns = columns(&history, Metric::Power, Range { from_ms: 0, to_ms: 400 }, 1);
        let [stretch] = columns.as_slice() else { panic!("one stretch: {columns:?}") };
        let [column] = stretch.as_slice() else { panic!("one column: {stretch:?}") };
        assert_eq!((column.min, column.max), (9.0, 42.0));
        assert!((column.mean - 25.0).abs() < 1e-9 && (column.x - 0.5).abs() < 1e-9, "{column:?}");
    }

    #[test]
    fn short_series_is_accepted() {
        let mut history = history(100, &[(0, Some(1.0)), (100, Some(2.0))]);
        history.series.truncate(2);
        history.series[0].mean.truncate(1);
        history.series[0].min.clear();
        let range = Range { from_ms: 0, to_ms: 200 };
        assert_eq!(points(&history, Metric::MemoryUsed, range).count(), 1);
        assert_eq!(points(&history, Metric::Power, range).count(), 0);
    }

    proptest! {
        #[test]
        fn columns_are_few_and_go_from_left_to_right(
            steps in prop::collection::vec((1_u64..50_000, prop::option::weighted(0.9, 0.0..1e6_f64)), 0..600),
            n_columns in 1_usize..300,
            (from_ms, span_ms) in (0_u64..10_000_000, 1_u64..10_000_000),
        ) {
            let mut time_ms = 0;
            let points: Vec<(u64, Option<f64>)> = steps.iter().map(|(step, value)| { time_ms += step; (time_ms, *value) }).collect();
            let range = Range { from_ms, to_ms: from_ms + span_ms };
            let stretches = columns(&history(1000, &points), Metric::Power, range, n_columns);
            let all: Vec<Column> = stretches.concat();
            // One outside on either side.
            prop_assert!(all.len() <= n_columns + 2);
            prop_assert!(all.windows(2).all(|two| two[0].x < two[1].x), "{:?}", all);
            prop_assert!(all.iter().all(|column| column.min <= column.mean && column.mean <= column.max), "{:?}", all);
            prop_assert!(stretches.iter().all(|stretch| !stretch.is_empty()));
        }
    }
}
