//! Buffers that are not alive at the same time may lie in the same place: where each lies, and how much all take.

use std::ops::RangeInclusive;

use crate::gpt::tensors::BLOCK_BYTES;

/// What is to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its size.
    pub bytes: u64,
    /// From when to when it is needed, in any unit, both ends included.
    pub alive: RangeInclusive<u8>,
}

/// Where pieces lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// Of each piece, in the order in which they were given.
    pub offsets: Vec<u64>,
    /// Of all together.
    pub bytes: u64,
}

/// Places pieces: the largest first, each as low as those that are alive with it leave room. That is no more than a few
/// percent above the least there is for lists like ours, and the same for the same list.
#[must_use]
pub fn pack(pieces: &[Piece]) -> Packed {
    let mut offsets = vec![0_u64; pieces.len()];
    let mut placed: Vec<usize> = Vec::with_capacity(pieces.len());
    let mut bytes = 0_u64;
    // There are few, and sorting them is more code for a page to fetch than looking for the next.
    while let Some(i) =
        (0..pieces.len()).filter(|i| !placed.contains(i)).max_by_key(|&i| (pieces[i].bytes, std::cmp::Reverse(i)))
    {
        let piece = &pieces[i];
        let mut offset = 0_u64;
        let end = |start: u64, of: usize| start.saturating_add(aligned(pieces[of].bytes));
        // Whatever is in the way, nothing below its end is free.
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
    Packed { offsets, bytes }
}

/// Bytes up to where the next buffer may begin: as PyTorch's, each begins at a multiple of [`BLOCK_BYTES`], which any
/// kernel's widest access needs.
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
    fn what_is_never_alive_together_lies_in_one_place() {
        let pieces = [(1000, 0..=1), (600, 2..=3), (400, 3..=3)].map(|(bytes, alive)| Piece { bytes, alive });
        assert_eq!(pack(&pieces), Packed { offsets: vec![0, 0, 1024], bytes: 1536 });
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
            // All that is alive at once is a bound from below.
            prop_assert!(packed.bytes >= alive_bytes.into_iter().max().unwrap_or(0));
        }
    }
}
