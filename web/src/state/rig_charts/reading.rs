//! A history in words: the reading under the cursor, a summary of the range, and a table.

use headroom_protocol::{history::History, metric::Metric};

use super::{
    axis::{Axis as _, Chart},
    fold::{Point, points},
    view::Range,
    zone::UtcOffset,
};
use crate::text::{self, Key, say};

/// A cursor farther than this share of the range, and than two points, from any reading is in a gap.
const NEAR_SHARE: f64 = 0.01;
/// The most rows of a table.
const ROWS_MAX: u64 = 12;

/// The readings under a cursor.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The time, in milliseconds.
    pub time_ms: u64,
    /// A point per metric of the chart; `None` if it has no reading there.
    pub points: Vec<Option<Point>>,
}

/// The reading nearest to a share of the range.
pub fn at(history: Option<&History>, chart: Chart, range: Range, share: f64) -> Reading {
    let time_ms = range.at(share);
    let far_ms = history.map_or(0, |history| history.step_ms.saturating_mul(2)) as f64;
    let far_ms = far_ms.max(range.span_ms() as f64 * NEAR_SHARE);
    let nearest = |metric: Metric| {
        let inside =
            points(history?, metric, range).filter(|point| (range.from_ms..range.to_ms).contains(&point.time_ms));
        let nearest = inside.min_by_key(|point| point.time_ms.abs_diff(time_ms))?;
        (nearest.time_ms.abs_diff(time_ms) as f64 <= far_ms).then_some(nearest)
    };
    let points: Vec<Option<Point>> = chart.metrics().map(nearest).collect();
    let time_ms = points.iter().flatten().next().map_or(time_ms, |point| point.time_ms);
    Reading { time_ms, points }
}

/// The words for a moment or a range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadingText {
    /// The time, in words.
    pub when: String,
    /// The value of each metric of the chart, in words; `None` without a reading.
    pub values: Vec<Option<String>>,
}

impl ReadingText {
    /// The time and the values in one sentence.
    pub fn sentence(&self) -> String {
        let values: Vec<&String> = self.values.iter().flatten().collect();
        match values.is_empty() {
            true => say(&text::history_nothing_at(self.when.as_str())),
            false => say(&text::history_at(self.when.as_str(), text::names(values))),
        }
    }
}

impl Reading {
    /// The reading in words.
    pub fn said(&self, chart: Chart, range: Range, zone: UtcOffset) -> ReadingText {
        let value = |(point, (_, name)): (&Option<Point>, (Metric, Key))| {
            let Point { min, mean, max, .. } = (*point)?;
            Some(say(&text::history_named(name, value_words(chart, min, mean, max))))
        };
        ReadingText {
            when: zone.moment(self.time_ms, range.span_ms() < 6 * 3_600_000),
            values: self.points.iter().zip(chart.named_metrics()).map(value).collect(),
        }
    }
}

/// A mean, with its extremes if they differ.
fn value_words(chart: Chart, min: f64, mean: f64, max: f64) -> String {
    let [min, mean, max] = [min, mean, max].map(|value| chart.words(value));
    if min == max { mean } else { say(&text::history_between(mean, min, max)) }
}

/// The aggregate of a metric over a range.
struct RangeAggregate {
    n: f64,
    min: f64,
    mean: f64,
    max: f64,
}

fn whole(points: impl Iterator<Item = Point>) -> Option<RangeAggregate> {
    points.fold(None, |whole, point| {
        let RangeAggregate { n, min, mean, max } =
            whole.unwrap_or(RangeAggregate { n: 0.0, min: point.min, mean: 0.0, max: point.max });
        let n = n + 1.0;
        Some(RangeAggregate {
            n,
            min: min.min(point.min),
            mean: mean + (point.mean - mean) / n,
            max: max.max(point.max),
        })
    })
}

fn within(history: &History, metric: Metric, range: Range) -> impl Iterator<Item = Point> + '_ {
    points(history, metric, range).filter(move |point| (range.from_ms..range.to_ms).contains(&point.time_ms))
}

/// A summary of the range.
pub fn summary(history: Option<&History>, chart: Chart, range: Range, zone: UtcOffset) -> ReadingText {
    let of_metric = |(metric, name): (Metric, Key)| {
        let RangeAggregate { min, mean, max, .. } = whole(within(history?, metric, range))?;
        let [mean, min, max] = [mean, min, max].map(|value| chart.words(value));
        Some(say(&text::history_summary(name, mean, min, max)))
    };
    ReadingText { when: zone.range(range.from_ms, range.to_ms), values: chart.named_metrics().map(of_metric).collect() }
}

/// A row of the table: its start, and the values.
pub type Row = (String, Vec<String>);

/// The range as a table of at most a dozen rows of equal duration, oldest first; rows without readings are omitted.
pub fn table(history: Option<&History>, chart: Chart, range: Range, zone: UtcOffset) -> Vec<Row> {
    let Some(history) = history else { return vec![] };
    let span_ms = range.span_ms().div_ceil(ROWS_MAX).max(1);
    let row = |index: u64| {
        let from_ms = range.from_ms.saturating_add(index * span_ms);
        let part = Range { from_ms, to_ms: from_ms.saturating_add(span_ms).min(range.to_ms) };
        let words = |metric: Metric| {
            let found = whole(within(history, metric, part));
            found.map(|RangeAggregate { min, mean, max, .. }| value_words(chart, min, mean, max))
        };
        let values: Vec<Option<String>> = chart.metrics().map(words).collect();
        let when = zone.moment(from_ms, span_ms < 60_000);
        let is_given = values.iter().any(Option::is_some);
        is_given.then(|| (when, values.into_iter().map(|value| value.unwrap_or_else(|| "–".to_owned())).collect()))
    };
    (0..ROWS_MAX).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::fold::tests::history, *};

    const UTC: UtcOffset = UtcOffset(|_| 0);

    fn minutes() -> (History, Range) {
        // An hour of minutes, of which ten are missing.
        let points: Vec<(u64, Option<f64>)> = (0..60)
            .filter(|minute| !(20..30).contains(minute))
            .map(|minute| (minute * 60_000, Some(100.0 + minute as f64)))
            .collect();
        (history(60_000, &points), Range { from_ms: 0, to_ms: 3_600_000 })
    }

    #[test]
    fn the_cursor_says_time_mean_and_extremes() {
        let (history, range) = minutes();
        let found = at(Some(&history), Chart::Power, range, 0.5);
        let words = found.said(Chart::Power, range, UTC).sentence().replace('\u{a0}', " ");
        assert_eq!(words, "1 Jan, 00:30:30: power 130 W (129 W to 132 W)");
        let both = at(Some(&history), Chart::Clocks, range, 0.0).said(Chart::Clocks, range, UTC).sentence();
        assert!(both.matches("MHz").count() == 6, "{both}");
    }

    #[test]
    fn cursor_in_gap_is_marked() {
        let (history, range) = minutes();
        let found = at(Some(&history), Chart::Power, range, 25.0 / 60.0);
        assert_eq!(found.points, [None]);
        assert_eq!(found.said(Chart::Power, range, UTC).sentence(), "1 Jan, 00:25:00: nothing recorded");
        assert_eq!(at(None, Chart::Power, range, 0.5).points, [None]);
    }

    #[test]
    fn a_summary_has_words_for_each_reading() {
        let (history, range) = minutes();
        let said = summary(Some(&history), Chart::Utilization, range, UTC);
        assert_eq!(said.values.len(), 2);
        let words = said.sentence().replace('\u{a0}', " ");
        assert!(words.contains("00:00 to 01:00") && words.contains("99 %") && words.contains("161 %"), "{words}");
        assert_eq!(summary(None, Chart::Power, range, UTC).values, [None]);
    }

    #[test]
    fn a_table_is_short_and_leaves_gaps_out() {
        let (history, range) = minutes();
        let rows = table(Some(&history), Chart::Power, range, UTC);
        assert_eq!(rows.len(), 10);
        assert_eq!(rows[0].1[0].replace('\u{a0}', " "), "102 W (99 W to 106 W)");
        assert!(rows.iter().all(|(when, _)| !when.contains("00:20") && !when.contains("00:25")), "{rows:?}");
    }
}
