//! Replays a program through the allocator until the run ends or the card is full.

use super::{
    allocator::{Allocator, BlockId, OutOfMemory, SegmentKind},
    program::{Action, Phase, Program, SectionId},
};
use crate::gpt::tensors::Stored;

/// Peaks of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhasePeak {
    /// The phase.
    pub phase: Phase,
    /// The largest sum of live tensors in that phase, each rounded up to 512 bytes.
    pub live_bytes: u64,
    /// `torch.cuda.max_memory_allocated()` at its end, never reset.
    pub max_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()` at its end, never reset.
    pub max_reserved_bytes: u64,
}

/// A moment of the run: so many events after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub usize);

/// A section that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Played {
    /// The phase it counts for.
    pub phase: Phase,
    /// The section.
    pub section: SectionId,
    /// The moment before its first event.
    pub start: Moment,
}

/// The allocation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The phase.
    pub phase: Phase,
    /// The tensor that was to be stored.
    pub tensor: Stored,
    /// The block it belongs to.
    pub layer: Option<u64>,
    /// Whether it has the shapes of the evaluation batch.
    pub in_eval: bool,
    /// The moment before it.
    pub moment: Moment,
    /// What was asked for.
    pub request: OutOfMemory,
    /// `torch.cuda.memory_allocated()` at that moment.
    pub allocated_bytes: u64,
    /// `torch.cuda.memory_reserved()` at that moment, after cached segments were given back.
    pub reserved_bytes: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Peaks of each phase that ran, in the order of the JSON contract.
    pub phases: Vec<PhasePeak>,
    /// The largest sum of live tensors.
    pub live_bytes_peak: u64,
    /// Where that was.
    pub peak_moment: Moment,
    /// The phase that was in.
    pub peak_phase: Phase,
    /// `torch.cuda.max_memory_allocated()` of the whole run.
    pub max_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()` of the whole run.
    pub max_reserved_bytes: u64,
    /// The phase in which the reserved memory reached its largest.
    pub reserved_peak_phase: Phase,
    /// The allocation that failed, if one did; then everything above ends there.
    pub failure: Option<Failure>,
    /// What ran, in order.
    pub played: Vec<Played>,
    /// Reserved bytes from a moment on, where they changed.
    pub reserved: Vec<(Moment, u64)>,
}

/// A turn that repeats is run at most this often even if the allocator never settles.
const MAX_REPEATS: u64 = 16;

/// Replays a program on a card where PyTorch can have `capacity_bytes`.
#[must_use]
pub fn simulate(program: &Program, kind: SegmentKind, capacity_bytes: u64) -> Outcome {
    let mut replay = Replay {
        program,
        allocator: Allocator::new(kind, capacity_bytes),
        slots: vec![None; program.n_slots],
        live_bytes: 0,
        moment: 0,
        peaks: [None; Phase::ALL.len()],
        live_bytes_peak: 0,
        peak_moment: Moment(0),
        peak_phase: Phase::Init,
        reserved_peak_phase: Phase::Init,
        played: Vec::with_capacity(64),
        reserved: Vec::with_capacity(128),
        failure: None,
    };
    for turn in &program.schedule {
        for _ in 0..turn.times.min(MAX_REPEATS) {
            let before = (turn.times > 1).then(|| (replay.allocator.clone(), replay.live_bytes));
            for &(phase, section) in &turn.sections {
                if replay.play(phase, section).is_none() {
                    return replay.finish();
                }
            }
            let settled = before
                .is_some_and(|(allocator, live)| live == replay.live_bytes && allocator.same_state(&replay.allocator));
            if settled {
                break;
            }
        }
    }
    replay.finish()
}

#[derive(Clone, Copy)]
struct Held {
    block: BlockId,
    bytes: u64,
}

struct Replay<'a> {
    program: &'a Program,
    allocator: Allocator,
    slots: Vec<Option<Held>>,
    live_bytes: u64,
    moment: usize,
    peaks: [Option<PhasePeak>; Phase::ALL.len()],
    live_bytes_peak: u64,
    peak_moment: Moment,
    peak_phase: Phase,
    reserved_peak_phase: Phase,
    played: Vec<Played>,
    reserved: Vec<(Moment, u64)>,
    failure: Option<Failure>,
}

impl Replay<'_> {
    /// Runs one section; `None` once an allocation failed.
    fn play(&mut self, phase: Phase, id: SectionId) -> Option<()> {
        let section = &self.program.sections[id.index()];
        let (_, bytes) = self.program.sizes(section.batch);
        self.played.push(Played { phase, section: id, start: Moment(self.moment) });
        let mut live_peak = self.live_bytes;
        let mut live_peak_moment = self.moment;
        let reserved_peak_before = self.allocator.max_reserved_bytes();
        for event in &section.events {
            let slot = event.slot().index();
            match event.action() {
                Action::Alloc(stored, layer) => {
                    let bytes = bytes.of(stored);
                    let reserved = self.allocator.reserved_bytes();
                    match self.allocator.alloc(bytes) {
                        Ok(block) => {
                            self.slots[slot] = Some(Held { block, bytes });
                            self.live_bytes += bytes;
                        }
                        Err(request) => {
                            self.failure = Some(Failure {
                                phase,
                                tensor: stored,
                                layer,
                                in_eval: section.batch == super::program::Batch::Eval,
                                moment: Moment(self.moment),
                                request,
                                allocated_bytes: self.allocator.allocated_bytes(),
                                reserved_bytes: self.allocator.reserved_bytes(),
                            });
                        }
                    }
                    if reserved != self.allocator.reserved_bytes() {
                        self.reserved.push((Moment(self.moment), self.allocator.reserved_bytes()));
                    }
                    if self.failure.is_some() {
                        break;
                    }
                }
                Action::Free => {
                    if let Some(held) = self.slots[slot].take() {
                        self.allocator.free(held.block);
                        self.live_bytes -= held.bytes;
                    }
                }
            }
            self.moment += 1;
            if self.live_bytes > live_peak {
                live_peak = self.live_bytes;
                live_peak_moment = self.moment;
            }
        }
        if live_peak > self.live_bytes_peak {
            self.live_bytes_peak = live_peak;
            self.peak_moment = Moment(live_peak_moment);
            self.peak_phase = phase;
        }
        if self.allocator.max_reserved_bytes() > reserved_peak_before {
            self.reserved_peak_phase = phase;
        }
        self.note_peak(phase, live_peak);
        if self.failure.is_some() {
            return None;
        }
        for (from, to) in &section.renames {
            self.slots[to.index()] = self.slots[from.index()].take();
        }
        Some(())
    }

    fn note_peak(&mut self, phase: Phase, live_bytes: u64) {
        let peak = self.peaks[phase as usize].get_or_insert(PhasePeak {
            phase,
            live_bytes: 0,
            max_allocated_bytes: 0,
            max_reserved_bytes: 0,
        });
        peak.live_bytes = peak.live_bytes.max(live_bytes);
        peak.max_allocated_bytes = self.allocator.max_allocated_bytes();
        peak.max_reserved_bytes = self.allocator.max_reserved_bytes();
    }

    fn finish(self) -> Outcome {
        Outcome {
            phases: self.peaks.into_iter().flatten().collect(),
            live_bytes_peak: self.live_bytes_peak,
            peak_moment: self.peak_moment,
            peak_phase: self.peak_phase,
            max_allocated_bytes: self.allocator.max_allocated_bytes(),
            max_reserved_bytes: self.allocator.max_reserved_bytes(),
            reserved_peak_phase: self.reserved_peak_phase,
            failure: self.failure,
            played: self.played,
            reserved: self.reserved,
        }
    }
}
