//! THE table of tensors: every parameter, activation, gradient and workspace a training step stores, with its name,
//! shape, dtype, category and lifetime. Nothing else in the product states the size of a tensor.
//!
//! Shapes are slowest axis first. Names are nanoGPT's for parameters and llm.c's for activations.

use serde::{Deserialize, Serialize};

use super::GptConfig;
use crate::dtype::Dtype;

/// What a tensor is for; the colour it has in every chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Weights, their buffers, and what a checkpoint being resumed keeps.
    Parameters,
    /// Gradients of the weights, and what is on the way to become one.
    Gradients,
    /// AdamW's moments and step counts.
    OptimizerState,
    /// Autocast's copies of the weights in the training dtype.
    CastCache,
    /// What the blocks compute, and the gradients of that.
    Activations,
    /// Logits, log-probabilities, their gradients and the loss.
    LogitsAndLoss,
    /// Scratch memory of kernels.
    Workspace,
    /// Token indices and targets.
    Input,
}

impl Category {
    /// All, in the order in which charts stack them.
    pub const ALL: [Self; 8] = [
        Self::Parameters,
        Self::Gradients,
        Self::OptimizerState,
        Self::CastCache,
        Self::Activations,
        Self::LogitsAndLoss,
        Self::Workspace,
        Self::Input,
    ];

    /// The name the JSON contract uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::OptimizerState => "optimizer_state",
            Self::CastCache => "cast_cache",
            Self::Activations => "activations",
            Self::LogitsAndLoss => "logits_and_loss",
            Self::Workspace => "workspace",
            Self::Input => "input",
        }
    }
}

/// Why a tensor is alive as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// From the start of the run to its end.
    Run,
    /// From the first optimizer step to the end of the run.
    FromFirstStep,
    /// From backward until `zero_grad`.
    UntilZeroGrad,
    /// Autocast keeps it until the forward's end, autograd until its use in backward.
    CastCache,
    /// Computed in forward and saved because its backward needs it.
    SavedForBackward,
    /// A name of the forward function still holds it.
    ForwardLocal,
    /// A step on the way inside forward or backward.
    Intermediate,
    /// `logits` and `loss` of train.py keep the last iteration's values until they are assigned anew.
    NameInTrainPy,
    /// A kernel's scratch memory, given back at once.
    Scratch,
    /// The batch, until the next is fetched and its own backward has run.
    Batch,
}

/// A dimension of a shape, as a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dim {
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
    /// Flash backward: T rounded up to 128.
    T128,
    /// Flash backward: head size rounded up to 32.
    D32,
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
}

/// A dtype, as a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The training dtype, `dtype` in nanoGPT.
    Compute,
    Is(Dtype),
}

struct Row {
    name: &'static str,
    category: Category,
    kind: Kind,
    shape: &'static [Dim],
    lifetime: Lifetime,
}

macro_rules! tensor_table {
    ($($variant:ident $name:literal $category:ident $lifetime:ident $kind:ident [$($dim:ident),*];)*) => {
        /// A tensor of a training step, by its role; one per layer where the role belongs to a block.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[expect(missing_docs, reason = "each variant is documented by its row's name and lifetime")]
        pub enum Tensor { $($variant),* }

        impl Tensor {
            /// Every tensor, in the table's order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
        }

        static TABLE: &[Row] = &[$(Row {
            name: $name,
            category: Category::$category,
            kind: tensor_table!(@kind $kind),
            shape: &[$(Dim::$dim),*],
            lifetime: Lifetime::$lifetime,
        }),*];
    };
    (@kind compute) => { Kind::Compute };
    (@kind f32) => { Kind::Is(Dtype::Float32) };
    (@kind f64) => { Kind::Is(Dtype::Float64) };
    (@kind i64) => { Kind::Is(Dtype::Int64) };
    (@kind i32) => { Kind::Is(Dtype::Int32) };
    (@kind u64) => { Kind::Is(Dtype::Uint64) };
    (@kind u8) => { Kind::Is(Dtype::Uint8) };
    (@kind bool) => { Kind::Is(Dtype::Bool) };
}

tensor_table! {
    // Parameters, in the order of `named_parameters`; masks are the buffers of attention without a fused kernel.
    Wte "transformer.wte.weight" Parameters Run f32 [V, C];
    Wpe "transformer.wpe.weight" Parameters Run f32 [T, C];
    Ln1W "ln_1.weight" Parameters Run f32 [C];
    Ln1B "ln_1.bias" Parameters Run f32 [C];
    QkvW "attn.c_attn.weight" Parameters Run f32 [C3, C];
    QkvB "attn.c_attn.bias" Parameters Run f32 [C3];
    AttProjW "attn.c_proj.weight" Parameters Run f32 [C, C];
    AttProjB "attn.c_proj.bias" Parameters Run f32 [C];
    Mask "attn.bias (causal mask)" Parameters Run f32 [One, One, T, T];
    Ln2W "ln_2.weight" Parameters Run f32 [C];
    Ln2B "ln_2.bias" Parameters Run f32 [C];
    FcW "mlp.c_fc.weight" Parameters Run f32 [C4, C];
    FcB "mlp.c_fc.bias" Parameters Run f32 [C4];
    FcProjW "mlp.c_proj.weight" Parameters Run f32 [C, C4];
    FcProjB "mlp.c_proj.bias" Parameters Run f32 [C];
    LnfW "transformer.ln_f.weight" Parameters Run f32 [C];
    LnfB "transformer.ln_f.bias" Parameters Run f32 [C];
    // Batches and scalars of the loop.
    X "X (token indices)" Input Batch i64 [B, T];
    Y "Y (targets)" Input Batch i64 [B, T];
    Scalar "scalar" LogitsAndLoss Intermediate f32 [];
    Loss "loss" LogitsAndLoss NameInTrainPy f32 [];
    LossWeight "loss total_weight" LogitsAndLoss SavedForBackward f32 [];
    ScaledLoss "loss / gradient_accumulation_steps" LogitsAndLoss NameInTrainPy f32 [];
    Scaler "GradScaler scale" OptimizerState FromFirstStep f32 [];
    ScalerGrowth "GradScaler growth tracker" OptimizerState FromFirstStep i32 [];
    ScalarF64 "scalar (float64)" Gradients Intermediate f64 [];
    FoundInf "GradScaler found_inf" Gradients UntilZeroGrad f32 [];
    // Embeddings.
    Pos "pos" Activations SavedForBackward i64 [T];
    TokEmb "tok_emb" Activations ForwardLocal f32 [B, T, C];
    PosEmb "pos_emb" Activations ForwardLocal f32 [T, C];
    Encoded "encoded (residual stream)" Activations SavedForBackward f32 [B, T, C];
    EncodedDropped "encoded after dropout (residual stream)" Activations SavedForBackward f32 [B, T, C];
    EncodedMask "dropout mask of encoded" Activations SavedForBackward bool [B, T, C];
    // A block.
    Ln1 "ln1" Activations SavedForBackward f32 [B, T, C];
    Ln1Mean "ln1_mean" Activations SavedForBackward f32 [B, T, One];
    Ln1Rstd "ln1_rstd" Activations SavedForBackward f32 [B, T, One];
    Ln1Cast "ln1 (cast)" Activations SavedForBackward compute [B, T, C];
    Qkv "qkv" Activations SavedForBackward compute [BT, C3];
    Atty "atty" Activations SavedForBackward compute [B, H, T, D];
    AttLse "att logsumexp" Activations SavedForBackward f32 [B, H, T];
    AttLsePadded "att logsumexp" Activations SavedForBackward f32 [B, H, T32];
    AttLseNone "att logsumexp (empty)" Activations Intermediate f32 [B, H, Zero];
    AttRng "att rng_state" Activations SavedForBackward u64 [Two];
    AttRngUnused "att rng unused" Activations SavedForBackward u64 [];
    AttSeed "att philox seed" Activations SavedForBackward i64 [];
    AttOffset "att philox offset" Activations SavedForBackward i64 [];
    AttDebugMask "att debug mask (empty)" Activations Intermediate compute [Zero];
    QkvPadded "q, k or v padded for flash attention" Activations SavedForBackward compute [B, H, T, D8];
    AttyPadded "atty padded by flash attention" Activations SavedForBackward compute [B, H, T, D8];
    QClone "q (contiguous)" Activations SavedForBackward compute [B, H, T, D];
    KClone "k transposed (contiguous)" Activations SavedForBackward compute [B, H, D, T];
    VClone "v (contiguous)" Activations SavedForBackward compute [B, H, T, D];
    Preatt "preatt" Activations Intermediate compute [BH, T, T];
    PreattScaled "preatt scaled" Activations Intermediate compute [B, H, T, T];
    AttMask "att mask" Activations SavedForBackward bool [One, One, T, T];
    PreattMasked "preatt masked" Activations Intermediate compute [B, H, T, T];
    PreattF32 "preatt (float32)" Activations Intermediate f32 [B, H, T, T];
    Att "att" Activations SavedForBackward f32 [B, H, T, T];
    AttDropped "att after dropout" Activations ForwardLocal f32 [B, H, T, T];
    AttDropMask "dropout mask of att" Activations SavedForBackward bool [B, H, T, T];
    AttCast "att (cast)" Activations SavedForBackward compute [B, H, T, T];
    AttyHeads "atty by head" Activations Intermediate compute [BH, T, D];
    AttyRows "atty" Activations SavedForBackward compute [B, T, C];
    Attproj "attproj" Activations Intermediate compute [BT, C];
    AttprojDropped "attproj after dropout" Activations Intermediate compute [B, T, C];
    AttprojMask "dropout mask of attproj" Activations SavedForBackward bool [B, T, C];
    Residual2 "residual2 (residual stream)" Activations SavedForBackward f32 [B, T, C];
    Ln2 "ln2" Activations SavedForBackward f32 [B, T, C];
    Ln2Mean "ln2_mean" Activations SavedForBackward f32 [B, T, One];
    Ln2Rstd "ln2_rstd" Activations SavedForBackward f32 [B, T, One];
    Ln2Cast "ln2 (cast)" Activations SavedForBackward compute [B, T, C];
    Fch "fch" Activations SavedForBackward compute [BT, C4];
    FchGelu "fch_gelu" Activations SavedForBackward compute [B, T, C4];
    Fcproj "fcproj" Activations Intermediate compute [BT, C];
    FcprojDropped "fcproj after dropout" Activations Intermediate compute [B, T, C];
    FcprojMask "dropout mask of fcproj" Activations SavedForBackward bool [B, T, C];
    Residual3 "residual3 (residual stream)" Activations SavedForBackward f32 [B, T, C];
    Lnf "lnf" Activations SavedForBackward f32 [B, T, C];
    LnfMean "lnf_mean" Activations SavedForBackward f32 [B, T, One];
    LnfRstd "lnf_rstd" Activations SavedForBackward f32 [B, T, One];
    LnfCast "lnf (cast)" Activations SavedForBackward compute [B, T, C];
    // Autocast's copies.
    QkvBCast "attn.c_attn.bias (cast)" CastCache CastCache compute [C3];
    QkvWCast "attn.c_attn.weight (cast)" CastCache CastCache compute [C3, C];
    AttProjBCast "attn.c_proj.bias (cast)" CastCache CastCache compute [C];
    AttProjWCast "attn.c_proj.weight (cast)" CastCache CastCache compute [C, C];
    FcBCast "mlp.c_fc.bias (cast)" CastCache CastCache compute [C4];
    FcWCast "mlp.c_fc.weight (cast)" CastCache CastCache compute [C4, C];
    FcProjBCast "mlp.c_proj.bias (cast)" CastCache CastCache compute [C];
    FcProjWCast "mlp.c_proj.weight (cast)" CastCache CastCache compute [C, C4];
    WteCast "lm_head.weight (cast)" CastCache CastCache compute [V, C];
    // The loss.
    Logits "logits" LogitsAndLoss NameInTrainPy compute [BT, V];
    LogProbs "log_softmax(logits)" LogitsAndLoss SavedForBackward compute [BT, V];
    LogProbsF32 "log_softmax(logits) (float32)" LogitsAndLoss SavedForBackward f32 [BT, V];
    DlogProbsF32 "gradient of log_softmax (float32)" LogitsAndLoss Intermediate f32 [BT, V];
    DlogProbs "gradient of log_softmax" LogitsAndLoss Intermediate compute [BT, V];
    Dlogits "dlogits" LogitsAndLoss Intermediate compute [BT, V];
    // Gradients of activations.
    DlnfCast "dlnf (cast)" Activations Intermediate compute [BT, C];
    Dlnf "dlnf" Activations Intermediate f32 [B, T, C];
    Dresidual "gradient of the residual stream" Activations Intermediate f32 [B, T, C];
    DlnInput "gradient through the layer norm" Activations Intermediate f32 [B, T, C];
    DresidualCast "gradient of the residual stream (cast)" Activations Intermediate compute [B, T, C];
    Ddropped "gradient before dropout" Activations Intermediate compute [B, T, C];
    DfchGelu "dfch_gelu" Activations Intermediate compute [BT, C4];
    Dfch "dfch" Activations Intermediate compute [B, T, C4];
    Dln2Cast "dln2 (cast)" Activations Intermediate compute [BT, C];
    Dln2 "dln2" Activations Intermediate f32 [B, T, C];
    Datty "datty" Activations Intermediate compute [BT, C];
    DattyClone "datty by head (contiguous)" Activations Intermediate compute [B, H, T, D];
    Dq "dq" Activations Intermediate compute [B, H, T, D];
    Dk "dk" Activations Intermediate compute [B, H, T, D];
    Dv "dv" Activations Intermediate compute [B, H, T, D];
    DattyPadded "datty (padded)" Activations Intermediate compute [B, H, T, D8];
    DqkvPadded "dq, dk or dv (padded)" Activations Intermediate compute [B, H, T, D8];
    DvHeads "dv by head" Activations Intermediate compute [BH, T, D];
    DattCast "datt (cast)" Activations Intermediate compute [BH, T, T];
    DattF32 "datt" Activations Intermediate f32 [B, H, T, T];
    DattDropped "datt before dropout" Activations Intermediate f32 [B, H, T, T];
    Dpreatt "dpreatt (float32)" Activations Intermediate f32 [B, H, T, T];
    DpreattCast "dpreatt (cast)" Activations Intermediate compute [B, H, T, T];
    DpreattMasked "dpreatt masked" Activations Intermediate compute [B, H, T, T];
    DpreattScaled "dpreatt scaled" Activations Intermediate compute [B, H, T, T];
    DkHeads "dk by head" Activations Intermediate compute [BH, D, T];
    DqHeads "dq by head" Activations Intermediate compute [BH, T, D];
    DkRows "dk (contiguous)" Activations Intermediate compute [B, T, H, D];
    Dqkv "dqkv" Activations Intermediate compute [B, T, C3];
    Dln1Cast "dln1 (cast)" Activations Intermediate compute [BT, C];
    Dln1 "dln1" Activations Intermediate f32 [B, T, C];
    DencodedDropped "gradient before dropout of encoded" Activations Intermediate f32 [B, T, C];
    DposSum "gradient summed over the batch" Activations Intermediate f32 [One, T, C];
    // Gradients of parameters, and their half-precision forms on the way.
    DlmHeadCast "dlm_head (cast)" Gradients Intermediate compute [V, C];
    DlmHead "dlm_head" Gradients Intermediate f32 [V, C];
    DwteEmbedding "dwte of the embedding" Gradients Intermediate f32 [V, C];
    Dwte "dwte" Gradients UntilZeroGrad f32 [V, C];
    Dwpe "dwpe" Gradients UntilZeroGrad f32 [T, C];
    DvecC "gradient of a layer norm or bias" Gradients UntilZeroGrad f32 [C];
    DvecC3 "gradient of c_attn.bias" Gradients UntilZeroGrad f32 [C3];
    DvecC4 "gradient of c_fc.bias" Gradients UntilZeroGrad f32 [C4];
    DvecCCast "gradient of a bias (cast)" Gradients Intermediate compute [One, C];
    DvecC3Cast "gradient of c_attn.bias (cast)" Gradients Intermediate compute [One, C3];
    DvecC4Cast "gradient of c_fc.bias (cast)" Gradients Intermediate compute [One, C4];
    DqkvW "dqkvw" Gradients UntilZeroGrad f32 [C3, C];
    DqkvWCast "dqkvw (cast)" Gradients Intermediate compute [C3, C];
    DattProjW "dattprojw" Gradients UntilZeroGrad f32 [C, C];
    DattProjWCast "dattprojw (cast)" Gradients Intermediate compute [C, C];
    DfcW "dfcw" Gradients UntilZeroGrad f32 [C4, C];
    DfcWCast "dfcw (cast)" Gradients Intermediate compute [C4, C];
    DfcProjW "dfcprojw" Gradients UntilZeroGrad f32 [C, C4];
    DfcProjWCast "dfcprojw (cast)" Gradients Intermediate compute [C, C4];
    // Clipping and the optimizer.
    GradNorm "norm of a gradient" Gradients Intermediate f32 [];
    GradNorms "norms of all gradients" Gradients Intermediate f32 [NParams];
    StepCount "step" OptimizerState FromFirstStep f32 [];
    // Scratch.
    CublasWorkspace "cuBLAS workspace" Workspace Run u8 [CublasWorkspace];
    FlashSoftmaxD "flash attention backward softmax_d" Workspace Scratch f32 [B, H, T128];
    FlashDqAccum "flash attention backward dq accumulator" Workspace Scratch f32 [B, H, T128, D32];
    CudnnDqAccum "cuDNN attention backward dq accumulator" Workspace Scratch f32 [B, H, T, D];
    EmbIndices "embedding backward sorted indices" Workspace Scratch i64 [BT];
    EmbCounts "embedding backward segment offsets" Workspace Scratch i64 [MinIndicesV];
    EmbScalar "embedding backward count" Workspace Scratch i64 [];
    EmbPartialOffsets "embedding backward partial offsets" Workspace Scratch i64 [Segments];
    EmbPartialSums "embedding backward partial sums" Workspace Scratch f32 [Segments, C];
    PosIndices "position embedding backward sorted indices" Workspace Scratch i64 [T];
    PosCounts "position embedding backward segment offsets" Workspace Scratch i64 [MinIndicesT];
    PosPartialOffsets "position embedding backward partial offsets" Workspace Scratch i64 [SegmentsT];
    PosPartialSums "position embedding backward partial sums" Workspace Scratch f32 [SegmentsT, C];
    // Compiled code: what Inductor's kernels write beyond the rows above.
    Xhat1 "ln1 normalized" Activations SavedForBackward f32 [B, T, C];
    Xhat2 "ln2 normalized" Activations SavedForBackward f32 [B, T, C];
    XhatF "lnf normalized" Activations SavedForBackward f32 [B, T, C];
    Ln1Out "ln1" Activations SavedForBackward compute [B, T, C];
    Ln2Out "ln2" Activations SavedForBackward compute [B, T, C];
    LnfOut "lnf" Activations SavedForBackward compute [B, T, C];
    Residual "residual stream" Activations Intermediate f32 [B, T, C];
    DropoutSeeds "dropout seeds" Activations Intermediate i64 [NDropouts];
    AttMax "row maxima of preatt" Activations SavedForBackward f32 [B, H, T];
    AttSum "row sums of preatt" Activations SavedForBackward f32 [B, H, T];
    LogitsMax "row maxima of logits" LogitsAndLoss SavedForBackward f32 [BT];
    LogitsLogSum "row log-sums of logits" LogitsAndLoss SavedForBackward f32 [BT];
    LossCount "targets counted" LogitsAndLoss SavedForBackward f32 [];
    LossPartials "partial sums of the loss" LogitsAndLoss Intermediate f32 [LossSplits];
    DlogitsPadded "dlogits" LogitsAndLoss Intermediate compute [BT, VPadded];
    ZeroTangent "zero tangent of logits" LogitsAndLoss Intermediate compute [BT, V];
    NormPartials "layer norm gradient partial sums" Gradients Intermediate f32 [C, NormSplits];
    QkvBiasPartials "c_attn.bias gradient partial sums" Gradients Intermediate f32 [C3, QkvBiasSplits];
    FcBiasPartials "c_fc.bias gradient partial sums" Gradients Intermediate f32 [C4, FcBiasSplits];
    // Data parallelism.
    DdpBuckets "DDP gradient buckets" Gradients Run f32 [NElements];
    // A chunked cross-entropy: the same tensors for a piece of the tokens.
    ChunkLogits "logits of a chunk" LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkLogProbs "log_softmax of a chunk" LogitsAndLoss SavedForBackward compute [ChunkTokens, V];
    ChunkLogProbsF32 "log_softmax of a chunk (float32)" LogitsAndLoss SavedForBackward f32 [ChunkTokens, V];
    ChunkDlogProbsF32 "gradient of log_softmax of a chunk (float32)" LogitsAndLoss Intermediate f32 [ChunkTokens, V];
    ChunkDlogProbs "gradient of log_softmax of a chunk" LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkDlogits "dlogits of a chunk" LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkDlnf "dlnf of a chunk" Activations Intermediate compute [ChunkTokens, C];
    // A fused linear and cross-entropy kernel: its forward makes the gradients.
    FusedLogits "logits of a fused chunk" LogitsAndLoss Intermediate compute [FusedTokens, V];
    FusedLosses "losses a token" LogitsAndLoss Intermediate f32 [BT];
}

/// The largest tensor a plan is made for, 32 TiB: above it sums over a whole run could leave `u64`.
pub const MAX_TENSOR_BYTES: u64 = 1 << 45;

/// Every block of PyTorch's caching allocator is a multiple of this (c10 `kMinBlockSize`).
pub const BLOCK_BYTES: u64 = 512;

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
    /// Tensors among the parameters.
    pub n_parameter_tensors: u64,
    /// Elements of all parameters.
    pub n_parameters: u64,
    /// Blocks.
    pub n_layer: u64,
    /// The card, as far as compiled reductions depend on it.
    pub resident_threads: ResidentThreads,
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
        if n % below == 0 {
            return below;
        }
        if n % above == 0 {
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

/// Tokens that a fused linear cross-entropy takes at a time.
///
/// Source: Liger-Kernel's `fused_linear_cross_entropy_forward`: the chunk is made so small that its logits take about
/// as much as the activations, rounded up to a power of two.
fn fused_chunk_tokens(tokens: u128, v: u128, c: u128) -> u128 {
    tokens.div_ceil(v.div_ceil(c.max(1)).max(1)).next_power_of_two().min(tokens)
}

impl Dims {
    fn get(&self, dim: Dim) -> u128 {
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
            Dim::T128 => t.next_multiple_of(128),
            Dim::D32 => d.next_multiple_of(32),
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
            Dim::FusedTokens => fused_chunk_tokens(b * t, v, c),
        }
    }
}

/// The shape of a tensor, slowest axis first; at most four axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    dims: [u64; 4],
    rank: u8,
}

impl Shape {
    /// The axes.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }
}

impl Tensor {
    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The name a person knows it by; a block's tensor goes without the block's number.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The full name, with nanoGPT's prefix where it belongs to block `layer`.
    #[must_use]
    pub fn full_name(self, layer: Option<u64>) -> String {
        match layer {
            Some(layer) => format!("transformer.h.{layer}.{}", self.name()),
            None => self.name().to_owned(),
        }
    }

    /// What it is for.
    #[must_use]
    pub fn category(self) -> Category {
        self.row().category
    }

    /// Why it is alive as long as it is.
    #[must_use]
    pub fn lifetime(self) -> Lifetime {
        self.row().lifetime
    }

    /// Its element type under that training dtype.
    #[must_use]
    pub fn dtype(self, compute: Dtype) -> Dtype {
        match self.row().kind {
            Kind::Compute => compute,
            Kind::Is(dtype) => dtype,
        }
    }

    /// Its shape in that run.
    #[must_use]
    pub fn shape(self, dims: &Dims) -> Shape {
        let symbols = self.row().shape;
        let mut shape = Shape { dims: [1; 4], rank: u8::try_from(symbols.len()).unwrap_or(4) };
        for (axis, &dim) in shape.dims.iter_mut().zip(symbols) {
            *axis = u64::try_from(dims.get(dim)).unwrap_or(u64::MAX);
        }
        shape
    }
}

/// What a stored tensor is to its row of the table: the tensor itself, or the optimizer's companion of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// The tensor.
    Value,
    /// AdamW's first moment of a parameter, float32.
    ExpAvg,
    /// AdamW's second moment of a parameter, float32.
    ExpAvgSq,
    /// The first moment in one byte an element.
    State1,
    /// The second moment in one byte an element.
    State2,
    /// The float32 scale of each block of a one-byte moment.
    Absmax,
    /// The square root of the second moment that AdamW without `fused` holds while it steps.
    Denominator,
    /// The copy of a parameter that a resumed checkpoint's `state_dict` keeps.
    Checkpoint,
}

impl Role {
    const ALL: [Self; 8] = [
        Self::Value,
        Self::ExpAvg,
        Self::ExpAvgSq,
        Self::State1,
        Self::State2,
        Self::Absmax,
        Self::Denominator,
        Self::Checkpoint,
    ];
}

/// Elements that share a scale in bitsandbytes' block-wise quantisation.
const QUANTISATION_BLOCK: u128 = 256;

/// A tensor or a companion of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// The row of the table.
    pub tensor: Tensor,
    /// What it is to that row.
    pub role: Role,
}

impl From<Tensor> for Stored {
    fn from(tensor: Tensor) -> Self {
        Self { tensor, role: Role::Value }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the table has a few hundred rows")]
const N_TENSORS: u16 = Tensor::ALL.len() as u16;

impl Stored {
    /// One more than the largest [`Self::code`].
    pub const N_CODES: usize = Role::ALL.len() * Tensor::ALL.len();

    /// A number for events; [`Self::from_code`] reads it.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.role as u16 * N_TENSORS + self.tensor as u16
    }

    /// What [`Self::code`] wrote.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        let role = *Role::ALL.get(usize::from(code / N_TENSORS))?;
        let tensor = *Tensor::ALL.get(usize::from(code % N_TENSORS))?;
        Some(Self { tensor, role })
    }

    /// What it is for.
    #[must_use]
    pub fn category(self) -> Category {
        match self.role {
            Role::Value => self.tensor.category(),
            Role::Checkpoint => Category::Parameters,
            _ => Category::OptimizerState,
        }
    }

    /// Why it is alive as long as it is.
    #[must_use]
    pub fn lifetime(self) -> Lifetime {
        match self.role {
            Role::Value => self.tensor.lifetime(),
            Role::Checkpoint => Lifetime::Run,
            Role::Denominator => Lifetime::Intermediate,
            _ => Lifetime::FromFirstStep,
        }
    }

    /// Its element type.
    #[must_use]
    pub fn dtype(self, compute: Dtype) -> Dtype {
        match self.role {
            Role::Value => self.tensor.dtype(compute),
            Role::State1 | Role::State2 => Dtype::Uint8,
            _ => Dtype::Float32,
        }
    }

    /// Its shape.
    #[must_use]
    pub fn shape(self, dims: &Dims) -> Shape {
        match self.role {
            Role::Absmax => {
                let n = u64::try_from(self.elements(dims)).unwrap_or(u64::MAX);
                Shape { dims: [n, 1, 1, 1], rank: 1 }
            }
            _ => self.tensor.shape(dims),
        }
    }

    /// The name a person knows it by.
    #[must_use]
    pub fn name(self, layer: Option<u64>) -> String {
        let name = self.tensor.full_name(layer);
        match self.role {
            Role::Value => name,
            Role::ExpAvg => format!("exp_avg of {name}"),
            Role::ExpAvgSq => format!("exp_avg_sq of {name}"),
            Role::State1 => format!("8-bit exp_avg of {name}"),
            Role::State2 => format!("8-bit exp_avg_sq of {name}"),
            Role::Absmax => format!("absmax of {name}"),
            Role::Denominator => format!("denominator of {name}"),
            Role::Checkpoint => format!("state_dict's {name}"),
        }
    }

    fn elements(self, dims: &Dims) -> u128 {
        let elements = self.tensor.row().shape.iter().fold(1_u128, |n, &dim| n.saturating_mul(dims.get(dim)));
        if self.role == Role::Absmax { elements.div_ceil(QUANTISATION_BLOCK) } else { elements }
    }

    /// Bytes of its elements, without the allocator's rounding; `None` where they leave `u64`.
    #[must_use]
    pub fn bytes(self, dims: &Dims) -> Option<u64> {
        let bytes = u128::from(self.dtype(dims.compute).bytes());
        u64::try_from(bytes.checked_mul(self.elements(dims))?).ok()
    }
}

/// The bytes every tensor of the table takes in the allocator: rounded up to 512, and at least 512.
#[derive(Clone, Debug)]
pub struct TensorBytes {
    rounded: Vec<u64>,
    /// Bytes of the one-byte moment and its scales, by row; only parameters' rows are ever asked for.
    elements: Vec<u64>,
}

/// A tensor of the run is larger than any plan is made for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} would take more than 32 TiB; no plan is made for tensors of that size")]
pub struct TensorTooLarge {
    /// The tensor's name.
    pub name: &'static str,
}

impl TensorBytes {
    /// Evaluates the table for one run; `used` says which rows the run can store at all.
    ///
    /// # Errors
    /// A used tensor is above [`MAX_TENSOR_BYTES`].
    pub fn new(dims: &Dims, used: impl Fn(Tensor) -> bool) -> Result<Self, TensorTooLarge> {
        let mut rounded = Vec::with_capacity(Tensor::ALL.len());
        let mut elements = Vec::with_capacity(Tensor::ALL.len());
        for &tensor in Tensor::ALL {
            let stored = Stored::from(tensor);
            rounded.push(match stored.bytes(dims) {
                Some(bytes) if bytes <= MAX_TENSOR_BYTES => round_up(bytes),
                _ if used(tensor) => return Err(TensorTooLarge { name: tensor.name() }),
                _ => 0,
            });
            elements.push(u64::try_from(stored.elements(dims)).unwrap_or(0).min(MAX_TENSOR_BYTES));
        }
        Ok(Self { rounded, elements })
    }

    /// Bytes of a tensor in the allocator.
    #[must_use]
    pub fn of(&self, stored: Stored) -> u64 {
        let row = stored.tensor as usize;
        match stored.role {
            Role::State1 | Role::State2 => round_up(self.elements[row]),
            Role::Absmax => round_up(4 * self.elements[row].div_ceil(256)),
            _ => self.rounded[row],
        }
    }

    /// Elements of a tensor.
    #[must_use]
    pub fn elements(&self, tensor: Tensor) -> u64 {
        self.elements[tensor as usize]
    }
}

fn round_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES)
}

/// One parameter tensor of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its row of the table.
    pub tensor: Tensor,
    /// Its gradient's row.
    pub gradient: Tensor,
    /// The block it belongs to.
    pub layer: Option<u64>,
    /// Whether AdamW decays it: matrices are, vectors are not (nanoGPT's `configure_optimizers`).
    pub decayed: bool,
}

/// Every parameter in the order of PyTorch's `named_parameters`; the tied `lm_head.weight` is `wte`.
#[must_use]
pub fn parameters(config: &GptConfig) -> Vec<Parameter> {
    let bias = config.bias();
    let matrix = |tensor, gradient, layer| Parameter { tensor, gradient, layer, decayed: true };
    let vector = |tensor, gradient, layer| Parameter { tensor, gradient, layer, decayed: false };
    let mut all = vec![matrix(Tensor::Wte, Tensor::Dwte, None), matrix(Tensor::Wpe, Tensor::Dwpe, None)];
    for layer in (0..config.n_layer()).map(Some) {
        let block = [
            vector(Tensor::Ln1W, Tensor::DvecC, layer),
            vector(Tensor::Ln1B, Tensor::DvecC, layer),
            matrix(Tensor::QkvW, Tensor::DqkvW, layer),
            vector(Tensor::QkvB, Tensor::DvecC3, layer),
            matrix(Tensor::AttProjW, Tensor::DattProjW, layer),
            vector(Tensor::AttProjB, Tensor::DvecC, layer),
            vector(Tensor::Ln2W, Tensor::DvecC, layer),
            vector(Tensor::Ln2B, Tensor::DvecC, layer),
            matrix(Tensor::FcW, Tensor::DfcW, layer),
            vector(Tensor::FcB, Tensor::DvecC4, layer),
            matrix(Tensor::FcProjW, Tensor::DfcProjW, layer),
            vector(Tensor::FcProjB, Tensor::DvecC, layer),
        ];
        all.extend(block.into_iter().filter(|p| bias || !is_bias(p.tensor)));
    }
    all.push(vector(Tensor::LnfW, Tensor::DvecC, None));
    if bias {
        all.push(vector(Tensor::LnfB, Tensor::DvecC, None));
    }
    all
}

const fn is_bias(tensor: Tensor) -> bool {
    matches!(
        tensor,
        Tensor::Ln1B | Tensor::QkvB | Tensor::AttProjB | Tensor::Ln2B | Tensor::FcB | Tensor::FcProjB | Tensor::LnfB
    )
}
