//! Growth and release of expandable segments.

use super::{Allocator, Block, NONE, settings::Settings, sizes::SMALL_BUFFER};

impl<S: Settings> Allocator<S> {
    /// Bytes of a page of the pool's expandable segments.
    pub(super) fn page_bytes(&self, small: bool) -> u64 {
        if small { SMALL_BUFFER } else { self.settings.large_segment_bytes() }
    }

    /// Grows the pool's expandable segment (`try_allocate_expandable_block`): uses the free block at its end and maps
    /// the missing bytes behind it.
    ///
    /// PyTorch reserves address space of 1 1/8 of the GPU's memory per segment; a pool gets another segment if that is
    /// used up. Unmapped ranges in the middle (left by [`Self::release_cached`]) are tried first, lowest address first,
    /// as in `find_expandable_block`.
    pub(super) fn expand(&mut self, bytes: u64, small: bool) -> Option<u32> {
        let step = self.page_bytes(small);
        let mut candidate = self.find_expandable(bytes, small);
        if !self.blocks[candidate as usize].mapped {
            let want = bytes.min(self.blocks[candidate as usize].size);
            candidate = self.map(candidate, want, step)?;
        }
        while self.blocks[candidate as usize].size < bytes {
            let Block { size, next, .. } = self.blocks[candidate as usize];
            let want = (bytes - size).min(self.blocks[next as usize].size);
            candidate = self.map(next, want, step)?;
        }
        let place = self.place(candidate);
        self.pool(small).remove(place);
        Some(candidate)
    }

    fn find_expandable(&mut self, bytes: u64, small: bool) -> u32 {
        let unmapped = self.pool(small).unmapped.clone();
        for (_, id) in unmapped {
            let prev = self.blocks[id as usize].prev;
            let start = if prev != NONE && !self.blocks[prev as usize].allocated { prev } else { id };
            let (mut at, mut room) = (start, 0);
            while at != NONE && !self.blocks[at as usize].allocated && room < bytes {
                room += self.blocks[at as usize].size;
                at = self.blocks[at as usize].next;
            }
            if room >= bytes {
                return start;
            }
        }
        // A new segment: address space for the GPU's whole memory and an eighth more.
        let page_bytes = self.page_bytes(small);
        let size = self.settings.expandable_bytes(page_bytes);
        let address = self.settings.expandable_address(self.next_address, page_bytes);
        self.next_address = address.saturating_add(size);
        let id =
            self.add_block(Block { address, size, prev: NONE, next: NONE, allocated: false, mapped: false, small });
        self.pool(small).insert_unmapped(address, id);
        id
    }

    /// Maps the front of an unmapped block, in whole steps of the segment, and merges it with mapped free neighbours.
    fn map(&mut self, id: u32, bytes: u64, step: u64) -> Option<u32> {
        let block = self.blocks[id as usize];
        let mapped = bytes.next_multiple_of(step).min(block.size);
        self.reserve(mapped, block.small)?;
        self.pool(block.small).remove_unmapped(block.address);
        if mapped < block.size {
            let rest =
                self.add_block(Block { address: block.address + mapped, size: block.size - mapped, prev: id, ..block });
            if block.next != NONE {
                self.blocks[block.next as usize].prev = rest;
            }
            self.blocks[id as usize].next = rest;
            self.blocks[id as usize].size = mapped;
            self.pool(block.small).insert_unmapped(block.address + mapped, rest);
        }
        self.blocks[id as usize].mapped = true;
        let (prev, next) = (self.blocks[id as usize].prev, self.blocks[id as usize].next);
        self.absorb_all(id, [prev, next]);
        self.insert_free(id);
        Some(id)
    }

    /// Unmaps the whole steps inside a free block (`unmap_block`); the remainders at its ends stay free.
    pub(super) fn unmap(&mut self, id: u32, step: u64) {
        let block = self.blocks[id as usize];
        // Every segment starts at a multiple of the step.
        let start = block.address.next_multiple_of(step);
        let end = (block.address + block.size) / step * step;
        if end <= start {
            return;
        }
        self.isolate(id, start, end);
        let middle = &mut self.blocks[id as usize];
        middle.mapped = false;
        let (prev, next) = (middle.prev, middle.next);
        self.unreserve(end - start, block.small);
        self.absorb_all(id, [prev, next]);
        let Block { address, size, .. } = self.blocks[id as usize];
        if self.settings.releases_address_space(size, step) {
            self.unused_ids.push(id);
            return;
        }
        self.pool(block.small).insert_unmapped(address, id);
    }
}
