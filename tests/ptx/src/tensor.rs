//! Warp-wide instructions: shuffles, loads of matrices and matrix products.

use crate::{
    math,
    registers::{LANES, Lanes},
};

/// The result of `shfl.sync.bfly`: each lane's partner, whose number differs by a mask, and whether it is in range.
pub struct ShuffleResult {
    /// The source lane of each lane.
    pub from: Lanes<usize>,
    /// A mask of the lanes whose partners are in range.
    pub in_range: u32,
}

/// Computes the partners from the lane masks and clamps of all lanes.
pub fn shuffled(lane_mask: &Lanes<u32>, clamp: &Lanes<u32>) -> ShuffleResult {
    let mut shuffled = ShuffleResult { from: [0; LANES], in_range: 0 };
    for lane in 0..LANES {
        let number = u32::try_from(lane).unwrap_or(0);
        let segments = clamp[lane] >> 8 & 31;
        let last = (number & segments) | (clamp[lane] & 31 & !segments);
        let partner = number ^ (lane_mask[lane] & 31);
        let in_range = partner <= last;
        shuffled.from[lane] = if in_range { partner as usize } else { lane };
        shuffled.in_range |= u32::from(in_range) << lane;
    }
    shuffled
}

/// `ldmatrix.x4`: the result registers of all lanes, from the addressed rows.
pub fn matrices(rows: &Lanes<[u32; 4]>, transposed: bool) -> [Lanes<u32>; 4] {
    let half = |row: usize, column: usize| rows[row][column / 2] >> (column % 2 * 16) & 0xffff;
    let mut out = [[0; LANES]; 4];
    for (matrix, out) in out.iter_mut().enumerate() {
        for (lane, out) in out.iter_mut().enumerate() {
            *out = if transposed {
                let row = matrix * 8 + lane % 4 * 2;
                half(row, lane / 4) | half(row + 1, lane / 4) << 16
            } else {
                rows[matrix * 8 + lane / 4][lane % 4]
            };
        }
    }
    out
}

/// The two bfloat16 values of a register, the lower half first.
fn halves(pair: u32) -> [f64; 2] {
    [pair << 16, pair & 0xffff_0000].map(|bits| f64::from(f32::from_bits(bits)))
}

/// `mma.m16n8k16`: the sums of all lanes. Each is computed in two steps of 8 products, truncated to f32 after each.
pub fn product(a: [&Lanes<u32>; 4], b: [&Lanes<u32>; 2], c: [&Lanes<u32>; 4]) -> [Lanes<u32>; 4] {
    let (mut left, mut right) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
    let mut sums = [[0.0_f32; 8]; 16];
    for lane in 0..LANES {
        let (group, place) = (lane / 4, lane % 4 * 2);
        for (i, register) in a.iter().enumerate() {
            let (row, column) = (group + i % 2 * 8, place + i / 2 * 8);
            left[row][column..column + 2].copy_from_slice(&halves(register[lane]));
        }
        for (i, register) in b.iter().enumerate() {
            let [first, second] = halves(register[lane]);
            right[place + i * 8][group] = first;
            right[place + i * 8 + 1][group] = second;
        }
        for (i, register) in c.iter().enumerate() {
            sums[group + i / 2 * 8][place + i % 2] = f32::from_bits(register[lane]);
        }
    }
    for (left, sums) in left.iter().zip(&mut sums) {
        for step in [0..8, 8..16] {
            let mut products = [0.0; 8];
            for k in step {
                for (product, right) in products.iter_mut().zip(&right[k]) {
                    *product += left[k] * right;
                }
            }
            for (sum, product) in sums.iter_mut().zip(products) {
                *sum = math::accumulated(*sum, product);
            }
        }
    }
    let mut out = [[0; LANES]; 4];
    for (i, out) in out.iter_mut().enumerate() {
        for (lane, out) in out.iter_mut().enumerate() {
            *out = sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2].to_bits();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(value: usize) -> u32 {
        u32::try_from(value).expect("a small number")
    }

    fn numbers(seed: u32) -> Lanes<u32> {
        // Small whole numbers, whose products and sums are exact.
        std::array::from_fn(|lane| {
            let number = |i: usize| math::bfloat16((((small(lane * 7 + i * 3) ^ seed) % 9) as f32 - 4.0).to_bits());
            number(0) | number(1) << 16
        })
    }

    #[test]
    fn products_are_those_of_the_matrices_that_the_isa_describes() {
        let [a, b] = [[1, 2, 3, 4], [5, 6, 0, 0]].map(|seeds: [u32; 4]| seeds.map(numbers));
        let out = product([&a[0], &a[1], &a[2], &a[3]], [&b[0], &b[1]], [&[0; 32]; 4]);
        let element = |pair: u32, i: usize| f32::from_bits(pair >> (i * 16) << 16);
        // The ISA's tables for lane i: a0,a1 in row i/4; a2,a3 in row i/4+8; a4,a5 in row i/4 from column 8; b in row
        // i%4*2, column i/4.
        let at_a = |row: usize, column: usize| {
            let lane = row % 8 * 4 + column % 8 / 2;
            element(a[row / 8 + column / 8 * 2][lane], column % 2)
        };
        let at_b = |row: usize, column: usize| element(b[row / 8][column * 4 + row % 8 / 2], row % 2);
        for lane in 0..LANES {
            for (i, out) in out.iter().enumerate() {
                let (row, column) = (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
                let expected: f32 = (0..16).map(|k| at_a(row, k) * at_b(k, column)).sum();
                assert_eq!(f32::from_bits(out[lane]), expected, "row {row}, column {column}");
            }
        }
    }

    #[test]
    fn a_transposed_load_gives_columns() {
        let rows: Lanes<[u32; 4]> = std::array::from_fn(|row| {
            std::array::from_fn(|word| small(row * 8 + word * 2) | small(row * 8 + word * 2 + 1) << 16)
        });
        let (plain, transposed) = (matrices(&rows, false), matrices(&rows, true));
        // Lane 5 holds row 1, columns 2 and 3; of the transpose, column 1, rows 2 and 3.
        assert_eq!([plain[0][5] & 0xffff, plain[0][5] >> 16], [10, 11]);
        assert_eq!([transposed[0][5] & 0xffff, transposed[0][5] >> 16], [17, 25]);
        assert_eq!(transposed[3][5] & 0xffff, (24 + 2) * 8 + 1);
    }

    #[test]
    fn butterflies_stay_in_their_segments() {
        let all = shuffled(&[16; 32], &[0x1f; 32]);
        assert_eq!((all.from[3], all.from[20], all.in_range), (19, 4, u32::MAX));
        // Segments of 8 lanes end at lane 7, so a mask of 8 exceeds them.
        let halves = shuffled(&[8; 32], &[0x1807; 32]);
        assert_eq!((halves.from[3], halves.in_range & 1 << 3), (3, 0));
    }
}
