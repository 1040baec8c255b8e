//! Gradient of a linear layer's bias.

/// Number of elements of the scratch memory for partial sums.
pub use headroom_planner::gpt::buffers::cuda::workspace::bias_parts_elements as planes_elements;
use headroom_planner::gpt::buffers::cuda::workspace::{BIAS_COLUMNS, bias_part_rows};

use super::{count, eights, sum_planes::sum_planes};
use crate::cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module =
    Module { name: "bias_backward", ptx: include_str!("../../../ptx/bias_backward.ptx") };
static BACKWARD: Kernel = Kernel { module: &MODULE, name: "bias_backward", threads: 256, shared_bytes: 8192 };

const OP: &str = "bias_backward";

/// Computes the sum of each column, added to the old values if `accumulate`.
///
/// Shapes: `dout` (N, OC) → `dbias` (OC), with scratch memory `planes` ([`planes_elements`]); OC a multiple of 8.
///
/// Numerics: f32, in an order that depends on N and OC only.
///
/// Twin: [`crate::reference::matmul::matmul_backward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or a launch fails.
#[track_caller]
pub fn bias_backward(
    device: &Device,
    dbias: Slice<f32>,
    planes: Slice<f32>,
    dout: Slice<Bf16>,
    accumulate: bool,
) -> Result<(), CudaError> {
    let oc = dbias.len();
    if oc == 0 {
        return Err(CudaError::Size { op: OP, what: "OC", value: 0, needed: "at least 1" });
    }
    eights(OP, "OC", oc)?;
    let n = dout.len() / oc;
    dout.expect(OP, "dout", n * oc)?;
    planes.expect(OP, "planes", planes_elements(n, oc))?;
    if n == 0 {
        return if accumulate { Ok(()) } else { device.zero(dbias) };
    }
    let split = bias_part_rows(n, oc);
    let n_planes = n.div_ceil(split);
    let (rows, columns, split) = (count(OP, "N", n)?, count(OP, "OC", oc)?, count(OP, "a block's rows", split)?);
    device.launch(
        &BACKWARD,
        Grid::xy(oc.div_ceil(BIAS_COLUMNS), n_planes)?,
        &[&planes, &dout, &rows, &columns, &split],
    )?;
    sum_planes(device, dbias, planes, count(OP, "the number of planes", n_planes)?, accumulate)
}
