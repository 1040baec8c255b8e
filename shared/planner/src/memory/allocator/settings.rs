//! Settings of the allocator, as the replica reads them.

use super::{
    restore::expandable_segment_bytes,
    sizes::{LARGE_BUFFER, segment_bytes_with},
};

/// Settings that change which segments and blocks the allocator uses.
///
/// The allocator is compiled once for each implementation. With [`Defaults`], every branch on a setting disappears, so
/// that the pages carry no code for settings.
pub trait Settings: Copy {
    /// Ages of free blocks, which garbage collection compares.
    type Ages: Ages;

    /// Bytes of the block for a request, a multiple of 512 (`round_size`).
    fn round(&self, bytes: u64) -> u64;

    /// Bytes of a segment for requests of 1 to 10 MiB, and of a page of an expandable segment for large requests.
    fn large_segment_bytes(&self) -> u64;

    /// Size from which blocks are oversize: they are not split, and serve oversize requests only.
    fn max_split_bytes(&self) -> u64;

    /// Bytes by which a block must exceed an oversize request so that it does not serve it.
    fn max_non_split_rounding_bytes(&self) -> u64;

    /// Reserved bytes that the process may have, from `per_process_memory_fraction`.
    fn allowed_bytes(&self) -> Option<u64>;

    /// Reserved bytes above which a new segment starts garbage collection.
    fn collection_bytes(&self) -> Option<u64>;

    /// Address space of an expandable segment whose pages have `page_bytes`.
    fn expandable_bytes(&self, page_bytes: u64) -> u64;

    /// First address from `address` on at which an expandable segment may start: a multiple of its page.
    fn expandable_address(&self, address: u64, page_bytes: u64) -> u64;

    /// Whether an unmapped range of `bytes` is a whole expandable segment, which the allocator then gives up
    /// (`release_expandable_segment`).
    fn releases_address_space(&self, bytes: u64, page_bytes: u64) -> bool;

    /// Bytes of the segment for a request (`get_allocation_size`).
    fn segment_bytes(&self, bytes: u64) -> u64 {
        segment_bytes_with(bytes, self.large_segment_bytes())
    }

    /// Whether a free block of `block` bytes may serve a request of `bytes`.
    fn permits(&self, bytes: u64, block: u64) -> bool {
        let max_split = self.max_split_bytes();
        if bytes < max_split {
            block < max_split
        } else {
            block < bytes.saturating_add(self.max_non_split_rounding_bytes())
        }
    }
}

/// Ages of free blocks of the large pool, in searches of that pool.
pub trait Ages: Clone + Default {
    /// Counts a search of the pool (`get_free_blocks_call_count`).
    fn note_search(&mut self);

    /// Notes that a block became free.
    fn note_free(&mut self, id: u32);

    /// Searches since the block became free (`gc_count`).
    fn age(&self, id: u32) -> u64;
}

impl Ages for () {
    fn note_search(&mut self) {}

    fn note_free(&mut self, _: u32) {}

    fn age(&self, _: u32) -> u64 {
        0
    }
}

/// PyTorch's default settings, with address space without end for expandable segments.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defaults;

impl Settings for Defaults {
    type Ages = ();

    #[inline(always)]
    fn round(&self, bytes: u64) -> u64 {
        bytes
    }

    #[inline(always)]
    fn large_segment_bytes(&self) -> u64 {
        LARGE_BUFFER
    }

    #[inline(always)]
    fn max_split_bytes(&self) -> u64 {
        u64::MAX
    }

    #[inline(always)]
    fn max_non_split_rounding_bytes(&self) -> u64 {
        LARGE_BUFFER
    }

    #[inline(always)]
    fn allowed_bytes(&self) -> Option<u64> {
        None
    }

    #[inline(always)]
    fn collection_bytes(&self) -> Option<u64> {
        None
    }

    #[inline(always)]
    fn expandable_bytes(&self, _: u64) -> u64 {
        expandable_segment_bytes()
    }

    #[inline(always)]
    fn expandable_address(&self, address: u64, _: u64) -> u64 {
        address
    }

    #[inline(always)]
    fn releases_address_space(&self, _: u64, _: u64) -> bool {
        false
    }

    #[inline(always)]
    fn permits(&self, _: u64, _: u64) -> bool {
        true
    }
}
