//! Sum of all rows' losses.

use super::count;
use crate::cuda::{CudaError, Device, Grid, Kernel, Module, Slice};

pub(super) static MODULE: Module = Module { name: "losses", ptx: include_str!("../../../ptx/losses.ptx") };
static SUM: Kernel = Kernel { module: &MODULE, name: "losses_sum", threads: 1024, shared_bytes: 128 };

/// Computes the sum of losses times `scale`, added to the old value if `accumulate`.
///
/// Shapes: `losses` (N) → `sum` (1).
///
/// Numerics: f32, in an order that depends on N only.
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[track_caller]
pub fn losses_sum(
    device: &Device,
    sum: Slice<f32>,
    losses: Slice<f32>,
    scale: f32,
    accumulate: bool,
) -> Result<(), CudaError> {
    const OP: &str = "losses_sum";
    sum.expect(OP, "sum", 1)?;
    let n = count(OP, "the number of losses", losses.len())?;
    device.launch(&SUM, Grid::x(1)?, &[&sum, &losses, &n, &scale, &u32::from(accumulate)])
}
