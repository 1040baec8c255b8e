//! Dropout as a separate kernel: the gradient of a branch from that of the residual stream.

use super::eights;
use crate::{
    cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice},
    reference::dropout::Dropout,
};

pub(super) static MODULE: Module = Module { name: "dropout", ptx: include_str!("../../../ptx/dropout.ptx") };
static DROPOUT: Kernel = Kernel { module: &MODULE, name: "dropout", threads: THREADS, shared_bytes: 0 };

const THREADS: u32 = 256;

/// Multiplies each element by its dropout factor, which depends on its index. `out` may be `inp`.
///
/// Shapes: `inp` (N) → `out` (N), N a multiple of 8. Beyond 2^32 elements the mask repeats.
///
/// Twin: [`crate::reference::dropout::dropout`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[track_caller]
pub fn dropout(device: &Device, out: Slice<Bf16>, inp: Slice<Bf16>, dropout: Dropout) -> Result<(), CudaError> {
    const OP: &str = "dropout";
    out.expect(OP, "out", inp.len())?;
    let blocks = eights(OP, "the number of elements", inp.len())?.div_ceil(u64::from(THREADS));
    if blocks == 0 {
        return Ok(());
    }
    let (threshold, scale, key) = dropout.parts();
    device.launch(&DROPOUT, Grid::x(blocks)?, &[&out, &inp, &inp.len(), &threshold, &scale, &key])
}

/// Dropout arguments of a fused kernel: threshold, scale and key. A threshold of 0 disables dropout.
pub(super) fn parts(dropout: Option<Dropout>) -> (u32, f32, u32) {
    dropout.map_or((0, 1.0, 0), |dropout| dropout.parts())
}
