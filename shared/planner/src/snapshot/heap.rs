//! The memory of one GPU at a moment of a trace: segments and the blocks in them, at their real addresses.

use std::collections::BTreeMap;

use super::{AllocatorSettings, PoolId, StackId};

/// Largest remainder of a segment that stays with its block (`kSmallSize`).
const SMALL_SIZE: u64 = 1 << 20;

/// A segment, or adjacent mapped parts of an expandable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) end: u64,
    pub(super) stream: u64,
    pub(super) pool: PoolId,
    pub(super) is_small: bool,
    pub(super) is_expandable: bool,
}

/// A block that the program holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Requested bytes.
    pub requested_bytes: u64,
    /// Bytes of the block.
    pub bytes: u64,
    /// Stack of the allocation; empty if it is not known.
    pub stack: StackId,
    /// Whether the trace has the allocation.
    pub is_traced: bool,
}

/// Free memory in the segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeMemory {
    /// Sum of the free blocks in bytes: reserved memory less allocated memory.
    pub bytes: u64,
    /// Size of the largest free block in bytes.
    pub largest_bytes: u64,
    /// Number of free blocks.
    pub n_blocks: u64,
}

/// Segments and live blocks by their addresses.
#[derive(Clone, Debug, Default)]
pub(super) struct Heap {
    /// Disjoint ranges.
    pub(super) areas: BTreeMap<u64, Area>,
    pub(super) live: BTreeMap<u64, LiveBlock>,
    pub(super) allocated_bytes: u64,
    pub(super) reserved_bytes: u64,
}

impl Heap {
    pub(super) fn area(&self, address: u64) -> Option<(u64, &Area)> {
        let (&start, area) = self.areas.range(..=address).next_back()?;
        (address < area.end).then_some((start, area))
    }

    /// Adds a range, and merges mapped parts that touch.
    pub(super) fn reserve(&mut self, start: u64, area: Area) {
        self.release(start, area.end.saturating_sub(start));
        if area.end <= start {
            return;
        }
        self.reserved_bytes += area.end - start;
        let (mut start, mut area) = (start, area);
        if area.is_expandable {
            let joins = |other: &Area| Area { end: 0, ..*other } == Area { end: 0, ..area };
            if let Some((&before, other)) = self.areas.range(..start).next_back()
                && other.end == start
                && joins(other)
            {
                start = before;
            }
            if let Some(other) = self.areas.get(&area.end)
                && joins(other)
            {
                let end = other.end;
                self.areas.remove(&area.end);
                area.end = end;
            }
        }
        self.areas.insert(start, area);
    }

    /// Removes a range. Returns the first area that it touched.
    pub(super) fn release(&mut self, start: u64, bytes: u64) -> Option<Area> {
        let end = start.saturating_add(bytes);
        let mut first = None;
        if bytes == 0 {
            return None;
        }
        while let Some((&at, &area)) = self.areas.range(..end).next_back()
            && area.end > start
        {
            first = Some(area);
            self.areas.remove(&at);
            self.reserved_bytes -= area.end.min(end) - at.max(start);
            if area.end > end {
                self.areas.insert(end, area);
            }
            if at < start {
                self.areas.insert(at, Area { end: start, ..area });
            }
        }
        first
    }

    /// Bytes of a block at an address. The allocator splits a block only if more than 1 MiB is left of it, or 512 bytes
    /// in the small pool and in expandable segments (`should_split`).
    fn block_bytes(&self, address: u64, requested_bytes: u64, settings: &AllocatorSettings) -> u64 {
        let rounded = settings.rounded(requested_bytes);
        let Some((_, area)) = self.area(address) else { return rounded };
        if area.is_small || area.is_expandable {
            return rounded;
        }
        let next = self.live.range(address.saturating_add(1)..).next().map_or(area.end, |(&next, _)| next);
        let room = next.min(area.end) - address;
        let is_whole = settings.max_split_bytes.is_some_and(|limit| rounded >= limit);
        if room >= rounded && (is_whole || room - rounded <= SMALL_SIZE) { room } else { rounded }
    }

    /// Adds a block of requested bytes.
    pub(super) fn alloc(&mut self, address: u64, block: LiveBlock, settings: &AllocatorSettings) {
        self.free(address);
        let bytes = self.block_bytes(address, block.requested_bytes, settings);
        self.insert(address, LiveBlock { bytes, ..block });
    }

    pub(super) fn insert(&mut self, address: u64, block: LiveBlock) {
        self.allocated_bytes = self.allocated_bytes.saturating_add(block.bytes);
        self.live.insert(address, block);
    }

    pub(super) fn free(&mut self, address: u64) -> Option<LiveBlock> {
        let block = self.live.remove(&address)?;
        self.allocated_bytes = self.allocated_bytes.saturating_sub(block.bytes);
        Some(block)
    }

    /// The free blocks. Each is a gap between live blocks, because free neighbours merge.
    pub(super) fn free_memory(&self) -> FreeMemory {
        let mut free = FreeMemory::default();
        for (&start, area) in &self.areas {
            let mut from = start;
            let ends = self.live.range(start..area.end).map(|(&address, block)| (address, block.bytes));
            for (address, bytes) in ends.chain([(area.end, 0)]) {
                let gap = address.saturating_sub(from);
                free.bytes += gap;
                free.largest_bytes = free.largest_bytes.max(gap);
                free.n_blocks += u64::from(gap > 0);
                from = from.max(address.saturating_add(bytes));
            }
        }
        free
    }
}
