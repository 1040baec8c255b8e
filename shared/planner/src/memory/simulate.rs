//! Replays a program through the caching allocator until the run ends or an allocation fails.

mod cycle;
mod small_pool;

use cycle::{History, PoolState, digest};

use super::stored::Codes;
use super::{
    allocator::{Allocator, BlockId, Defaults, OutOfMemory, SegmentKind, Settings, is_small},
    program::{Action, Batch, Phase, Program, ScheduleEntry, Section, SectionId, Slot},
};
use crate::gpt::tensors::Category;

/// Peaks of one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhasePeak {
    /// Phase with these peaks.
    pub phase: Phase,
    /// The largest sum of live tensors in that phase, each rounded up to 512 bytes.
    pub live_bytes: u64,
    /// `torch.cuda.max_memory_allocated()` at the end of the phase, never reset.
    pub max_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()` at the end of the phase, never reset.
    pub max_reserved_bytes: u64,
}

/// Live bytes per category, in the order of [`Category::ALL`].
pub type ByCategory = [u64; Category::ALL.len()];

/// A moment of the run, as the number of events since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventIndex(pub usize);

/// An executed section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedSection {
    /// Phase of the section.
    pub phase: Phase,
    /// Id of the section.
    pub section: SectionId,
    /// Moment before the section's first event.
    pub start: EventIndex,
    /// Round of its turn, from 1.
    pub round: u64,
}

/// The failed allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Phase of the failure.
    pub phase: Phase,
    /// Code of the tensor in the program's table.
    pub code: u16,
    /// Index of the block, if the tensor belongs to one.
    pub layer: Option<u64>,
    /// Batch that determines the tensor's shape.
    pub batch: Batch,
    /// Moment before the allocation.
    pub moment: EventIndex,
    /// The failed request.
    pub request: OutOfMemory,
    /// `torch.cuda.memory_allocated()` at that moment.
    pub allocated_bytes: u64,
    /// `torch.cuda.memory_reserved()` at that moment, after cached segments were released.
    pub reserved_bytes: u64,
}

impl Failure {
    /// Name of the tensor.
    #[must_use]
    pub fn tensor_name(&self, program: &Program) -> String {
        let info = program.tensors.get(self.code, self.batch);
        info.map_or_else(String::new, |info| info.stored.name(self.layer))
    }
}

/// Outcome of a simulated run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Peaks of each executed phase, in the order of the JSON schema.
    pub phases: Vec<PhasePeak>,
    /// Maximum sum of live tensors in bytes.
    pub live_bytes_peak: u64,
    /// Moment of that maximum.
    pub peak_moment: EventIndex,
    /// Phase of that maximum.
    pub peak_phase: Phase,
    /// Live bytes per category at that moment.
    pub peak_by_category: ByCategory,
    /// `torch.cuda.max_memory_allocated()` of the whole run.
    pub max_allocated_bytes: u64,
    /// `torch.cuda.max_memory_reserved()` of the whole run.
    pub max_reserved_bytes: u64,
    /// Phase in which reserved memory reached its maximum.
    pub reserved_peak_phase: Phase,
    /// The failed allocation, if any; then the figures above end there.
    pub failure: Option<Failure>,
    /// Executed sections in order, without rounds of the small pool alone.
    pub played: Vec<ExecutedSection>,
    /// Number of replayed events, as a measure of the work.
    pub n_events: usize,
    /// Changes of reserved bytes, with their moments.
    pub reserved: Vec<(EventIndex, u64)>,
}

/// Maximum number of replayed rounds per turn; replay ends earlier when both pools return to an earlier state.
const MAX_ROUNDS: u64 = 512;

/// Replays a program on a GPU with `capacity_bytes` available to PyTorch.
#[must_use]
pub fn simulate(program: &Program, kind: SegmentKind, capacity_bytes: u64) -> Outcome {
    simulate_with(program, kind, capacity_bytes, Defaults)
}

/// [`simulate`] with settings of the allocator.
#[must_use]
pub fn simulate_with<S: Settings>(program: &Program, kind: SegmentKind, capacity_bytes: u64, settings: S) -> Outcome {
    let mut replay = Replay::with_settings(program, kind, capacity_bytes, settings);
    if replay.run(Rounds::ByPool) == End::Released {
        replay = Replay::with_settings(program, kind, capacity_bytes, settings);
        replay.run(Rounds::Whole);
    }
    replay.finish()
}

/// Replay mode of a repeated turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rounds {
    /// Whole rounds until the large pool's state repeats, then rounds of the small pool alone.
    ByPool,
    /// Whole rounds until both states repeat.
    Whole,
    /// All rounds.
    #[cfg(test)]
    All,
}

/// How a replay ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// At the end of the run, or at a failed allocation.
    Run,
    /// The small pool alone filled the memory, so the allocator released cached segments of both pools.
    Released,
}

/// Contents of a slot.
#[derive(Clone, Copy, Default)]
struct SlotContents {
    /// `None` if the slot is empty.
    block: Option<BlockId>,
    category: u8,
    bytes: u64,
}

struct Replay<'a, S: Settings = Defaults> {
    program: &'a Program,
    codes: [Codes; 2],
    allocator: Allocator<S>,
    slots: Vec<SlotContents>,
    live_bytes: u64,
    live: ByCategory,
    moment: usize,
    n_events: usize,
    peaks: [Option<PhasePeak>; Phase::ALL.len()],
    live_bytes_peak: u64,
    peak_moment: EventIndex,
    peak_phase: Phase,
    peak_by_category: ByCategory,
    reserved_peak_phase: Phase,
    played: Vec<ExecutedSection>,
    reserved: Vec<(EventIndex, u64)>,
    failure: Option<Failure>,
}

impl<'a, S: Settings> Replay<'a, S> {
    fn with_settings(program: &'a Program, kind: SegmentKind, capacity_bytes: u64, settings: S) -> Self {
        Self {
            program,
            allocator: Allocator::with_settings(kind, capacity_bytes, settings),
            codes: program.tensors.codes(),
            slots: vec![SlotContents::default(); program.n_slots],
            live_bytes: 0,
            live: ByCategory::default(),
            peak_by_category: ByCategory::default(),
            moment: 0,
            n_events: 0,
            peaks: [None; Phase::ALL.len()],
            live_bytes_peak: 0,
            peak_moment: EventIndex(0),
            peak_phase: Phase::Init,
            reserved_peak_phase: Phase::Init,
            played: Vec::with_capacity(64),
            reserved: Vec::with_capacity(128),
            failure: None,
        }
    }

    /// Replays the schedule.
    fn run(&mut self, rounds: Rounds) -> End {
        let program = self.program;
        for turn in &program.schedule {
            let used = if turn.times > 1 { self.used_slots(turn) } else { Vec::new() };
            let [mut large, mut small] = self.pool_states(&used).map(History::new);
            let last = turn.times.min(MAX_ROUNDS);
            for round in 1..=last {
                for &(phase, section) in &turn.sections {
                    if self.play(phase, section, round).is_none() {
                        return End::Run;
                    }
                }
                #[cfg(test)]
                if rounds == Rounds::All {
                    continue;
                }
                // Ages of blocks grow from round to round, so no state repeats.
                if self.allocator.collects_garbage() {
                    continue;
                }
                let [large_state, small_state] = self.pool_states(&used);
                let large_ends = large.ends_in(&large_state, turn.times - round);
                let small_ends = small.ends_in(&small_state, turn.times - round);
                if large_ends && !small_ends && rounds == Rounds::ByPool {
                    if self.play_small_rounds(turn, round + 1..=last, small, &used) == End::Released {
                        return End::Released;
                    }
                    break;
                }
                if large_ends && small_ends {
                    break;
                }
            }
        }
        End::Run
    }

    /// Moves the tensors that outlive a section to their slots in the next one.
    fn rename(&mut self, section: &Section) {
        for &(from, to) in &section.renames {
            self.slots[to.index()] = std::mem::take(&mut self.slots[from.index()]);
        }
    }

    /// Replays one section; `None` after a failed allocation.
    fn play(&mut self, phase: Phase, id: SectionId, round: u64) -> Option<()> {
        let section = &self.program.sections[id.index()];
        self.played.push(ExecutedSection { phase, section: id, start: EventIndex(self.moment), round });
        if section.empties_cache {
            self.allocator.empty_cache();
            self.reserved.push((EventIndex(self.moment), self.allocator.reserved_bytes()));
        }
        let mut live_peak = self.live_bytes;
        // Whether the last change reached a new maximum.
        let mut rises = false;
        let reserved_peak_before = self.allocator.max_reserved_bytes();
        self.n_events += section.events.len();
        let codes = &self.codes[section.batch as usize];
        for event in &section.events {
            let slot = &mut self.slots[event.slot().index()];
            let Some(&(bytes, category)) = codes.get(event.code()) else {
                if let Some(block) = slot.block.take() {
                    // A peak is recorded when it ends, not at each step of the rise.
                    if rises {
                        rises = false;
                        self.peak_by_category = self.live;
                    }
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
                self.reserved.push((EventIndex(self.moment), self.allocator.reserved_bytes()));
            }
            match allocated {
                Ok(block) => {
                    *slot = SlotContents { block: Some(block), category, bytes };
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
                    self.peak_moment = EventIndex(self.moment);
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
        self.rename(section);
        Some(())
    }

    /// Slots that the sections of a turn use; the turn changes no other slot.
    fn used_slots(&self, turn: &ScheduleEntry) -> Vec<Slot> {
        let mut is_used = vec![false; self.program.n_slots];
        let mut used = Vec::new();
        let sections = turn.sections.iter().map(|(_, id)| &self.program.sections[id.index()]);
        for section in sections {
            let renamed = section.renames.iter().flat_map(|&(from, to)| [from, to]);
            for slot in section.events.iter().map(|event| event.slot()).chain(renamed) {
                if !std::mem::replace(&mut is_used[slot.index()], true) {
                    used.push(slot);
                }
            }
        }
        used
    }

    /// States of the large and the small pool, restricted to the slots in use.
    fn pool_states(&self, used: &[Slot]) -> [PoolState; 2] {
        let mut large_blocks = 0_u64;
        let mut small_blocks = Vec::new();
        for &slot in used {
            let held = &self.slots[slot.index()];
            let Some(block) = held.block else { continue };
            let place = self.allocator.extent(block);
            if is_small(held.bytes) {
                small_blocks.push((slot, place));
            } else {
                large_blocks = large_blocks.wrapping_add(digest(slot, place));
            }
        }
        let n_releases = self.allocator.n_releases();
        let [large, small] = [false, true].map(|small| self.allocator.pool_reserved_bytes(small));
        [
            PoolState { large_blocks, small_blocks: Vec::new(), reserved_bytes: large, n_releases },
            PoolState { large_blocks: 0, small_blocks, reserved_bytes: small, n_releases },
        ]
    }

    fn fail(&mut self, phase: Phase, batch: Batch, action: Action, request: OutOfMemory) {
        let Action::Alloc(code, layer) = action else { return };
        self.failure = Some(Failure {
            phase,
            code,
            layer,
            batch,
            moment: EventIndex(self.moment),
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
            n_events: self.n_events,
            reserved: self.reserved,
        }
    }
}
