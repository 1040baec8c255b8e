//! States of the allocator from and to lists of segments: a snapshot of PyTorch is such a list.

use super::{Allocator, Block, BlockId, NONE, SegmentKind, sizes::LARGE_BUFFER};

/// Address of the first restored expandable segment, with room for another one behind it.
const EXPANDABLE_BASE: u64 = (1 << 58) / LARGE_BUFFER * LARGE_BUFFER;

/// Distance of the addresses of two expandable segments in the replica, in bytes.
#[must_use]
pub const fn expandable_segment_bytes() -> u64 {
    (u64::MAX >> 8).next_multiple_of(LARGE_BUFFER)
}

/// A segment, or a mapped part of an expandable one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentState {
    /// Address of its first byte.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Whether the pool of small requests holds it.
    pub is_small: bool,
    /// Allocated blocks as address and size, in the order of their addresses.
    pub allocated: Vec<(u64, u64)>,
}

impl SegmentState {
    /// Whether the blocks are within the segment and in order.
    fn is_valid(&self) -> bool {
        let mut free_from = self.address;
        let mut is_valid = true;
        for &(address, bytes) in &self.allocated {
            is_valid &= bytes > 0 && address >= free_from;
            free_from = address.saturating_add(bytes);
        }
        is_valid && free_from <= self.address.saturating_add(self.bytes)
    }
}

impl Allocator {
    /// An allocator with these segments, in the order of their addresses, and unlimited memory. Returns the allocated
    /// blocks of all segments in order too; `None` if blocks or segments overlap.
    ///
    /// Mapped parts of a pool are taken for one expandable segment. Its first byte gets another address, that of
    /// [`Self::restored_base`].
    #[must_use]
    pub fn restore(kind: SegmentKind, segments: &[SegmentState]) -> Option<(Self, Vec<BlockId>)> {
        let mut allocator = Self::new(kind, u64::MAX);
        let mut ids = Vec::new();
        let mut last: [Option<(u32, u64)>; 2] = [None; 2];
        let mut end = 0;
        for segment in segments {
            if !segment.is_valid() || segment.address < end {
                return None;
            }
            end = segment.address + segment.bytes;
            let small = segment.is_small;
            let (mut prev, shift) = match kind {
                SegmentKind::Native => (NONE, 0),
                SegmentKind::Expandable => {
                    let base = Self::restored_base(small);
                    let shift = base.wrapping_sub(Self::first(segments, small)?);
                    let prev = match last[usize::from(small)] {
                        Some((id, end)) if end < segment.address => {
                            let size = segment.address - end;
                            allocator.chain(id, Block::unmapped(end.wrapping_add(shift), size, small))
                        }
                        Some((id, _)) => id,
                        None => NONE,
                    };
                    (prev, shift)
                }
            };
            let mut free_from = segment.address;
            for &(address, size) in &segment.allocated {
                if address > free_from {
                    let gap = Block::free(free_from.wrapping_add(shift), address - free_from, small);
                    prev = allocator.chain(prev, gap);
                }
                let block = Block { allocated: true, ..Block::free(address.wrapping_add(shift), size, small) };
                prev = allocator.chain(prev, block);
                ids.push(BlockId(prev));
                allocator.allocated_bytes += size;
                free_from = address + size;
            }
            if end > free_from {
                prev = allocator.chain(prev, Block::free(free_from.wrapping_add(shift), end - free_from, small));
            }
            allocator.reserve(segment.bytes, small)?;
            last[usize::from(small)] = Some((prev, end));
            allocator.next_address = end;
        }
        if kind == SegmentKind::Expandable {
            for (index, last) in last.into_iter().enumerate() {
                let Some((id, end)) = last else { continue };
                let small = index == 1;
                let shift = Self::restored_base(small).wrapping_sub(Self::first(segments, small)?);
                allocator.chain(id, Block::unmapped(end.wrapping_add(shift), u64::MAX >> 8, small));
            }
            allocator.next_address = EXPANDABLE_BASE * 8;
        }
        allocator.max_allocated_bytes = allocator.allocated_bytes;
        Some((allocator, ids))
    }

    /// Address of the first restored byte of a pool's expandable segment.
    #[must_use]
    pub const fn restored_base(small: bool) -> u64 {
        if small { EXPANDABLE_BASE } else { EXPANDABLE_BASE * 4 }
    }

    /// Address of the first segment of a pool.
    fn first(segments: &[SegmentState], small: bool) -> Option<u64> {
        segments.iter().find(|segment| segment.is_small == small).map(|segment| segment.address)
    }

    /// Adds a block behind another one, or at the start of a segment.
    fn chain(&mut self, prev: u32, block: Block) -> u32 {
        let id = self.add_block(Block { prev, ..block });
        if let Some(prev) = self.blocks.get_mut(prev as usize) {
            prev.next = id;
        }
        if block.is_free() {
            self.insert_free(id);
        } else if !block.mapped {
            self.pool(block.small).insert_unmapped(block.address, id);
        }
        id
    }

    /// Places the next native segment at an address, as the driver did.
    pub const fn place_next_segment(&mut self, address: u64) {
        self.next_address = address;
    }

    /// Whether a cached block serves a request.
    #[must_use]
    pub fn serves(&self, bytes: u64) -> bool {
        let pool = if super::is_small(bytes) { &self.small } else { &self.large };
        pool.first_fit(bytes).is_some()
    }

    /// The segments in the order of their addresses; of an expandable segment, its mapped parts.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentState> {
        let mut is_used = vec![true; self.blocks.len()];
        for &id in &self.unused_ids {
            is_used[id as usize] = false;
        }
        let starts = (0..self.blocks.len()).filter(|&id| is_used[id] && self.blocks[id].prev == NONE);
        let mut segments = Vec::new();
        for start in starts {
            let mut segment: Option<SegmentState> = None;
            let mut next = self.blocks.get(start);
            while let Some(block) = next {
                if block.mapped {
                    let segment = segment.get_or_insert_with(|| SegmentState {
                        address: block.address,
                        bytes: 0,
                        is_small: block.small,
                        allocated: Vec::new(),
                    });
                    segment.bytes += block.size;
                    segment.allocated.extend(block.allocated.then_some((block.address, block.size)));
                } else {
                    segments.extend(segment.take());
                }
                next = self.blocks.get(block.next as usize);
            }
            segments.extend(segment);
        }
        segments.sort_by_key(|segment| segment.address);
        segments
    }
}

impl Block {
    const fn free(address: u64, size: u64, small: bool) -> Self {
        Self { address, size, prev: NONE, next: NONE, allocated: false, mapped: true, small }
    }

    const fn unmapped(address: u64, size: u64, small: bool) -> Self {
        Self { mapped: false, ..Self::free(address, size, small) }
    }
}
