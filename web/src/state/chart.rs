//! The chart's geometry: columns horizontally, thousandths of the height vertically from the top. It stretches to the
//! available space.

mod axis;
mod labels;

use std::ops::Range;

use headroom_planner::{gpt::tensors::Category, memory::timeline::Point};

use self::{
    axis::clipped,
    labels::{label, words_at},
};
pub use self::{
    axis::{Tick, levels, stretches, ticks},
    labels::{FailureMark, Label},
};
use super::{
    course::failure_column,
    course::{Drawable, PlanWithTimeline},
};
use crate::text::{self, t};

/// The height in path units.
pub const HEIGHT: u64 = 1000;
/// The number of bands. From the bottom: other processes, the CUDA context, then the categories in fixed order.
pub const N_BANDS: usize = 2 + Category::ALL.len();
/// Bands that are thin for most of a run are hatched: the band, and the distance between strokes in columns.
pub const HATCHES: [(usize, usize); 3] = [(3, 4), (4, 10), (5, 2)];
/// The factor by which the chart is higher than its highest line.
pub const HEADROOM_SHARE: f64 = 1.06;

/// The fewest columns to zoom into.
const COLUMNS_MIN: usize = 8;

/// The name of a band, counted from the bottom.
pub fn band_name(band: usize) -> &'static str {
    match band {
        0 => t(text::OTHERS_BAND),
        1 => t(text::CONTEXT_BAND),
        _ => Category::ALL.get(band - 2).map_or("", |category| t(category.text())),
    }
}

/// The shown part of the run, and the hidden bands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// Start and end as shares of the run; `None` is the whole run.
    pub range: Option<[f64; 2]>,
    /// A bit mask of the hidden bands.
    pub hidden: u16,
}

impl View {
    /// Returns whether a band is hidden.
    pub const fn hides(self, band: usize) -> bool {
        self.hidden >> band & 1 == 1
    }

    /// The shown columns of a run.
    pub fn columns(self, n_all: usize) -> Range<usize> {
        let Some([start, end]) = self.range else { return 0..n_all };
        let [start, end] = [start, end].map(|share| column_at_share(n_all, share));
        let start = start.min(n_all.saturating_sub(COLUMNS_MIN));
        start..(end + 1).max(start + COLUMNS_MIN).min(n_all)
    }

    /// The view of a range of a run's columns; the full range resets the zoom.
    pub fn of_columns(self, start: usize, end: usize, n_all: usize) -> Self {
        let share = |column: usize| share_of(column, n_all);
        let is_all = start == 0 && end >= n_all;
        Self { range: (!is_all).then(|| [share(start), share(end.saturating_sub(1))]), ..self }
    }

    /// The view zoomed in or out by a factor of two around a column.
    pub fn zoomed(self, is_in: bool, column: usize, n_all: usize) -> Self {
        let now = self.columns(n_all);
        let n = if is_in { (now.len() / 2).max(COLUMNS_MIN) } else { now.len() * 2 }.min(n_all);
        let start = column.saturating_sub(n / 2).min(n_all - n);
        self.of_columns(start, start + n, n_all)
    }
}

/// Everything that the chart draws.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The shown columns of the run.
    pub columns: Range<usize>,
    /// The number of columns of the whole run.
    pub n_all: usize,
    /// A closed path per band, from the bottom.
    pub bands: [String; N_BANDS],
    /// Strokes across the bands of [`HATCHES`].
    pub hatches: [String; HATCHES.len()],
    /// The line of reserved memory; empty if a band is hidden, because the bands then do not add up to it.
    pub reserved: String,
    /// The GPU's capacity, as a share of the height from the top; `None` if a band is hidden.
    pub capacity_y: Option<f64>,
    /// Whether the capacity's label is at the right end of its line, away from a failure on the left.
    pub capacity_is_right: bool,
    /// Grid lines of the memory axis: share of the height from the top, and the label in GiB.
    pub levels: Vec<(f64, String)>,
    /// Ticks of the phases.
    pub phases: Vec<Tick>,
    /// Ticks of the stretches that group the phases.
    pub stretches: Vec<Tick>,
    /// Names inside bands.
    pub labels: Vec<Label>,
    /// The mark of the failure, if it is in view.
    pub failure: Option<FailureMark>,
    /// The start of the part that the run does not reach, as a share of the width.
    pub unreached: Option<f64>,
    /// The least and the most memory in use in the shown part, in bytes; `None` if the whole run is shown.
    pub range_bytes: Option<[u64; 2]>,
}

impl Chart {
    /// Lays out the chart of a plan.
    pub fn of<R: Drawable>(planned: &PlanWithTimeline<R>, view: View) -> Self {
        let PlanWithTimeline { plan, timeline } = planned;
        let n_all = timeline.points.len();
        let columns = view.columns(n_all);
        let points = &timeline.points[columns.clone()];
        let n = points.len();
        let machine = plan.request.machine();
        let outside = [machine.other_processes_bytes, machine.context.bytes];
        let total = machine.device.total_bytes;
        let held: u64 = outside.iter().sum();
        // Tops of all bands in bytes, per column.
        let stacks: Vec<[u64; N_BANDS]> = points.iter().map(|point| stack(outside, point, view)).collect();
        let is_whole = view.hidden == 0;
        let most = match (is_whole, view.range) {
            (true, None) => total.max(plan.peak.device_used_bytes),
            (true, Some(_)) => points.iter().map(|point| held + point.reserved_bytes).fold(total, u64::max),
            (false, _) => stacks.iter().map(|stack| stack[N_BANDS - 1]).fold(0, u64::max),
        };
        let top = (most as f64 * HEADROOM_SHARE).max(1.0);
        let height = |bytes: u64| units(bytes, top);
        let heights: Vec<[u64; N_BANDS]> = stacks.iter().map(|stack| stack.map(height)).collect();
        let upper = |band: usize, column: usize| heights[column][band];
        let lower = |band: usize, column: usize| if band == 0 { 0 } else { heights[column][band - 1] };
        let bands = std::array::from_fn(|band| area(n, |column| upper(band, column), |column| lower(band, column)));
        let hatches = HATCHES.map(|(band, apart)| hatch(n, apart, |column| [lower(band, column), upper(band, column)]));
        let reserved = |column: usize| height(held + points[column].reserved_bytes);
        let capacity_y = is_whole.then_some(1.0 - total as f64 / top);
        let fails_at = plan.failure.map(|failure| failure_column(timeline, failure));
        let x_of = |column: usize| column.saturating_sub(columns.start) as f64 / n.max(1) as f64;
        let failure = fails_at.filter(|column| columns.contains(column)).map(|column| {
            let from_top = |column| if is_whole { 1.0 - reserved(column) as f64 / HEIGHT as f64 } else { 1.0 };
            words_at(x_of(column), n, capacity_y.unwrap_or(0.0), from_top)
        });
        let shares = [columns.start, columns.end].map(|column| column as f64 / n_all.max(1) as f64);
        Self {
            n_all,
            bands,
            hatches,
            reserved: if is_whole { line(n, reserved) } else { String::new() },
            capacity_y,
            capacity_is_right: failure.is_some_and(|failure| failure.x < 0.5),
            levels: levels(top),
            phases: clipped(ticks(timeline, n_all), shares),
            stretches: clipped(stretches(timeline, n_all), shares),
            labels: (0..N_BANDS).filter_map(|band| label(band, &stacks, top)).collect(),
            failure,
            unreached: fails_at.map(x_of).filter(|x| *x < 1.0),
            range_bytes: view.range.map(|_| {
                let live = || points.iter().map(|point| held + point.live_bytes.iter().sum::<u64>());
                [live().min(), live().max()].map(Option::unwrap_or_default)
            }),
            columns,
        }
    }

    /// The number of shown columns.
    pub fn n_columns(&self) -> usize {
        self.columns.len()
    }

    /// Converts a share of the width to a share of the run.
    pub fn share_of_run(&self, share_of_width: f64) -> f64 {
        (self.columns.start as f64 + share_of_width * self.n_columns() as f64) / self.n_all.max(1) as f64
    }

    /// The middle of a column of the run as a share of the width; `None` if it is not shown.
    pub fn x_of(&self, column: usize) -> Option<f64> {
        self.columns.contains(&column).then(|| share_of(column - self.columns.start, self.n_columns()))
    }
}

fn stack(outside: [u64; 2], point: &Point, view: View) -> [u64; N_BANDS] {
    let mut sum = 0_u64;
    let all = outside.into_iter().chain(point.live_bytes);
    let mut tops = [0; N_BANDS];
    for (band, (top, bytes)) in tops.iter_mut().zip(all).enumerate() {
        if !view.hides(band) {
            sum = sum.saturating_add(bytes);
        }
        *top = sum;
    }
    tops
}

/// Converts bytes to path units from the bottom.
pub fn units(bytes: u64, top: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of HEIGHT, never negative")]
    let units = (bytes as f64 / top * HEIGHT as f64).round() as u64;
    units.min(HEIGHT)
}

/// A stepped area between two outlines; empty for a band without height.
pub fn area(n: usize, upper: impl Fn(usize) -> u64, lower: impl Fn(usize) -> u64) -> String {
    if (0..n).all(|column| upper(column) == lower(column)) {
        return String::new();
    }
    let mut path = String::from("M0 ");
    push(&mut path, HEIGHT - lower(0));
    steps(&mut path, 0..n, &upper);
    let mut now = None;
    for column in (0..n).rev() {
        let y = HEIGHT - lower(column);
        if now != Some(y) {
            // Along the bottom, from right to left, a step is at its column's right edge.
            path.push('H');
            push(&mut path, column as u64 + 1);
            path.push('V');
            push(&mut path, y);
            now = Some(y);
        }
    }
    path.push_str("H0Z");
    path
}

/// Vertical strokes between two outlines, every `apart` columns, where the outlines differ.
pub fn hatch(n: usize, apart: usize, ends: impl Fn(usize) -> [u64; 2]) -> String {
    let mut path = String::new();
    for column in (apart / 2..n).step_by(apart) {
        let [lower, upper] = ends(column);
        if upper > lower {
            path.push('M');
            push(&mut path, column as u64);
            path.push(' ');
            push(&mut path, HEIGHT - lower);
            path.push('V');
            push(&mut path, HEIGHT - upper);
        }
    }
    path
}

/// A stepped line.
fn line(n: usize, height: impl Fn(usize) -> u64) -> String {
    if n == 0 {
        return String::new();
    }
    let mut path = String::from("M0 ");
    push(&mut path, HEIGHT - height(0));
    steps(&mut path, 0..n, &height);
    path
}

fn steps(path: &mut String, columns: Range<usize>, height: &dyn Fn(usize) -> u64) {
    let end = columns.end;
    let mut now = None;
    for column in columns {
        let y = HEIGHT - height(column);
        if now != Some(y) {
            path.push('H');
            push(path, column as u64);
            path.push('V');
            push(path, y);
            now = Some(y);
        }
    }
    path.push('H');
    push(path, end as u64);
}

/// Appends a coordinate. A drawing has thousands, so none is formatted as a string of its own.
fn push(path: &mut String, number: u64) {
    if number >= 10 {
        push(path, number / 10);
    }
    path.push(char::from(b'0' + (number % 10) as u8));
}

/// The column at a share of the width.
pub fn column_at_share(n_columns: usize, share: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the columns")]
    let column = (share.clamp(0.0, 1.0) * n_columns as f64) as usize;
    column.min(n_columns.saturating_sub(1))
}

/// The middle of a column as a share of the width.
pub fn share_of(column: usize, n_columns: usize) -> f64 {
    (column as f64 + 0.5) / n_columns.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::answer::PlannedSession;

    #[test]
    fn a_stepped_area_closes_on_itself() {
        let path = area(3, |column| [10, 10, 20][column], |column| [0, 5, 5][column]);
        assert_eq!(path, "M0 1000H0V990H2V980H3H3V995H1V1000H0Z");
        assert_eq!(area(3, |_| 7, |_| 7), "");
    }

    #[test]
    fn the_chart_holds_capacity_and_peak() {
        for text in ["batch_size = 4\ncompile = False\n", "batch_size = 64\ncompile = False\n"] {
            let answer = PlannedSession::of_text(text);
            let planned = answer.planned.as_ref().expect("a plan");
            let chart = Chart::of(planned, View::default());
            let capacity_y = chart.capacity_y.expect("all bands are shown");
            assert!((0.0..1.0).contains(&capacity_y), "{capacity_y}");
            assert_eq!(chart.failure.is_some(), !planned.plan.fits);
            let width: f64 = chart.phases.iter().map(|tick| tick.width).sum();
            assert!((width - 1.0).abs() < 1e-9);
            assert!(!chart.labels.is_empty(), "{text}");
        }
    }

    #[test]
    fn strokes_cross_their_band_and_nothing_else() {
        assert_eq!(hatch(10, 4, |column| [5, if column < 5 { 25 } else { 5 }]), "M2 995V975");
    }

    #[test]
    fn a_zoomed_chart_shows_its_columns_and_their_ticks() {
        let answer = PlannedSession::of_text("batch_size = 64\ncompile = False\n");
        let planned = answer.planned.as_ref().expect("a plan");
        let whole = Chart::of(planned, View::default());
        let n = whole.n_all;
        let fails_at = failure_column(&planned.timeline, planned.plan.failure.expect("it fails"));
        let chart = Chart::of(planned, View::default().of_columns(fails_at + 1, fails_at + 21, n));
        assert_eq!(chart.columns, fails_at + 1..fails_at + 21);
        assert_eq!((chart.failure, chart.unreached), (None, Some(0.0)), "all of it is beyond the failure");
        for ticks in [&chart.phases, &chart.stretches] {
            let width: f64 = ticks.iter().map(|tick| tick.width).sum();
            assert!((width - 1.0).abs() < 1e-9, "{ticks:?}");
            assert!(ticks.iter().all(|tick| tick.start >= 0.0), "{ticks:?}");
        }
        assert_eq!(chart.x_of(fails_at), None);
        assert_eq!(column_at_share(n, chart.share_of_run(chart.x_of(fails_at + 5).expect("shown"))), fails_at + 5);
    }

    #[test]
    fn a_zoomed_chart_has_the_least_and_the_most_memory_of_its_part() {
        let answer = PlannedSession::of_text("batch_size = 4\ncompile = False\n");
        let planned = answer.planned.as_ref().expect("a plan");
        let (points, plan) = (&planned.timeline.points, &planned.plan);
        let bytes = |view: View| Chart::of(planned, view).range_bytes;
        assert_eq!(bytes(View::default()), None);
        let outside = plan.request.machine.other_processes_bytes + plan.request.machine.context.bytes;
        let live = |column: usize| outside + points[column].live_bytes.iter().sum::<u64>();
        let [low, high] = bytes(View::default().of_columns(20, 60, points.len())).expect("a part is shown");
        assert_eq!(Some(low), (20..60).map(live).min());
        assert_eq!(Some(high), (20..60).map(live).max());
        assert!(low < high && high <= plan.request.machine.device.total_bytes, "{low} {high}");
    }

    #[test]
    fn zooming_halves_and_doubles_and_ends_at_the_whole_run() {
        let n = 400;
        let mut view = View::default().zoomed(true, 100, n);
        assert_eq!(view.columns(n), 0..200);
        view = view.zoomed(true, 150, n);
        assert_eq!(view.columns(n), 100..200);
        for _ in 0..9 {
            view = view.zoomed(true, 399, n);
        }
        assert_eq!(view.columns(n), n - COLUMNS_MIN..n);
        for _ in 0..9 {
            view = view.zoomed(false, 399, n);
        }
        assert_eq!(view, View::default());
    }

    #[test]
    fn a_hidden_band_leaves_the_others_their_heights() {
        let answer = PlannedSession::of_text("batch_size = 4\ncompile = False\n");
        let planned = answer.planned.as_ref().expect("a plan");
        let logits = N_BANDS - 3;
        let hidden = 1 << logits;
        let chart = Chart::of(planned, View { hidden, ..View::default() });
        assert_eq!(chart.bands[logits], "");
        assert!(!chart.bands[2].is_empty(), "parameters are still drawn");
        // The bands no longer add up to the reserved memory and the capacity.
        assert_eq!((chart.capacity_y, chart.reserved.as_str()), (None, ""));
    }

    #[test]
    fn a_share_and_its_column_agree() {
        for column in [0, 1, 57, 99] {
            assert_eq!(column_at_share(100, share_of(column, 100)), column);
        }
        assert_eq!(column_at_share(100, 1.0), 99);
        assert_eq!(column_at_share(0, 0.5), 0);
    }
}
