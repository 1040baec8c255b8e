//! A product of a run by its sizes, and the same as cuBLASLt sees it.
//!
//! The library's matrices lie column by column and ours row by row, so that it sees each of ours transposed: `out` (N, OC)
//! is a matrix of OC rows and N columns, and out = inp x weightᵀ is outᵀ = weight x inpᵀ.

use std::fmt;

/// Which product of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Which {
    /// `out` (N, OC) of `weight` (OC, C) and `inp` (N, C).
    Forward {
        /// Whether a vector is added.
        has_bias: bool,
    },
    /// The same, added to another (N, OC).
    Residual {
        /// Whether a vector is added.
        has_bias: bool,
    },
    /// `dinp` (N, C) of `weight` (OC, C) and `dout` (N, OC).
    Rows,
    /// `dweight` (OC, C) of `inp` (N, C) and `dout` (N, OC).
    Weight {
        /// Whether it is added to what is there.
        accumulates: bool,
    },
}

/// A product with its sizes: what an algorithm is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Which.
    pub which: Which,
    /// Rows.
    pub n: u64,
    /// The width of what goes in.
    pub c: u64,
    /// The width of what comes out.
    pub oc: u64,
}

/// A shape's name, by which its algorithm is kept.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.which {
            Which::Forward { has_bias: false } => "forward",
            Which::Forward { has_bias: true } => "forward with bias",
            Which::Residual { has_bias: false } => "forward onto a stream",
            Which::Residual { has_bias: true } => "forward with bias onto a stream",
            Which::Rows => "gradient of rows",
            Which::Weight { accumulates: false } => "gradient of weight",
            Which::Weight { accumulates: true } => "gradient of weight, added",
        };
        write!(f, "{name}, N {}, C {}, OC {}", self.n, self.c, self.oc)
    }
}

/// A product in the library's view: `rows` x `columns`, summed over `depth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Rows of the result.
    pub rows: u64,
    /// Columns of the result.
    pub columns: u64,
    /// What is summed over.
    pub depth: u64,
    /// Whether the first matrix lies as (depth, rows).
    pub a_is_transposed: bool,
    /// Whether the second matrix lies as (columns, depth).
    pub b_is_transposed: bool,
    /// Whether the result is added to a third matrix.
    pub adds: bool,
    /// Whether the result is float32, else bfloat16.
    pub is_wide: bool,
}

/// Where a product's matrices begin in the card's memory.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// The first matrix.
    pub a: u64,
    /// The second.
    pub b: u64,
    /// The one that is added to; the result where there is none.
    pub c: u64,
    /// The result.
    pub out: u64,
    /// The vector that is added.
    pub bias: Option<u64>,
}

/// What the library takes for granted of where matrices begin, as long as nobody tells it less; a run's arena gives twice
/// that.
const ALIGNMENT: u64 = 256;

impl Slices {
    /// Whether all begin where the library's algorithms need it.
    pub fn are_aligned(&self) -> bool {
        [self.a, self.b, self.c, self.out].iter().chain(&self.bias).all(|address| address.is_multiple_of(ALIGNMENT))
    }
}

impl Shape {
    /// In the library's view.
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
            Which::Forward { .. } => forward(false),
            Which::Residual { .. } => forward(true),
            Which::Rows => Product {
                rows: c,
                columns: n,
                depth: oc,
                a_is_transposed: false,
                b_is_transposed: false,
                adds: false,
                is_wide: false,
            },
            Which::Weight { accumulates } => Product {
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
