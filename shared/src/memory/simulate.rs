//! Replays a program through the allocator until the run ends or the card is full.

use super::{
    allocator::{Allocator, BlockId, OutOfMemory, SegmentKind},
    program::{Action, Batch, Phase, Program, SectionId, Slot},
    timeline::ByCategory,
};
use crate::gpt::tensors::{Stored, TensorBytes};

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
    /// Which round of its turn it was, from 1.
    pub round: u64,
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
    /// Live bytes a category at that moment.
    pub peak_by_category: ByCategory,
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

/// A turn that repeats runs until its state returns, see [`State`], and at most this often.
const MAX_ROUNDS: u64 = 512;

/// What decides how a run goes on: which slot holds which block, as a digest, and what the allocator took from the driver.
///
/// Free neighbours merge, so the free blocks are what the blocks in use leave of the segments. A round that ends in the
/// state of an earlier round leads into the same rounds again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    blocks: u64,
    driver: [u64; 3],
}

/// Replays a program on a card where PyTorch can have `capacity_bytes`.
#[must_use]
pub fn simulate(program: &Program, kind: SegmentKind, capacity_bytes: u64) -> Outcome {
    let train = codes(&program.bytes);
    let eval = if program.eval_dims == program.dims { train.clone() } else { codes(&program.eval_bytes) };
    let mut replay = Replay {
        program,
        allocator: Allocator::new(kind, capacity_bytes),
        codes: [train, eval],
        slots: vec![Held::default(); program.n_slots],
        live_bytes: 0,
        live: ByCategory::default(),
        peak_by_category: ByCategory::default(),
        moment: 0,
        blocks_digest: 0,
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
        let mut states: Vec<State> = Vec::new();
        for round in 1..=turn.times.min(MAX_ROUNDS) {
            for &(phase, section) in &turn.sections {
                if replay.play(phase, section, round).is_none() {
                    return replay.finish();
                }
            }
            let state = replay.state();
            let cycle = states.iter().rev().position(|&before| before == state).map(|rounds| rounds as u64 + 1);
            states.push(state);
            // What comes next depends on where in the cycle the turn ends.
            if cycle.is_some_and(|cycle| (turn.times - round).is_multiple_of(cycle)) {
                break;
            }
        }
    }
    replay.finish()
}

/// A slot that holds a block, as a number; the sum over all slots tells one state from another.
fn digest(slot: Slot, (address, size): (u64, u64)) -> u64 {
    // The finalizer of splitmix64.
    let mut mixed = address ^ size.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = mixed.wrapping_add((slot.index() as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What is in a slot.
#[derive(Clone, Copy, Default)]
struct Held {
    /// `None` in an empty slot.
    block: Option<BlockId>,
    category: u8,
    bytes: u64,
}

/// Bytes and category of every code an event can carry, looked up once a run instead of once an event.
type Codes = Vec<(u64, u8)>;

fn codes(bytes: &TensorBytes) -> Codes {
    let all = (0..Stored::N_CODES).filter_map(|code| Stored::from_code(u16::try_from(code).ok()?));
    all.map(|stored| (bytes.of(stored), stored.category() as u8)).collect()
}

struct Replay<'a> {
    program: &'a Program,
    codes: [Codes; 2],
    allocator: Allocator,
    slots: Vec<Held>,
    live_bytes: u64,
    live: ByCategory,
    moment: usize,
    /// The sum of [`digest`] over all slots that hold a block.
    blocks_digest: u64,
    peaks: [Option<PhasePeak>; Phase::ALL.len()],
    live_bytes_peak: u64,
    peak_moment: Moment,
    peak_phase: Phase,
    peak_by_category: ByCategory,
    reserved_peak_phase: Phase,
    played: Vec<Played>,
    reserved: Vec<(Moment, u64)>,
    failure: Option<Failure>,
}

impl Replay<'_> {
    /// Runs one section; `None` once an allocation failed.
    fn play(&mut self, phase: Phase, id: SectionId, round: u64) -> Option<()> {
        let section = &self.program.sections[id.index()];
        self.played.push(Played { phase, section: id, start: Moment(self.moment), round });
        let mut live_peak = self.live_bytes;
        // Whether the last change reached the largest sum so far.
        let mut rises = false;
        let reserved_peak_before = self.allocator.max_reserved_bytes();
        let codes = &self.codes[section.batch as usize];
        for event in &section.events {
            let slot = &mut self.slots[event.slot().index()];
            let Some(&(bytes, category)) = codes.get(event.code()) else {
                if let Some(block) = slot.block.take() {
                    // A peak is noted when it ends, not at each step up to it.
                    if rises {
                        rises = false;
                        self.peak_by_category = self.live;
                    }
                    let extent = self.allocator.extent(block);
                    self.blocks_digest = self.blocks_digest.wrapping_sub(digest(event.slot(), extent));
                    self.allocator.free(block);
                    self.live_bytes -= slot.bytes;
                    self.live[usize::from(slot.category)] -= slot.bytes;
                }
                self.moment += 1;
                continue;
            };
            let reserved = self.allocator.reserved_bytes();
            let allocated = self.allocator.alloc(bytes);
            if reserved != self.allocator.reserved_bytes() {
                self.reserved.push((Moment(self.moment), self.allocator.reserved_bytes()));
            }
            match allocated {
                Ok(block) => {
                    let extent = self.allocator.extent(block);
                    self.blocks_digest = self.blocks_digest.wrapping_add(digest(event.slot(), extent));
                    *slot = Held { block: Some(block), category, bytes };
                    self.live_bytes += bytes;
                    self.live[usize::from(category)] += bytes;
                }
                Err(request) => {
                    self.fail(phase, section.batch, event.action(), request);
                    break;
                }
            }
            self.moment += 1;
            if self.live_bytes > live_peak {
                live_peak = self.live_bytes;
                if live_peak > self.live_bytes_peak {
                    self.live_bytes_peak = live_peak;
                    self.peak_moment = Moment(self.moment);
                    self.peak_phase = phase;
                    rises = true;
                }
            }
        }
        if rises {
            self.peak_by_category = self.live;
        }
        if self.allocator.max_reserved_bytes() > reserved_peak_before {
            self.reserved_peak_phase = phase;
        }
        self.note_peak(phase, live_peak);
        if self.failure.is_some() {
            return None;
        }
        for &(from, to) in &section.renames {
            let held = std::mem::take(&mut self.slots[from.index()]);
            if let Some(block) = held.block {
                let extent = self.allocator.extent(block);
                let moved = digest(to, extent).wrapping_sub(digest(from, extent));
                self.blocks_digest = self.blocks_digest.wrapping_add(moved);
            }
            self.slots[to.index()] = held;
        }
        Some(())
    }

    fn state(&self) -> State {
        State { blocks: self.blocks_digest, driver: self.allocator.driver_state() }
    }

    fn fail(&mut self, phase: Phase, batch: Batch, action: Action, request: OutOfMemory) {
        let Action::Alloc(tensor, layer) = action else { return };
        self.failure = Some(Failure {
            phase,
            tensor,
            layer,
            in_eval: batch == Batch::Eval,
            moment: Moment(self.moment),
            request,
            allocated_bytes: self.allocator.allocated_bytes(),
            reserved_bytes: self.allocator.reserved_bytes(),
        });
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
            peak_by_category: self.peak_by_category,
            max_allocated_bytes: self.allocator.max_allocated_bytes(),
            max_reserved_bytes: self.allocator.max_reserved_bytes(),
            reserved_peak_phase: self.reserved_peak_phase,
            failure: self.failure,
            played: self.played,
            reserved: self.reserved,
        }
    }
}
