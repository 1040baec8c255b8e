//! Final step of sums whose partial sums come from many blocks.

use crate::cuda::{CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module = Module { name: "sum_planes", ptx: include_str!("../../../ptx/sum_planes.ptx") };
static SUM: Kernel = Kernel { module: &MODULE, name: "sum_planes", threads: THREADS, shared_bytes: 0 };

const THREADS: u32 = 256;
/// Elements per thread.
const EACH: u64 = 4;

/// Sums the planes in order of their index, added to the old values if `accumulate`.
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
