//! Causal attention, backward.

use super::{attention_forward::Sizes, dropout::parts};
use crate::{
    cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice},
    reference::attention_forward::Heads,
};

pub(super) static MODULE: Module =
    Module { name: "attention_backward", ptx: include_str!("../../../ptx/attention_backward.ptx") };
static ROWS: Kernel = kernel("attention_backward_rows", 0);
/// Kernels by [`Sizes::width`].
static KEYS: [Kernel; 4] = [
    kernel("attention_backward_keys_32", 25088),
    kernel("attention_backward_keys_64", 49664),
    kernel("attention_backward_keys_96", 49664),
    kernel("attention_backward_keys_128", 66048),
];
/// Kernels by [`Sizes::width`].
static QUERIES: [Kernel; 4] = [
    kernel("attention_backward_queries_32", 25600),
    kernel("attention_backward_queries_64", 50176),
    kernel("attention_backward_queries_96", 49664),
    kernel("attention_backward_queries_128", 66048),
];
/// Keys or queries per block, by [`Sizes::width`].
const OWN: [u64; 4] = [128, 128, 64, 64];

const THREADS: u32 = 128;
/// Threads per row in `attention_backward_rows`.
const THREADS_OF_ROW: u64 = 4;

const fn kernel(name: &'static str, shared_bytes: u32) -> Kernel {
    Kernel { module: &MODULE, name, threads: THREADS, shared_bytes }
}

/// Tensors saved by forward.
#[derive(Clone, Copy, Debug)]
pub struct SavedAttention {
    /// Input of forward, (B, T, 3, NH, HS).
    pub qkv: Slice<Bf16>,
    /// Output of forward, (B, T, NH, HS).
    pub out: Slice<Bf16>,
    /// Logsumexp of each row, (B, NH, T).
    pub lse: Slice<f32>,
}

/// Computes the gradient of [`super::attention_forward::attention_forward`]; `dqkv` is overwritten.
///
/// Shapes: `dout` (B, T, NH, HS) → `dqkv` (B, T, 3, NH, HS), with scratch memory `rows` (B, NH, T); HS as in forward.
///
/// Numerics: bfloat16 products with f32 sums. Weights and their gradients are rounded to bfloat16 between two products,
/// `dqkv` once. No sum combines results of several blocks, so the order of every sum is fixed.
///
/// Twin: [`crate::reference::attention_backward::attention_backward`], onto zeros.
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or a launch fails.
#[track_caller]
pub fn attention_backward(
    device: &Device,
    dqkv: Slice<Bf16>,
    rows: Slice<f32>,
    dout: Slice<Bf16>,
    saved: SavedAttention,
    heads: Heads,
) -> Result<(), CudaError> {
    const OP: &str = "attention_backward";
    let SavedAttention { qkv, out, lse } = saved;
    let sizes = Sizes::new(OP, qkv.len(), heads)?;
    dqkv.expect(OP, "dqkv", qkv.len())?;
    for (tensor, slice) in [("dout", dout), ("out", out)] {
        slice.expect(OP, tensor, sizes.tokens * sizes.c)?;
    }
    for (tensor, slice) in [("lse", lse), ("rows", rows)] {
        slice.expect(OP, tensor, sizes.rows())?;
    }
    if sizes.tokens == 0 {
        return Ok(());
    }
    let Sizes { t, nh, hs, scale, width, .. } = sizes;
    let row_blocks = sizes.rows().div_ceil(u64::from(THREADS) / THREADS_OF_ROW);
    device.launch(&ROWS, Grid::x(row_blocks)?, &[&rows, &dout, &out, &sizes.rows(), &t, &nh, &hs])?;
    let (threshold, kept, key) = parts(heads.dropout);
    for kernel in [&KEYS[width], &QUERIES[width]] {
        device.launch(
            kernel,
            sizes.grid(OWN[width])?,
            &[&dqkv, &dout, &qkv, &lse, &rows, &t, &nh, &hs, &scale, &threshold, &kept, &key],
        )?;
    }
    Ok(())
}
