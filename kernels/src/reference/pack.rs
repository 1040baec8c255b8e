//! The layout of a matrix in GPU memory: blocks of 4 rows by 8 columns, in f32 or half precision.
//!
//! Four adjacent invocations process the four rows of a block, so that they read contiguous bytes, on a GPU as with a
//! CPU's vectors. Rows are a multiple of 4 and columns a multiple of 8; padding is zero.

/// Rows per block.
pub const BLOCK_ROWS: usize = 4;

/// Columns per block.
pub const BLOCK_COLUMNS: usize = 8;

/// The bits of the nearest half-precision number, with ties to even. Overflow gives infinity.
#[must_use]
pub fn half_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = u16::from(x.is_sign_negative()) << 15;
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return sign | 0x7E00;
    }
    // Subnormal results are multiples of 2^-24, to which this sum rounds.
    let rounded = if magnitude < 0x3880_0000 {
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5_f32.to_bits()
    } else {
        let even = (magnitude >> 13) & 1;
        ((magnitude + 0xFFF + even) >> 13).saturating_sub((127 - 15) << 10)
    };
    sign | u16::try_from(rounded.min(0x7C00)).unwrap_or(0x7C00)
}

/// The value of a half-precision number's bits.
#[must_use]
pub fn half_value(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7FFF);
    let value = if magnitude >= 0x7C00 {
        f32::from_bits((magnitude << 13) | 0x7F80_0000)
    } else {
        // Moves exponent and fraction to f32's positions, then corrects for f32's larger bias. Exact, including
        // subnormal numbers.
        f32::from_bits(magnitude << 13) * f32::from_bits((127 + 127 - 15) << 23)
    };
    if bits >> 15 == 1 { -value } else { value }
}

/// The index of an element in a packed f32 matrix of `c` columns.
#[must_use]
pub const fn place(row: usize, column: usize, c: usize) -> usize {
    let block = row / BLOCK_ROWS * (c / BLOCK_COLUMNS) + column / BLOCK_COLUMNS;
    (block * 2 + column % BLOCK_COLUMNS / 4) * 16 + row % BLOCK_ROWS * 4 + column % 4
}

/// The index of an element in a packed half-precision matrix of `c` columns.
#[must_use]
pub const fn place_of_half(row: usize, column: usize, c: usize) -> usize {
    let block = row / BLOCK_ROWS * (c / BLOCK_COLUMNS) + column / BLOCK_COLUMNS;
    (block * BLOCK_ROWS + row % BLOCK_ROWS) * BLOCK_COLUMNS + column % BLOCK_COLUMNS
}

/// Packs whole blocks of rows in f32; `element` returns the value at a row and column.
///
/// Shapes: `out` (rows / 4, C / 8, 2, 4, 4).
///
/// # Panics
/// If `c` is not a multiple of 8, or `out` is not a whole number of blocks of rows.
pub fn pack_f32(out: &mut [f32], c: usize, mut element: impl FnMut(usize, usize) -> f32) {
    let rows = rows_of(out.len(), c);
    for row in 0..rows {
        for column in 0..c {
            out[place(row, column, c)] = element(row, column);
        }
    }
}

/// Packs whole blocks of rows in half precision, two numbers per word, the first in its lower half.
///
/// Shapes: `out` (rows / 4, C / 8, 4, 4) words.
///
/// # Panics
/// As for [`pack_f32`].
pub fn pack_half(out: &mut [u32], c: usize, mut element: impl FnMut(usize, usize) -> f32) {
    let rows = rows_of(2 * out.len(), c);
    for row in 0..rows {
        for column in (0..c).step_by(2) {
            let [low, high] = [0, 1].map(|next| u32::from(half_bits(element(row, column + next))));
            out[place_of_half(row, column, c) / 2] = low | (high << 16);
        }
    }
}

fn rows_of(len: usize, c: usize) -> usize {
    assert!(c > 0 && c.is_multiple_of(BLOCK_COLUMNS), "columns are a multiple of 8");
    assert_eq!(len % (c * BLOCK_ROWS), 0, "rows are a multiple of 4");
    len / c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_reads_back() {
        for bits in 0..=u16::MAX {
            let value = half_value(bits);
            if value.is_nan() {
                assert!(half_value(half_bits(value)).is_nan());
            } else {
                assert_eq!(half_bits(value), bits, "{value}");
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_the_nearest_and_ties_to_even() {
        for (x, want) in [
            (1.0, 0x3C00),
            (1.0 + 1.0 / 2048.0, 0x3C00),
            (1.0 + 3.0 / 2048.0, 0x3C02),
            (-2.0, 0xC000),
            (65519.0, 0x7BFF),
            (65520.0, 0x7C00),
            (f32::INFINITY, 0x7C00),
            (f32::from_bits(0x3300_0000), 0),
            (f32::from_bits(0x3300_0001), 1),
            (6.103_515_6e-5, 0x0400),
            (-0.0, 0x8000),
        ] {
            assert_eq!(half_bits(x), want, "{x}");
        }
    }

    #[test]
    fn every_element_has_a_place_of_its_own() {
        let (rows, c) = (12, 24);
        for place in [place, place_of_half] {
            let mut seen = vec![false; rows * c];
            for at in (0..rows).flat_map(|row| (0..c).map(move |column| place(row, column, c))) {
                assert!(!std::mem::replace(&mut seen[at], true), "{at} twice");
            }
        }
    }

    #[test]
    fn four_rows_lie_side_by_side() {
        let mut out = vec![0.0; 4 * 8];
        pack_f32(&mut out, 8, |row, column| f32::from(u8::try_from(row * 10 + column).expect("small")));
        assert_eq!(out[..8], [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]);
        assert_eq!(out[16..20], [4.0, 5.0, 6.0, 7.0]);
        let mut words = vec![0; 4 * 4];
        pack_half(&mut words, 8, |row, _| if row == 1 { 2.0 } else { 1.0 });
        assert_eq!(words[3..5], [0x3C00_3C00, 0x4000_4000]);
    }
}
