//! L2 norm of all gradients, for clipping. It stays on the GPU, where the optimizer reads it.

use headroom_planner::gpt::buffers::cuda::workspace;

use crate::cuda::{CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module = Module { name: "global_norm", ptx: include_str!("../../../ptx/global_norm.ptx") };
static SUMS: Kernel =
    Kernel { module: &MODULE, name: "global_norm_squared_forward", threads: THREADS, shared_bytes: 64 };
static ROOT: Kernel = Kernel { module: &MODULE, name: "global_norm_root", threads: THREADS, shared_bytes: 64 };

const THREADS: u32 = 512;

/// Maximum number of partial sums. The same on every GPU, regardless of its multiprocessors, so that the order of
/// summation is too.
pub const N_SUMS: u64 = workspace::NORM_PARTS;

/// Computes the square root of the sum of squares.
///
/// Shapes: `grads` (N) -> `norm` (1), with scratch memory `sums` ([`N_SUMS`]).
///
/// Numerics: f32, in an order that depends on the number of gradients only.
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`] if the address of `grads` is not a multiple of 16, or the launch fails.
pub fn global_norm(device: &Device, norm: Slice<f32>, sums: Slice<f32>, grads: Slice<f32>) -> Result<(), CudaError> {
    const OP: &str = "global_norm";
    norm.expect(OP, "norm", 1)?;
    sums.expect(OP, "sums", N_SUMS)?;
    if !grads.address().is_multiple_of(16) {
        let (what, value) = ("the gradients' address", grads.address());
        return Err(CudaError::Size { op: OP, what, value, needed: "a multiple of 16" });
    }
    let n_sums = grads.len().div_ceil(u64::from(THREADS) * 4).clamp(1, N_SUMS);
    let grid = Grid::x(n_sums)?;
    device.launch(&SUMS, grid, &[&sums, &grads, &grads.len()])?;
    device.launch(&ROOT, Grid::x(1)?, &[&norm, &sums, &grid.x])
}
