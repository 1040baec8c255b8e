//! Sum of token and position embeddings: the start of the residual stream.

use super::{count, dropout::parts, eights};
use crate::{
    cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice},
    reference::{dropout::Dropout, encoder::Positions},
};

pub(super) static MODULE: Module =
    Module { name: "encoder_forward", ptx: include_str!("../../../ptx/encoder_forward.ptx") };
static FORWARD: Kernel = Kernel { module: &MODULE, name: "encoder_forward", threads: THREADS, shared_bytes: 0 };

const THREADS: u32 = 256;

/// Adds each token's row of `wte` and its position's row of `wpe`, with dropout. A token beyond the vocabulary gives
/// NaN, which makes the loss NaN.
///
/// Shapes: `inp` (B, T), `wte` (V, C), `wpe` (maxT, C) → `out` (B, T, C), C a multiple of 8.
///
/// Numerics: f32, rounded to bfloat16 once.
///
/// Twins: [`crate::reference::encoder::encoder_forward`] and then [`crate::reference::dropout::dropout`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[expect(clippy::too_many_arguments, reason = "the twin's, the device, and what is dropped on the way")]
#[track_caller]
pub fn encoder_forward(
    device: &Device,
    out: Slice<Bf16>,
    inp: Slice<u32>,
    wte: Slice<Bf16>,
    wpe: Slice<Bf16>,
    positions: Positions,
    c: u64,
    dropout: Option<Dropout>,
) -> Result<(), CudaError> {
    const OP: &str = "encoder_forward";
    let sizes = Sizes::new(OP, positions, c)?;
    out.expect(OP, "out", inp.len().saturating_mul(c))?;
    let v = wte.len() / c;
    wte.expect(OP, "wte", v * c)?;
    sizes.check(OP, "wpe", wpe.len(), inp.len())?;
    let n = count(OP, "an eighth of the number of elements", out.len() / super::EIGHT)?;
    if n == 0 {
        return Ok(());
    }
    let grid = Grid::x(u64::from(n).div_ceil(u64::from(THREADS)))?;
    let (threshold, scale, key) = parts(dropout);
    let (v, Sizes { t, first, c }) = (count(OP, "V", v)?, sizes);
    device.launch(&FORWARD, grid, &[&out, &inp, &wte, &wpe, &n, &t, &first, &c, &v, &threshold, &scale, &key])
}

/// Sizes in the kernels' types.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub t: u32,
    pub first: u32,
    pub c: u32,
}

impl Sizes {
    pub(super) fn new(op: &'static str, positions: Positions, c: u64) -> Result<Self, CudaError> {
        if c == 0 || positions.t == 0 {
            let what = if c == 0 { "C" } else { "T" };
            return Err(CudaError::Size { op, what, value: 0, needed: "at least 1" });
        }
        eights(op, "C", c)?;
        let (t, first) =
            (count(op, "T", positions.t as u64)?, count(op, "the first position", positions.first as u64)?);
        Ok(Self { t, first, c: count(op, "C", c)? })
    }

    /// Checks that `tokens` is a multiple of T and that the embedding has a row for each position.
    pub(super) fn check(self, op: &'static str, tensor: &'static str, len: u64, tokens: u64) -> Result<(), CudaError> {
        let t = u64::from(self.t);
        if !tokens.is_multiple_of(t) {
            return Err(CudaError::Size { op, what: "the number of tokens", value: tokens, needed: "a multiple of T" });
        }
        let expected = (u64::from(self.first) + t) * u64::from(self.c);
        if len < expected {
            return Err(CudaError::Length { op, tensor, expected, given: len });
        }
        Ok(())
    }
}
