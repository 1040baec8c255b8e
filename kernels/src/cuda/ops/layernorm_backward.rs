//! Layer normalization, backward.

use headroom_planner::gpt::buffers::cuda::workspace;

use super::layernorm_forward::{Sizes, THREADS, or_null};
use crate::cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module =
    Module { name: "layernorm_backward", ptx: include_str!("../../../ptx/layernorm_backward.ptx") };
static BACKWARD: [Kernel; 3] = [
    kernel("layernorm_backward_1", 12480),
    kernel("layernorm_backward_4", 12480),
    kernel("layernorm_backward_12", 12480),
];
static SUM: Kernel = kernel("layernorm_backward_sum", 1536);

const fn kernel(name: &'static str, shared_bytes: u32) -> Kernel {
    Kernel { module: &MODULE, name, threads: THREADS, shared_bytes }
}

/// Columns per block of `layernorm_backward_sum`.
const COLUMNS: u64 = 32;
const OP: &str = "layernorm_backward";

/// Output tensors of the op.
#[derive(Clone, Copy, Debug)]
pub struct Gradients {
    /// Gradient of the input rows, (N, C).
    pub dinp: Slice<Bf16>,
    /// Gradient of the scale, (C); added to.
    pub dweight: Slice<f32>,
    /// Gradient of the shift, (C), if there is one; added to.
    pub dbias: Option<Slice<f32>>,
    /// Whether `dinp` is added to; otherwise it is overwritten.
    pub accumulate: bool,
}

/// Tensors saved by forward.
#[derive(Clone, Copy, Debug)]
pub struct SavedNorm {
    /// Input rows, (N, C).
    pub inp: Slice<Bf16>,
    /// Mean of each row, (N).
    pub mean: Slice<f32>,
    /// Inverse standard deviation of each row, (N).
    pub rstd: Slice<f32>,
}

/// Number of elements that the blocks' partial sums should have, for `n` rows of `c` channels.
///
/// # Errors
/// [`CudaError::Size`] if the kernels do not support such rows.
pub fn sums_elements(n: u64, c: u64) -> Result<u64, CudaError> {
    let Sizes { n, c, .. } = Sizes::new(OP, n, c)?;
    Ok(workspace::norm_parts_elements(u64::from(n), u64::from(c)))
}

/// Adds the gradients of [`super::layernorm_forward::layernorm_forward`].
///
/// Shapes: `dout` (N, C), `weight` (C) → adds to `dinp` (N, C), `dweight` (C), `dbias` (C); C a multiple of 8 up to
/// 9216. Scratch memory is `sums` (2, blocks, C), [`sums_elements`] of them; fewer elements mean fewer blocks.
///
/// Numerics: f32, `dinp` rounded to bfloat16 once; the sums of `dweight` and `dbias` have an order that depends on the
/// sizes only.
///
/// Twin: [`crate::reference::layernorm_backward::layernorm_backward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or a launch fails.
#[track_caller]
pub fn layernorm_backward(
    device: &Device,
    gradients: Gradients,
    sums: Slice<f32>,
    dout: Slice<Bf16>,
    saved: SavedNorm,
    weight: Slice<Bf16>,
) -> Result<(), CudaError> {
    let Gradients { dinp, dweight, dbias, accumulate } = gradients;
    let SavedNorm { inp, mean, rstd } = saved;
    let sizes = Sizes::new(OP, mean.len(), weight.len())?;
    for (tensor, slice) in [("dinp", dinp), ("dout", dout), ("inp", inp)] {
        slice.expect(OP, tensor, mean.len().saturating_mul(weight.len()))?;
    }
    rstd.expect(OP, "rstd", mean.len())?;
    dweight.expect(OP, "dweight", weight.len())?;
    if let Some(dbias) = dbias {
        dbias.expect(OP, "dbias", weight.len())?;
    }
    let Sizes { n, c, kernel, .. } = sizes;
    if n == 0 {
        return Ok(());
    }
    let blocks = (sums.len() / (2 * weight.len())).min(workspace::norm_blocks(u64::from(n), kernel));
    if blocks == 0 {
        return Err(CudaError::Length { op: OP, tensor: "sums", expected: 2 * weight.len(), given: sums.len() });
    }
    let grid = Grid::x(blocks)?;
    device.launch(
        &BACKWARD[kernel],
        grid,
        &[&dinp, &sums, &dout, &inp, &mean, &rstd, &weight, &n, &c, &u32::from(accumulate)],
    )?;
    let halves = if dbias.is_some() { 2 } else { 1 };
    let sum_grid = Grid::xy(weight.len().div_ceil(COLUMNS), halves)?;
    device.launch(&SUM, sum_grid, &[&dweight, &or_null(dbias), &sums, &grid.x, &c])
}
