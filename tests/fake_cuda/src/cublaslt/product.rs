//! A product in the card's memory: matrices of bfloat16, column by column, with sums of float32 cut into parts.

use std::ops::Range;

use headroom_emulator::Emulator;

/// What the library takes for granted of where matrices begin.
const ALIGNMENT: u64 = 256;

/// cublasLtMatrixLayout_t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Rows, which lie one after the other.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Elements from one column to the next.
    pub leading: u64,
    /// Whether elements are float32, else bfloat16.
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

/// A product.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The first matrix.
    pub a: Matrix,
    /// The second.
    pub b: Matrix,
    /// The result.
    pub out: Matrix,
    /// Whether the first is taken transposed.
    pub a_transposed: bool,
    /// Whether the second is.
    pub b_transposed: bool,
}

impl Operation {
    /// Whether sizes and elements fit each other.
    pub fn fits(&self) -> bool {
        let ([m, k], [k_too, n]) = (self.a.transposed(self.a_transposed), self.b.transposed(self.b_transposed));
        k == k_too && [self.out.rows, self.out.columns] == [m, n] && !self.a.is_wide && !self.b.is_wide
    }
}

/// Where matrices begin.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The first matrix.
    pub a: u64,
    /// The second.
    pub b: u64,
    /// The one that is added.
    pub c: u64,
    /// The result.
    pub out: u64,
    /// The vector that is added.
    pub bias: Option<u64>,
}

fn wide(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(2).map(|two| f32::from_bits(u32::from(u16::from_ne_bytes([two[0], two[1]])) << 16)).collect()
}

/// To the nearest, ties to even.
fn rounded(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let upper = if value.is_nan() { bits | 0x40_0000 } else { bits + 0x7fff + ((bits >> 16) & 1) } >> 16;
    u16::try_from(upper).unwrap_or(u16::MAX).to_ne_bytes()
}

fn read(emulator: &Emulator, matrix: Matrix, address: u64) -> Result<Vec<f32>, String> {
    let mut bytes = vec![0; usize::try_from(matrix.bytes()).map_err(|_| "a matrix of more than memory")?];
    emulator.read(address, &mut bytes).map_err(|error| error.to_string())?;
    if !matrix.is_wide {
        return Ok(wide(&bytes));
    }
    Ok(bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect())
}

/// Computes `out` = `alpha` a x b + `beta` c + bias. Sums are cut into parts of nearly one length, each from its first on,
/// which are added up from the first on, or from the last.
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
            return Err(format!("the result {result:x?} lies over what it is made of, {other:x?}"));
        }
    }
    let depth = a.transposed(a_transposed)[1];
    let (av, bv) = (read(emulator, a, addresses.a)?, read(emulator, b, addresses.b)?);
    let bias = addresses.bias.map(|bias| read(emulator, Matrix { columns: 1, leading: out.rows, ..out }, bias));
    let bias = bias.transpose()?;
    // Where nothing is added, what is there may be anything.
    let cv = if beta == 0.0 { vec![] } else { read(emulator, out, addresses.c)? };
    let at = |matrix: Matrix, row: u64, column: u64| (column * matrix.leading + row) as usize;
    let part = depth.div_ceil(parts.max(1)).max(1);
    let mut starts: Vec<u64> = (0..depth).step_by(usize::try_from(part).unwrap_or(usize::MAX)).collect();
    if backwards {
        starts.reverse();
    }
    let mut bytes = Vec::with_capacity(usize::try_from(out.bytes()).unwrap_or(0));
    for column in 0..out.columns {
        for row in 0..out.rows {
            let mut sum = 0.0_f32;
            for &start in &starts {
                let mut of_part = 0.0_f32;
                for k in start..(start + part).min(depth) {
                    let x = av[if a_transposed { at(a, k, row) } else { at(a, row, k) }];
                    let y = bv[if b_transposed { at(b, column, k) } else { at(b, k, column) }];
                    of_part += x * y;
                }
                sum += of_part;
            }
            let mut value = alpha * sum;
            if beta != 0.0 {
                value += beta * cv[at(out, row, column)];
            }
            value += bias.as_ref().map_or(0.0, |bias| bias[row as usize]);
            if out.is_wide {
                bytes.extend(value.to_ne_bytes());
            } else {
                bytes.extend(rounded(value));
            }
        }
    }
    if out.leading != out.rows {
        return Err("columns of the result lie apart, which nobody here asks for".to_owned());
    }
    emulator.write(addresses.out, &bytes).map_err(|error| error.to_string())
}
