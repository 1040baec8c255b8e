//! The course of a run as a chart shows it. Repeated parts are shown once, in their final state.
//!
//! A plan replays evaluation batches and micro-steps until the allocator settles. They look alike. Of each such row,
//! the chart shows the last one and the one that fails.

use std::{ops::Deref, sync::Arc};

use headroom_planner::{
    memory::{
        program::Phase,
        simulate::Failure,
        timeline::{Point, Span, Timeline},
    },
    plan::{Plan, Request, RunOnMachine},
};

/// The number of columns requested from the plan, repeats included.
const COLUMNS_ASKED: usize = 1600;
/// The most columns kept: each is text in a path, and columns narrower than two pixels are useless on a laptop.
const COLUMNS_MAX: usize = 440;

/// A stretch of points that is kept or dropped as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    phase: Phase,
    start: usize,
    end: usize,
}

/// A request whose plan a page can draw.
pub trait Drawable: RunOnMachine + std::fmt::Debug + Send + Sync + 'static {}

impl<R: RunOnMachine + std::fmt::Debug + Send + Sync + 'static> Drawable for R {}

/// A plan and its timeline.
#[derive(Debug)]
pub struct PlanWithTimeline<R = Request> {
    /// The plan.
    pub plan: Plan<R>,
    /// Memory over the run, without repeats.
    pub timeline: Timeline,
}

impl<R: Drawable> PlanWithTimeline<R> {
    /// Computes the timeline of a plan whose evaluations have `eval_batches` batches.
    pub fn of(plan: Plan<R>, eval_batches: u64) -> Self {
        Self { timeline: course(&plan, eval_batches), plan }
    }

    /// Returns the column to show while the pointer is outside the chart: the failure, else the peak.
    pub fn first_shown(&self) -> usize {
        match self.plan.failure {
            Some(failure) => failure_column(&self.timeline, failure),
            None => largest_column(&self.timeline),
        }
    }
}

/// A shared plan. Two are equal if they are the same allocation.
#[derive(Debug)]
pub struct Drawn<R = Request>(Arc<PlanWithTimeline<R>>);

impl<R> Drawn<R> {
    /// The plan for a holder that does not name its trainer.
    pub fn shared(self) -> Arc<PlanWithTimeline<R>> {
        self.0
    }
}

impl<R> From<PlanWithTimeline<R>> for Drawn<R> {
    fn from(planned: PlanWithTimeline<R>) -> Self {
        Self(Arc::new(planned))
    }
}

impl<R> Deref for Drawn<R> {
    type Target = PlanWithTimeline<R>;

    fn deref(&self) -> &PlanWithTimeline<R> {
        &self.0
    }
}

impl<R> Clone for Drawn<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> PartialEq for Drawn<R> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Computes memory over the run, without repeats. Evaluations have `eval_batches` batches.
fn course<R: RunOnMachine>(plan: &Plan<R>, eval_batches: u64) -> Timeline {
    let timeline = plan.timeline(COLUMNS_ASKED);
    let failure = plan.failure.map(|failure| failure.moment);
    let later_batches = usize::try_from(eval_batches.saturating_sub(1)).unwrap_or(usize::MAX);
    let rows = rows(&timeline, later_batches);
    let fails_in = |pieces: &[Piece]| {
        let first = |piece: &Piece| timeline.points[piece.start].moment;
        failure.is_some_and(|at| {
            pieces.first().is_some_and(|piece| first(piece) <= at) && {
                let end = pieces.last().map_or(0, |piece| piece.end);
                timeline.points.get(end).is_none_or(|next| next.moment > at)
            }
        })
    };
    let kept = rows.iter().flat_map(|row| {
        let last = row.len().saturating_sub(1);
        row.iter()
            .enumerate()
            .filter(move |(at, pieces)| *at == last || fails_in(pieces))
            .flat_map(|(_, pieces)| pieces)
    });
    thinned(&timeline.points, &kept.copied().collect::<Vec<_>>())
}

/// The run as rows of repeats. A part without repeats is a row with one element.
fn rows(timeline: &Timeline, eval_batches: usize) -> Vec<Vec<Vec<Piece>>> {
    let mut rows: Vec<Vec<Vec<Piece>>> = Vec::new();
    let mut before = None;
    // Whether the next micro-step is like the previous one.
    let mut repeats = false;
    for span in &timeline.spans {
        let piece = Piece { phase: span.phase, start: span.start, end: span.end };
        match (span.phase, rows.last_mut()) {
            (Phase::Eval | Phase::LaterEval, _) => rows.push(split(piece, alike(piece, rows.last()).min(eval_batches))),
            (Phase::SteadyForward, Some(row)) if repeats && before == Some(Phase::SteadyBackward) => {
                row.push(vec![piece]);
            }
            (Phase::SteadyForward, _) => {
                // An iteration's first micro-step differs from the others; the very first has phases of its own.
                repeats = before == Some(Phase::SteadyBackward) || before == Some(Phase::FirstBackward);
                rows.push(vec![vec![piece]]);
            }
            (Phase::SteadyBackward, Some(row)) => match row.last_mut() {
                Some(step) if before == Some(Phase::SteadyForward) => step.push(piece),
                _ => rows.push(vec![vec![piece]]),
            },
            _ => rows.push(vec![vec![piece]]),
        }
        before = Some(span.phase);
    }
    rows
}

/// The number of batches in the rest of an evaluation. All take about as long as the first, which has its own phase.
fn alike(rest: Piece, first: Option<&Vec<Vec<Piece>>>) -> usize {
    let length = |piece: &Piece| piece.end - piece.start;
    let first = first.and_then(|row| row.first()?.first()).map_or(1, length).max(1);
    (length(&rest) + first / 2) / first
}

fn split(piece: Piece, n: usize) -> Vec<Vec<Piece>> {
    let n = n.clamp(1, (piece.end - piece.start).max(1));
    let at = |index: usize| piece.start + (piece.end - piece.start) * index / n;
    (0..n).map(|index| vec![Piece { start: at(index), end: at(index + 1), ..piece }]).collect()
}

/// The kept pieces as a timeline of fewer columns. Each column shows its largest moment.
fn thinned(points: &[Point], kept: &[Piece]) -> Timeline {
    let n: usize = kept.iter().map(|piece| piece.end - piece.start).sum();
    let width = n.div_ceil(COLUMNS_MAX).max(1);
    let mut timeline = Timeline::default();
    for piece in kept {
        let start = timeline.points.len();
        let columns = points[piece.start..piece.end].chunks(width);
        timeline.points.extend(columns.filter_map(|column| column.iter().copied().reduce(larger)));
        let end = timeline.points.len();
        match timeline.spans.last_mut() {
            Some(span) if span.phase == piece.phase => span.end = end,
            _ => timeline.spans.push(Span { phase: piece.phase, start, end }),
        }
    }
    timeline
}

fn larger(a: Point, b: Point) -> Point {
    let live = |point: &Point| point.live_bytes.iter().sum::<u64>();
    if live(&b) > live(&a) { b } else { a }
}

/// The column in which an allocation fails.
pub fn failure_column(timeline: &Timeline, failure: Failure) -> usize {
    // A column shows its largest moment, which may be before or after the failure's.
    let after = timeline.points.partition_point(|point| point.moment <= failure.moment);
    let last = timeline.points.len().saturating_sub(1);
    let candidates = [after.saturating_sub(1), after.min(last)];
    let found = candidates.into_iter().find(|column| phase_at(timeline, *column) == Some(failure.phase));
    found.unwrap_or(candidates[0])
}

/// The column with the most live bytes.
pub fn largest_column(timeline: &Timeline) -> usize {
    let live = |column: &usize| timeline.points[*column].live_bytes.iter().sum::<u64>();
    // The first of equal columns, as for the peak.
    (0..timeline.points.len()).rev().max_by_key(live).unwrap_or(0)
}

/// The phase of a column.
pub fn phase_at(timeline: &Timeline, column: usize) -> Option<Phase> {
    timeline.spans.iter().find(|span| (span.start..span.end).contains(&column)).map(|span| span.phase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::answer::PlannedSession;

    fn with_course(text: &str, check: impl Fn(&Plan, &Timeline)) {
        let answer = PlannedSession::of_text(text);
        let planned = answer.planned.as_ref().expect("a plan");
        check(&planned.plan, &planned.timeline);
    }

    fn phases(timeline: &Timeline) -> Vec<Phase> {
        timeline.spans.iter().map(|span| span.phase).collect()
    }

    #[test]
    fn an_iteration_shows_its_first_and_its_last_micro_step() {
        use Phase::{
            Eval, EvalFirst, FirstBackward, FirstForward, FirstOptimizer, Init, Rest, SteadyBackward, SteadyForward,
            SteadyOptimizer,
        };
        with_course("compile = False\nbatch_size = 4\neval_interval = 10**9\n", |_, timeline| {
            let mut phases = phases(timeline);
            phases.retain(|phase| *phase != Rest);
            let micro_step = [SteadyForward, SteadyBackward];
            let start = [Init, EvalFirst, Eval, FirstForward, FirstBackward];
            let expected = [&start[..], &micro_step, &[FirstOptimizer], &micro_step, &micro_step, &[SteadyOptimizer]];
            assert_eq!(phases, expected.concat());
        });
        with_course("compile = False\ngradient_accumulation_steps = 1\neval_iters = 0\n", |_, timeline| {
            let mut phases = phases(timeline);
            phases.retain(|phase| *phase != Rest);
            let start = [Init, FirstForward, FirstBackward, FirstOptimizer];
            assert_eq!(phases, [&start[..], &micro_step(), &[SteadyOptimizer]].concat());
        });
    }

    fn micro_step() -> [Phase; 2] {
        [Phase::SteadyForward, Phase::SteadyBackward]
    }

    #[test]
    fn omitted_points_hide_neither_peak_nor_failure() {
        for compile in ["True", "False"] {
            for batch_size in [1, 7, 8, 9, 10, 12, 64] {
                let text = format!("compile = {compile}\nbatch_size = {batch_size}\n");
                with_course(&text, |plan, timeline| {
                    let live = |column: usize| timeline.points[column].live_bytes.iter().sum::<u64>();
                    assert_eq!(live(largest_column(timeline)), plan.peak.live_bytes, "{text}");
                    assert!(timeline.points.len() <= COLUMNS_MAX + timeline.spans.len() * 2);
                    assert!(timeline.points.windows(2).all(|pair| pair[0].moment < pair[1].moment));
                    if let Some(failure) = plan.failure {
                        let shown = phase_at(timeline, failure_column(timeline, failure));
                        assert_eq!(shown, Some(failure.phase), "{text}");
                    }
                });
            }
        }
    }
}
