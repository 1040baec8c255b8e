//! The tensor table: every row with its name, module, category, lifetime, dtype and shape.

use super::{Category, Lifetime, dims::Dim, module::Module};
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
    pub(super) module: Module,
    pub(super) category: Category,
    pub(super) kind: Kind,
    pub(super) shape: &'static [Dim],
    pub(super) lifetime: Lifetime,
}

macro_rules! tensor_table {
    ($($variant:ident $name:literal $module:ident $category:ident $lifetime:ident $kind:ident [$($dim:ident),*];)*) => {
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
            module: Module::$module,
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
    Wte "transformer.wte.weight" Wte Parameters Run f32 [V, C];
    Wpe "transformer.wpe.weight" Wpe Parameters Run f32 [T, C];
    Ln1W "ln_1.weight" Ln1 Parameters Run f32 [C];
    Ln1B "ln_1.bias" Ln1 Parameters Run f32 [C];
    QkvW "attn.c_attn.weight" Attn Parameters Run f32 [C3, C];
    QkvB "attn.c_attn.bias" Attn Parameters Run f32 [C3];
    AttProjW "attn.c_proj.weight" Attn Parameters Run f32 [C, C];
    AttProjB "attn.c_proj.bias" Attn Parameters Run f32 [C];
    Mask "attn.bias (causal mask)" Attn Parameters Run f32 [One, One, T, T];
    Ln2W "ln_2.weight" Ln2 Parameters Run f32 [C];
    Ln2B "ln_2.bias" Ln2 Parameters Run f32 [C];
    FcW "mlp.c_fc.weight" Mlp Parameters Run f32 [C4, C];
    FcB "mlp.c_fc.bias" Mlp Parameters Run f32 [C4];
    FcProjW "mlp.c_proj.weight" Mlp Parameters Run f32 [C, C4];
    FcProjB "mlp.c_proj.bias" Mlp Parameters Run f32 [C];
    LnfW "transformer.ln_f.weight" LnF Parameters Run f32 [C];
    LnfB "transformer.ln_f.bias" LnF Parameters Run f32 [C];
    // Batches and scalars of the training loop.
    X "X (token indices)" TrainPy Input Batch i64 [B, T];
    Y "Y (targets)" TrainPy Input Batch i64 [B, T];
    Scalar "scalar" TrainPy LogitsAndLoss Intermediate f32 [];
    Loss "loss" Loss LogitsAndLoss NameInTrainPy f32 [];
    LossWeight "loss total_weight" Loss LogitsAndLoss SavedForBackward f32 [];
    ScaledLoss "loss / gradient_accumulation_steps" Loss LogitsAndLoss NameInTrainPy f32 [];
    Scaler "GradScaler scale" Optimizer OptimizerState FromFirstStep f32 [];
    ScalerGrowth "GradScaler growth tracker" Optimizer OptimizerState FromFirstStep i32 [];
    ScalarF64 "scalar (float64)" Optimizer Gradients Intermediate f64 [];
    FoundInf "GradScaler found_inf" Optimizer Gradients UntilZeroGrad f32 [];
    // Embeddings.
    Pos "pos" Transformer Activations SavedForBackward i64 [T];
    TokEmb "tok_emb" Wte Activations ForwardLocal f32 [B, T, C];
    PosEmb "pos_emb" Wpe Activations ForwardLocal f32 [T, C];
    Encoded "encoded (residual stream)" Transformer Activations SavedForBackward f32 [B, T, C];
    EncodedDropped "encoded after dropout (residual stream)" Drop Activations SavedForBackward f32 [B, T, C];
    EncodedMask "dropout mask of encoded" Drop Activations SavedForBackward bool [B, T, C];
    // A block.
    Ln1 "ln1" Ln1 Activations SavedForBackward f32 [B, T, C];
    Ln1Mean "ln1_mean" Ln1 Activations SavedForBackward f32 [B, T, One];
    Ln1Rstd "ln1_rstd" Ln1 Activations SavedForBackward f32 [B, T, One];
    Ln1Cast "ln1 (cast)" Ln1 Activations SavedForBackward compute [B, T, C];
    Qkv "qkv" Attn Activations SavedForBackward compute [BT, C3];
    Atty "atty" Attn Activations SavedForBackward compute [B, H, T, D];
    AttLse "att logsumexp" Attn Activations SavedForBackward f32 [B, H, T];
    AttLsePadded "att logsumexp" Attn Activations SavedForBackward f32 [B, H, T32];
    AttLseNone "att logsumexp (empty)" Attn Activations Intermediate f32 [B, H, Zero];
    AttRng "att rng_state" Attn Activations SavedForBackward u64 [Two];
    AttRngUnused "att rng unused" Attn Activations SavedForBackward u64 [];
    AttSeed "att philox seed" Attn Activations SavedForBackward i64 [];
    AttOffset "att philox offset" Attn Activations SavedForBackward i64 [];
    AttDebugMask "att debug mask (empty)" Attn Activations Intermediate compute [Zero];
    QkvPadded "q, k or v padded for flash attention" Attn Activations SavedForBackward compute [B, H, T, D8];
    AttyPadded "atty padded by flash attention" Attn Activations SavedForBackward compute [B, H, T, D8];
    QClone "q (contiguous)" Attn Activations SavedForBackward compute [B, H, T, D];
    KClone "k transposed (contiguous)" Attn Activations SavedForBackward compute [B, H, D, T];
    VClone "v (contiguous)" Attn Activations SavedForBackward compute [B, H, T, D];
    Preatt "preatt" Attn Activations Intermediate compute [BH, T, T];
    PreattScaled "preatt scaled" Attn Activations Intermediate compute [B, H, T, T];
    AttMask "att mask" Attn Activations SavedForBackward bool [One, One, T, T];
    PreattMasked "preatt masked" Attn Activations Intermediate compute [B, H, T, T];
    PreattF32 "preatt (float32)" Attn Activations Intermediate f32 [B, H, T, T];
    Att "att" Attn Activations SavedForBackward f32 [B, H, T, T];
    AttDropped "att after dropout" Attn Activations ForwardLocal f32 [B, H, T, T];
    AttDropMask "dropout mask of att" Attn Activations SavedForBackward bool [B, H, T, T];
    AttCast "att (cast)" Attn Activations SavedForBackward compute [B, H, T, T];
    WideQkv "q, k or v (float32)" Attn Activations Intermediate f32 [B, H, T, D];
    WideOperand "q, k or v (float32, contiguous)" Attn Activations SavedForBackward f32 [B, H, T, D];
    CausalMask "causal mask" Attn Activations Intermediate bool [T, T];
    CausalBias "causal mask (float32)" Attn Activations Intermediate f32 [T, T];
    AttHidden "masked entries of preatt" Attn Activations Intermediate bool [B, H, T, T];
    AttHiddenRows "masked rows of preatt" Attn Activations Intermediate bool [B, H, T, One];
    WideAtty "atty by head (float32)" Attn Activations Intermediate f32 [BH, T, D];
    AttyHeads "atty by head" Attn Activations Intermediate compute [BH, T, D];
    AttyRows "atty" Attn Activations SavedForBackward compute [B, T, C];
    Attproj "attproj" Attn Activations Intermediate compute [BT, C];
    AttprojDropped "attproj after dropout" Attn Activations Intermediate compute [B, T, C];
    AttprojMask "dropout mask of attproj" Attn Activations SavedForBackward bool [B, T, C];
    Residual2 "residual2 (residual stream)" Block Activations SavedForBackward f32 [B, T, C];
    Ln2 "ln2" Ln2 Activations SavedForBackward f32 [B, T, C];
    Ln2Mean "ln2_mean" Ln2 Activations SavedForBackward f32 [B, T, One];
    Ln2Rstd "ln2_rstd" Ln2 Activations SavedForBackward f32 [B, T, One];
    Ln2Cast "ln2 (cast)" Ln2 Activations SavedForBackward compute [B, T, C];
    Fch "fch" Mlp Activations SavedForBackward compute [BT, C4];
    FchGelu "fch_gelu" Mlp Activations SavedForBackward compute [B, T, C4];
    Fcproj "fcproj" Mlp Activations Intermediate compute [BT, C];
    FcprojDropped "fcproj after dropout" Mlp Activations Intermediate compute [B, T, C];
    FcprojMask "dropout mask of fcproj" Mlp Activations SavedForBackward bool [B, T, C];
    Residual3 "residual3 (residual stream)" Block Activations SavedForBackward f32 [B, T, C];
    Lnf "lnf" LnF Activations SavedForBackward f32 [B, T, C];
    LnfMean "lnf_mean" LnF Activations SavedForBackward f32 [B, T, One];
    LnfRstd "lnf_rstd" LnF Activations SavedForBackward f32 [B, T, One];
    LnfCast "lnf (cast)" LnF Activations SavedForBackward compute [B, T, C];
    // Autocast's copies.
    QkvBCast "attn.c_attn.bias (cast)" Attn CastCache CastCache compute [C3];
    QkvWCast "attn.c_attn.weight (cast)" Attn CastCache CastCache compute [C3, C];
    AttProjBCast "attn.c_proj.bias (cast)" Attn CastCache CastCache compute [C];
    AttProjWCast "attn.c_proj.weight (cast)" Attn CastCache CastCache compute [C, C];
    FcBCast "mlp.c_fc.bias (cast)" Mlp CastCache CastCache compute [C4];
    FcWCast "mlp.c_fc.weight (cast)" Mlp CastCache CastCache compute [C4, C];
    FcProjBCast "mlp.c_proj.bias (cast)" Mlp CastCache CastCache compute [C];
    FcProjWCast "mlp.c_proj.weight (cast)" Mlp CastCache CastCache compute [C, C4];
    WteCast "lm_head.weight (cast)" LmHead CastCache CastCache compute [V, C];
    // The loss.
    Logits "logits" LmHead LogitsAndLoss NameInTrainPy compute [BT, V];
    LogProbs "log_softmax(logits)" Loss LogitsAndLoss SavedForBackward compute [BT, V];
    LogProbsF32 "log_softmax(logits) (float32)" Loss LogitsAndLoss SavedForBackward f32 [BT, V];
    DlogProbsF32 "gradient of log_softmax (float32)" Loss LogitsAndLoss Intermediate f32 [BT, V];
    DlogProbs "gradient of log_softmax" Loss LogitsAndLoss Intermediate compute [BT, V];
    Dlogits "dlogits" LmHead LogitsAndLoss Intermediate compute [BT, V];
    // Gradients of activations.
    DlnfCast "dlnf (cast)" LnF Activations Intermediate compute [BT, C];
    Dlnf "dlnf" LnF Activations Intermediate f32 [B, T, C];
    Dresidual "gradient of the residual stream" Block Activations Intermediate f32 [B, T, C];
    DlnInput "gradient through the layer norm" Block Activations Intermediate f32 [B, T, C];
    DresidualCast "gradient of the residual stream (cast)" Block Activations Intermediate compute [B, T, C];
    Ddropped "gradient before dropout" Block Activations Intermediate compute [B, T, C];
    DfchGelu "dfch_gelu" Mlp Activations Intermediate compute [BT, C4];
    Dfch "dfch" Mlp Activations Intermediate compute [B, T, C4];
    Dln2Cast "dln2 (cast)" Ln2 Activations Intermediate compute [BT, C];
    Dln2 "dln2" Ln2 Activations Intermediate f32 [B, T, C];
    Datty "datty" Attn Activations Intermediate compute [BT, C];
    DattyClone "datty by head (contiguous)" Attn Activations Intermediate compute [B, H, T, D];
    WideDatty "datty by head (float32)" Attn Activations Intermediate f32 [B, H, T, D];
    WideDqkv "dq, dk or dv (float32)" Attn Activations Intermediate f32 [BH, T, D];
    Dq "dq" Attn Activations Intermediate compute [B, H, T, D];
    Dk "dk" Attn Activations Intermediate compute [B, H, T, D];
    Dv "dv" Attn Activations Intermediate compute [B, H, T, D];
    DattyPadded "datty (padded)" Attn Activations Intermediate compute [B, H, T, D8];
    DqkvPadded "dq, dk or dv (padded)" Attn Activations Intermediate compute [B, H, T, D8];
    DvHeads "dv by head" Attn Activations Intermediate compute [BH, T, D];
    DattCast "datt (cast)" Attn Activations Intermediate compute [BH, T, T];
    DattF32 "datt" Attn Activations Intermediate f32 [B, H, T, T];
    DattDropped "datt before dropout" Attn Activations Intermediate f32 [B, H, T, T];
    Dpreatt "dpreatt (float32)" Attn Activations Intermediate f32 [B, H, T, T];
    DpreattCast "dpreatt (cast)" Attn Activations Intermediate compute [B, H, T, T];
    DpreattMasked "dpreatt masked" Attn Activations Intermediate compute [B, H, T, T];
    DpreattScaled "dpreatt scaled" Attn Activations Intermediate compute [B, H, T, T];
    DkHeads "dk by head" Attn Activations Intermediate compute [BH, D, T];
    DqHeads "dq by head" Attn Activations Intermediate compute [BH, T, D];
    DkRows "dk (contiguous)" Attn Activations Intermediate compute [B, T, H, D];
    Dqkv "dqkv" Attn Activations Intermediate compute [B, T, C3];
    Dln1Cast "dln1 (cast)" Ln1 Activations Intermediate compute [BT, C];
    Dln1 "dln1" Ln1 Activations Intermediate f32 [B, T, C];
    DencodedDropped "gradient before dropout of encoded" Drop Activations Intermediate f32 [B, T, C];
    DposSum "gradient summed over the batch" Wpe Activations Intermediate f32 [One, T, C];
    // Gradients of parameters, and their intermediate half-precision forms.
    DlmHeadCast "dlm_head (cast)" LmHead Gradients Intermediate compute [V, C];
    DlmHead "dlm_head" LmHead Gradients Intermediate f32 [V, C];
    DwteEmbedding "dwte of the embedding" Wte Gradients Intermediate f32 [V, C];
    Dwte "dwte" Wte Gradients UntilZeroGrad f32 [V, C];
    Dwpe "dwpe" Wpe Gradients UntilZeroGrad f32 [T, C];
    DvecC "gradient of a layer norm or bias" Norm Gradients UntilZeroGrad f32 [C];
    DvecC3 "gradient of c_attn.bias" Attn Gradients UntilZeroGrad f32 [C3];
    DvecC4 "gradient of c_fc.bias" Mlp Gradients UntilZeroGrad f32 [C4];
    DvecCCast "gradient of a bias (cast)" Block Gradients Intermediate compute [One, C];
    DvecC3Cast "gradient of c_attn.bias (cast)" Attn Gradients Intermediate compute [One, C3];
    DvecC4Cast "gradient of c_fc.bias (cast)" Mlp Gradients Intermediate compute [One, C4];
    DqkvW "dqkvw" Attn Gradients UntilZeroGrad f32 [C3, C];
    DqkvWCast "dqkvw (cast)" Attn Gradients Intermediate compute [C3, C];
    DattProjW "dattprojw" Attn Gradients UntilZeroGrad f32 [C, C];
    DattProjWCast "dattprojw (cast)" Attn Gradients Intermediate compute [C, C];
    DfcW "dfcw" Mlp Gradients UntilZeroGrad f32 [C4, C];
    DfcWCast "dfcw (cast)" Mlp Gradients Intermediate compute [C4, C];
    DfcProjW "dfcprojw" Mlp Gradients UntilZeroGrad f32 [C, C4];
    DfcProjWCast "dfcprojw (cast)" Mlp Gradients Intermediate compute [C, C4];
    // Clipping and the optimizer.
    GradNorm "norm of a gradient" Optimizer Gradients Intermediate f32 [];
    GradNorms "norms of all gradients" Optimizer Gradients Intermediate f32 [NParams];
    StepCount "step" Optimizer OptimizerState FromFirstStep f32 [];
    // Scratch memory.
    CublasWorkspace "cuBLAS workspace" Cublas Workspace Run u8 [CublasWorkspace];
    CublasLtWorkspace "cuBLASLt workspace" Cublas Workspace Run u8 [CublasLtWorkspace];
    FlashSoftmaxD "flash attention backward softmax_d" Attn Workspace Scratch f32 [B, H, T128];
    FlashDqAccum "flash attention backward dq accumulator" Attn Workspace Scratch f32 [B, H, T128, DFlash];
    FlashLseSplits "flash attention logsumexp by split" Attn Workspace Scratch f32 [SplitsBH, T];
    FlashOutSplits "flash attention output by split" Attn Workspace Scratch f32 [SplitsBH, T, DFlash];
    EffCast "memory-efficient attention backward operand (float32)" Attn Workspace Scratch f32 [B, T, H, D];
    EffProducts "memory-efficient attention backward products" Attn Workspace Scratch f32 [B, T, H, D];
    EffRowSums "memory-efficient attention backward row sums" Attn Workspace Scratch f32 [B, T, H];
    EffDelta "memory-efficient attention backward delta" Attn Workspace Scratch f32 [B, H, T];
    EffWorkspace "memory-efficient attention backward workspace" Attn Workspace Scratch u8 [EffWorkspace];
    CudnnDqAccum "cuDNN attention backward dq accumulator" Attn Workspace Scratch f32 [B, H, T, D];
    CudnnWorkspace "cuDNN attention workspace" Attn Workspace Scratch u8 [CudnnWorkspace];
    EmbIndices "embedding backward sorted indices" Wte Workspace Scratch i64 [BT];
    EmbCounts "embedding backward segment offsets" Wte Workspace Scratch i64 [MinIndicesV];
    EmbScalar "embedding backward count" Wte Workspace Scratch i64 [];
    EmbPartialOffsets "embedding backward partial offsets" Wte Workspace Scratch i64 [Segments];
    EmbPartialSums "embedding backward partial sums" Wte Workspace Scratch f32 [Segments, C];
    PosIndices "position embedding backward sorted indices" Wpe Workspace Scratch i64 [T];
    PosCounts "position embedding backward segment offsets" Wpe Workspace Scratch i64 [MinIndicesT];
    PosPartialOffsets "position embedding backward partial offsets" Wpe Workspace Scratch i64 [SegmentsT];
    PosPartialSums "position embedding backward partial sums" Wpe Workspace Scratch f32 [SegmentsT, C];
    // Compiled code: tensors of Inductor's kernels beyond the rows above.
    Xhat1 "ln1 normalized" Ln1 Activations SavedForBackward f32 [B, T, C];
    Xhat2 "ln2 normalized" Ln2 Activations SavedForBackward f32 [B, T, C];
    XhatF "lnf normalized" LnF Activations SavedForBackward f32 [B, T, C];
    Ln1Out "ln1" Ln1 Activations SavedForBackward compute [B, T, C];
    Ln2Out "ln2" Ln2 Activations SavedForBackward compute [B, T, C];
    LnfOut "lnf" LnF Activations SavedForBackward compute [B, T, C];
    Residual "residual stream" Block Activations Intermediate f32 [B, T, C];
    DropoutSeeds "dropout seeds" Transformer Activations Intermediate i64 [NDropouts];
    AttMax "row maxima of preatt" Attn Activations SavedForBackward f32 [B, H, T];
    AttSum "row sums of preatt" Attn Activations SavedForBackward f32 [B, H, T];
    LogitsMax "row maxima of logits" Loss LogitsAndLoss SavedForBackward f32 [BT];
    LogitsLogSum "row log-sums of logits" Loss LogitsAndLoss SavedForBackward f32 [BT];
    LossCount "targets counted" Loss LogitsAndLoss SavedForBackward f32 [];
    LossPartials "partial sums of the loss" Loss LogitsAndLoss Intermediate f32 [LossSplits];
    DlogitsPadded "dlogits" LmHead LogitsAndLoss Intermediate compute [BT, VPadded];
    ZeroTangent "zero gradient of logits" LmHead LogitsAndLoss Intermediate compute [BT, V];
    NormPartials "layer norm gradient partial sums" Norm Gradients Intermediate f32 [C, NormSplits];
    QkvBiasPartials "c_attn.bias gradient partial sums" Attn Gradients Intermediate f32 [C3, QkvBiasSplits];
    FcBiasPartials "c_fc.bias gradient partial sums" Mlp Gradients Intermediate f32 [C4, FcBiasSplits];
    // Data parallelism.
    DdpBuckets "DDP gradient buckets" Ddp Gradients Run f32 [NElements];
    // Chunked cross-entropy: the same tensors for one chunk of tokens.
    ChunkLogits "logits of a chunk" LmHead LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkLogProbs "log_softmax of a chunk" Loss LogitsAndLoss SavedForBackward compute [ChunkTokens, V];
    ChunkLogProbsF32 "log_softmax of a chunk (float32)" Loss LogitsAndLoss SavedForBackward f32 [ChunkTokens, V];
    ChunkDlogProbsF32 "gradient of log_softmax of a chunk (float32)" Loss LogitsAndLoss Intermediate f32 [ChunkTokens, V];
    ChunkDlogProbs "gradient of log_softmax of a chunk" Loss LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkDlogits "dlogits of a chunk" LmHead LogitsAndLoss Intermediate compute [ChunkTokens, V];
    ChunkDlnf "dlnf of a chunk" LnF Activations Intermediate compute [ChunkTokens, C];
    // Fused linear cross-entropy kernel: its forward computes the gradients.
    FusedLogits "logits of a fused chunk" LmHead LogitsAndLoss Intermediate compute [FusedTokens, V];
    FusedLosses "losses a token" Loss LogitsAndLoss Intermediate f32 [BT];
    // Headroom's own engines.
    Tokens "tokens" TrainPy Input Run i32 [BT];
    TrainerLogits "logits of a chunk" LmHead LogitsAndLoss Scratch f32 [TrainerTokens, V];
    AttScratch "attention blocks of each thread" Attn Workspace Scratch f32 [Threads, AttScratch];
    KvCache "k and v cache" Attn Activations Run f32 [B, H, T, D];
    AttLast "att of the last token" Attn Activations Run f32 [B, H, T];
    TrainerParts "parts of a sum" TrainPy Workspace Scratch f32 [TrainerParts];
    TokenOrder "rows by token" Wte Input Batch i32 [TokenOrder];
    OptimizerTable "tensors of the optimizer" Optimizer Workspace Run u64 [NParams, OptimizerTable];
    Exchange "settings and choices" TrainPy Workspace Run u8 [Exchange];
}
