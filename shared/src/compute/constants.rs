//! Every constant of the estimate, each with its source. "Fitted to X" names the published timings it was chosen by;
//! `compute/tests.rs` has those. Bytes are counted from the operations of `memory::eager` and `memory::compiled`.

/// Achievable fractions of a card's peak.
pub(super) struct Fractions {
    /// Large matrix products.
    pub products: f64,
    /// FlashAttention 2, causal, long sequences, forward and backward together.
    pub flash: f64,
    /// cuDNN's attention.
    pub cudnn: f64,
    /// The memory-efficient kernel.
    pub efficient: f64,
}

/// Boards whose tensor cores run at full rate, which power and operand supply hold back. Fitted to the A100 ladder of
/// "Let's reproduce GPT-2" and to llm.c's 124M and 1558M on H100; flash as in the figures of arXiv:2307.08691.
pub(super) const FULL_RATE: Fractions = Fractions { products: 0.72, flash: 0.52, cudnn: 0.65, efficient: 0.28 };
/// GeForce: half the tensor rate behind the same memory is easier to keep busy. Fitted to nanoGPT#225 (RTX 4090).
pub(super) const GEFORCE: Fractions = Fractions { products: 0.85, flash: 0.75, cudnn: 0.75, efficient: 0.42 };
/// float16 without tensor cores, of the float32 rate. Fitted to nanoGPT#466 (TITAN Xp).
pub(super) const PLAIN_HALF: Fractions = Fractions { products: 0.33, flash: 0.15, cudnn: 0.15, efficient: 0.15 };
/// bfloat16 below sm_80, of the float32 rate: every product converts its operands. Assumed to be no faster than
/// float16 without tensor cores.
pub(super) const EMULATED: Fractions = Fractions { products: 0.3, flash: 0.12, cudnn: 0.12, efficient: 0.12 };
/// float32 on ordinary cores: what cuBLAS gets of them; attention as above.
pub(super) const PLAIN_FLOAT: Fractions = Fractions { products: 0.8, flash: 0.3, cudnn: 0.3, efficient: 0.3 };

/// Tokens that every sequence seems longer by to a fused attention kernel: diagonal tiles, short loops. The same figures:
/// on A100 about 75 TFLOP/s at 512 tokens, 100 at 1,024, 140 at 4,096, heads of 64.
pub(super) const ATTENTION_TOKENS: f64 = 600.0;

/// Fraction of the bandwidth that fused kernels get: STREAM-like copies reach 85 to 92 %.
pub(super) const FUSED_BANDWIDTH: f64 = 0.85;
/// The same for eager elementwise kernels under autocast, many of them short, strided, or between two dtypes; and in
/// float32. Fitted to the eager rungs of the A100 ladder.
pub(super) const EAGER_HALF_BANDWIDTH: f64 = 0.60;
pub(super) const EAGER_FLOAT_BANDWIDTH: f64 = 0.72;

/// A tile of cuBLAS's output; the last wave of tiles leaves half the multiprocessors idle on average.
pub(super) const TILE: f64 = 128.0;
/// The deepest part of a product one tile works on before split-K divides it.
pub(super) const SPLIT_K: f64 = 1024.0;
/// What filling and draining a tile's pipeline costs, in steps of the inner dimension.
pub(super) const PIPELINE_K: f64 = 32.0;
/// A vocabulary that is no multiple of 8 costs `lm_head` its alignment. Between the 3 % (A100 ladder, 96 to 93 ms) and
/// 14 % (LLMs-from-scratch, 112,046 to 127,345 tokens/s) that the whole step was seen to gain.
pub(super) const UNALIGNED_VOCABULARY: f64 = 1.2;

/// Forward and backward, in bytes or launches.
#[derive(Clone, Copy)]
pub(super) struct Both {
    pub forward: f64,
    pub backward: f64,
}

const fn both(forward: f64, backward: f64) -> Both {
    Both { forward, backward }
}

/// Bytes an element of (B, T, C) a block moves outside matrix products and attention, eager: layer norms, casts, GELU
/// on four times the width, residual sums; backward also joins the gradients of q, k and v.
pub(super) const EAGER_BLOCK_HALF: Both = both(64.0, 124.0);
pub(super) const EAGER_BLOCK_FLOAT: Both = both(72.0, 136.0);
/// The same as Inductor fuses it.
pub(super) const COMPILED_BLOCK_HALF: Both = both(40.0, 76.0);
pub(super) const COMPILED_BLOCK_FLOAT: Both = both(56.0, 112.0);

/// Bytes an element of (B, H, T, T) of nanoGPT's slow attention: scale, mask (a copy, then in place), softmax in float32
/// and its casts.
pub(super) const EAGER_MATH_HALF: Both = both(36.0, 44.0);
pub(super) const EAGER_MATH_FLOAT: Both = both(40.0, 52.0);
/// The same as Inductor fuses it: the product's output, softmax in two passes, and the operand of the next product.
pub(super) const COMPILED_MATH_HALF: Both = both(10.0, 16.0);
pub(super) const COMPILED_MATH_FLOAT: Both = both(20.0, 32.0);
/// Dropout of the attention matrix: float32 in and out, and a byte of mask.
pub(super) const EAGER_MATH_DROPOUT: f64 = 9.0;

/// Bytes a logit moves, beside the products of `lm_head`, forward and backward.
pub(super) struct LossBytes {
    pub whole: f64,
    pub chunked: f64,
    pub fused: f64,
}

/// Eager: log_softmax, the float32 copy, nll_loss and their backward; a chunk's forward runs twice.
pub(super) const EAGER_LOSS_HALF: LossBytes = LossBytes { whole: 30.0, chunked: 42.0, fused: 8.0 };
pub(super) const EAGER_LOSS_FLOAT: LossBytes = LossBytes { whole: 36.0, chunked: 48.0, fused: 16.0 };
/// Compiled: two passes forward, one backward, and the zero tangent of the returned logits.
pub(super) const COMPILED_LOSS_HALF: LossBytes = LossBytes { whole: 12.0, chunked: 16.0, fused: 8.0 };
pub(super) const COMPILED_LOSS_FLOAT: LossBytes = LossBytes { whole: 24.0, chunked: 32.0, fused: 16.0 };

/// Bytes an element of (B, T, C) outside blocks: embeddings, the last norm, and their backward.
pub(super) const ENDS_BYTES: f64 = 66.0;
/// Bytes an element of the embedding: zeroing its dense gradient, and adding `lm_head`'s.
pub(super) const EMBEDDING_BYTES: f64 = 16.0;
/// Autocast's copy of a weight, and the widening of its gradient: float32 one way, half the other.
pub(super) const CAST_BYTES: f64 = 6.0;
/// Adding a gradient to the one that is there: two reads and a write.
pub(super) const ACCUMULATE_BYTES: f64 = 12.0;

/// Bytes a parameter of one step: four reads and three writes fused; one operation at a time in lists; moments in a
/// byte each, at the pace of a float32 step (bitsandbytes searches its code book). The ladder's 93 to 90 ms is the
/// difference between the first two.
pub(super) const ADAMW_FUSED_BYTES: f64 = 28.0;
pub(super) const ADAMW_FOREACH_BYTES: f64 = 80.0;
pub(super) const ADAMW_8BIT_BYTES: f64 = 28.0;
/// A norm, and a scaling in place.
pub(super) const CLIP_BYTES: f64 = 12.0;
/// `GradScaler.unscale_`: a scaling in place.
pub(super) const UNSCALE_BYTES: f64 = 8.0;

/// Kernels a block launches; the difference to [`HALF_LAUNCHES`] is casts.
pub(super) const EAGER_LAUNCHES: Both = both(10.0, 18.0);
pub(super) const COMPILED_LAUNCHES: Both = both(9.0, 16.0);
/// What casts add, in both engines.
pub(super) const HALF_LAUNCHES: Both = both(4.0, 4.0);
/// Casts of activations, which Inductor fuses.
pub(super) const EAGER_HALF_LAUNCHES: Both = both(2.0, 4.0);
/// What slow attention adds.
pub(super) const EAGER_MATH_LAUNCHES: Both = both(10.0, 12.0);
pub(super) const COMPILED_MATH_LAUNCHES: Both = both(3.0, 4.0);
/// Outside blocks.
pub(super) const EAGER_END_LAUNCHES: f64 = 40.0;
pub(super) const COMPILED_END_LAUNCHES: f64 = 20.0;
/// A chunk of the loss; a fused one is a loop in Python in both engines.
pub(super) const EAGER_CHUNK_LAUNCHES: f64 = 16.0;
pub(super) const COMPILED_CHUNK_LAUNCHES: f64 = 8.0;

/// What a kernel costs the card beside its work: launch latency on the device and a cold start.
pub(super) const KERNEL_SECONDS: f64 = 2e-6;
/// What the host takes to issue a kernel through Python, autocast and autograd; an estimate for a desktop's core.
pub(super) const EAGER_HOST_SECONDS: f64 = 15e-6;
/// The same through Inductor's wrapper.
pub(super) const COMPILED_HOST_SECONDS: f64 = 5e-6;
/// Fetching a batch and calling into the model, a micro-step.
pub(super) const MICRO_STEP_HOST_SECONDS: f64 = 5e-4;
/// The host's part of the optimizer, a tensor: fused, in lists, and with a kernel each (bitsandbytes).
pub(super) const FUSED_HOST_SECONDS: f64 = 10e-6;
pub(super) const FOREACH_HOST_SECONDS: f64 = 20e-6;
pub(super) const EACH_HOST_SECONDS: f64 = 40e-6;

/// What an all-reduce gets of PCIe 4.0 x16 through host memory, as between GeForce cards; an estimate.
pub(super) const PCIE_BYTES_PER_SECOND: f64 = 12e9;
/// What it gets of NVLink between SXM boards; an estimate.
pub(super) const NVLINK_BYTES_PER_SECOND: f64 = 150e9;
/// How much of the last backward hides it: DDP starts when the first bucket is full.
pub(super) const OVERLAP: f64 = 0.8;
