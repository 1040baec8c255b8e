//! Parts of a training step, each as GPU seconds and kernel launches.

use super::{
    constants::{
        ACCUMULATE_BYTES, ATTENTION_TOKENS, CAST_BYTES, CLIP_BYTES, COMPILED_BLOCK_FLOAT, COMPILED_BLOCK_HALF,
        COMPILED_CHUNK_LAUNCHES, COMPILED_END_LAUNCHES, COMPILED_LAUNCHES, COMPILED_LOSS_FLOAT, COMPILED_LOSS_HALF,
        COMPILED_MATH_FLOAT, COMPILED_MATH_HALF, COMPILED_MATH_LAUNCHES, EAGER_BLOCK_FLOAT, EAGER_BLOCK_HALF,
        EAGER_CHUNK_LAUNCHES, EAGER_END_LAUNCHES, EAGER_HALF_LAUNCHES, EAGER_LAUNCHES, EAGER_LOSS_FLOAT,
        EAGER_LOSS_HALF, EAGER_MATH_DROPOUT, EAGER_MATH_FLOAT, EAGER_MATH_HALF, EAGER_MATH_LAUNCHES, EMBEDDING_BYTES,
        ENDS_BYTES, ForwardBackward, HALF_LAUNCHES, UNALIGNED_VOCABULARY, UNSCALE_BYTES,
    },
    flops::{Pass, Sizes},
    gpu::Roofline,
};
use crate::{
    dtype::Dtype, gpt::tensors::CROSS_ENTROPY_CHUNKS, memory::attention_kernel::AttentionKernel, request::Request,
    train_config::CrossEntropy,
};

/// GPU time and launches of a part of a step.
#[derive(Clone, Copy, Default)]
pub(super) struct Part {
    /// Seconds on the GPU, without launch overhead.
    pub seconds: f64,
    /// Number of kernel launches.
    pub launches: f64,
}

/// A run and its GPU, with derived values that all parts need.
pub(super) struct Step<'a> {
    pub request: &'a Request,
    pub roofs: Roofline,
    pub sizes: Sizes,
    /// Bytes per element of an activation operand.
    bytes: f64,
    half: bool,
    drops: bool,
}

impl<'a> Step<'a> {
    /// Computes the derived values; `None` if the table has no rates for the GPU.
    pub(super) fn new(request: &'a Request) -> Option<Self> {
        Some(Self {
            request,
            roofs: Roofline::of(request)?,
            sizes: Sizes::of(&request.gpt, &request.train),
            bytes: request.train.dtype.bytes() as f64,
            half: request.train.is_half(),
            drops: request.gpt.dropout() > 0.0,
        })
    }

    /// Selects a constant by engine (compiled or eager) and precision (half or float32).
    fn pick<T>(&self, compiled: [T; 2], eager: [T; 2]) -> T {
        let [half, float] = if self.roofs.compiled { compiled } else { eager };
        if self.half { half } else { float }
    }

    /// All blocks in one forward or one backward.
    pub(super) fn blocks(&self, pass: Pass) -> Part {
        let Sizes { m, c, l, .. } = self.sizes;
        let at = |both: ForwardBackward| pass.of(both.forward, both.backward);
        let linears = [(c, 3.0 * c), (c, c), (c, 4.0 * c), (4.0 * c, c)];
        let mut seconds = 0.0;
        for (inputs, outputs) in linears {
            seconds += match pass {
                Pass::Forward => self.roofs.product(m, outputs, inputs, self.bytes),
                Pass::Backward => {
                    self.roofs.product(m, inputs, outputs, self.bytes)
                        + self.roofs.product(outputs, inputs, m, self.bytes)
                }
            };
        }
        let mut per_element =
            at(self.pick([COMPILED_BLOCK_HALF, COMPILED_BLOCK_FLOAT], [EAGER_BLOCK_HALF, EAGER_BLOCK_FLOAT]));
        if self.drops {
            // Two branches: one read, one write and a byte of mask per element; compiled, only the mask.
            per_element += if self.roofs.compiled { 2.0 } else { 4.0 * self.bytes + 2.0 };
        }
        if self.request.gpt.bias() {
            per_element += pass.of(0.0, 9.0 * self.bytes);
        }
        let mut weights = 12.0 * c * c * pass.of(CAST_BYTES, CAST_BYTES);
        if !self.half {
            weights = 0.0;
        }
        seconds += (m * c * per_element + weights) / self.roofs.elementwise + self.attention(pass);
        Part { seconds: l * seconds, launches: l * at(self.block_launches()) }
    }

    /// Attention of one block, in seconds.
    fn attention(&self, pass: Pass) -> f64 {
        let arithmetic = self.sizes.attention(self.roofs.kernel, pass) / self.roofs.attention;
        if self.roofs.kernel != AttentionKernel::Math {
            return arithmetic * (self.sizes.t + ATTENTION_TOKENS) / self.sizes.t;
        }
        let both = self.pick([COMPILED_MATH_HALF, COMPILED_MATH_FLOAT], [EAGER_MATH_HALF, EAGER_MATH_FLOAT]);
        let dropout = match (self.drops, self.roofs.compiled) {
            (false, _) => 0.0,
            (true, true) => 1.0,
            (true, false) => EAGER_MATH_DROPOUT,
        };
        let Sizes { m, t, h, .. } = self.sizes;
        arithmetic + m * h * t * (pass.of(both.forward, both.backward) + dropout) / self.roofs.elementwise
    }

    fn block_launches(&self) -> ForwardBackward {
        let compiled = self.roofs.compiled;
        let mut launches = if compiled { COMPILED_LAUNCHES } else { EAGER_LAUNCHES };
        let mut add = |more: ForwardBackward| {
            launches.forward += more.forward;
            launches.backward += more.backward;
        };
        if self.half {
            add(HALF_LAUNCHES);
            if !compiled {
                add(EAGER_HALF_LAUNCHES);
            }
        }
        if self.roofs.kernel == AttentionKernel::Math {
            add(if compiled { COMPILED_MATH_LAUNCHES } else { EAGER_MATH_LAUNCHES });
        }
        if self.drops && !compiled {
            add(ForwardBackward { forward: 2.0, backward: 2.0 });
        }
        if self.request.gpt.bias() && !compiled {
            add(ForwardBackward { forward: if self.half { 4.0 } else { 0.0 }, backward: 4.0 });
        }
        launches
    }

    /// `lm_head` and the loss, forward and backward.
    pub(super) fn loss(&self) -> Part {
        let Sizes { m, c, v, .. } = self.sizes;
        let loss_bytes = self.pick([COMPILED_LOSS_HALF, COMPILED_LOSS_FLOAT], [EAGER_LOSS_HALF, EAGER_LOSS_FLOAT]);
        let chunk_launches = if self.roofs.compiled { COMPILED_CHUNK_LAUNCHES } else { EAGER_CHUNK_LAUNCHES };
        let (pieces, forwards, per_logit, launches) = match self.request.train.cross_entropy {
            CrossEntropy::Whole => (1.0, 1.0, loss_bytes.whole, 0.0),
            CrossEntropy::Chunked => (m.min(CROSS_ENTROPY_CHUNKS as f64), 2.0, loss_bytes.chunked, chunk_launches),
            // Liger's chunks take about as much memory as the hidden states: V / C of them.
            CrossEntropy::Fused => (m.min((v / c).max(1.0)), 1.0, loss_bytes.fused, COMPILED_CHUNK_LAUNCHES),
        };
        let rows = m / pieces.max(1.0);
        let products = forwards * self.roofs.product(rows, v, c, self.bytes)
            + self.roofs.product(rows, c, v, self.bytes)
            + self.roofs.product(v, c, rows, self.bytes);
        let unaligned = if self.request.gpt.vocab_size().is_multiple_of(8) { 1.0 } else { UNALIGNED_VOCABULARY };
        // Every further chunk adds its part of the weight's gradient to the sum.
        let sums = (pieces - 1.0).max(0.0) * v * c * 3.0 * self.bytes;
        let seconds = pieces * products * unaligned + (m * v * per_logit + sums) / self.roofs.elementwise;
        Part { seconds, launches: pieces * launches }
    }

    /// Embeddings, the last norm, and the casts and gradient of the tied weight.
    pub(super) fn ends(&self) -> Part {
        let Sizes { m, c, v, .. } = self.sizes;
        let casts = if self.half { 2.0 * CAST_BYTES } else { 0.0 };
        let bytes = m * c * ENDS_BYTES + v * c * (EMBEDDING_BYTES + casts);
        let launches = if self.roofs.compiled { COMPILED_END_LAUNCHES } else { EAGER_END_LAUNCHES };
        Part { seconds: bytes / self.roofs.elementwise, launches }
    }

    /// Gradient accumulation: adds a micro-step's gradients to the sum of the previous ones.
    pub(super) fn accumulation(&self) -> Part {
        let seconds = self.sizes.parameters() * ACCUMULATE_BYTES / self.roofs.fused;
        Part { seconds, launches: self.n_tensors() }
    }

    fn n_tensors(&self) -> f64 {
        let (block, ends) = if self.request.gpt.bias() { (12.0, 4.0) } else { (6.0, 3.0) };
        self.sizes.l * block + ends
    }

    /// Unscaling, clipping and the optimizer, in seconds on the GPU and on the host.
    pub(super) fn optimizer(&self) -> (f64, f64) {
        let train = &self.request.train;
        let optimizer = train.optimizer.spec();
        let mut bytes = optimizer.step_bytes;
        if train.clips_gradients {
            bytes += CLIP_BYTES;
        }
        if train.dtype == Dtype::Float16 {
            bytes += UNSCALE_BYTES;
        }
        (self.sizes.parameters() * bytes / self.roofs.fused, self.n_tensors() * optimizer.host_seconds)
    }

    /// Ring all-reduce of all gradients, in seconds.
    pub(super) fn exchange(&self) -> f64 {
        let world = self.request.train.world_size.max(1) as f64;
        4.0 * self.sizes.parameters() * 2.0 * (world - 1.0) / world / self.roofs.link
    }
}
