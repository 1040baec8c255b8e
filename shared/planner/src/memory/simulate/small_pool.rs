//! Replay of the small pool alone, after the large pool has returned to an earlier state.
//!
//! The pool's free blocks follow from its segments and its used blocks. So a tensor leaves no trace if it is freed
//! before the next request and the pool has room for it without a new segment. Such tensors are skipped: about half of
//! the requests are temporary.

use std::ops::RangeInclusive;

use super::{
    End, Replay,
    cycle::{History, PoolState},
};
use crate::memory::{
    allocator::{BlockId, Settings, is_small},
    program::{Phase, ScheduleEntry, Section, Slot},
    simulate::EventIndex,
};

/// An event of the small pool.
#[derive(Clone, Copy)]
struct SmallEvent {
    slot: u32,
    /// Bytes of the request, or [`FREE`].
    bytes: u32,
    /// Whether the slot is freed before the next request.
    is_temporary: bool,
}

const FREE: u32 = 0;

/// The events of one section.
struct SmallSection<'a> {
    phase: Phase,
    events: Vec<SmallEvent>,
    renames: &'a [(Slot, Slot)],
}

impl<'a, S: Settings> Replay<'a, S> {
    /// Replays rounds with requests of the small pool alone, until its state repeats. Only the pool's reserved bytes
    /// can change: its blocks have the requested sizes, so allocated bytes equal those of whole rounds.
    pub(super) fn play_small_rounds(
        &mut self,
        turn: &ScheduleEntry,
        rounds: RangeInclusive<u64>,
        mut history: History,
        used: &[Slot],
    ) -> End {
        let max_allocated = self.allocator.max_allocated_bytes();
        let n_releases = self.allocator.n_releases();
        // A round leaves tensors of the same sizes in the same slots, so only their blocks have to be followed.
        let held = |slot: &&Slot| {
            let held = &self.slots[slot.index()];
            held.block.is_some() && is_small(held.bytes)
        };
        let kept: Vec<Slot> = used.iter().filter(held).copied().collect();
        let mut blocks: Vec<Option<BlockId>> = vec![None; self.slots.len()];
        for &slot in &kept {
            blocks[slot.index()] = self.slots[slot.index()].block;
        }
        let sections = self.small_sections(turn);
        for round in rounds {
            for section in &sections {
                let reserved_peak_before = self.allocator.max_reserved_bytes();
                self.n_events += section.events.len();
                if self.play_small(&section.events, blocks.as_mut_slice()).is_none()
                    || self.allocator.n_releases() != n_releases
                {
                    return End::Released;
                }
                for &(from, to) in section.renames {
                    blocks[to.index()] = blocks[from.index()].take();
                }
                if self.allocator.max_reserved_bytes() > reserved_peak_before {
                    self.reserved_peak_phase = section.phase;
                    self.reserved.push((EventIndex(self.moment), self.allocator.reserved_bytes()));
                }
                self.allocator.reset_max_allocated_bytes(max_allocated);
                self.note_peak(section.phase, 0);
            }
            let place = |&slot: &Slot| Some((slot, self.allocator.extent(blocks[slot.index()]?)));
            let state = PoolState {
                large_blocks: 0,
                small_blocks: kept.iter().filter_map(place).collect(),
                reserved_bytes: self.allocator.pool_reserved_bytes(true),
                n_releases,
            };
            // The rest of the turn repeats earlier rounds: it ends where one of them ended.
            if let Some(end) = history.push(state, turn.times - round) {
                self.place_small_blocks(&end.small_blocks, &mut blocks);
                self.allocator.reset_max_allocated_bytes(max_allocated);
                break;
            }
        }
        for slot in kept {
            self.slots[slot.index()].block = blocks[slot.index()];
        }
        End::Run
    }

    /// Moves the blocks of slots to given places, which are free or theirs.
    fn place_small_blocks(&mut self, places: &[(Slot, (u64, u64))], blocks: &mut [Option<BlockId>]) {
        for (slot, _) in places {
            if let Some(block) = blocks[slot.index()].take() {
                self.allocator.free(block);
            }
        }
        for &(slot, place) in places {
            blocks[slot.index()] = self.allocator.alloc_at(place);
        }
    }

    /// Replays a section's events of the small pool; `None` if a request fails.
    fn play_small(&mut self, events: &[SmallEvent], blocks: &mut [Option<BlockId>]) -> Option<()> {
        for event in events {
            let block = &mut blocks[event.slot as usize];
            let bytes = u64::from(event.bytes);
            if event.bytes == FREE {
                if let Some(block) = block.take() {
                    self.allocator.free(block);
                }
            } else if !event.is_temporary || !self.allocator.serves_small(bytes) {
                *block = Some(self.allocator.alloc(bytes).ok()?);
            }
        }
        Some(())
    }

    /// The sections of a turn without events of the large pool.
    fn small_sections(&self, turn: &ScheduleEntry) -> Vec<SmallSection<'a>> {
        let program = self.program;
        // Slots that hold a tensor of the large pool, as far as the turn has filled them.
        let mut is_large = vec![false; program.n_slots];
        let sections = turn.sections.iter().map(|&(phase, id)| {
            let section = &program.sections[id.index()];
            let events = self.small_events(section, &mut is_large);
            for &(from, to) in &section.renames {
                is_large[to.index()] = std::mem::take(&mut is_large[from.index()]);
            }
            SmallSection { phase, events, renames: &section.renames }
        });
        sections.collect()
    }

    fn small_events(&self, section: &Section, is_large: &mut [bool]) -> Vec<SmallEvent> {
        let codes = &self.codes[section.batch as usize];
        let mut events: Vec<SmallEvent> = Vec::with_capacity(section.events.len() / 2);
        // Index of the latest request.
        let mut latest = None;
        for event in &section.events {
            let (index, slot) = (event.slot().index(), event.slot().number());
            if let Some(&(bytes, _)) = codes.get(event.code()) {
                is_large[index] = !is_small(bytes);
                if let (true, Ok(bytes)) = (is_small(bytes), u32::try_from(bytes)) {
                    latest = Some(events.len());
                    events.push(SmallEvent { slot, bytes, is_temporary: false });
                }
            } else if !is_large[index] {
                if let Some(request) = latest.and_then(|latest| events.get_mut(latest))
                    && request.slot == slot
                {
                    request.is_temporary = true;
                }
                events.push(SmallEvent { slot, bytes: FREE, is_temporary: false });
            }
        }
        events
    }
}

#[cfg(test)]
mod tests;
