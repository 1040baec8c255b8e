//! The chart with both runs over each other, aligned by phase: columns horizontally, thousandths of the height
//! vertically from the top.

use std::ops::Range;

use headroom_planner::{
    memory::{
        program::Phase,
        timeline::{Span, Timeline},
    },
    plan::Plan,
};

use super::super::{
    answer::PlanWithTimeline,
    chart::{HEADROOM_SHARE, HEIGHT, Tick, area, levels, stretches, ticks, units},
    format,
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

/// Everything that the chart draws.
#[derive(Clone, Debug, PartialEq)]
pub struct Overlay {
    /// The number of columns.
    pub n_columns: usize,
    /// The line of the pinned run: its tensors, the CUDA context and other programs.
    pub pinned: String,
    /// The area of the changed run.
    pub changed: String,
    /// The lines of memory in use on the GPU, with what PyTorch has reserved.
    pub reserved: [String; 2],
    /// The memory of both GPUs; one line if they are the same.
    pub limits: Vec<Limit>,
    /// Grid lines of the memory axis: share of the height from the top, and the label in GiB.
    pub levels: Vec<(f64, String)>,
    /// Ticks of the phases.
    pub phases: Vec<Tick>,
    /// Ticks of the stretches that group the phases.
    pub stretches: Vec<Tick>,
}

impl Overlay {
    /// Lays out the chart of a pinned and a changed run.
    pub fn of(planned: [&PlanWithTimeline; 2]) -> Self {
        let segments = aligned(planned.map(|planned| &planned.timeline));
        let n_columns = segments.last().map_or(0, |segment| segment.columns.end);
        let used = planned.iter().map(|planned| planned.plan.peak.device_used_bytes).max().unwrap_or(0);
        let totals = planned.map(|planned| planned.plan.request.device.total_bytes);
        let is_drawn = |total: u64| total as f64 <= used as f64 * LIMIT_SHARE_MAX;
        let most = totals.into_iter().filter(|total| is_drawn(*total)).fold(used, u64::max);
        let top = (most as f64 * HEADROOM_SHARE).max(1.0);
        let columns = |run: usize| columns(planned[run], &segments, run);
        let heights = [0, 1].map(|run| {
            columns(run)
                .into_iter()
                .map(|bytes| bytes.map(|bytes| bytes.map(|bytes| units(bytes, top))))
                .collect::<Vec<_>>()
        });
        let one = |run: usize, of: usize| heights[run].iter().map(|both| both.map(|both| both[of])).collect::<Vec<_>>();
        let changed = one(1, 0);
        let limit =
            |total: u64| Limit { y: is_drawn(total).then_some(1.0 - total as f64 / top), size: format::size(total) };
        let mut limits: Vec<Limit> = totals.map(limit).to_vec();
        limits.dedup();
        let spans = segments.iter().map(|segment| {
            let Range { start, end } = segment.columns;
            Span { phase: segment.phase, start, end }
        });
        let axis = Timeline { points: Vec::new(), spans: spans.collect() };
        Self {
            n_columns,
            pinned: line(&one(0, 0)),
            changed: area(n_columns, |column| changed[column].unwrap_or(0), |_| 0),
            reserved: [line(&one(0, 1)), line(&one(1, 1))],
            limits,
            levels: levels(top),
            phases: ticks(&axis, n_columns),
            stretches: stretches(&axis, n_columns),
        }
    }
}

/// For each column the live bytes and the bytes in use on the GPU; `None` where the run lacks the phase.
fn columns(planned: &PlanWithTimeline, segments: &[Segment], run: usize) -> Vec<Option<[u64; 2]>> {
    let outside = outside_bytes(&planned.plan);
    let mut columns = Vec::new();
    for segment in segments {
        let n = segment.columns.len();
        let points = segment.points[run].clone().map(|range| &planned.timeline.points[range]);
        columns.extend((0..n).map(|column| {
            let points = points?;
            // The largest moment, so that no peak is lost.
            let start = column * points.len() / n;
            let end = ((column + 1) * points.len() / n).max(start + 1);
            let points = points.get(start..end)?;
            let most = |read: fn(&headroom_planner::memory::timeline::Point) -> u64| points.iter().map(read).max();
            let live = most(|point| point.live_bytes.iter().sum())?;
            Some([live, most(|point| point.reserved_bytes)?].map(|bytes| outside.saturating_add(bytes)))
        }));
    }
    columns
}

fn outside_bytes(plan: &Plan) -> u64 {
    plan.request.other_processes_bytes.saturating_add(plan.request.context.bytes)
}

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

/// A stepped line with gaps.
fn line(heights: &[Option<u64>]) -> String {
    let mut path = String::new();
    let mut now = None;
    for (column, height) in heights.iter().enumerate() {
        let y = height.map(|height| HEIGHT - height);
        match (now, y) {
            (None, Some(y)) => path.push_str(&format!("M{column} {y}")),
            (Some(before), Some(y)) if before != y => path.push_str(&format!("H{column}V{y}")),
            (Some(_), None) => path.push_str(&format!("H{column}")),
            _ => {}
        }
        now = y;
    }
    if now.is_some() {
        path.push_str(&format!("H{}", heights.len()));
    }
    path
}
