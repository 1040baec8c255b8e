//! The length of all gradients together, for clipping: it stays on the card, where the optimizer reads it.

use headroom_shared::gpt::buffers::cuda::workspace;

use crate::cuda::{CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module = Module { name: "global_norm", ptx: include_str!("../../../ptx/global_norm.ptx") };
static SUMS: Kernel =
    Kernel { module: &MODULE, name: "global_norm_squared_forward", threads: THREADS, shared_bytes: 64 };
static ROOT: Kernel = Kernel { module: &MODULE, name: "global_norm_root", threads: THREADS, shared_bytes: 64 };

const THREADS: u32 = 512;

/// Shares that the sum is made of, at most. Not a card's multiprocessors: the same on every card, so that the order of
/// the sum is, too.
pub const N_SUMS: u64 = workspace::NORM_PARTS;

/// The root of the sum of squares.
///
/// Shapes: `grads` (N) -> `norm` (1), with `sums` ([`N_SUMS`]) in between.
/// Numerics: f32, in an order that the number of gradients alone decides.
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`] where `grads` begins at no multiple of 16 bytes, or the launch fails.
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
