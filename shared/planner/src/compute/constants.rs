//! Constants of the step-time estimate, each with its source. "Fitted to X" names the published timings that determined
//! a constant; `compute/tests.rs` lists them. Byte counts follow from the operations of `memory::eager` and
//! `memory::compiled`.

/// Achievable fractions of a GPU's peak rate.
pub(super) struct Fractions {
    /// Large matrix products.
    pub products: f64,
    /// FlashAttention 2, causal, long sequences, forward and backward together.
    pub flash: f64,
    /// cuDNN's attention.
    pub cudnn: f64,
    /// PyTorch's memory-efficient attention kernel.
    pub efficient: f64,
}

/// GPUs with full-rate tensor cores, which power and operand supply limit. Fitted to the A100 ladder of "Let's
/// reproduce GPT-2" and to llm.c's 124M and 1558M on H100; flash as in the figures of arXiv:2307.08691.
pub(super) const FULL_RATE: Fractions = Fractions { products: 0.72, flash: 0.52, cudnn: 0.65, efficient: 0.28 };
/// GeForce GPUs: half the tensor rate with the same memory is easier to saturate. Fitted to nanoGPT#225 (RTX 4090).
pub(super) const GEFORCE: Fractions = Fractions { products: 0.85, flash: 0.75, cudnn: 0.75, efficient: 0.42 };
/// float16 without tensor cores, as a fraction of the float32 rate. Fitted to nanoGPT#466 (TITAN Xp).
pub(super) const PLAIN_HALF: Fractions = Fractions { products: 0.33, flash: 0.15, cudnn: 0.15, efficient: 0.15 };
/// bfloat16 below sm_80, as a fraction of the float32 rate: every product converts its operands. Assumed to be no
/// faster than float16 without tensor cores.
pub(super) const EMULATED: Fractions = Fractions { products: 0.3, flash: 0.12, cudnn: 0.12, efficient: 0.12 };
/// float32 on CUDA cores: the fraction that cuBLAS achieves; attention is proportionally lower, as above.
pub(super) const PLAIN_FLOAT: Fractions = Fractions { products: 0.8, flash: 0.3, cudnn: 0.3, efficient: 0.3 };

/// Tokens added to the length of every sequence in a fused attention kernel, for diagonal tiles and short loops. From
/// the same figures: on A100 about 75 TFLOP/s at 512 tokens, 100 at 1,024, 140 at 4,096, heads of 64.
pub(super) const ATTENTION_TOKENS: f64 = 600.0;

/// Fraction of the memory bandwidth that fused kernels achieve: STREAM-like copies reach 85 to 92 %.
pub(super) const FUSED_BANDWIDTH: f64 = 0.85;
/// The same fraction for eager elementwise kernels, under autocast (many are short, strided, or between two dtypes) and
/// in float32. Fitted to the eager rungs of the A100 ladder.
pub(super) const EAGER_HALF_BANDWIDTH: f64 = 0.60;
pub(super) const EAGER_FLOAT_BANDWIDTH: f64 = 0.72;

/// Side of a cuBLAS output tile; the last wave of tiles leaves half the multiprocessors idle on average.
pub(super) const TILE: f64 = 128.0;
/// Maximum inner dimension that one tile processes before split-K divides it.
pub(super) const SPLIT_K: f64 = 1024.0;
/// Cost of filling and draining a tile's pipeline, in steps of the inner dimension.
pub(super) const PIPELINE_K: f64 = 32.0;
/// Slowdown of `lm_head` if the vocabulary size is not a multiple of 8, due to misalignment. Between the whole step's
/// observed gains of 3 % (A100 ladder, 96 to 93 ms) and 14 % (LLMs-from-scratch, 112,046 to 127,345 tokens/s).
pub(super) const UNALIGNED_VOCABULARY: f64 = 1.2;

/// Forward and backward, in bytes or launches.
#[derive(Clone, Copy)]
pub(super) struct ForwardBackward {
    pub forward: f64,
    pub backward: f64,
}

const fn both(forward: f64, backward: f64) -> ForwardBackward {
    ForwardBackward { forward, backward }
}

/// Bytes per element of (B, T, C) that a block moves outside matrix products and attention, eager: layer norms, casts,
/// GELU on four times the width, residual sums. Backward also concatenates the gradients of q, k and v.
pub(super) const EAGER_BLOCK_HALF: ForwardBackward = both(64.0, 124.0);
pub(super) const EAGER_BLOCK_FLOAT: ForwardBackward = both(72.0, 136.0);
/// The same bytes after fusion by Inductor.
pub(super) const COMPILED_BLOCK_HALF: ForwardBackward = both(40.0, 76.0);
pub(super) const COMPILED_BLOCK_FLOAT: ForwardBackward = both(56.0, 112.0);

/// Bytes per element of (B, H, T, T) in nanoGPT's math attention: scale, mask (a copy, then in place), softmax in
/// float32 and its casts.
pub(super) const EAGER_MATH_HALF: ForwardBackward = both(36.0, 44.0);
pub(super) const EAGER_MATH_FLOAT: ForwardBackward = both(40.0, 52.0);
/// The same bytes after fusion by Inductor: the product's output, softmax in two passes, and the operand of the next
/// product.
pub(super) const COMPILED_MATH_HALF: ForwardBackward = both(10.0, 16.0);
pub(super) const COMPILED_MATH_FLOAT: ForwardBackward = both(20.0, 32.0);
/// Dropout of the attention matrix: a float32 read and write, and a byte of mask.
pub(super) const EAGER_MATH_DROPOUT: f64 = 9.0;

/// Bytes moved per logit, outside the products of `lm_head`, forward and backward.
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

/// Bytes per element of (B, T, C) outside blocks: embeddings, the last norm, and their backward.
pub(super) const ENDS_BYTES: f64 = 66.0;
/// Bytes per element of the embedding: zeroing its dense gradient, and adding `lm_head`'s.
pub(super) const EMBEDDING_BYTES: f64 = 16.0;
/// Bytes per element of autocast's copy of a weight, and of widening its gradient: one float32 and one half access.
pub(super) const CAST_BYTES: f64 = 6.0;
/// Bytes per element of gradient accumulation: two reads and a write.
pub(super) const ACCUMULATE_BYTES: f64 = 12.0;

/// Bytes per element of clipping: a norm and an in-place scaling.
pub(super) const CLIP_BYTES: f64 = 12.0;
/// Bytes per element of `GradScaler.unscale_`: an in-place scaling.
pub(super) const UNSCALE_BYTES: f64 = 8.0;

/// Kernel launches per block; casts are counted in [`HALF_LAUNCHES`].
pub(super) const EAGER_LAUNCHES: ForwardBackward = both(10.0, 18.0);
pub(super) const COMPILED_LAUNCHES: ForwardBackward = both(9.0, 16.0);
/// Additional launches for casts, eager and compiled.
pub(super) const HALF_LAUNCHES: ForwardBackward = both(4.0, 4.0);
/// Additional launches for casts of activations, which Inductor fuses.
pub(super) const EAGER_HALF_LAUNCHES: ForwardBackward = both(2.0, 4.0);
/// Additional launches of math attention.
pub(super) const EAGER_MATH_LAUNCHES: ForwardBackward = both(10.0, 12.0);
pub(super) const COMPILED_MATH_LAUNCHES: ForwardBackward = both(3.0, 4.0);
/// Kernel launches outside blocks.
pub(super) const EAGER_END_LAUNCHES: f64 = 40.0;
pub(super) const COMPILED_END_LAUNCHES: f64 = 20.0;
/// Kernel launches per chunk of the loss; a fused loss is a Python loop in both engines.
pub(super) const EAGER_CHUNK_LAUNCHES: f64 = 16.0;
pub(super) const COMPILED_CHUNK_LAUNCHES: f64 = 8.0;

/// Seconds of GPU overhead per kernel: launch latency on the device and a cold start.
pub(super) const KERNEL_SECONDS: f64 = 2e-6;
/// Host seconds to issue a kernel through Python, autocast and autograd; an estimate for a desktop CPU core.
pub(super) const EAGER_HOST_SECONDS: f64 = 15e-6;
/// Host seconds to issue a kernel through Inductor's wrapper.
pub(super) const COMPILED_HOST_SECONDS: f64 = 5e-6;
/// Host seconds per micro-step to fetch a batch and call the model.
pub(super) const MICRO_STEP_HOST_SECONDS: f64 = 5e-4;

/// Estimated all-reduce bandwidth over PCIe 4.0 x16 through host memory, as between GeForce GPUs.
pub(super) const PCIE_BYTES_PER_SECOND: f64 = 12e9;
/// Estimated all-reduce bandwidth over NVLink between SXM boards.
pub(super) const NVLINK_BYTES_PER_SECOND: f64 = 150e9;
/// Fraction of the last backward that overlaps with the all-reduce: DDP starts when the first bucket is full.
pub(super) const OVERLAP: f64 = 0.8;
