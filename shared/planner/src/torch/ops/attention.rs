//! `scaled_dot_product_attention`: selection of the kernel, and the allocations of each.
//!
//! Source: aten/src/ATen/native/transformers/attention.cpp, cuda/attention.cu and cuda/attention_backward.cu (2.11).

use super::Op;
use crate::{
    dtype::Dtype,
    gpt::tensors::flash_splits,
    memory::{
        attention_kernel::{AttentionKernel, Heads, Pass, fused_kernel},
        efficient_backward::EfficientBackward,
    },
    torch::{Layout, Recorder, Tensor, Torch},
};

/// Bytes of a cuDNN workspace besides its tensors. Source: snapshots of an H200 with cuDNN of PyTorch 2.11.0+cu130.
const CUDNN_HEADER_BYTES: u64 = 256;

/// A fused kernel, with what its backward needs besides saved tensors.
#[derive(Clone, Copy, Debug)]
pub enum Fused {
    /// FlashAttention 2.
    Flash,
    /// cuDNN's kernel.
    Cudnn,
    /// The memory-efficient kernel.
    Efficient,
}

/// Sizes of q, k and v: (B, H, T, D).
#[derive(Clone, Copy)]
struct Sizes {
    b: u64,
    h: u64,
    t: u64,
    d: u64,
}

impl Sizes {
    fn of(q: &Tensor) -> Self {
        let [d, t, h, b] = [0, 1, 2, 3].map(|n| q.layout().from_last(n));
        Self { b, h, t, d }
    }

    /// `head_size_rounded` in flash_attn/flash_api.cpp.
    fn flash_head(self) -> u64 {
        self.d.next_multiple_of(if self.d <= 128 { 32 } else { 64 })
    }
}

impl Torch {
    /// `F.scaled_dot_product_attention(q, k, v, dropout_p, is_causal=True)` of tensors (B, H, T, D).
    #[must_use]
    pub fn scaled_dot_product_attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, drops: bool) -> Tensor {
        self.attention(q, k, v, None, drops)
    }

    /// The same with a boolean mask of the last axes (T, T), which is converted to values that are added to the scores.
    #[must_use]
    pub fn masked_attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: &Tensor, drops: bool) -> Tensor {
        self.attention(q, k, v, Some(mask), drops)
    }

    fn attention(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, drops: bool) -> Tensor {
        let [v, k, q] = [v, k, q].map(|x| self.lower(x));
        let records = self.record(&[&q, &k, &v]).is_recorded();
        let sizes = Sizes::of(&q);
        let heads = Heads { size: sizes.d, dtype: q.dtype(), drops, has_mask: mask.is_some() };
        let pass = if records { Pass::Training } else { Pass::Evaluation };
        let kernel = match fused_kernel(heads, self.gpu.compute_capability.architecture(), pass) {
            // `check_batch_size_and_num_heads_dense`: the kernel does not support fewer heads of keys.
            AttentionKernel::Efficient if sizes.h != Sizes::of(&k).h => AttentionKernel::Composite,
            kernel => kernel,
        };
        self.without_autocast(|| match kernel {
            AttentionKernel::Flash if !sizes.d.is_multiple_of(8) => {
                let [q, k, v] = [&q, &k, &v].map(|x| self.pad_last(x, sizes.d.next_multiple_of(8)));
                self.slice(&self.flash(&q, &k, &v, drops, sizes.d), 0, sizes.d)
            }
            AttentionKernel::Flash => self.flash(&q, &k, &v, drops, sizes.d),
            AttentionKernel::Cudnn if self.recorder == Recorder::Gpu => self.cudnn(&q, &k, &v, mask),
            AttentionKernel::Cudnn => self.seeded(Fused::Cudnn, &q, &k, &v, mask, sizes.t),
            AttentionKernel::Efficient => {
                let rows = if records { sizes.t.next_multiple_of(32) } else { 0 };
                self.seeded(Fused::Efficient, &q, &k, &v, mask, rows)
            }
            AttentionKernel::Composite | AttentionKernel::Math => self.composite(&q, &k, &v, mask, drops),
        })
    }

    /// An output of a fused kernel: (B, T, H, D) in memory.
    fn by_head(&self, name: &'static str, x: &Tensor) -> Tensor {
        let layout = Layout::contiguous(x.layout().transposed([1, 2]).sizes());
        self.empty_with(name, layout.transposed([1, 2]), x.dtype())
    }

    /// `flash_attn_func` of the package flash-attn, of tensors (B, H, T, D) whose D is a multiple of 8.
    ///
    /// Source: flash_attn/flash_attn_interface.py and csrc/flash_attn/flash_api.cpp (2.8.3).
    #[must_use]
    pub fn flash_attn_func(&self, q: &Tensor, k: &Tensor, v: &Tensor, drops: bool) -> Tensor {
        self.flash_with(q, k, v, drops, Sizes::of(q).d, &[2])
    }

    fn flash(&self, q: &Tensor, k: &Tensor, v: &Tensor, drops: bool, head_size: u64) -> Tensor {
        self.flash_with(q, k, v, drops, head_size, &[2, 1])
    }

    /// FlashAttention 2 with random states of these sizes.
    fn flash_with(&self, q: &Tensor, k: &Tensor, v: &Tensor, drops: bool, head_size: u64, random: &[u64]) -> Tensor {
        let Sizes { b, h, t, .. } = Sizes::of(q);
        let mut recording = self.record(&[q, k, v]);
        [k, q, v].into_iter().for_each(|x| recording.save(x));
        let mut out = self.by_head("flash attention", q);
        let lse = self.empty("flash attention logsumexp", &[b, h, t], Dtype::Float32);
        let heads = b.saturating_mul(h);
        let n_splits = if drops { 1 } else { flash_splits(heads, t, head_size, u64::from(self.gpu.sm_count)) };
        let splits = (n_splits > 1).then(|| {
            let rows = n_splits.saturating_mul(heads);
            let part = |size| self.empty("flash attention by split", &[rows, t, size], Dtype::Float32);
            [1, Sizes { d: head_size, ..Sizes::of(q) }.flash_head()].map(part)
        });
        let random = random.iter().map(|&n| self.empty("flash attention random state", &[n], Dtype::Uint64));
        let random: Vec<_> = random.collect();
        drop(splits);
        drop(self.empty("flash attention debug mask", &[0], q.dtype()));
        [&lse, &out].into_iter().chain(&random).for_each(|x| recording.save(x));
        recording.finish(Op::Attention(Fused::Flash), &mut [&mut out]);
        out
    }

    /// cuDNN's kernel, with the workspace of its plan.
    fn cudnn(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let Sizes { b, h, t, .. } = Sizes::of(q);
        let bias = mask.map(|mask| self.bias(mask, q.dtype()));
        let mut recording = self.record(&[q, k, v]);
        [k, q, v].into_iter().for_each(|x| recording.save(x));
        let random = [(); 2].map(|()| self.empty("attention random state", &[], Dtype::Int64));
        let mut out = self.by_head("attention", q);
        let lse = recording.is_recorded().then(|| self.empty("attention logsumexp", &[b, h, t], Dtype::Float32));
        drop(self.scratch("cuDNN attention workspace", &[CUDNN_HEADER_BYTES], Dtype::Uint8));
        bias.iter().chain(&lse).for_each(|x| recording.save(x));
        [&out, &random[1], &random[0]].into_iter().for_each(|x| recording.save(x));
        recording.finish(Op::Attention(Fused::Cudnn), &mut [&mut out]);
        out
    }

    /// cuDNN's or the memory-efficient kernel.
    fn seeded(&self, kernel: Fused, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, rows: u64) -> Tensor {
        let Sizes { b, h, .. } = Sizes::of(q);
        let mut bias = mask.map(|mask| self.bias(mask, q.dtype()));
        if matches!(kernel, Fused::Efficient) {
            bias = bias.map(|bias| self.aligned(&bias));
        }
        let mut recording = self.record(&[q, k, v]);
        [k, q, v].into_iter().for_each(|x| recording.save(x));
        let mut out = self.by_head("attention", q);
        let lse = self.empty("attention logsumexp", &[b, h, rows], Dtype::Float32);
        let random = [(); 2].map(|()| self.empty("attention random state", &[], Dtype::Int64));
        bias.iter().for_each(|bias| recording.save(bias));
        [&lse, &out, &random[0], &random[1]].into_iter().for_each(|x| recording.save(x));
        recording.finish(Op::Attention(kernel), &mut [&mut out]);
        out
    }

    pub(super) fn fused_attention_backward(
        &self,
        kernel: &Fused,
        gradient: &Tensor,
        saved: &[Option<Tensor>],
    ) -> Vec<Option<Tensor>> {
        let [Some(k), Some(q), ..] = saved else { return Vec::new() };
        let gradients = [("dq", q), ("dk", k), ("dv", k)].map(|(name, x)| Some(self.by_head(name, x)));
        let sizes = Sizes::of(q);
        // Gradients of keys and values for each head of queries, before their sum.
        let expanded =
            if Sizes::of(k).h == sizes.h { 0 } else { q.layout().elements().saturating_mul(q.dtype().bytes()) };
        let Sizes { b, h, t, d } = sizes;
        let scratch = |name, sizes: &[u64]| self.scratch(name, sizes, Dtype::Float32);
        match kernel {
            Fused::Flash => {
                let rows = t.next_multiple_of(128);
                let _softmax_d = scratch("flash attention backward softmax_d", &[b, h, rows]);
                let _sum = scratch("flash attention backward dq accumulator", &[b, h, rows, sizes.flash_head()]);
                let _expanded = [(); 2].map(|()| {
                    (expanded > 0).then(|| self.empty("flash attention backward by head", &[expanded], Dtype::Uint8))
                });
            }
            Fused::Cudnn if self.recorder == Recorder::Gpu => {
                let rows = b.saturating_mul(h).saturating_mul(t);
                let floats =
                    rows.saturating_mul(d + 1).saturating_add(CUDNN_HEADER_BYTES / 4).saturating_add(expanded / 2);
                drop(scratch("cuDNN attention backward workspace", &[floats]));
            }
            Fused::Cudnn => drop(scratch("cuDNN attention backward dq accumulator", &[b, h, t, d])),
            Fused::Efficient => self.efficient_scratch(sizes, gradient.dtype() != Dtype::Float32),
        }
        gradients.into()
    }

    fn efficient_scratch(&self, Sizes { b, h, t, d }: Sizes, is_half: bool) {
        let kernel = EfficientBackward::new(d, is_half, self.gpu.compute_capability.architecture());
        let scratch = |what: &[u64]| self.scratch("memory-efficient attention backward scratch", what, Dtype::Float32);
        let delta = if kernel.computes_delta() {
            scratch(&[b, h, t])
        } else {
            let _casts = [(); 2].map(|()| is_half.then(|| scratch(&[b, t, h, d])));
            let _products = scratch(&[b, t, h, d]);
            let sums = scratch(&[b, t, h]);
            if h == 1 { sums } else { scratch(&[b, h, t]) }
        };
        let bytes = kernel.workspace_bytes(b.saturating_mul(h), t, d);
        let workspace = (bytes > 0).then(|| scratch(&[bytes / 4]));
        drop((delta, workspace));
    }

    /// PyTorch's composite path: separate products and softmax, in float32.
    fn composite(&self, q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, drops: bool) -> Tensor {
        let dtype = q.dtype();
        let t = q.layout().from_last(1);
        let [q, k, v] = [q, k, v].map(|x| self.cast(x, Dtype::Float32));
        let q = self.scale(&q);
        let _bias = match mask {
            Some(mask) => self.bias(mask, Dtype::Float32),
            None => {
                let ones = self.empty("causal mask", &[t, t], Dtype::Bool);
                let triangle = self.empty("causal mask", &[t, t], Dtype::Bool);
                drop(ones);
                self.bias(&triangle, Dtype::Float32)
            }
        };
        // `pre_process_group_query_attention_input`: a copy of the keys and values for each head of queries.
        let times = Sizes::of(&q).h / Sizes::of(&k).h.max(1);
        let [k, v] = [k, v].map(|x| self.repeat_heads(&x, times));
        let mut weights = self.matmul(&q, &self.scale(&self.transpose(&k, [0, 1])));
        weights = self.safe_softmax(&weights);
        weights = self.dropout(&weights, drops);
        let _second = self.cast(&weights, dtype);
        self.cast(&self.matmul(&weights, &v), dtype)
    }

    /// A boolean mask as values that are added to the scores: 0 or minus infinity.
    fn bias(&self, mask: &Tensor, dtype: Dtype) -> Tensor {
        let _values = [(); 2].map(|()| self.empty("scalar", &[], Dtype::Float32));
        self.empty("attention bias", mask.sizes(), dtype)
    }

    /// `preprocess_mask`, which pads rows to multiples of 8 elements.
    fn aligned(&self, bias: &Tensor) -> Tensor {
        let columns = bias.layout().from_last(0);
        match columns.next_multiple_of(8) {
            padded if padded == columns => bias.clone(),
            padded => self.slice(&self.pad_last(bias, padded), 0, columns),
        }
    }

    /// `_safe_softmax`, which overwrites fully masked rows with zeros.
    fn safe_softmax(&self, x: &Tensor) -> Tensor {
        let out = self.softmax(x);
        let _hidden = self.empty("masked entries", x.sizes(), Dtype::Bool);
        let _rows = self.empty("masked rows", x.layout().narrowed(1).sizes(), Dtype::Bool);
        let _zero = self.empty("scalar", &[], Dtype::Float32);
        out
    }
}
