//! GEMM in the emulated GPU's memory: column-major bfloat16 matrices, with float32 sums split into parts.

use std::ops::Range;

use headroom_emulator::Emulator;

use crate::bfloat16::{rounded, wide};

/// Alignment that the library assumes for matrices, in bytes.
const ALIGNMENT: u64 = 256;

/// cublasLtMatrixLayout_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Rows, contiguous in memory.
    pub rows: u64,
    pub columns: u64,
    /// Leading dimension: elements between the starts of consecutive columns.
    pub leading: u64,
    /// Whether elements are float32; otherwise they are bfloat16.
    pub is_wide: bool,
}

impl Matrix {
    fn elements(self) -> u64 {
        self.leading * (self.columns - 1) + self.rows
    }

    fn bytes(self) -> u64 {
        self.elements() * if self.is_wide { 4 } else { 2 }
    }

    fn range(self, address: u64) -> Range<u64> {
        address..address + self.bytes()
    }

    fn transposed(self, is: bool) -> [u64; 2] {
        if is { [self.columns, self.rows] } else { [self.rows, self.columns] }
    }
}

/// A GEMM.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The first matrix.
    pub a: Matrix,
    /// The second matrix.
    pub b: Matrix,
    /// The result.
    pub out: Matrix,
    /// Whether the first matrix is transposed.
    pub a_transposed: bool,
    /// Whether the second matrix is transposed.
    pub b_transposed: bool,
}

impl Operation {
    /// Returns whether sizes and element types match.
    pub fn fits(&self) -> bool {
        let ([m, k], [k_too, n]) = (self.a.transposed(self.a_transposed), self.b.transposed(self.b_transposed));
        k == k_too && [self.out.rows, self.out.columns] == [m, n] && !self.a.is_wide && !self.b.is_wide
    }
}

/// Addresses of the matrices.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The first matrix.
    pub a: u64,
    /// The second matrix.
    pub b: u64,
    /// The matrix that is added, scaled by beta.
    pub c: u64,
    /// The result.
    pub out: u64,
    /// The bias vector.
    pub bias: Option<u64>,
}

fn read(emulator: &Emulator, matrix: Matrix, address: u64) -> Result<Vec<f32>, String> {
    let mut bytes = vec![0; size(matrix.bytes())?];
    emulator.read(address, &mut bytes).map_err(|error| error.to_string())?;
    if !matrix.is_wide {
        return Ok(wide(&bytes));
    }
    Ok(bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect())
}

fn size(value: u64) -> Result<usize, String> {
    usize::try_from(value).map_err(|_| format!("{value} is more than memory"))
}

/// Returns a matrix's rows, or its columns.
fn lines(values: &[f32], of: Matrix, rows: bool) -> Result<Vec<Vec<f32>>, String> {
    let [n_rows, n_columns, leading] = [size(of.rows)?, size(of.columns)?, size(of.leading)?];
    let at = |row: usize, column: usize| values[column * leading + row];
    Ok(if rows {
        (0..n_rows).map(|row| (0..n_columns).map(|column| at(row, column)).collect()).collect()
    } else {
        (0..n_columns).map(|column| (0..n_rows).map(|row| at(row, column)).collect()).collect()
    })
}

/// Computes `out` = `alpha` a x b + `beta` c + bias. Each sum is split into parts of nearly equal length. The parts are
/// added from the first to the last, or backwards.
pub fn compute(
    emulator: &mut Emulator,
    operation: Operation,
    addresses: Addresses,
    [alpha, beta]: [f32; 2],
    parts: u64,
    backwards: bool,
) -> Result<(), String> {
    let Operation { a, b, out, a_transposed, b_transposed } = operation;
    for address in [addresses.a, addresses.b, addresses.c, addresses.out] {
        if !address.is_multiple_of(ALIGNMENT) {
            return Err(format!("a matrix begins at {address:#x}"));
        }
    }
    let result = out.range(addresses.out);
    for other in [a.range(addresses.a), b.range(addresses.b)] {
        if other.start < result.end && result.start < other.end {
            return Err(format!("the result {result:x?} overlaps an operand, {other:x?}"));
        }
    }
    if out.leading != out.rows {
        return Err("a result with gaps between its columns is not emulated".to_owned());
    }
    let depth = size(a.transposed(a_transposed)[1])?;
    let rows_of_a = lines(&read(emulator, a, addresses.a)?, a, !a_transposed)?;
    let columns_of_b = lines(&read(emulator, b, addresses.b)?, b, b_transposed)?;
    let bias = addresses.bias.map(|bias| read(emulator, Matrix { columns: 1, leading: out.rows, ..out }, bias));
    let bias = bias.transpose()?;
    // With beta 0, c may be uninitialised.
    let added = if beta == 0.0 { None } else { Some(read(emulator, out, addresses.c)?) };
    let part = depth.div_ceil(size(parts)?.max(1)).max(1);
    let mut starts: Vec<usize> = (0..depth).step_by(part).collect();
    if backwards {
        starts.reverse();
    }
    let mut bytes = Vec::with_capacity(size(out.bytes())?);
    for (j, column) in columns_of_b.iter().enumerate() {
        for (i, row) in rows_of_a.iter().enumerate() {
            let of_part = |start: usize| {
                let range = start..(start + part).min(depth);
                row[range.clone()].iter().zip(&column[range]).map(|(x, y)| x * y).sum::<f32>()
            };
            let mut value = alpha * starts.iter().map(|&start| of_part(start)).sum::<f32>();
            value += added.as_ref().map_or(0.0, |added| beta * added[j * rows_of_a.len() + i]);
            value += bias.as_ref().map_or(0.0, |bias| bias[i]);
            if out.is_wide {
                bytes.extend(value.to_ne_bytes());
            } else {
                bytes.extend(rounded(value));
            }
        }
    }
    emulator.write(addresses.out, &bytes).map_err(|error| error.to_string())
}
