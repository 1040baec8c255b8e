//! Dropout alone: a branch's gradient from that of the residual stream.

use super::eights;
use crate::{
    cpu::dropout::Dropout,
    cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice},
};

pub(super) static MODULE: Module = Module { name: "dropout", ptx: include_str!("../../../ptx/dropout.ptx") };
static DROPOUT: Kernel = Kernel { module: &MODULE, name: "dropout", threads: THREADS, shared_bytes: 0 };

const THREADS: u32 = 256;

/// Multiplies each element with its factor, by its number; `out` may be `inp`.
///
/// Shapes: `inp` (N) → `out` (N), N a multiple of 8. Of more than 2^32 elements the mask repeats itself.
/// Twin: [`crate::cpu::dropout::dropout`].
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

/// What a kernel that drops on its way is told; nothing is dropped by a threshold of 0.
pub(super) fn parts(dropout: Option<Dropout>) -> (u32, f32, u32) {
    dropout.map_or((0, 1.0, 0), |dropout| dropout.parts())
}
