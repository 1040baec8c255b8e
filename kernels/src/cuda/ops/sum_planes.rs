//! The last step of sums that many blocks have parts of.

use crate::cuda::{CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module = Module { name: "sum_planes", ptx: include_str!("../../../ptx/sum_planes.ptx") };
static SUM: Kernel = Kernel { module: &MODULE, name: "sum_planes", threads: THREADS, shared_bytes: 0 };

const THREADS: u32 = 256;
/// Numbers that a thread sums up.
const EACH: u64 = 4;

/// Adds planes by their number, and the sum to what is there where it says so.
///
/// Shapes: `planes` (P, N) → `out` (N), N a multiple of 4.
pub(super) fn sum_planes(
    device: &Device,
    out: Slice<f32>,
    planes: Slice<f32>,
    n_planes: u32,
    accumulate: bool,
) -> Result<(), CudaError> {
    let grid = Grid::x(out.len().div_ceil(EACH * u64::from(THREADS)))?;
    device.launch(&SUM, grid, &[&out, &planes, &out.len(), &n_planes, &u32::from(accumulate)])
}
