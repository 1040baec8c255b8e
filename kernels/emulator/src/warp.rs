//! Warp operations: each lane provides its input and waits; the last lane to arrive performs the operation for all.

use std::{ffi::CStr, fmt};

/// Lanes per warp.
pub const LANES: usize = 32;

/// A source line of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The file's path, as passed to the compiler.
    pub file: &'static CStr,
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.to_string_lossy();
        write!(f, "{}:{}", file.rsplit('/').next().unwrap_or_default(), self.line)
    }
}

/// A warp operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `__syncwarp`.
    Sync,
    /// `__shfl_sync` and its variants.
    Shuffle,
    /// `ldmatrix`.
    LoadMatrix {
        /// The number of matrices.
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

/// The input and output registers of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// Input registers: a value and a lane; an address's halves; or the fragments a, b and d.
    pub input: [u32; 10],
    /// Output registers.
    pub output: [u32; 4],
}

/// The state of a warp.
#[derive(Debug)]
pub struct Warp {
    /// The current operation, with its mask and source line.
    pub at: Option<(Operation, u32, SourceLine)>,
    /// A bit mask of the lanes that have arrived.
    pub arrived: u32,
    /// The number of completed operations.
    pub done: u64,
    /// The tick of the last `__syncwarp`.
    pub tick: u32,
    /// The registers of each lane.
    pub slots: [Slot; LANES],
}

impl Warp {
    /// A warp that has completed no operation.
    pub fn new(tick: u32) -> Self {
        Self { at: None, arrived: 0, done: 0, tick, slots: [Slot::default(); LANES] }
    }

    /// d += a x b, with the fragment layout described in device.cuh.
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

    /// A value in a's row 9, column 3 and one in b's row 3, column 5 contribute to d's row 9, column 5.
    #[test]
    fn an_element_is_where_device_cuh_says() {
        let mut warp = Warp::new(0);
        // Row 9 is g = 1 plus 8: register 1; column 3 is t = 1, the upper half.
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
