//! The chart with both runs over each other, aligned by phase: columns horizontally, thousandths of the height
//! vertically from the top.

use std::ops::Range;

use headroom_planner::memory::{
    program::Phase,
    simulate::EventIndex,
    timeline::{Point, Span, Timeline},
};

use super::{
    super::{
        chart::{HEADROOM_SHARE, HEIGHT, Tick, levels, stretches, ticks, units},
        format,
    },
    run::ComparedPlan,
};

/// The columns of a run, before the rarer phases of the other run are added.
const COLUMNS: usize = 400;
/// The largest memory of a GPU that is drawn, relative to the memory in use. A larger one would flatten the runs.
const LIMIT_SHARE_MAX: f64 = 2.5;

/// A part of both runs in one phase.
#[derive(Clone, Debug, PartialEq)]
struct Segment {
    phase: Phase,
    /// The points of each run; `None` for a run that lacks it.
    points: [Option<Range<usize>>; 2],
    /// Its columns.
    columns: Range<usize>,
}

/// The memory of a GPU, as a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// The position as a share of the height from the top; `None` if the line is above the chart.
    pub y: Option<f64>,
    /// The memory.
    pub size: String,
}

impl Limit {
    /// The upper end of the line's label, as a share of the height from the top.
    pub fn label_y(&self) -> f64 {
        self.y.unwrap_or(0.0)
    }
}

/// The height of a label as a share of the lowest chart. Labels of limits that are closer are below each other.
pub const LABEL_SHARE: f64 = 0.14;

/// Everything that the chart draws.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// The number of columns.
    pub n_columns: usize,
    /// The line of the pinned run: its tensors, the CUDA context and other programs.
    pub pinned: String,
    /// The area of the changed run.
    pub changed: String,
    /// The columns of phases that one run lacks.
    pub absent: Vec<Range<usize>>,
    /// The lines of memory in use on the GPU, with what PyTorch has reserved.
    pub reserved: [String; 2],
    /// The memory of both GPUs; one line if they are the same.
    pub limits: Vec<Limit>,
    /// Whether the labels of the lines are at their right end, away from a failure on the left.
    pub limits_are_right: bool,
    /// The moment at which each run fails, as a share of the width; `None` for a run that fits.
    pub failures: [Option<f64>; 2],
    /// Grid lines of the memory axis: share of the height from the top, and the label in GiB.
    pub levels: Vec<(f64, String)>,
    /// The phase of each column.
    pub spans: Vec<Span>,
    /// The moment of each run with the most live bytes of each column; `None` for a run that lacks the phase.
    moments: Vec<[Option<EventIndex>; 2]>,
    /// Ticks of the phases.
    pub phases: Vec<Tick>,
    /// Ticks of the stretches that group the phases.
    pub stretches: Vec<Tick>,
}

impl Overlay {
    /// Lays out the chart of a pinned and a changed run.
    pub fn of(plans: [&ComparedPlan; 2]) -> Self {
        let mut segments = aligned(plans.map(ComparedPlan::timeline));
        let failing = [0, 1].map(|run| failing_column(plans[run], &segments, run));
        for run in [0, 1] {
            repeat(&mut segments, run, plans[run].n_micro_steps);
        }
        let n_columns = segments.last().map_or(0, |segment| segment.columns.end);
        let used = plans.iter().map(|plan| plan.peak().device_used_bytes).max().unwrap_or(0);
        let totals = plans.map(|plan| plan.machine().device.total_bytes);
        let is_drawn = |total: u64| total as f64 <= used as f64 * LIMIT_SHARE_MAX;
        let most = totals.into_iter().filter(|total| is_drawn(*total)).fold(used, u64::max);
        let top = (most as f64 * HEADROOM_SHARE).max(1.0);
        let columns = [0, 1].map(|run| columns(plans[run], &segments, run));
        let heights = |run: usize, of: fn(&Column) -> u64| -> Vec<Option<u64>> {
            columns[run].iter().map(|column| Some(units(of(column.as_ref()?), top))).collect()
        };
        let live = |run: usize| heights(run, |column| column.live_bytes);
        let reserved = |run: usize| heights(run, |column| column.reserved_bytes);
        let moments = columns[0].iter().zip(&columns[1]);
        let moments = moments.map(|(one, other)| [one, other].map(|column| Some(column.as_ref()?.moment))).collect();
        let limit =
            |total: u64| Limit { y: is_drawn(total).then_some(1.0 - total as f64 / top), size: format::size(total) };
        let mut limits: Vec<Limit> = totals.map(limit).to_vec();
        limits.dedup();
        let failures = failing.map(|column| Some(column? as f64 / n_columns.max(1) as f64));
        let spans = segments.iter().map(|segment| {
            let Range { start, end } = segment.columns;
            Span { phase: segment.phase, start, end }
        });
        let axis = Timeline { points: Vec::new(), spans: spans.collect() };
        Self {
            n_columns,
            pinned: line(&live(0), false),
            changed: line(&live(1), true),
            absent: segments
                .iter()
                .filter(|segment| segment.points.contains(&None))
                .map(|s| s.columns.clone())
                .collect(),
            reserved: [0, 1].map(|run| line(&reserved(run), false)),
            limits,
            limits_are_right: failures.into_iter().flatten().any(|x| x < 0.5),
            failures,
            levels: levels(top),
            moments,
            phases: ticks(&axis, n_columns),
            stretches: stretches(&axis, n_columns),
            spans: axis.spans,
        }
    }

    /// The phase of a column, and the moment of each run.
    pub fn moment(&self, column: usize) -> Option<(Phase, [Option<EventIndex>; 2])> {
        let span = self.spans.iter().find(|span| (span.start..span.end).contains(&column))?;
        Some((span.phase, *self.moments.get(column)?))
    }
}

/// The column in which a run fails; `None` if it fits.
fn failing_column(plan: &ComparedPlan, segments: &[Segment], run: usize) -> Option<usize> {
    let point = plan.failure_column()?;
    let of_segment = |segment: &Segment| {
        let points = segment.points[run].as_ref().filter(|points| points.contains(&point))?;
        Some(segment.columns.start + (point - points.start) * segment.columns.len() / points.len())
    };
    segments.iter().find_map(of_segment)
}

/// A run in a column.
struct Column {
    /// The moment with the most live bytes.
    moment: EventIndex,
    /// The live bytes, and memory outside of PyTorch.
    live_bytes: u64,
    /// The reserved bytes, and memory outside of PyTorch.
    reserved_bytes: u64,
}

/// Each column of a run; `None` where the run lacks the phase.
fn columns(plan: &ComparedPlan, segments: &[Segment], run: usize) -> Vec<Option<Column>> {
    let outside = plan.outside_bytes();
    let live = |point: &Point| point.live_bytes.iter().sum::<u64>();
    let mut columns = Vec::new();
    for segment in segments {
        let n = segment.columns.len();
        let points = segment.points[run].clone().map(|range| &plan.timeline().points[range]);
        columns.extend((0..n).map(|column| {
            let points = points?;
            // The largest moment, so that no peak is lost.
            let start = column * points.len() / n;
            let end = ((column + 1) * points.len() / n).max(start + 1);
            let points = points.get(start..end)?;
            let largest = points.iter().max_by_key(|point| live(point))?;
            let reserved = points.iter().map(|point| point.reserved_bytes).max()?;
            let [live_bytes, reserved_bytes] = [live(largest), reserved].map(|bytes| outside.saturating_add(bytes));
            Some(Column { moment: largest.moment, live_bytes, reserved_bytes })
        }));
    }
    columns
}

/// Fills in micro-steps that a run does not draw, because they are like those that it draws. Of the repeated micro-steps
/// of an iteration, a run draws the last and the one that fails. With the first, these are at most [`DRAWN_STEPS`].
fn repeat(segments: &mut [Segment], run: usize, n_steps: u64) {
    if n_steps < DRAWN_STEPS {
        return;
    }
    let is_step = |phase: Phase| matches!(phase, Phase::SteadyForward | Phase::SteadyBackward);
    for at in 0..segments.len() {
        let phase = segments[at].phase;
        if !is_step(phase) || segments[at].points[run].is_some() {
            continue;
        }
        // The nearest one of the same iteration.
        let like = |segment: &&Segment| segment.phase == phase && segment.points[run].is_some();
        let before = segments[..at].iter().rev().take_while(|segment| is_step(segment.phase)).find(like);
        let after = segments[at..].iter().take_while(|segment| is_step(segment.phase)).find(like);
        segments[at].points[run] = before.or(after).and_then(|segment| segment.points[run].clone());
    }
}

/// The most micro-steps of an iteration that a run draws.
const DRAWN_STEPS: u64 = 3;

/// Aligns the phases of two runs: the longest sequence that both have, with the rest of each in between. A part is as
/// wide as in the run in which it takes more of the width.
fn aligned(timelines: [&Timeline; 2]) -> Vec<Segment> {
    let spans = timelines.map(|timeline| &timeline.spans[..]);
    let [pinned, changed] = spans;
    // The length of the longest common sequence of the rest of both.
    let mut longest = vec![vec![0_usize; changed.len() + 1]; pinned.len() + 1];
    for at in (0..pinned.len()).rev() {
        for other in (0..changed.len()).rev() {
            longest[at][other] = match pinned[at].phase == changed[other].phase {
                true => longest[at + 1][other + 1] + 1,
                false => longest[at + 1][other].max(longest[at][other + 1]),
            };
        }
    }
    let mut segments: Vec<Segment> = Vec::new();
    let mut next = [0, 0];
    while next[0] < pinned.len() || next[1] < changed.len() {
        let both = pinned.get(next[0]).zip(changed.get(next[1]));
        let takes = match both {
            Some((one, other)) if one.phase == other.phase => [true, true],
            Some(_) if longest[next[0] + 1][next[1]] >= longest[next[0]][next[1] + 1] => [true, false],
            Some(_) => [false, true],
            None => [next[0] < pinned.len(), next[1] < changed.len()],
        };
        let taken = [0, 1].map(|run| takes[run].then(|| spans[run][next[run]]));
        let Some(phase) = taken.iter().flatten().next().map(|span| span.phase) else { break };
        let width = |run: usize| {
            let n_all = timelines[run].points.len().max(1);
            taken[run].map_or(0, |span| ((span.end - span.start) * COLUMNS / n_all).max(1))
        };
        let start = segments.last().map_or(0, |segment| segment.columns.end);
        let columns = start..start + width(0).max(width(1));
        let points = taken.map(|span| span.map(|span| span.start..span.end).filter(|range| !range.is_empty()));
        segments.push(Segment { phase, points, columns });
        next = [0, 1].map(|run| next[run] + usize::from(takes[run]));
    }
    segments
}

/// A stepped line with gaps, or the area below it.
fn line(heights: &[Option<u64>], is_area: bool) -> String {
    let mut path = String::new();
    let mut now = None;
    let end = |path: &mut String, column: usize| {
        path.push_str(&if is_area { format!("H{column}V{HEIGHT}Z") } else { format!("H{column}") });
    };
    for (column, height) in heights.iter().enumerate() {
        let y = height.map(|height| HEIGHT - height);
        match (now, y) {
            (None, Some(y)) if is_area => path.push_str(&format!("M{column} {HEIGHT}V{y}")),
            (None, Some(y)) => path.push_str(&format!("M{column} {y}")),
            (Some(before), Some(y)) if before != y => path.push_str(&format!("H{column}V{y}")),
            (Some(_), None) => end(&mut path, column),
            _ => {}
        }
        now = y;
    }
    if now.is_some() {
        end(&mut path, heights.len());
    }
    path
}
