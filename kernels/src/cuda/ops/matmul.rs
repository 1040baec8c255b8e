//! Linear layers with the built-in kernels: forward with fused epilogues, and the gradients.

pub(in crate::cuda) mod sizes;

/// Number of elements of the scratch memory for partial sums of a weight's gradient.
pub use headroom_planner::gpt::buffers::cuda::workspace::weight_parts_elements as planes_elements;
use headroom_planner::gpt::buffers::cuda::workspace::{TILE, weight_part_rows};

use super::{count, eights, layernorm_forward::or_null, sum_planes::sum_planes};
use crate::cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice};
use sizes::Sizes;

pub(super) static MODULE: Module = Module { name: "matmul", ptx: include_str!("../../../ptx/matmul.ptx") };
static FORWARD: Kernel = kernel("matmul_forward");
static GELU_FORWARD: Kernel = kernel("matmul_gelu_forward");
static RESIDUAL_FORWARD: Kernel = kernel("matmul_residual_forward");
static BACKWARD_INP: Kernel = kernel("matmul_backward_inp");
static GELU_BACKWARD_INP: Kernel = kernel("matmul_gelu_backward_inp");
static BACKWARD_WEIGHT: Kernel = kernel("matmul_backward_weight");

const fn kernel(name: &'static str) -> Kernel {
    Kernel { module: &MODULE, name, threads: 128, shared_bytes: 49152 }
}

/// Computes a linear layer.
///
/// Shapes: `inp` (N, C), `weight` (OC, C), `bias` (OC) or none → `out` (N, OC); C and OC multiples of 8. The caller
/// pads a vocabulary to such a multiple.
///
/// Numerics: f32 sums over C, with the bias, rounded to bfloat16 once.
///
/// Twin: [`crate::reference::matmul::matmul_forward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[track_caller]
pub fn matmul_forward(
    device: &Device,
    out: Slice<Bf16>,
    inp: Slice<Bf16>,
    weight: Slice<Bf16>,
    bias: Option<Slice<Bf16>>,
    c: u64,
) -> Result<(), CudaError> {
    let sizes = Sizes::of_forward("matmul_forward", out, inp, weight, bias, c)?;
    let Sizes { n, c, oc } = sizes;
    sizes.launch_rows(device, &FORWARD, oc, &[&out, &inp, &weight, &or_null(bias), &n, &c, &oc])
}

/// Computes a linear layer, and GELU of its rounded result.
///
/// Shapes: as [`matmul_forward`], with `gelu_out` (N, OC). `out` is saved for backward.
///
/// Numerics: as [`matmul_forward`]. GELU is bit-identical to [`super::gelu`], so it can be recomputed.
///
/// Twins: [`crate::reference::matmul::matmul_forward`] and [`crate::reference::gelu::gelu_forward`].
///
/// # Errors
/// As [`matmul_forward`].
#[track_caller]
pub fn matmul_gelu_forward(
    device: &Device,
    gelu_out: Slice<Bf16>,
    out: Slice<Bf16>,
    inp: Slice<Bf16>,
    weight: Slice<Bf16>,
    bias: Option<Slice<Bf16>>,
    c: u64,
) -> Result<(), CudaError> {
    const OP: &str = "matmul_gelu_forward";
    let sizes = Sizes::of_forward(OP, out, inp, weight, bias, c)?;
    gelu_out.expect(OP, "gelu_out", out.len())?;
    let Sizes { n, c, oc } = sizes;
    let bias = or_null(bias);
    sizes.launch_rows(device, &GELU_FORWARD, oc, &[&gelu_out, &out, &inp, &weight, &bias, &n, &c, &oc])
}

/// Computes a linear layer and adds it to the residual stream.
///
/// Shapes: as [`matmul_forward`], with `residual` (N, OC), which may be `out` itself.
///
/// Numerics: as [`matmul_forward`], with the sum of both rounded once.
///
/// Twins: [`crate::reference::matmul::matmul_forward`] and [`crate::reference::residual_forward::residual_forward`].
///
/// # Errors
/// As [`matmul_forward`].
#[track_caller]
pub fn matmul_residual_forward(
    device: &Device,
    out: Slice<Bf16>,
    inp: Slice<Bf16>,
    weight: Slice<Bf16>,
    bias: Option<Slice<Bf16>>,
    residual: Slice<Bf16>,
    c: u64,
) -> Result<(), CudaError> {
    const OP: &str = "matmul_residual_forward";
    let sizes = Sizes::of_forward(OP, out, inp, weight, bias, c)?;
    residual.expect(OP, "residual", out.len())?;
    let Sizes { n, c, oc } = sizes;
    let bias = or_null(bias);
    sizes.launch_rows(device, &RESIDUAL_FORWARD, oc, &[&out, &inp, &weight, &bias, &residual, &n, &c, &oc])
}

/// Computes the gradient of the input of [`matmul_forward`]; `dinp` is overwritten.
///
/// Shapes: `dout` (N, OC), `weight` (OC, C) → `dinp` (N, C); C and OC multiples of 8.
///
/// Numerics: f32 sums over OC, rounded to bfloat16 once.
///
/// Twin: [`crate::reference::matmul::matmul_backward`], onto zeros.
///
/// # Errors
/// As [`matmul_forward`].
#[track_caller]
pub fn matmul_backward_inp(
    device: &Device,
    dinp: Slice<Bf16>,
    dout: Slice<Bf16>,
    weight: Slice<Bf16>,
    c: u64,
) -> Result<(), CudaError> {
    const OP: &str = "matmul_backward_inp";
    let sizes = Sizes::new(OP, dinp.len(), weight.len(), c)?;
    sizes.check(OP, ("dinp", dinp), ("dout", dout))?;
    let Sizes { n, c, oc } = sizes;
    sizes.launch_rows(device, &BACKWARD_INP, c, &[&dinp, &dout, &weight, &n, &c, &oc])
}

/// Computes [`matmul_backward_inp`] for an input that is GELU of `pre`: the gradient of `pre`.
///
/// Shapes: as [`matmul_backward_inp`], with `pre` (N, C), the input of GELU.
///
/// Numerics: as [`matmul_backward_inp`], times GELU's derivative, rounded once.
///
/// Twins: [`crate::reference::matmul::matmul_backward`] and [`crate::reference::gelu::gelu_backward`], onto zeros.
///
/// # Errors
/// As [`matmul_forward`].
#[track_caller]
pub fn matmul_gelu_backward_inp(
    device: &Device,
    dinp: Slice<Bf16>,
    dout: Slice<Bf16>,
    weight: Slice<Bf16>,
    pre: Slice<Bf16>,
    c: u64,
) -> Result<(), CudaError> {
    const OP: &str = "matmul_gelu_backward_inp";
    let sizes = Sizes::new(OP, dinp.len(), weight.len(), c)?;
    sizes.check(OP, ("dinp", dinp), ("dout", dout))?;
    pre.expect(OP, "pre", dinp.len())?;
    let Sizes { n, c, oc } = sizes;
    sizes.launch_rows(device, &GELU_BACKWARD_INP, c, &[&dinp, &dout, &weight, &pre, &n, &c, &oc])
}

/// Computes the gradient of the weight of [`matmul_forward`], added to the old values if `accumulate`.
///
/// Shapes: `dout` (N, OC), `inp` (N, C) → `dweight` (OC, C); C and OC multiples of 8. Scratch memory is `planes`
/// ([`planes_elements`]).
///
/// Numerics: f32 sums, in an order that depends on N, C and OC only.
///
/// Twin: [`crate::reference::matmul::matmul_backward`].
///
/// # Errors
/// As [`matmul_forward`].
#[track_caller]
pub fn matmul_backward_weight(
    device: &Device,
    dweight: Slice<f32>,
    planes: Slice<f32>,
    dout: Slice<Bf16>,
    inp: Slice<Bf16>,
    c: u64,
    accumulate: bool,
) -> Result<(), CudaError> {
    const OP: &str = "matmul_backward_weight";
    let sizes = Sizes::new(OP, inp.len(), dweight.len(), c)?;
    sizes.check(OP, ("inp", inp), ("dout", dout))?;
    let (wide_n, wide_oc) = (u64::from(sizes.n), u64::from(sizes.oc));
    planes.expect(OP, "planes", planes_elements(wide_n, c, wide_oc))?;
    if wide_n == 0 {
        return if accumulate { Ok(()) } else { device.zero(dweight) };
    }
    let split = weight_part_rows(wide_n, c, wide_oc);
    let n_planes = count(OP, "the number of planes", wide_n.div_ceil(split))?;
    let tiles = wide_oc.div_ceil(TILE) * c.div_ceil(TILE);
    let grid = Grid::new(tiles, 1, u64::from(n_planes))?;
    let split = count(OP, "a block's rows", split)?;
    let Sizes { n, c, oc } = sizes;
    let out = if n_planes > 1 { planes } else { dweight };
    let onto = u32::from(accumulate && n_planes == 1);
    device.launch(&BACKWARD_WEIGHT, grid, &[&out, &dout, &inp, &n, &c, &oc, &split, &onto])?;
    if n_planes > 1 { sum_planes(device, dweight, planes, n_planes, accumulate) } else { Ok(()) }
}
