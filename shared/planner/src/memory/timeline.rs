//! Memory over the run for a chart, and the live tensors at one moment.

use super::{
    program::{Action, Batch, Phase, Program},
    simulate::{ByCategory, EventIndex, Outcome},
    stored::{StoredTensor, TensorInfo},
};
use crate::{
    dtype::Dtype,
    gpt::tensors::{Category, Lifetime},
};

/// One column of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Moment with the most live bytes in the column.
    pub moment: EventIndex,
    /// Live bytes at that moment.
    pub live_bytes: ByCategory,
    /// `torch.cuda.memory_reserved()` at that moment.
    pub reserved_bytes: u64,
}

/// A range of columns in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Phase of the columns.
    pub phase: Phase,
    /// First column.
    pub start: usize,
    /// Column after the last.
    pub end: usize,
}

/// Chart data of memory over the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Columns of the chart in order.
    pub points: Vec<Point>,
    /// Phases in order; a phase that recurs has several spans.
    pub spans: Vec<Span>,
}

/// A tensor that is live at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveTensor {
    /// Identity of the tensor.
    pub stored: StoredTensor,
    /// Code of the tensor in the program's table.
    pub code: u16,
    /// Index of the block, if the tensor belongs to one.
    pub layer: Option<u64>,
    /// Shape, slowest axis first.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: Dtype,
    /// Size in the allocator in bytes.
    pub bytes: u64,
    /// Whether an evaluation allocated it, under `no_grad`.
    pub in_eval: bool,
}

impl LiveTensor {
    /// Name for the user.
    #[must_use]
    pub fn name(&self) -> String {
        self.stored.name(self.layer)
    }

    /// Category of the tensor.
    #[must_use]
    pub fn category(&self) -> Category {
        self.stored.category()
    }

    /// Reason for the tensor's lifetime.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        match self.stored.lifetime() {
            // Under `no_grad`, autograd saves nothing.
            Lifetime::SavedForBackward if self.in_eval => Lifetime::Intermediate,
            lifetime => lifetime,
        }
    }
}

/// Rounds of a repeated turn in a timeline; live bytes are the same in all later rounds.
const DRAWN_ROUNDS: u64 = 16;

/// One event of a walk.
struct Step {
    /// The slot and its new contents.
    slot: usize,
    now: Option<(u16, Option<u64>, Batch)>,
}

/// Walks over the executed events; `visit` receives each event with its moment and may stop the walk.
fn walk(
    program: &Program,
    outcome: &Outcome,
    mut visit: impl FnMut(Phase, EventIndex, Step) -> bool,
    mut rename: impl FnMut(usize, usize),
) {
    let end = outcome.failure.map_or(usize::MAX, |failure| failure.moment.0);
    for played in &outcome.played {
        let section = &program.sections[played.section.index()];
        for (index, event) in section.events.iter().enumerate() {
            let moment = EventIndex(played.start.0 + index);
            if moment.0 >= end {
                return;
            }
            let now = match event.action() {
                Action::Alloc(code, layer) => Some((code, layer, section.batch)),
                Action::Free => None,
            };
            if !visit(played.phase, moment, Step { slot: event.slot().index(), now }) {
                return;
            }
        }
        for (from, to) in &section.renames {
            rename(from.index(), to.index());
        }
    }
}

/// Calls `visit` with the live bytes, in total and per category, after each event. Pages draw while a slider moves, so an
/// event costs two lookups.
fn walk_categories(
    program: &Program,
    outcome: &Outcome,
    mut visit: impl FnMut(Phase, EventIndex, u64, u64, &ByCategory),
) {
    let end = outcome.failure.map_or(usize::MAX, |failure| failure.moment.0);
    let codes = program.tensors.codes();
    let mut slots = vec![(0_u64, 0_u8); program.n_slots];
    let (mut live, mut total) = (ByCategory::default(), 0_u64);
    for played in &outcome.played {
        let section = &program.sections[played.section.index()];
        let codes = codes[section.batch as usize].as_slice();
        for (index, event) in section.events.iter().enumerate() {
            let moment = played.start.0 + index;
            if moment >= end {
                return;
            }
            let slot = &mut slots[event.slot().index()];
            match codes.get(event.code()) {
                Some(&stored) => {
                    *slot = stored;
                    live[usize::from(stored.1)] += stored.0;
                    total += stored.0;
                }
                None => {
                    live[usize::from(slot.1)] -= slot.0;
                    total -= slot.0;
                    slot.0 = 0;
                }
            }
            visit(played.phase, EventIndex(moment + 1), played.round, total, &live);
        }
        for (from, to) in &section.renames {
            slots[to.index()] = std::mem::take(&mut slots[from.index()]);
        }
    }
}

/// Memory over the run in about `columns` columns, each with its maximum.
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
    walk_categories(program, outcome, |phase, moment, round, total, live| {
        if round > DRAWN_ROUNDS {
            return;
        }
        while let Some((_, bytes)) = reserved.next_if(|(at, _)| *at < moment) {
            reserved_now = bytes;
        }
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

/// Live bytes per category at a moment.
#[must_use]
pub fn categories_at(program: &Program, outcome: &Outcome, moment: EventIndex) -> ByCategory {
    let mut found = ByCategory::default();
    walk_categories(program, outcome, |_, at, _, _, live| {
        if at <= moment {
            found = *live;
        }
    });
    found
}

/// An allocation of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationRecord {
    /// Phase of the allocation.
    pub phase: Phase,
    /// The allocated tensor.
    pub stored: StoredTensor,
    /// Index of the block, if the tensor belongs to one.
    pub layer: Option<u64>,
    /// Shape, slowest axis first.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: Dtype,
    /// Live bytes before the allocation.
    pub live_bytes: u64,
}

/// Allocations whose size satisfies `asks`, one for each tensor and phase: the one with live bytes nearest to `near`.
/// Sorted by that distance.
#[must_use]
pub fn allocations(
    program: &Program,
    outcome: &Outcome,
    asks: impl Fn(u64) -> bool,
    near: u64,
) -> Vec<AllocationRecord> {
    let mut found: Vec<AllocationRecord> = Vec::new();
    let codes = program.tensors.codes();
    let mut slots = vec![0_u64; program.n_slots];
    let mut live_bytes = 0_u64;
    for played in &outcome.played {
        let section = &program.sections[played.section.index()];
        let codes = codes[section.batch as usize].as_slice();
        for event in &section.events {
            let held = &mut slots[event.slot().index()];
            let Action::Alloc(code, layer) = event.action() else {
                live_bytes = live_bytes.saturating_sub(std::mem::take(held));
                continue;
            };
            let bytes = codes.get(event.code()).map_or(0, |(bytes, _)| *bytes);
            if asks(bytes)
                && let Some(TensorInfo { stored, shape, dtype, .. }) = program.tensors.get(code, section.batch)
            {
                let away = live_bytes.abs_diff(near);
                let is_same = |asked: &AllocationRecord| asked.phase == played.phase && asked.stored == stored;
                let known = found.iter().position(is_same);
                if known.is_none_or(|at| found[at].live_bytes.abs_diff(near) > away) {
                    known.map(|at| found.remove(at));
                    let at = found.partition_point(|asked| asked.live_bytes.abs_diff(near) <= away);
                    found.insert(at, AllocationRecord { phase: played.phase, stored, layer, shape, dtype, live_bytes });
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

/// Tensors that are live at a moment, in no particular order.
#[must_use]
pub fn live_at(program: &Program, outcome: &Outcome, moment: EventIndex) -> Vec<LiveTensor> {
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
    slots
        .into_inner()
        .into_iter()
        .flatten()
        .filter_map(|(code, layer, batch)| {
            let TensorInfo { stored, shape, dtype, bytes } = program.tensors.get(code, batch)?;
            Some(LiveTensor { stored, code, layer, shape, dtype, bytes, in_eval: batch == Batch::Eval })
        })
        .collect()
}
