//! What shapes are made of: the dimensions of a run as symbols, and their values.

use super::parameters;
use crate::{
    dtype::Dtype,
    gpt::{
        GptConfig,
        buffers::cuda::workspace::{TENSOR_WORDS, token_words},
    },
};

/// A dimension of a shape, as a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dim {
    B,
    T,
    C,
    H,
    D,
    V,
    C3,
    C4,
    BT,
    BH,
    One,
    Two,
    Zero,
    NParams,
    /// Logsumexp's last axis in memory-efficient attention: T rounded up to 32.
    T32,
    /// Padded head size of flash attention: rounded up to a multiple of 8.
    D8,
    /// Bytes of a cuBLAS workspace.
    CublasWorkspace,
    /// Bytes that cuDNN's attention may use in our own trainer.
    CudnnWorkspace,
    /// Flash backward: T rounded up to 128.
    T128,
    /// Flash attention: head size rounded up to 32, or to 64 above 128.
    DFlash,
    /// Flash forward, where it splits the keys: a part for each split, sequence and head.
    SplitsBH,
    /// Distinct indices an embedding's gradient can touch.
    MinIndicesV,
    /// Partial segments of an embedding's gradient.
    Segments,
    /// The same two for the position embedding, whose indices are T.
    MinIndicesT,
    SegmentsT,
    /// Dropouts outside attention: one for the embedding and two a block.
    NDropouts,
    /// V as compiled code lays rows out: see [`padded_row`].
    VPadded,
    /// Pieces into which compiled code splits a sum over B*T tokens.
    NormSplits,
    QkvBiasSplits,
    FcBiasSplits,
    LossSplits,
    /// Elements of all parameters.
    NElements,
    /// Tokens a chunk of a chunked cross-entropy, and of a fused one.
    ChunkTokens,
    FusedTokens,
    /// Tokens whose logits our own trainer holds at a time.
    TrainerTokens,
    /// Threads of our own trainer, and what each needs for attention.
    Threads,
    AttScratch,
    /// Bytes of what an engine is told before a pass, or tells after one.
    Exchange,
    /// Room of the trainer's on a card: floats of partial sums, numbers of sorted tokens and of a tensor.
    TrainerParts,
    TokenOrder,
    OptimizerTable,
}

/// What the shapes of one run's tensors are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Sequences a micro-batch.
    pub b: u64,
    /// Tokens a sequence.
    pub t: u64,
    /// Channels.
    pub c: u64,
    /// Heads.
    pub h: u64,
    /// Rows of the embedding.
    pub v: u64,
    /// The training dtype.
    pub compute: Dtype,
    /// Bytes of a cuBLAS workspace on this architecture.
    pub cublas_workspace_bytes: u64,
    /// Bytes that cuDNN's attention may use, where a card trains with kernels of ours and with that.
    pub cudnn_workspace_bytes: u64,
    /// Tensors among the parameters.
    pub n_parameter_tensors: u64,
    /// Elements of all parameters.
    pub n_parameters: u64,
    /// Blocks.
    pub n_layer: u64,
    /// The card, as far as compiled reductions depend on it.
    pub resident_threads: ResidentThreads,
    /// Threads that compute, where the CPU trains.
    pub threads: u64,
    /// Floats of partial sums, where a card trains with kernels of ours.
    pub trainer_parts: u64,
}

/// Elements from one row to the next in a buffer of Inductor's own: rows longer than 1024 elements start at multiples
/// of 128 bytes (`comprehensive_padding`, `padding_alignment_bytes`, `padding_stride_threshold` in
/// torch/_inductor/config.py).
fn padded_row(elements: u128, dtype: Dtype) -> u128 {
    if elements <= 1024 { elements } else { elements.next_multiple_of(u128::from(128 / dtype.bytes())) }
}

/// The size of a card in threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentThreads {
    /// Streaming multiprocessors.
    pub sm_count: u64,
    /// Threads that fit on one at a time.
    pub threads_per_sm: u64,
}

/// Pieces into which Inductor cuts column sums over `rows` rows for `columns` results; 1 where it does not cut.
///
/// Source: `reduction_split_factor` in torch/_inductor/choices.py (2.11), outer reductions.
fn outer_splits(rows: u64, columns: u64, card: ResidentThreads) -> u64 {
    let ResidentThreads { sm_count, threads_per_sm } = card;
    if rows <= 32 || columns >= 64 * sm_count {
        return 1;
    }
    let elements = u128::from(rows) * u128::from(columns);
    let resident = u128::from(sm_count * threads_per_sm);
    let split = if elements < 32 * resident {
        32
    } else if elements < 512 * resident {
        let target = (sm_count * threads_per_sm / 256).div_ceil(columns.div_ceil(128)).max(1);
        let wanted = rows.div_ceil(4 * target);
        let divisor = nearest_divisor(rows, wanted);
        if divisor.abs_diff(wanted) < 20 { divisor.max(32) } else { wanted }
    } else {
        let divisor = nearest_divisor(rows, 512);
        if divisor.abs_diff(512) < 50 { divisor } else { 512 }
    };
    rows.div_ceil(4 * split)
}

/// Parts into which flash attention's forward without dropout splits the keys of `n_heads` heads in all sequences, so
/// that it fills the card; 1 where it does not split.
///
/// Source: `set_params_splitkv` and `num_splits_heuristic` in
/// aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (2.11).
fn flash_splits(n_heads: u64, tokens: u64, head_size: u64, sm_count: u64) -> u64 {
    const MAX_SPLITS: u64 = 128;
    let key_block = match head_size {
        0..=64 => 256,
        65..=128 => 128,
        _ => 64,
    };
    let key_blocks = tokens.div_ceil(key_block);
    // Twice the multiprocessors: a block has 128 threads.
    let slots = 2 * sm_count;
    let blocks = n_heads.saturating_mul(tokens.div_ceil(64));
    // PyTorch compares in single precision.
    if blocks as f32 >= 0.8 * slots as f32 {
        return 1;
    }
    // A number of splits that leaves as many blocks to each as the number before it brings nothing.
    let is_eligible = |&splits: &u64| splits == 1 || key_blocks.div_ceil(splits) != key_blocks.div_ceil(splits - 1);
    let efficiency = |splits: u64| {
        let waves = (blocks * splits) as f32 / slots as f32;
        waves / waves.ceil()
    };
    let eligible = || (1..=MAX_SPLITS.min(slots).min(key_blocks)).filter(is_eligible);
    let best = eligible().map(efficiency).fold(0.0, f32::max);
    eligible().find(|&splits| f64::from(efficiency(splits)) >= 0.85 * f64::from(best)).unwrap_or(1)
}

/// Pieces of a sum of everything.
fn inner_splits(rows: u64, card: ResidentThreads) -> u64 {
    let _ = card;
    if rows <= 8192 { 1 } else { rows.div_ceil(8192) }
}

/// The divisor of `n` nearest to `wanted`, the smaller one of two as near.
fn nearest_divisor(n: u64, wanted: u64) -> u64 {
    let (mut below, mut above) = (wanted.clamp(1, n.max(1)), wanted.clamp(1, n.max(1)));
    // A divisor is never further than 1 below and n above; sizes of interest have one near.
    for _ in 0..MAX_DIVISOR_STEPS {
        if n.is_multiple_of(below) {
            return below;
        }
        if n.is_multiple_of(above) {
            return above;
        }
        below = below.saturating_sub(1).max(1);
        above = (above + 1).min(n);
    }
    1
}

/// How far a divisor is looked for; nearer ones than 50 are all that matters.
const MAX_DIVISOR_STEPS: u32 = 64;

/// Pieces that a chunked cross-entropy cuts the tokens of a micro-batch into.
pub const CROSS_ENTROPY_CHUNKS: u64 = 8;

/// Bytes of a buffer of settings or choices: a token and thirty candidates with their probabilities, and what WebGPU
/// aligns buffers to.
pub const EXCHANGE_BYTES: u64 = 256;

/// Tokens that a fused linear cross-entropy takes at a time.
///
/// Source: Liger-Kernel's `fused_linear_cross_entropy_forward`: the chunk is made so small that its logits take about
/// as much as the activations, rounded up to a power of two.
fn fused_chunk_tokens(tokens: u128, v: u128, c: u128) -> u128 {
    tokens.div_ceil(v.div_ceil(c.max(1)).max(1)).next_power_of_two().min(tokens)
}

/// Tokens whose logits our own trainer holds at a time: never all of them, and enough to keep a product busy.
fn trainer_chunk_tokens(tokens: u64) -> u64 {
    tokens.div_ceil(2).min(256)
}

/// Queries, and keys, of a block of our own attention. Blocks of keys are a multiple of those of queries, so that none
/// starts behind one.
pub const ATTENTION_BLOCK: [u64; 2] = [64, 256];

/// Floats a thread of our own trainer needs for the attention of sequences of `t` tokens by heads of `d` channels: two
/// blocks of scores, dq, dk and dv, and a number a token.
fn attention_scratch(t: u128, d: u128) -> u128 {
    let [q_block, k_block] = ATTENTION_BLOCK.map(|block| t.min(u128::from(block)));
    2 * q_block * k_block + 3 * t * d + t
}

impl Dims {
    /// The dimensions of a model computed in float32 where no card has a say: by kernels of ours, for `b` sequences of
    /// `block_size`, on one thread.
    #[must_use]
    pub fn without_card(config: &GptConfig, b: u64) -> Self {
        Self {
            b,
            t: config.block_size(),
            c: config.n_embd(),
            h: config.n_head(),
            v: config.vocab_size(),
            compute: Dtype::Float32,
            cublas_workspace_bytes: 0,
            cudnn_workspace_bytes: 0,
            n_parameter_tensors: parameters(config).len() as u64,
            n_parameters: config.n_parameters().unwrap_or(u64::MAX),
            n_layer: config.n_layer(),
            resident_threads: ResidentThreads { sm_count: 1, threads_per_sm: 1 },
            threads: 1,
            trainer_parts: 0,
        }
    }

    /// Parts into which flash attention's forward splits the keys; 1 where it does not split.
    #[must_use]
    pub fn flash_splits(&self) -> u64 {
        flash_splits(self.b.saturating_mul(self.h), self.t, self.c / self.h.max(1), self.resident_threads.sm_count)
    }

    pub(super) fn get(&self, dim: Dim) -> u128 {
        let [b, t, c, h, v] = [self.b, self.t, self.c, self.h, self.v].map(u128::from);
        let d = c / h.max(1);
        match dim {
            Dim::B => b,
            Dim::T => t,
            Dim::C => c,
            Dim::H => h,
            Dim::D => d,
            Dim::V => v,
            Dim::C3 => 3 * c,
            Dim::C4 => 4 * c,
            Dim::BT => b * t,
            Dim::BH => b * h,
            Dim::One => 1,
            Dim::Two => 2,
            Dim::Zero => 0,
            Dim::NParams => u128::from(self.n_parameter_tensors),
            Dim::T32 => t.next_multiple_of(32),
            Dim::D8 => d.next_multiple_of(8),
            Dim::CublasWorkspace => u128::from(self.cublas_workspace_bytes),
            Dim::CudnnWorkspace => u128::from(self.cudnn_workspace_bytes),
            Dim::T128 => t.next_multiple_of(128),
            // `head_size_rounded` in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (2.11).
            Dim::DFlash => d.next_multiple_of(if d <= 128 { 32 } else { 64 }),
            Dim::SplitsBH => u128::from(self.flash_splits()) * b * h,
            Dim::MinIndicesV => v.min(b * t),
            Dim::Segments => b * t / 10 + v.min(b * t),
            // The rows of wpe are T, and so are its indices.
            Dim::MinIndicesT => t,
            Dim::SegmentsT => t / 10 + t,
            Dim::VPadded => padded_row(v, self.compute),
            Dim::NDropouts => 1 + 2 * u128::from(self.n_layer),
            Dim::NormSplits => u128::from(outer_splits(self.b * self.t, self.c, self.resident_threads)),
            Dim::QkvBiasSplits => u128::from(outer_splits(self.b * self.t, 3 * self.c, self.resident_threads)),
            Dim::FcBiasSplits => u128::from(outer_splits(self.b * self.t, 4 * self.c, self.resident_threads)),
            Dim::LossSplits => u128::from(inner_splits(self.b * self.t, self.resident_threads)),
            Dim::NElements => u128::from(self.n_parameters),
            Dim::ChunkTokens => (b * t).div_ceil(u128::from(CROSS_ENTROPY_CHUNKS)),
            Dim::Exchange => u128::from(EXCHANGE_BYTES),
            Dim::FusedTokens => fused_chunk_tokens(b * t, v, c),
            Dim::TrainerTokens => u128::from(trainer_chunk_tokens(self.b * self.t)),
            Dim::Threads => u128::from(self.threads),
            Dim::AttScratch => attention_scratch(t, d),
            Dim::TrainerParts => u128::from(self.trainer_parts),
            Dim::TokenOrder => u128::from(token_words(self.b.saturating_mul(self.t), self.v)),
            Dim::OptimizerTable => u128::from(TENSOR_WORDS),
        }
    }
}
