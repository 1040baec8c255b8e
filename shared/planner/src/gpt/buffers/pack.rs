//! Packing of buffers into one allocation: buffers with disjoint lifetimes may share memory.

use std::ops::RangeInclusive;

use crate::gpt::tensors::BLOCK_BYTES;

/// A buffer to place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Size in bytes.
    pub bytes: u64,
    /// First and last moment at which the buffer is live, both inclusive, in any unit.
    pub alive: RangeInclusive<u8>,
}

/// Result of a packing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedBuffers {
    /// Offset of each piece in bytes, in input order.
    pub offsets: Vec<u64>,
    /// Total size in bytes.
    pub bytes: u64,
}

/// Places pieces, the largest first, each at the lowest offset without conflict. For typical lists the result is at
/// most a few percent above the optimum. The result is deterministic.
#[must_use]
pub fn pack(pieces: &[Piece]) -> PackedBuffers {
    let mut offsets = vec![0_u64; pieces.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(pieces.len());
    let mut bytes = 0_u64;
    // There are few pieces, and sorting would add more WebAssembly code than a linear search.
    while let Some(i) =
        (0..pieces.len()).filter(|i| !placed.contains(i)).max_by_key(|&i| (pieces[i].bytes, std::cmp::Reverse(i)))
    {
        let piece = &pieces[i];
        let mut offset = 0_u64;
        let end = |start: u64, of: usize| start.saturating_add(aligned(pieces[of].bytes));
        // No offset below the end of a conflicting piece is free.
        while let Some(&other) = placed.iter().find(|&&other| {
            overlap(&pieces[other].alive, &piece.alive)
                && offsets[other] < end(offset, i)
                && offset < end(offsets[other], other)
        }) {
            offset = end(offsets[other], other);
        }
        offsets[i] = offset;
        bytes = bytes.max(end(offset, i));
        placed.push(i);
    }
    PackedBuffers { offsets, bytes }
}

/// Rounds `bytes` up to where the next buffer may begin. As in PyTorch, each buffer begins at a multiple of
/// [`BLOCK_BYTES`], which satisfies the alignment of every kernel.
pub const fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

fn overlap(one: &RangeInclusive<u8>, other: &RangeInclusive<u8>) -> bool {
    one.start() <= other.end() && other.start() <= one.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn disjoint_lifetimes_share_memory() {
        let pieces = [(1000, 0..=1), (600, 2..=3), (400, 3..=3)].map(|(bytes, alive)| Piece { bytes, alive });
        assert_eq!(pack(&pieces), PackedBuffers { offsets: vec![0, 0, 1024], bytes: 1536 });
    }

    proptest! {
        #[test]
        fn nothing_alive_together_overlaps(list in prop::collection::vec((0_u64..100_000, 0_u8..20, 0_u8..20), 0..40)) {
            let pieces: Vec<Piece> = list
                .iter()
                .map(|&(bytes, a, b)| Piece { bytes, alive: a.min(b)..=a.max(b) })
                .collect();
            let packed = pack(&pieces);
            let mut alive_bytes = [0_u64; 20];
            for (i, piece) in pieces.iter().enumerate() {
                prop_assert_eq!(packed.offsets[i] % BLOCK_BYTES, 0);
                prop_assert!(packed.offsets[i] + piece.bytes <= packed.bytes);
                for moment in piece.alive.clone() {
                    alive_bytes[usize::from(moment)] += aligned(piece.bytes);
                }
                for (j, other) in pieces.iter().enumerate().skip(i + 1) {
                    let apart = packed.offsets[i] + piece.bytes <= packed.offsets[j]
                        || packed.offsets[j] + other.bytes <= packed.offsets[i];
                    let empty = piece.bytes == 0 || other.bytes == 0;
                    prop_assert!(apart || empty || !overlap(&piece.alive, &other.alive));
                }
            }
            // The live bytes at each moment are a lower bound.
            prop_assert!(packed.bytes >= alive_bytes.into_iter().max().unwrap_or(0));
        }
    }
}
