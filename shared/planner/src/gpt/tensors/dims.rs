//! Dimensions of a run's tensor shapes, as symbols and as values.

use crate::dtype::Dtype;

/// 32-bit words per distinct token: the token, the start of its rows, their number, and padding.
pub const BUCKET_WORDS: u64 = 4;
/// 64-bit words that describe a tensor to the optimizer.
pub const TENSOR_WORDS: u64 = 8;

/// Bytes of the workspace that PyTorch gives cuBLASLt, which computes products with a bias.
///
/// Source: `_parseChosenWorkspaceSize` in aten/src/ATen/cuda/CUDABlas.cpp (2.11).
pub(crate) const CUBLASLT_WORKSPACE_BYTES: u64 = 1 << 20;

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
    /// Last axis of the logsumexp in memory-efficient attention: T rounded up to 32.
    T32,
    /// Padded head size of flash attention: rounded up to a multiple of 8.
    D8,
    /// Bytes of a cuBLAS workspace.
    CublasWorkspace,
    /// Bytes of a cuBLASLt workspace.
    CublasLtWorkspace,
    /// Bytes of the workspace of cuDNN's attention in the built-in trainer.
    CudnnWorkspace,
    /// Bytes of the workspace of memory-efficient attention's backward.
    EffWorkspace,
    /// Flash backward: T rounded up to 128.
    T128,
    /// Flash attention: head size rounded up to 32, or to 64 above 128.
    DFlash,
    /// Flash forward with split keys: one part per split, sequence and head.
    SplitsBH,
    /// Maximum number of distinct indices in an embedding's gradient.
    MinIndicesV,
    /// Partial segments of an embedding's gradient.
    Segments,
    /// `MinIndicesV` and `Segments` of the position embedding, whose indices are T.
    MinIndicesT,
    SegmentsT,
    /// Dropouts outside attention: one for the embedding and two per block.
    NDropouts,
    /// V as compiled code lays out rows; see [`padded_row`].
    VPadded,
    /// Parts into which compiled code splits a sum over B*T tokens.
    NormSplits,
    QkvBiasSplits,
    FcBiasSplits,
    LossSplits,
    /// Elements of all parameters.
    NElements,
    /// Tokens per chunk of a chunked cross-entropy, and of a fused one.
    ChunkTokens,
    FusedTokens,
    /// Tokens whose logits the built-in trainer holds at a time.
    TrainerTokens,
    /// Threads of the built-in trainer, and the attention scratch of each.
    Threads,
    AttScratch,
    /// Bytes of an engine's input before a pass, or of its output after one.
    Exchange,
    /// Workspace of the trainer on a GPU: floats of partial sums, words of sorted tokens, and words per tensor.
    TrainerParts,
    TokenOrder,
    OptimizerTable,
}

/// Values of the dimensions of one run's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims {
    /// Sequences per micro-batch.
    pub b: u64,
    /// Tokens per sequence.
    pub t: u64,
    /// Channels.
    pub c: u64,
    /// Heads.
    pub h: u64,
    /// Rows of the token embedding.
    pub v: u64,
    /// Training dtype.
    pub compute: Dtype,
    /// Bytes of a cuBLAS workspace on this architecture.
    pub cublas_workspace_bytes: u64,
    /// Bytes of the workspace of memory-efficient attention's backward; 0 if the run does not train with that kernel.
    pub efficient_workspace_bytes: u64,
    /// Bytes of cuDNN's workspace, if the built-in trainer uses cuDNN's attention on a GPU.
    pub cudnn_workspace_bytes: u64,
    /// Number of parameter tensors.
    pub n_parameter_tensors: u64,
    /// Elements of all parameters.
    pub n_parameters: u64,
    /// Number of blocks.
    pub n_layer: u64,
    /// Size of the GPU, on which compiled reductions depend.
    pub resident_threads: ResidentThreads,
    /// Number of threads, if the built-in trainer runs on the CPU.
    pub threads: u64,
    /// Floats of partial sums, if the built-in trainer runs on a GPU.
    pub trainer_parts: u64,
}

/// Stride between rows in a buffer that Inductor allocates, in elements. Rows longer than 1024 elements start at
/// multiples of 128 bytes (`comprehensive_padding`, `padding_alignment_bytes`, `padding_stride_threshold` in
/// torch/_inductor/config.py).
fn padded_row(elements: u128, dtype: Dtype) -> u128 {
    if elements <= 1024 { elements } else { elements.next_multiple_of(u128::from(128 / dtype.bytes())) }
}

/// Size of a GPU in threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentThreads {
    /// Number of streaming multiprocessors.
    pub sm_count: u64,
    /// Resident threads per multiprocessor.
    pub threads_per_sm: u64,
}

/// Parts into which Inductor splits column sums over `rows` rows for `columns` results; 1 if it does not split.
///
/// Source: `reduction_split_factor` in torch/_inductor/choices.py (2.11), outer reductions.
fn outer_splits(rows: u64, columns: u64, gpu: ResidentThreads) -> u64 {
    let ResidentThreads { sm_count, threads_per_sm } = gpu;
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

/// Parts into which flash attention's forward without dropout splits the keys to fill the GPU; 1 if it does not split.
/// `n_heads` counts the heads of all sequences.
///
/// Source: `set_params_splitkv` and `num_splits_heuristic` in
/// aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (2.11).
pub(crate) fn flash_splits(n_heads: u64, tokens: u64, head_size: u64, sm_count: u64) -> u64 {
    const MAX_SPLITS: u64 = 128;
    let key_block = match head_size {
        0..=64 => 256,
        65..=128 => 128,
        _ => 64,
    };
    let key_blocks = tokens.div_ceil(key_block);
    // Two blocks per multiprocessor: a block has 128 threads.
    let slots = 2 * sm_count;
    let blocks = n_heads.saturating_mul(tokens.div_ceil(64));
    // PyTorch compares in single precision.
    if blocks as f32 >= 0.8 * slots as f32 {
        return 1;
    }
    // A number of splits that leaves as many blocks per split as the number before has no benefit.
    let is_eligible = |&splits: &u64| splits == 1 || key_blocks.div_ceil(splits) != key_blocks.div_ceil(splits - 1);
    let efficiency = |splits: u64| {
        let waves = (blocks * splits) as f32 / slots as f32;
        waves / waves.ceil()
    };
    let eligible = || (1..=MAX_SPLITS.min(slots).min(key_blocks)).filter(is_eligible);
    let best = eligible().map(efficiency).fold(0.0, f32::max);
    eligible().find(|&splits| f64::from(efficiency(splits)) >= 0.85 * f64::from(best)).unwrap_or(1)
}

/// Parts into which Inductor splits a full reduction.
fn inner_splits(rows: u64, gpu: ResidentThreads) -> u64 {
    let _ = gpu;
    if rows <= 8192 { 1 } else { rows.div_ceil(8192) }
}

/// The divisor of `n` nearest to `wanted`; of two equally near, the smaller.
fn nearest_divisor(n: u64, wanted: u64) -> u64 {
    let (mut below, mut above) = (wanted.clamp(1, n.max(1)), wanted.clamp(1, n.max(1)));
    // 1 and `n` divide `n`, so both directions have a divisor; relevant sizes have one nearby.
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

/// Maximum number of search steps; only divisors nearer than 50 matter.
const MAX_DIVISOR_STEPS: u32 = 64;

/// Number of chunks into which a chunked cross-entropy splits the tokens of a micro-batch.
pub const CROSS_ENTROPY_CHUNKS: u64 = 8;

/// Bytes of a buffer of settings or choices: a token and thirty candidates with their probabilities, rounded up to
/// WebGPU's buffer alignment.
pub const EXCHANGE_BYTES: u64 = 256;

/// Tokens per chunk of a fused linear cross-entropy.
///
/// Source: Liger-Kernel's `fused_linear_cross_entropy_forward`. The chunk's logits take about as much memory as the
/// activations; its size is rounded up to a power of two.
pub(crate) fn fused_chunk_tokens(tokens: u128, v: u128, c: u128) -> u128 {
    tokens.div_ceil(v.div_ceil(c.max(1)).max(1)).next_power_of_two().min(tokens)
}

/// Tokens whose logits the built-in trainer holds at a time: at most half of them, and enough to keep a GEMM busy.
fn trainer_chunk_tokens(tokens: u64) -> u64 {
    tokens.div_ceil(2).min(256)
}

/// Queries and keys per block of the built-in trainer's attention. The block of keys is a multiple of the block of
/// queries, so that no block of keys starts inside a block of queries.
pub const ATTENTION_BLOCK: [u64; 2] = [64, 256];

/// Floats of attention scratch per thread of the built-in trainer: two blocks of scores, dq, dk and dv, and one number
/// per token. A sequence has `t` tokens, a head `d` channels.
fn attention_scratch(t: u128, d: u128) -> u128 {
    let [q_block, k_block] = ATTENTION_BLOCK.map(|block| t.min(u128::from(block)));
    2 * q_block * k_block + 3 * t * d + t
}

impl Dims {
    /// Parts into which flash attention's forward splits the keys; 1 if it does not split.
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
            Dim::CublasLtWorkspace => u128::from(CUBLASLT_WORKSPACE_BYTES),
            Dim::EffWorkspace => u128::from(self.efficient_workspace_bytes),
            Dim::CudnnWorkspace => u128::from(self.cudnn_workspace_bytes),
            Dim::T128 => t.next_multiple_of(128),
            // `head_size_rounded` in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (2.11).
            Dim::DFlash => d.next_multiple_of(if d <= 128 { 32 } else { 64 }),
            Dim::SplitsBH => u128::from(self.flash_splits()) * b * h,
            Dim::MinIndicesV => v.min(b * t),
            Dim::Segments => b * t / 10 + v.min(b * t),
            // wpe has T rows, and its indices are T as well.
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

/// 32-bit words of a micro-batch's sorted tokens, for a vocabulary of `v`.
#[must_use]
pub fn token_words(tokens: u64, v: u64) -> u64 {
    tokens.saturating_add(tokens.min(v).saturating_mul(BUCKET_WORDS))
}
