//! Operations that a warp does together: each lane brings its part and waits; the last one does it for all.

use std::{ffi::CStr, fmt};

/// Lanes of a warp.
pub const LANES: usize = 32;

/// A line of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, as the compiler was told.
    pub file: &'static CStr,
    /// The line.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.to_string_lossy();
        write!(f, "{}:{}", file.rsplit('/').next().unwrap_or_default(), self.line)
    }
}

/// What a warp does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `__syncwarp`.
    Sync,
    /// `__shfl_sync` and its like.
    Shuffle,
    /// `ldmatrix`.
    LoadMatrix {
        /// Matrices.
        n: usize,
        /// Whether they are transposed.
        transposed: bool,
    },
    /// `mma.sync`.
    Multiply,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync => f.write_str("__syncwarp"),
            Self::Shuffle => f.write_str("a shuffle"),
            Self::LoadMatrix { n, transposed: false } => write!(f, "ldmatrix_x{n}"),
            Self::LoadMatrix { n, transposed: true } => write!(f, "ldmatrix_x{n}_trans"),
            Self::Multiply => f.write_str("mma_m16n8k16"),
        }
    }
}

/// What a lane brings and gets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// Registers that it brings: a value and a lane; an address's halves; those of a, b and d.
    pub input: [u32; 10],
    /// Registers that it gets.
    pub output: [u32; 4],
}

/// What a warp is about.
#[derive(Debug)]
pub struct Warp {
    /// The operation that lanes are in, with its mask and line.
    pub at: Option<(Operation, u32, Place)>,
    /// Lanes that have come.
    pub arrived: u32,
    /// Operations that were done.
    pub done: u64,
    /// When the last `__syncwarp` was.
    pub tick: u32,
    /// By lanes.
    pub slots: [Slot; LANES],
}

impl Warp {
    /// A warp that has done nothing yet.
    pub fn new(tick: u32) -> Self {
        Self { at: None, arrived: 0, done: 0, tick, slots: [Slot::default(); LANES] }
    }

    /// d += a x b, as device.cuh says which lane holds what.
    pub fn multiply(&mut self) {
        let mut a = [[0.0_f32; 16]; 16];
        let mut b = [[0.0_f32; 8]; 16];
        for (lane, slot) in self.slots.iter().enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            for (i, &pair) in slot.input[..4].iter().enumerate() {
                let (row, column) = (g + 8 * (i % 2), 2 * t + 8 * (i / 2));
                [a[row][column], a[row][column + 1]] = halves(pair);
            }
            for (i, &pair) in slot.input[4..6].iter().enumerate() {
                let row = 2 * t + 8 * i;
                [b[row][g], b[row + 1][g]] = halves(pair);
            }
        }
        for (lane, slot) in self.slots.iter_mut().enumerate() {
            let (g, t) = (lane / 4, lane % 4);
            for i in 0..4 {
                let (row, column) = (g + 8 * (i / 2), 2 * t + i % 2);
                let sum: f32 = (0..16).map(|k| a[row][k] * b[k][column]).sum();
                slot.output[i] = (f32::from_bits(slot.input[6 + i]) + sum).to_bits();
            }
        }
    }
}

fn halves(pair: u32) -> [f32; 2] {
    [f32::from_bits(pair << 16), f32::from_bits(pair & 0xffff_0000)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(value: f32) -> u32 {
        value.to_bits() >> 16
    }

    /// One in a's row 9, column 3 and in b's row 3, column 5 makes one in d's row 9, column 5.
    #[test]
    fn an_element_is_where_device_cuh_says() {
        let mut warp = Warp::new(0);
        // Row 9 is g = 1 and 8 more: register 1; column 3 is t = 1, the upper half.
        warp.slots[4 + 1].input[1] = bits(2.0) << 16;
        // Row 3 is t = 1, the upper half; column 5 is g = 5.
        warp.slots[5 * 4 + 1].input[4] = bits(3.0) << 16;
        // Row 9, column 5: g = 1, t = 2, the second of row g + 8.
        warp.slots[4 + 2].input[6 + 3] = 1.0_f32.to_bits();
        warp.multiply();
        for (lane, slot) in warp.slots.iter().enumerate() {
            for (i, &out) in slot.output.iter().enumerate() {
                let want = if (lane, i) == (6, 3) { 7.0 } else { 0.0 };
                assert_eq!(f32::from_bits(out), want, "lane {lane}, register {i}");
            }
        }
    }
}
