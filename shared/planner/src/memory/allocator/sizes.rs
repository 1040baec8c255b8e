//! Size constants and rounding rules of the caching allocator.

const MIB: u64 = 1 << 20;
/// Maximum request of the small pool (`kSmallSize`).
pub(super) const SMALL_SIZE: u64 = MIB;
/// Segment size of the small pool (`kSmallBuffer`).
pub(super) const SMALL_BUFFER: u64 = 2 * MIB;
/// Segment size for requests of 1 to 10 MiB (`kLargeBuffer`).
pub(super) const LARGE_BUFFER: u64 = 20 * MIB;
/// Minimum request with a segment of its own size (`kMinLargeAlloc`).
pub(super) const MIN_LARGE_ALLOC: u64 = 10 * MIB;
/// Rounding of such a segment (`kRoundLarge`).
const ROUND_LARGE: u64 = 2 * MIB;
/// Minimum remainder for which a block is split (`kMinBlockSize`).
pub(super) const MIN_BLOCK_SIZE: u64 = 512;

/// Whether the small pool serves a request of `bytes`.
#[must_use]
pub const fn is_small(bytes: u64) -> bool {
    bytes <= SMALL_SIZE
}

/// Bytes of the segment that the allocator requests from the driver for a request (`get_allocation_size`).
#[must_use]
pub fn segment_bytes(bytes: u64) -> u64 {
    segment_bytes_with(bytes, LARGE_BUFFER)
}

/// [`segment_bytes`] with segments of `large_buffer` bytes for requests of 1 to 10 MiB.
#[inline(always)]
pub(super) fn segment_bytes_with(bytes: u64, large_buffer: u64) -> u64 {
    if bytes <= SMALL_SIZE {
        SMALL_BUFFER
    } else if bytes < MIN_LARGE_ALLOC {
        large_buffer
    } else {
        bytes.next_multiple_of(ROUND_LARGE)
    }
}
