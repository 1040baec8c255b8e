//! GELU as a separate kernel: for activation recomputation, and for GEMM backends without this epilogue.

use super::eights;
use crate::cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module = Module { name: "gelu", ptx: include_str!("../../../ptx/gelu.ptx") };
static FORWARD: Kernel = Kernel { module: &MODULE, name: "gelu_forward", threads: THREADS, shared_bytes: 0 };
static BACKWARD: Kernel = Kernel { module: &MODULE, name: "gelu_backward", threads: THREADS, shared_bytes: 0 };

const THREADS: u32 = 256;

/// Computes x * Phi(x), the exact form of GELU.
///
/// Shapes: `inp` (N) → `out` (N), N a multiple of 8.
///
/// Numerics: f32, Phi's tail within 6.1e-5 relative, rounded to bfloat16 once.
///
/// Twin: [`crate::reference::gelu::gelu_forward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[track_caller]
pub fn gelu_forward(device: &Device, out: Slice<Bf16>, inp: Slice<Bf16>) -> Result<(), CudaError> {
    const OP: &str = "gelu_forward";
    out.expect(OP, "out", inp.len())?;
    let Some(grid) = grid(OP, inp.len())? else { return Ok(()) };
    device.launch(&FORWARD, grid, &[&out, &inp, &inp.len()])
}

/// Computes the gradient of GELU's input; `dinp` is overwritten. `dinp` may be `dout` or `inp`, because a thread reads
/// its elements of both before it writes.
///
/// Shapes: `dout` (N), `inp` (N) → `dinp` (N), N a multiple of 8.
///
/// Numerics: as [`gelu_forward`].
///
/// Twin: [`crate::reference::gelu::gelu_backward`].
///
/// # Errors
/// As [`gelu_forward`].
#[track_caller]
pub fn gelu_backward(device: &Device, dinp: Slice<Bf16>, dout: Slice<Bf16>, inp: Slice<Bf16>) -> Result<(), CudaError> {
    const OP: &str = "gelu_backward";
    dinp.expect(OP, "dinp", inp.len())?;
    dout.expect(OP, "dout", inp.len())?;
    let Some(grid) = grid(OP, inp.len())? else { return Ok(()) };
    device.launch(&BACKWARD, grid, &[&dinp, &dout, &inp, &inp.len()])
}

fn grid(op: &'static str, n: u64) -> Result<Option<Grid>, CudaError> {
    let blocks = eights(op, "the number of elements", n)?.div_ceil(u64::from(THREADS));
    if blocks == 0 { Ok(None) } else { Grid::x(blocks).map(Some) }
}
