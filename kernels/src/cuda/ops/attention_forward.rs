//! Causal attention, forward.

use headroom_planner::gpt::buffers::cuda::workspace::HEAD_SIZE_MAX;

use super::{count, dropout::parts, eights};
use crate::{
    cuda::{Bf16, CudaError, Device, Grid, Kernel, Module, Slice},
    reference::attention_forward::Heads,
};

pub(super) static MODULE: Module =
    Module { name: "attention_forward", ptx: include_str!("../../../ptx/attention_forward.ptx") };
/// Kernels by [`Sizes::width`].
static FORWARD: [Kernel; 4] = [
    kernel("attention_forward_32", 24576),
    kernel("attention_forward_64", 49152),
    kernel("attention_forward_96", 49152),
    kernel("attention_forward_128", 65536),
];

const fn kernel(name: &'static str, shared_bytes: u32) -> Kernel {
    Kernel { module: &MODULE, name, threads: 128, shared_bytes }
}

/// Queries per block.
const QUERIES: u64 = 128;

/// Computes causal self-attention of every head, without storing scores and weights in memory.
///
/// Shapes: `qkv` (B, T, 3, NH, HS) → `out` (B, T, NH, HS), `lse` (B, NH, T), the logsumexp of each row's scaled scores.
/// HS is a multiple of 8 up to 128.
///
/// Numerics: bfloat16 products with f32 sums. Weights are rounded to bfloat16 before the product with the values, `out`
/// once.
///
/// Twin: [`crate::reference::attention_forward::attention_forward`].
///
/// # Errors
/// [`CudaError::Length`], [`CudaError::Size`], or the launch fails.
#[track_caller]
pub fn attention_forward(
    device: &Device,
    out: Slice<Bf16>,
    lse: Slice<f32>,
    qkv: Slice<Bf16>,
    heads: Heads,
) -> Result<(), CudaError> {
    const OP: &str = "attention_forward";
    let sizes = Sizes::new(OP, qkv.len(), heads)?;
    out.expect(OP, "out", sizes.tokens * sizes.c)?;
    lse.expect(OP, "lse", sizes.rows())?;
    if sizes.tokens == 0 {
        return Ok(());
    }
    let (threshold, kept, key) = parts(heads.dropout);
    let Sizes { t, nh, hs, scale, .. } = sizes;
    device.launch(
        &FORWARD[sizes.width],
        sizes.grid(QUERIES)?,
        &[&out, &lse, &qkv, &t, &nh, &hs, &scale, &threshold, &kept, &key],
    )
}

/// Sizes in the kernels' types, and the index of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub t: u32,
    pub nh: u32,
    pub hs: u32,
    /// 1 / sqrt(HS).
    pub scale: f32,
    /// B * T.
    pub tokens: u64,
    pub c: u64,
    /// Index of the kernel: for tiles of 32, 64, 96 or 128 channels.
    pub width: usize,
}

impl Sizes {
    pub(super) fn new(op: &'static str, qkv_len: u64, heads: Heads) -> Result<Self, CudaError> {
        let [t, c, nh] = [heads.t, heads.c, heads.nh].map(|size| size as u64);
        for (what, value) in [("T", t), ("C", c), ("NH", nh)] {
            if value == 0 {
                return Err(CudaError::Size { op, what, value, needed: "at least 1" });
            }
        }
        // The kernels' 32-bit token indices exceed T by less than two tiles.
        if t > 1 << 31 {
            return Err(CudaError::Size { op, what: "T", value: t, needed: "at most 2^31" });
        }
        if !c.is_multiple_of(nh) {
            return Err(CudaError::Size { op, what: "C", value: c, needed: "a multiple of NH" });
        }
        let hs = c / nh;
        eights(op, "HS", hs)?;
        if hs > HEAD_SIZE_MAX {
            return Err(CudaError::Size { op, what: "HS", value: hs, needed: "at most 128" });
        }
        let (tokens, token) = (qkv_len / (3 * c), 3 * c);
        if !tokens.is_multiple_of(t) || !qkv_len.is_multiple_of(token) {
            let needed = "a multiple of T * 3 * C";
            return Err(CudaError::Size { op, what: "the number of elements of qkv", value: qkv_len, needed });
        }
        #[expect(clippy::cast_possible_truncation, reason = "a factor is f32 on the GPU")]
        let scale = heads.scale() as f32;
        // HS is at most 128, so this is at most 3.
        let width = usize::try_from((hs - 1) / 32).unwrap_or(usize::MAX).min(3);
        let [t, nh, hs] = [count(op, "T", t)?, count(op, "NH", nh)?, count(op, "HS", hs)?];
        Ok(Self { t, nh, hs, scale, tokens, c, width })
    }

    /// B * NH * T.
    pub(super) fn rows(&self) -> u64 {
        self.tokens * u64::from(self.nh)
    }

    /// A grid with one block per `rows_each` rows of each head.
    pub(super) fn grid(&self, rows_each: u64) -> Result<Grid, CudaError> {
        let heads = self.rows() / u64::from(self.t);
        Grid::x(heads.saturating_mul(u64::from(self.t).div_ceil(rows_each)))
    }
}
