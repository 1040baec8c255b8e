//! FLOP counts; a fused multiply-add counts two.

use crate::{
    gpt::GptConfig,
    memory::attention_kernel::AttentionKernel,
    train_config::{Attention, CrossEntropy, TrainConfig},
};

/// Floating-point operations of one iteration on one GPU: all micro-steps, forward and backward. Recomputation counts;
/// fused attention omits the masked part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flops {
    /// The four linear layers of every block.
    pub blocks: f64,
    /// Matrix products of attention.
    pub attention: f64,
    /// `lm_head`.
    pub lm_head: f64,
    /// Operations that activation checkpointing and a chunked loss repeat.
    pub recomputed: f64,
}

impl Flops {
    /// Sum of all parts.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.blocks + self.attention + self.lm_head + self.recomputed
    }
}

/// Counts the operations of one iteration on one GPU.
#[must_use]
pub fn flops(gpt: &GptConfig, train: &TrainConfig) -> Flops {
    let sizes = Sizes::of(gpt, train);
    let Sizes { m, c, l, v, .. } = sizes;
    // All fused kernels have the same count.
    let kernel = if train.attention == Attention::Math { AttentionKernel::Math } else { AttentionKernel::Flash };
    let linear = 24.0 * m * c * c * l;
    let [attended, backward] = [Pass::Forward, Pass::Backward].map(|pass| l * sizes.attention(kernel, pass));
    let head = 2.0 * m * v * c;
    let mut recomputed = 0.0;
    if train.activation_checkpointing {
        recomputed += linear + attended;
    }
    if train.cross_entropy == CrossEntropy::Chunked {
        recomputed += head;
    }
    let times = train.gradient_accumulation_steps as f64;
    Flops {
        blocks: times * 3.0 * linear,
        attention: times * (attended + backward),
        lm_head: times * 3.0 * head,
        recomputed: times * recomputed,
    }
}

/// Operations that nanoGPT's `estimate_mfu` counts for one iteration on one GPU: 6N + 12LHQT per token. N excludes
/// position embeddings. Recomputation does not count, and the causal mask is ignored.
///
/// Source: appendix B of arXiv:2204.02311 (PaLM), model.py of nanoGPT.
#[must_use]
pub fn model_flops(gpt: &GptConfig, train: &TrainConfig) -> f64 {
    let sizes = Sizes::of(gpt, train);
    let Sizes { m, t, c, l, .. } = sizes;
    let tokens = m * train.gradient_accumulation_steps as f64;
    (6.0 * (sizes.parameters() - t * c) + 12.0 * l * c * t) * tokens
}

/// Forward or backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Forward,
    Backward,
}

impl Pass {
    /// Selects the value of this pass.
    pub(super) fn of<T>(self, forward: T, backward: T) -> T {
        match self {
            Self::Forward => forward,
            Self::Backward => backward,
        }
    }
}

/// Dimensions of a micro-step as floats.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    /// Tokens, B * T.
    pub m: f64,
    pub t: f64,
    pub c: f64,
    pub h: f64,
    pub l: f64,
    pub v: f64,
    bias: bool,
}

impl Sizes {
    pub(super) fn of(gpt: &GptConfig, train: &TrainConfig) -> Self {
        let t = gpt.block_size() as f64;
        Self {
            m: train.batch_size as f64 * t,
            t,
            c: gpt.n_embd() as f64,
            h: gpt.n_head() as f64,
            l: gpt.n_layer() as f64,
            v: gpt.vocab_size() as f64,
            bias: gpt.bias(),
        }
    }

    /// Number of parameters, with the tied embedding counted once. Like [`GptConfig::n_parameters`], but without
    /// overflow.
    pub(super) fn parameters(&self) -> f64 {
        let Self { t, c, l, v, .. } = *self;
        let biases = if self.bias { 11.0 * l * c + c } else { 0.0 };
        (v + t) * c + l * (12.0 * c * c + 2.0 * c) + c + biases
    }

    /// FLOPs of attention's products in one block: two products forward, four backward. Fused kernels also recompute
    /// the scores in backward, and compute only the lower triangle.
    pub(super) fn attention(&self, kernel: AttentionKernel, pass: Pass) -> f64 {
        let product = 2.0 * self.m * self.t * self.c;
        match kernel {
            AttentionKernel::Math => product * pass.of(2.0, 4.0),
            _ => 0.5 * product * pass.of(2.0, 5.0),
        }
    }
}
