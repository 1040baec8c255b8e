//! Release of cached segments to the driver: all of them, garbage collection, and oversize blocks.

use super::{Ages as _, Allocator, NONE, SegmentKind, settings::Settings};

impl<S: Settings> Allocator<S> {
    /// `torch.cuda.empty_cache()`.
    pub fn empty_cache(&mut self) {
        self.release_cached();
    }

    /// Releases every unused cached segment (`release_cached_blocks`); of expandable segments, every whole step of a
    /// free block.
    pub(super) fn release_cached(&mut self) {
        self.n_releases += 1;
        for small in [true, false] {
            let free: Vec<u32> = self.pool(small).free_ids().collect();
            for id in free {
                match self.kind {
                    SegmentKind::Native if self.is_whole_segment(id) => self.release_segment(id),
                    SegmentKind::Native => {}
                    SegmentKind::Expandable => self.unmap(id, self.page_bytes(small)),
                }
            }
        }
    }

    /// Releases unused segments of the large pool, oldest first (`garbage_collect_cached_blocks`), if more than `limit`
    /// bytes are reserved. Each pass releases every segment of at least the average age.
    pub(super) fn collect_garbage(&mut self, limit: u64) {
        let target = self.reserved_bytes.saturating_sub(limit);
        if target == 0 {
            return;
        }
        let mut unused: Vec<u32> = self.large.free_ids().filter(|&id| self.is_whole_segment(id)).collect();
        let mut total_age: u64 = unused.iter().map(|&id| self.ages.age(id)).sum();
        let mut reclaimed = 0;
        while reclaimed < target && !unused.is_empty() {
            #[allow(clippy::cast_precision_loss, reason = "c10 computes the average as a double")]
            let average = total_age as f64 / unused.len() as f64;
            let n_before = unused.len();
            unused.retain(|&id| {
                let age = self.ages.age(id);
                #[allow(clippy::cast_precision_loss, reason = "c10 compares doubles")]
                if (age as f64) < average {
                    return true;
                }
                reclaimed += self.blocks[id as usize].size;
                total_age -= age;
                self.release_segment(id);
                false
            });
            if unused.len() == n_before {
                break;
            }
        }
        self.n_releases += u64::from(reclaimed > 0);
    }

    /// Releases an oversize block that is large enough for a request, or several, largest first
    /// (`release_available_cached_blocks`). Returns whether enough bytes were released.
    pub(super) fn release_oversize(&mut self, bytes: u64, small: bool) -> bool {
        let max_split = self.settings.max_split_bytes();
        if max_split == u64::MAX || self.kind == SegmentKind::Expandable {
            return false;
        }
        let needed = bytes.max(max_split);
        let pool = if small { &self.small } else { &self.large };
        // An oversize block is a whole segment, because `max_split_size_mb` is at least `large_segment_size_mb`.
        let is_oversize = |id: u32, least: u64| self.blocks[id as usize].size >= least && self.is_whole_segment(id);
        let fitting = pool.free_ids().find(|&id| is_oversize(id, needed));
        if let Some(id) = fitting {
            self.release_segment(id);
            self.n_releases += 1;
            return true;
        }
        let oversize: Vec<u32> = pool.free_ids().filter(|&id| is_oversize(id, max_split)).collect();
        let mut released = 0;
        for &id in oversize.iter().rev() {
            if released >= needed {
                break;
            }
            released += self.blocks[id as usize].size;
            self.release_segment(id);
        }
        self.n_releases += u64::from(released > 0);
        released >= needed
    }

    /// Whether a block is a whole segment of its own.
    fn is_whole_segment(&self, id: u32) -> bool {
        let block = &self.blocks[id as usize];
        block.prev == NONE && block.next == NONE
    }

    /// Returns the segment of an unused block to the driver (`release_block`).
    fn release_segment(&mut self, id: u32) {
        let place = self.place(id);
        let block = self.blocks[id as usize];
        self.pool(block.small).remove(place);
        self.unreserve(block.size, block.small);
        self.unused_ids.push(id);
    }
}
