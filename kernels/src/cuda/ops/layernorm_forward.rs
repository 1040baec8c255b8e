//! Layer normalization, separate or fused with the addition of a branch to the residual stream.

use headroom_planner::gpt::buffers::cuda::workspace;

use super::{count, dropout::parts, eights};
use crate::{
    cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice},
    reference::dropout::Dropout,
};

pub(super) static MODULE: Module =
    Module { name: "layernorm_forward", ptx: include_str!("../../../ptx/layernorm_forward.ptx") };
static FORWARD: [Kernel; 3] =
    [kernel("layernorm_forward_1"), kernel("layernorm_forward_4"), kernel("layernorm_forward_12")];
static RESIDUAL_FORWARD: [Kernel; 3] = [
    kernel("residual_layernorm_forward_1"),
    kernel("residual_layernorm_forward_4"),
    kernel("residual_layernorm_forward_12"),
];

const fn kernel(name: &'static str) -> Kernel {
    Kernel { module: &MODULE, name, threads: THREADS, shared_bytes: 192 }
}

pub(super) const THREADS: u32 = 384;
const _: () = assert!(THREADS as u64 == workspace::NORM_THREADS, "the plan counts with the kernels' blocks");

/// Output tensors of the op.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Normalized rows, (N, C).
    pub out: Slice<Bf16>,
    /// Mean of each row, (N); saved for backward.
    pub mean: Slice<f32>,
    /// Inverse standard deviation of each row, (N); saved for backward.
    pub rstd: Slice<f32>,
}

/// Tensors of the residual addition.
#[derive(Clone, Copy, Debug)]
pub struct Residual {
    /// Sum, (N, C); may be `inp`.
    pub residual: Slice<Bf16>,
    /// Residual stream before the addition, (N, C).
    pub inp: Slice<Bf16>,
    /// Branch to add, (N, C).
    pub branch: Slice<Bf16>,
    /// Dropout of the branch.
    pub dropout: Option<Dropout>,
}

/// Normalizes each row's channels, then scales and shifts them.
///
/// Shapes: `inp` (N, C), `weight` (C), `bias` (C) or none → `out` (N, C), `mean`, `rstd` (N); C a multiple of 8 up to
/// 9216.
///
/// Numerics: f32, biased variance about the mean, eps 1e-5 inside the root; rounded to bfloat16 once.
///
/// Twin: [`crate::reference::layernorm_forward::layernorm_forward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[track_caller]
pub fn layernorm_forward(
    device: &Device,
    output: Output,
    inp: Slice<Bf16>,
    weight: Slice<Bf16>,
    bias: Option<Slice<Bf16>>,
) -> Result<(), CudaError> {
    const OP: &str = "layernorm_forward";
    let sizes = sizes(OP, output, weight, bias)?;
    inp.expect(OP, "inp", output.out.len())?;
    let Sizes { n, c, kernel, rows } = sizes;
    if n == 0 {
        return Ok(());
    }
    let Output { out, mean, rstd } = output;
    let grid = Grid::x(u64::from(n).div_ceil(rows))?;
    device.launch(&FORWARD[kernel], grid, &[&out, &mean, &rstd, &inp, &weight, &or_null(bias), &n, &c])
}

/// Adds a branch to the residual stream, rounds the sum to bfloat16, and normalizes the rounded sum.
///
/// Shapes: as [`layernorm_forward`], with `residual`, `inp` and `branch` (N, C).
///
/// Numerics: as [`layernorm_forward`], with the sum rounded once.
///
/// Twins: [`crate::reference::dropout::dropout`], [`crate::reference::residual_forward::residual_forward`], and then
/// [`crate::reference::layernorm_forward::layernorm_forward`].
///
/// # Errors
/// As [`layernorm_forward`].
#[track_caller]
pub fn residual_layernorm_forward(
    device: &Device,
    stream: Residual,
    output: Output,
    weight: Slice<Bf16>,
    bias: Option<Slice<Bf16>>,
) -> Result<(), CudaError> {
    const OP: &str = "residual_layernorm_forward";
    let Sizes { n, c, kernel, rows } = sizes(OP, output, weight, bias)?;
    let Residual { residual, inp, branch, dropout } = stream;
    for (tensor, slice) in [("residual", residual), ("inp", inp), ("branch", branch)] {
        slice.expect(OP, tensor, output.out.len())?;
    }
    if n == 0 {
        return Ok(());
    }
    let Output { out, mean, rstd } = output;
    let (bias, (threshold, scale, key)) = (or_null(bias), parts(dropout));
    device.launch(
        &RESIDUAL_FORWARD[kernel],
        Grid::x(u64::from(n).div_ceil(rows))?,
        &[&residual, &out, &mean, &rstd, &inp, &branch, &weight, &bias, &n, &c, &threshold, &scale, &key],
    )
}

/// An optional tensor as a kernel argument: null if absent.
pub(super) fn or_null<T: crate::cuda::Element>(slice: Option<Slice<T>>) -> Slice<T> {
    slice.unwrap_or(Slice::new(0, 0))
}

/// Sizes in the kernels' types, and the index of the kernel.
pub(super) struct Sizes {
    pub n: u32,
    pub c: u32,
    /// Index among the kernels of an op.
    pub kernel: usize,
    /// Rows that a block processes at a time.
    pub rows: u64,
}

impl Sizes {
    pub(super) fn new(op: &'static str, n: u64, c: u64) -> Result<Self, CudaError> {
        eights(op, "C", c)?;
        let needed = "from 8 to 9216";
        let kernel = workspace::norm_kernel(c).ok_or(CudaError::Size { op, what: "C", value: c, needed })?;
        let rows = workspace::norm_block_rows(kernel);
        Ok(Self { n: count(op, "the number of rows", n)?, c: count(op, "C", c)?, kernel, rows })
    }
}

fn sizes(op: &'static str, output: Output, weight: Slice<Bf16>, bias: Option<Slice<Bf16>>) -> Result<Sizes, CudaError> {
    let Output { out, mean, rstd } = output;
    let sizes = Sizes::new(op, mean.len(), weight.len())?;
    out.expect(op, "out", mean.len().saturating_mul(weight.len()))?;
    rstd.expect(op, "rstd", mean.len())?;
    if let Some(bias) = bias {
        bias.expect(op, "bias", weight.len())?;
    }
    Ok(sizes)
}
