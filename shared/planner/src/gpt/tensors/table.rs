//! The tensor table: every row with its name, category, lifetime, dtype and shape.

use super::{Category, Lifetime, dims::Dim};
use crate::dtype::Dtype;

/// A dtype, as a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The training dtype, `dtype` in nanoGPT.
    Compute,
    Is(Dtype),
}

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) category: Category,
    pub(super) kind: Kind,
    pub(super) shape: &'static [Dim],
    pub(super) lifetime: Lifetime,
}

macro_rules! tensor_table {
    ($($variant:ident $name:literal $category:ident $lifetime:ident $kind:ident [$($dim:ident),*];)*) => {
        /// A tensor of a training step, by its role; one per layer if the role belongs to a block.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[expect(missing_docs, reason = "each variant is documented by its row's name and lifetime")]
        pub enum Tensor { $($variant),* }

        impl Tensor {
            /// Every tensor, in the table's order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
        }

        pub(super) static TABLE: &[Row] = &[$(Row {
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
    // Batches and scalars of the training loop.
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
    WideQkv "q, k or v (float32)" Activations Intermediate f32 [B, H, T, D];
    WideOperand "q, k or v (float32, contiguous)" Activations SavedForBackward f32 [B, H, T, D];
    CausalMask "causal mask" Activations Intermediate bool [T, T];
    CausalBias "causal mask (float32)" Activations Intermediate f32 [T, T];
    AttHidden "masked entries of preatt" Activations Intermediate bool [B, H, T, T];
    AttHiddenRows "masked rows of preatt" Activations Intermediate bool [B, H, T, One];
    WideAtty "atty by head (float32)" Activations Intermediate f32 [BH, T, D];
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
    WideDatty "datty by head (float32)" Activations Intermediate f32 [B, H, T, D];
    WideDqkv "dq, dk or dv (float32)" Activations Intermediate f32 [BH, T, D];
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
    // Gradients of parameters, and their intermediate half-precision forms.
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
    // Scratch memory.
    CublasWorkspace "cuBLAS workspace" Workspace Run u8 [CublasWorkspace];
    FlashSoftmaxD "flash attention backward softmax_d" Workspace Scratch f32 [B, H, T128];
    FlashDqAccum "flash attention backward dq accumulator" Workspace Scratch f32 [B, H, T128, DFlash];
    FlashLseSplits "flash attention logsumexp by split" Workspace Scratch f32 [SplitsBH, T];
    FlashOutSplits "flash attention output by split" Workspace Scratch f32 [SplitsBH, T, DFlash];
    EffCast "memory-efficient attention backward operand (float32)" Workspace Scratch f32 [B, T, H, D];
    EffProducts "memory-efficient attention backward products" Workspace Scratch f32 [B, T, H, D];
    EffRowSums "memory-efficient attention backward row sums" Workspace Scratch f32 [B, T, H];
    EffDelta "memory-efficient attention backward delta" Workspace Scratch f32 [B, H, T];
    EffWorkspace "memory-efficient attention backward workspace" Workspace Scratch u8 [EffWorkspace];
    CudnnDqAccum "cuDNN attention backward dq accumulator" Workspace Scratch f32 [B, H, T, D];
    CudnnWorkspace "cuDNN attention workspace" Workspace Scratch u8 [CudnnWorkspace];
    EmbIndices "embedding backward sorted indices" Workspace Scratch i64 [BT];
    EmbCounts "embedding backward segment offsets" Workspace Scratch i64 [MinIndicesV];
    EmbScalar "embedding backward count" Workspace Scratch i64 [];
    EmbPartialOffsets "embedding backward partial offsets" Workspace Scratch i64 [Segments];
    EmbPartialSums "embedding backward partial sums" Workspace Scratch f32 [Segments, C];
    PosIndices "position embedding backward sorted indices" Workspace Scratch i64 [T];
    PosCounts "position embedding backward segment offsets" Workspace Scratch i64 [MinIndicesT];
    PosPartialOffsets "position embedding backward partial offsets" Workspace Scratch i64 [SegmentsT];
    PosPartialSums "position embedding backward partial sums" Workspace Scratch f32 [SegmentsT, C];
    // Compiled code: tensors of Inductor's kernels beyond the rows above.
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
    ZeroTangent "zero gradient of logits" LogitsAndLoss Intermediate compute [BT, V];
    NormPartials "layer norm gradient partial sums" Gradients Intermediate f32 [C, NormSplits];
    QkvBiasPartials "c_attn.bias gradient partial sums" Gradients Intermediate f32 [C3, QkvBiasSplits];
    FcBiasPartials "c_fc.bias gradient partial sums" Gradients Intermediate f32 [C4, FcBiasSplits];
    // Data parallelism.
    DdpBuckets "DDP gradient buckets" Gradients Run f32 [NElements];
    // Chunked cross-entropy: the same tensors for one chunk of tokens.
    ChunkLogits "logits of a chunk" LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkLogProbs "log_softmax of a chunk" LogitsAndLoss SavedForBackward compute [ChunkTokens, V];
    ChunkLogProbsF32 "log_softmax of a chunk (float32)" LogitsAndLoss SavedForBackward f32 [ChunkTokens, V];
    ChunkDlogProbsF32 "gradient of log_softmax of a chunk (float32)" LogitsAndLoss Intermediate f32 [ChunkTokens, V];
    ChunkDlogProbs "gradient of log_softmax of a chunk" LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkDlogits "dlogits of a chunk" LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkDlnf "dlnf of a chunk" Activations Intermediate compute [ChunkTokens, C];
    // Fused linear cross-entropy kernel: its forward computes the gradients.
    FusedLogits "logits of a fused chunk" LogitsAndLoss Intermediate compute [FusedTokens, V];
    FusedLosses "losses a token" LogitsAndLoss Intermediate f32 [BT];
    // Headroom's own engines.
    Tokens "tokens" Input Run i32 [BT];
    TrainerLogits "logits of a chunk" LogitsAndLoss Scratch f32 [TrainerTokens, V];
    AttScratch "attention blocks of each thread" Workspace Scratch f32 [Threads, AttScratch];
    KvCache "k and v cache" Activations Run f32 [B, H, T, D];
    AttLast "att of the last token" Activations Run f32 [B, H, T];
    TrainerParts "parts of a sum" Workspace Scratch f32 [TrainerParts];
    TokenOrder "rows by token" Input Batch i32 [TokenOrder];
    OptimizerTable "tensors of the optimizer" Workspace Run u64 [NParams, OptimizerTable];
    Exchange "settings and choices" Workspace Run u8 [Exchange];
}
