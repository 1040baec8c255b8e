//! The drawing of a history: for each reading, a band from minimum to maximum and a line of means; and the axes.

use headroom_protocol::{gpu::Gpu, history::History};

use super::{
    axis::{Axis as _, Bound, Chart},
    fold::{Column, columns},
    path::{Path, WIDTH, stroke, units_x, units_y},
    scale::Scale,
    time_axis::{Tick, ticks},
    view::Range,
    zone::UtcOffset,
};
use crate::text::Key;

/// The bounds on a plot's columns. A plot without layout has no width.
const COLUMNS: [usize; 2] = [60, 2000];

/// The share of the height from the top within which a line's name does not fit above it.
const NAME_SHARE: f64 = 0.12;

/// The peak planned for a run on a GPU, including other processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannedPeak {
    /// The peak, in bytes.
    pub bytes: u64,
    /// The start of the run, in milliseconds; the plan does not apply before it.
    pub from_ms: u64,
}

/// The parameters of a drawing.
#[derive(Clone, Copy)]
pub struct Frame {
    /// The time range.
    pub range: Range,
    /// The subject.
    pub chart: Chart,
    /// The width of the plot, in pixels.
    pub width_px: f64,
    /// The local time zone.
    pub zone: UtcOffset,
}

/// A reading's paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// The band from minimum to maximum; empty if they are equal everywhere.
    pub band: String,
    /// The line of means.
    pub line: String,
}

/// A drawn bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The start, as a share of the width.
    pub x: f64,
    /// The position, as a share of the height from the top.
    pub y: f64,
    /// Its name.
    pub name: Key,
    /// Its value.
    pub words: String,
    /// Whether it is the plan's rather than the GPU's.
    pub is_planned: bool,
}

/// Everything that the chart draws.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// One line per metric of the chart.
    pub lines: Vec<Line>,
    /// The vertical axis.
    pub scale: Scale,
    /// The time axis.
    pub ticks: Vec<Tick>,
    /// The drawn bounds.
    pub limits: Vec<Limit>,
    /// Whether there are no readings.
    pub is_empty: bool,
}

impl Plot {
    /// Draws a history, or the axes alone without one.
    pub fn of(history: Option<&History>, gpu: Option<&Gpu>, planned: Option<PlannedPeak>, frame: &Frame) -> Self {
        let Frame { range, chart, width_px, zone } = *frame;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let n_columns = width_px.clamp(COLUMNS[0] as f64, COLUMNS[1] as f64) as usize;
        let of_metric = |metric| history.map(|history| columns(history, metric, range, n_columns)).unwrap_or_default();
        let all: Vec<Vec<Vec<Column>>> = chart.metrics().map(of_metric).collect();
        let ends = all.iter().flatten().flatten().fold(None, |ends: Option<(f64, f64)>, column| {
            let (low, high) = ends.unwrap_or((column.min, column.max));
            Some((low.min(column.min), high.max(column.max)))
        });
        let planned = planned.filter(|planned| planned.from_ms < range.to_ms);
        let from = planned.map_or(0.0, |planned| range.share(planned.from_ms).max(0.0));
        let planned_bytes = planned.map(|planned| planned.bytes);
        let bounds: Vec<Bound> = gpu.map(|gpu| chart.bounds(gpu, planned_bytes)).unwrap_or_default();
        let (low, high) = ends.unwrap_or((0.0, bounds.first().map_or(0.0, |bound| bound.value)));
        let (scale, shown) = chart.scale(low, high, &bounds);
        let limits = shown.iter().map(|bound| Limit {
            x: if bound.is_planned { from } else { 0.0 },
            y: scale.y(bound.value),
            name: bound.name,
            words: chart.words(bound.value),
            is_planned: bound.is_planned,
        });
        Self {
            lines: all.iter().map(|stretches| line(stretches, &scale)).collect(),
            limits: limits.collect(),
            ticks: ticks(range, width_px, zone),
            is_empty: ends.is_none(),
            scale,
        }
    }

    /// The ticks for display: share of the width, label, and whether it is emphasised.
    pub fn named_ticks(&self) -> Vec<(f64, String, bool)> {
        self.ticks.iter().map(|tick| (tick.x, tick.label.clone(), tick.is_date)).collect()
    }
}

impl Limit {
    /// Returns whether its name does not fit above it.
    pub fn is_high(&self) -> bool {
        self.y < NAME_SHARE
    }
}

/// The lines of the GPU's bounds, or of the plan's.
pub fn limits(plot: &Plot, is_planned: bool) -> String {
    let mut path = Path::default();
    for limit in plot.limits.iter().filter(|limit| limit.is_planned == is_planned) {
        let y = units_y(limit.y);
        stroke(&mut path, &[(units_x(limit.x), y), (WIDTH, y)]);
    }
    path.text()
}

fn line(stretches: &[Vec<Column>], scale: &Scale) -> Line {
    let (mut band, mut line) = (Path::default(), Path::default());
    for stretch in stretches {
        let along = |value: fn(&Column) -> f64| -> Vec<(i64, i64)> {
            stretch.iter().map(|column| (units_x(column.x), units_y(scale.y(value(column))))).collect()
        };
        let (tops, bottoms) = (along(|column| column.max), along(|column| column.min));
        if tops != bottoms {
            outline(&mut band, &tops, &bottoms);
        }
        stroke(&mut line, &along(|column| column.mean));
    }
    Line { band: band.text(), line: line.text() }
}

/// An area between two lines over the same columns; a single column is as wide as a dash.
fn outline(path: &mut Path, tops: &[(i64, i64)], bottoms: &[(i64, i64)]) {
    const HALF: i64 = 3;
    let around: Vec<(i64, i64)> = match (tops, bottoms) {
        ([(x, top)], [(_, bottom)]) => {
            [(x - HALF, top), (x + HALF, top), (x + HALF, bottom), (x - HALF, bottom)].map(|(x, y)| (x, *y)).to_vec()
        }
        _ => tops.iter().chain(bottoms.iter().rev()).copied().collect(),
    };
    stroke(path, &around);
    path.close();
}

#[cfg(test)]
mod tests {
    use super::{super::fold::tests::history, *};
    use proptest::prelude::*;

    const FRAME: Frame = Frame {
        range: Range { from_ms: 0, to_ms: 1000 },
        chart: Chart::Utilization,
        width_px: 500.0,
        zone: UtcOffset(|_| 0),
    };

    #[test]
    fn a_band_lies_around_its_line_and_gaps_are_in_both() {
        let history = history(100, &[(0, Some(50.0)), (100, Some(52.0)), (500, Some(104.0))]);
        let plot = Plot::of(Some(&history), None, None, &FRAME);
        // A share of 104 in thousandths: 50 is 519 below the top, its maximum 52 is 500, its minimum 49 is 529.
        assert_eq!(plot.lines[0].line, "M200 519L600 500M2194 0L2206 0");
        assert_eq!(plot.lines[0].band, "M200 500L600 481L600 510L200 529ZM2197 -19L2203 -19L2203 10L2197 10Z");
        assert_eq!(plot.lines.len(), 2);
        assert!(!plot.is_empty);
    }

    #[test]
    fn readings_without_a_spread_have_no_band() {
        let mut history = history(100, &[(0, Some(50.0)), (100, Some(52.0))]);
        for series in &mut history.series {
            (series.min, series.max) = (series.mean.clone(), series.mean.clone());
        }
        let plot = Plot::of(Some(&history), None, None, &FRAME);
        assert!(plot.lines[0].band.is_empty() && !plot.lines[0].line.is_empty(), "{:?}", plot.lines);
    }

    #[test]
    fn axes_are_drawn_without_history() {
        let plot = Plot::of(None, None, None, &FRAME);
        assert!(plot.is_empty && !plot.scale.levels.is_empty());
        assert!(plot.lines.iter().all(|line| line.line.is_empty()));
    }

    #[test]
    fn the_plans_peak_begins_where_its_run_does() {
        let gpu = crate::state::rig::sample::gpu(0);
        let frame = Frame { chart: Chart::Memory, ..FRAME };
        let drawn = |from_ms: u64, range: Range| {
            let planned = PlannedPeak { bytes: 6 << 30, from_ms };
            limits(&Plot::of(None, Some(&gpu), Some(planned), &Frame { range, ..frame }), true)
        };
        assert!(drawn(250, FRAME.range).starts_with("M1000 "), "{}", drawn(250, FRAME.range));
        assert!(drawn(250, Range { from_ms: 500, to_ms: 1000 }).starts_with("M0 "));
        assert_eq!(drawn(250, Range { from_ms: 0, to_ms: 250 }), "", "it was not planned yet");
    }

    #[test]
    fn label_at_top_is_below_its_line() {
        let gpu = crate::state::rig::sample::gpu(0);
        let frame = Frame { chart: Chart::Memory, ..FRAME };
        let high = |bytes: u64| -> Vec<bool> {
            let planned = PlannedPeak { bytes, from_ms: 0 };
            Plot::of(None, Some(&gpu), Some(planned), &frame).limits.iter().map(Limit::is_high).collect()
        };
        assert_eq!(high(6 << 30), [true, false]);
        assert_eq!(high(24 << 30), [false, true]);
    }

    proptest! {
        #[test]
        fn paths_are_bounded_whatever_is_drawn(
            points in prop::collection::vec((1_u64..5000, prop::option::of(-1e9..1e9_f64)), 0..500),
            width_px in prop_oneof![Just(f64::NAN), Just(f64::INFINITY), -10.0..400.0],
        ) {
            let mut time_ms = 0;
            let points: Vec<(u64, Option<f64>)> = points.iter().map(|(step, value)| { time_ms += step; (time_ms, *value) }).collect();
            let frame = Frame { range: Range { from_ms: 0, to_ms: time_ms.max(1) }, width_px, ..FRAME };
            let plot = Plot::of(Some(&history(1000, &points)), None, None, &frame);
            // At most two points per column in a band, and twice as many if each is a separate dash.
            let n = |path: &str| path.matches(['M', 'L']).count();
            let n_columns = if width_px.is_finite() { width_px.max(60.0) } else { COLUMNS[1] as f64 };
            for line in &plot.lines {
                prop_assert!(n(&line.line) as f64 <= 2.0 * (n_columns + 2.0), "{} for {}", n(&line.line), n_columns);
                prop_assert!(n(&line.band) as f64 <= 4.0 * (n_columns + 2.0), "{} for {}", n(&line.band), n_columns);
            }
        }
    }
}
