//! Shapes of a run's products, and their description for cuBLASLt.
//!
//! The library's matrices are column-major and ours are row-major, so each of ours appears transposed to the library.
//! `out` (N, OC) is a matrix of OC rows and N columns, and out = inp x weightᵀ becomes outᵀ = weight x inpᵀ.

use std::fmt;

/// Kind of a linear layer's product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GemmKind {
    /// Forward: `out` (N, OC) from `weight` (OC, C) and `inp` (N, C).
    Forward {
        /// Whether a bias is added.
        has_bias: bool,
    },
    /// Forward plus another (N, OC) matrix.
    Residual {
        /// Whether a bias is added.
        has_bias: bool,
    },
    /// Gradient of the input: `dinp` (N, C) from `weight` (OC, C) and `dout` (N, OC).
    Rows,
    /// Gradient of the weight: `dweight` (OC, C) from `inp` (N, C) and `dout` (N, OC).
    Weight {
        /// Whether the result is added to the old values.
        accumulates: bool,
    },
}

/// A product and its sizes, for which an algorithm is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Kind of the product.
    pub which: GemmKind,
    /// Number of rows.
    pub n: u64,
    /// Input width in channels.
    pub c: u64,
    /// Output width in channels.
    pub oc: u64,
}

/// Formats the name under which the shape's algorithm is stored.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.which {
            GemmKind::Forward { has_bias: false } => "forward",
            GemmKind::Forward { has_bias: true } => "forward with bias",
            GemmKind::Residual { has_bias: false } => "forward onto a stream",
            GemmKind::Residual { has_bias: true } => "forward with bias onto a stream",
            GemmKind::Rows => "gradient of rows",
            GemmKind::Weight { accumulates: false } => "gradient of weight",
            GemmKind::Weight { accumulates: true } => "gradient of weight, added",
        };
        write!(f, "{name}, N {}, C {}, OC {}", self.n, self.c, self.oc)
    }
}

/// A product as cuBLASLt sees it: `rows` x `columns`, summed over `depth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of the result.
    pub rows: u64,
    /// Columns of the result.
    pub columns: u64,
    /// Length of the sums.
    pub depth: u64,
    /// Whether the first matrix is stored as (depth, rows).
    pub a_is_transposed: bool,
    /// Whether the second matrix is stored as (columns, depth).
    pub b_is_transposed: bool,
    /// Whether the result is added to a third matrix.
    pub adds: bool,
    /// Whether the result is float32, else bfloat16.
    pub is_wide: bool,
}

/// Addresses of a product's matrices in GPU memory.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// First matrix.
    pub a: u64,
    /// Second matrix.
    pub b: u64,
    /// Matrix to add. Equals `out` without one.
    pub c: u64,
    /// Result.
    pub out: u64,
    /// Bias vector.
    pub bias: Option<u64>,
}

/// Alignment in bytes that the library assumes unless a smaller one is set. A run's arena aligns to twice as much.
const ALIGNMENT: u64 = 256;

impl Slices {
    /// Whether all addresses have the alignment that the library assumes.
    pub fn are_aligned(&self) -> bool {
        [self.a, self.b, self.c, self.out].iter().chain(&self.bias).all(|address| address.is_multiple_of(ALIGNMENT))
    }
}

impl Shape {
    /// The product as cuBLASLt sees it.
    pub fn product(self) -> Product {
        let Self { which, n, c, oc } = self;
        let forward = |adds| Product {
            rows: oc,
            columns: n,
            depth: c,
            a_is_transposed: true,
            b_is_transposed: false,
            adds,
            is_wide: false,
        };
        match which {
            GemmKind::Forward { .. } => forward(false),
            GemmKind::Residual { .. } => forward(true),
            GemmKind::Rows => Product {
                rows: c,
                columns: n,
                depth: oc,
                a_is_transposed: false,
                b_is_transposed: false,
                adds: false,
                is_wide: false,
            },
            GemmKind::Weight { accumulates } => Product {
                rows: c,
                columns: oc,
                depth: n,
                a_is_transposed: false,
                b_is_transposed: true,
                adds: accumulates,
                is_wide: true,
            },
        }
    }
}
