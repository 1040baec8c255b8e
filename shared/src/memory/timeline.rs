//! Memory over the run, for a chart, and what is live at one moment of it.

use super::{
    program::{Action, Phase, Program},
    simulate::{Moment, Outcome},
};
use crate::{
    dtype::Dtype,
    gpt::tensors::{Category, Lifetime, Stored},
};

/// Live bytes a category, in the order of [`Category::ALL`].
pub type ByCategory = [u64; Category::ALL.len()];

/// One column of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The moment with the most live bytes among those of the column.
    pub moment: Moment,
    /// Live bytes at that moment.
    pub live_bytes: ByCategory,
    /// `torch.cuda.memory_reserved()` at that moment.
    pub reserved_bytes: u64,
}

/// A stretch of columns in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The phase.
    pub phase: Phase,
    /// The first column.
    pub start: usize,
    /// The column after the last.
    pub end: usize,
}

/// Memory over the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The columns.
    pub points: Vec<Point>,
    /// The phases they are in, in order; a phase that comes again has another span.
    pub spans: Vec<Span>,
}

/// A tensor that is live at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTensor {
    /// The tensor.
    pub stored: Stored,
    /// The block it belongs to.
    pub layer: Option<u64>,
    /// Its axes, slowest first.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// What it takes in the allocator.
    pub bytes: u64,
}

impl LiveTensor {
    /// The name a person knows it by.
    #[must_use]
    pub fn name(&self) -> String {
        self.stored.name(self.layer)
    }

    /// What it is for.
    #[must_use]
    pub fn category(&self) -> Category {
        self.stored.category()
    }

    /// Why it is alive.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        self.stored.lifetime()
    }
}

/// Rounds of a repeated turn that a timeline draws: live bytes are the same in all later ones.
const DRAWN_ROUNDS: u64 = 16;

/// What a walk over the events tells, event by event.
struct Step {
    /// Which round of its turn it is in.
    round: u64,
    /// The slot and what is in it from now on.
    slot: usize,
    now: Option<(Stored, Option<u64>, bool)>,
}

/// Walks over what was played; `visit` sees each event with its moment and may stop the walk.
fn walk(
    program: &Program,
    outcome: &Outcome,
    mut visit: impl FnMut(Phase, Moment, Step) -> bool,
    mut rename: impl FnMut(usize, usize),
) {
    let end = outcome.failure.map_or(usize::MAX, |failure| failure.moment.0);
    for played in &outcome.played {
        let section = &program.sections[played.section.index()];
        for (index, event) in section.events.iter().enumerate() {
            let moment = Moment(played.start.0 + index);
            if moment.0 >= end {
                return;
            }
            let now = match event.action() {
                Action::Alloc(stored, layer) => Some((stored, layer, section.batch == super::program::Batch::Eval)),
                Action::Free => None,
            };
            if !visit(played.phase, moment, Step { round: played.round, slot: event.slot().index(), now }) {
                return;
            }
        }
        for (from, to) in &section.renames {
            rename(from.index(), to.index());
        }
    }
}

/// Live bytes a category after each event, handed to `visit`.
fn walk_categories(program: &Program, outcome: &Outcome, mut visit: impl FnMut(Phase, Moment, u64, &ByCategory)) {
    let slots = std::cell::RefCell::new(vec![(0_usize, 0_u64); program.n_slots]);
    let mut live = ByCategory::default();
    walk(
        program,
        outcome,
        |phase, moment, step| {
            let slot = &mut slots.borrow_mut()[step.slot];
            match step.now {
                Some((stored, _, in_eval)) => {
                    let bytes = if in_eval { &program.eval_bytes } else { &program.bytes }.of(stored);
                    *slot = (stored.category() as usize, bytes);
                    live[slot.0] += bytes;
                }
                None => {
                    live[slot.0] = live[slot.0].saturating_sub(slot.1);
                    slot.1 = 0;
                }
            }
            visit(phase, Moment(moment.0 + 1), step.round, &live);
            true
        },
        |from, to| {
            let mut slots = slots.borrow_mut();
            slots[to] = std::mem::take(&mut slots[from]);
        },
    );
}

/// Memory over the run in at most about `columns` columns, each showing its largest moment.
#[must_use]
pub fn timeline(program: &Program, outcome: &Outcome, columns: usize) -> Timeline {
    let end = outcome.failure.map_or(usize::MAX, |failure| failure.moment.0);
    let drawn = outcome.played.iter().filter(|played| played.round <= DRAWN_ROUNDS);
    let n_events: usize = drawn
        .map(|played| program.sections[played.section.index()].events.len().min(end.saturating_sub(played.start.0)))
        .sum();
    let width = n_events.div_ceil(columns.max(1)).max(1);
    let mut timeline = Timeline::default();
    let mut reserved = outcome.reserved.iter().copied().peekable();
    let mut reserved_now = 0;
    let mut filled = 0;
    let mut largest = 0;
    walk_categories(program, outcome, |phase, moment, round, live| {
        if round > DRAWN_ROUNDS {
            return;
        }
        while let Some((_, bytes)) = reserved.next_if(|(at, _)| *at < moment) {
            reserved_now = bytes;
        }
        let total: u64 = live.iter().sum();
        let starts_span = timeline.spans.last().is_none_or(|span| span.phase != phase);
        if starts_span || filled == width {
            filled = 0;
            largest = 0;
            timeline.points.push(Point { moment, live_bytes: *live, reserved_bytes: reserved_now });
        }
        let column = timeline.points.len() - 1;
        match timeline.spans.last_mut() {
            Some(span) if !starts_span => span.end = column + 1,
            _ => timeline.spans.push(Span { phase, start: column, end: column + 1 }),
        }
        if total > largest {
            largest = total;
            if let Some(point) = timeline.points.last_mut() {
                *point = Point { moment, live_bytes: *live, reserved_bytes: reserved_now };
            }
        }
        filled += 1;
    });
    timeline
}

/// Live bytes a category at a moment.
#[must_use]
pub fn categories_at(program: &Program, outcome: &Outcome, moment: Moment) -> ByCategory {
    let mut found = ByCategory::default();
    walk_categories(program, outcome, |_, at, _, live| {
        if at <= moment {
            found = *live;
        }
    });
    found
}

/// An allocation of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The phase it is in.
    pub phase: Phase,
    /// The tensor.
    pub stored: Stored,
    /// The block it belongs to.
    pub layer: Option<u64>,
    /// Its axes, slowest first.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// What was live before it.
    pub live_bytes: u64,
}

/// The allocations of as many bytes as `asks` takes, one for each tensor and phase: that with what is live nearest to
/// `near`, the nearest first.
#[must_use]
pub fn allocations(program: &Program, outcome: &Outcome, asks: impl Fn(u64) -> bool, near: u64) -> Vec<Asked> {
    let mut found: Vec<Asked> = Vec::new();
    let mut slots = vec![0_u64; program.n_slots];
    let mut live_bytes = 0_u64;
    for played in &outcome.played {
        let section = &program.sections[played.section.index()];
        let (dims, sizes) = program.sizes(section.batch);
        for event in &section.events {
            let held = &mut slots[event.slot().index()];
            let Action::Alloc(stored, layer) = event.action() else {
                live_bytes = live_bytes.saturating_sub(std::mem::take(held));
                continue;
            };
            let bytes = sizes.of(stored);
            if asks(bytes) {
                let away = live_bytes.abs_diff(near);
                let known = found.iter().position(|asked| (asked.phase, asked.stored) == (played.phase, stored));
                if known.is_none_or(|at| found[at].live_bytes.abs_diff(near) > away) {
                    known.map(|at| found.remove(at));
                    let at = found.partition_point(|asked| asked.live_bytes.abs_diff(near) <= away);
                    let shape = stored.shape(dims).as_slice().to_vec();
                    let dtype = stored.dtype(dims.compute);
                    found.insert(at, Asked { phase: played.phase, stored, layer, shape, dtype, live_bytes });
                }
            }
            live_bytes += bytes;
            *held = bytes;
        }
        for (from, to) in &section.renames {
            slots[to.index()] = std::mem::take(&mut slots[from.index()]);
        }
    }
    found
}

/// What is live at a moment, largest first.
#[must_use]
pub fn live_at(program: &Program, outcome: &Outcome, moment: Moment) -> Vec<LiveTensor> {
    let slots = std::cell::RefCell::new(vec![None; program.n_slots]);
    walk(
        program,
        outcome,
        |_, at, step| {
            if at >= moment {
                return false;
            }
            slots.borrow_mut()[step.slot] = step.now;
            true
        },
        |from, to| {
            let mut slots = slots.borrow_mut();
            slots[to] = slots[from].take();
        },
    );
    let mut live: Vec<_> = slots
        .into_inner()
        .into_iter()
        .flatten()
        .map(|(stored, layer, in_eval)| {
            let (dims, bytes) =
                if in_eval { (&program.eval_dims, &program.eval_bytes) } else { (&program.dims, &program.bytes) };
            LiveTensor {
                stored,
                layer,
                shape: stored.shape(dims).as_slice().to_vec(),
                dtype: stored.dtype(dims.compute),
                bytes: bytes.of(stored),
            }
        })
        .collect();
    live.sort_unstable_by_key(|tensor| (std::cmp::Reverse(tensor.bytes), tensor.layer, tensor.stored.code()));
    live
}
