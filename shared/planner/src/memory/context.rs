//! Settings, sizes and slots of a run, which the writers of its events share.

use super::{
    attention_kernel::{AttentionKernel, Pass, attention_kernel},
    efficient_backward::EfficientBackward,
    program::{ProgramBuilder, Slot},
};
use crate::{
    dtype::Dtype,
    gpt::{
        GptConfig,
        tensors::{Parameter, Tensor, TensorBytes},
    },
    hardware::ComputeCapability,
    train_config::{CrossEntropy, TrainConfig},
};

/// Properties of the GPU that affect the events of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProperties {
    /// Compute capability.
    pub compute_capability: ComputeCapability,
    /// Number of streaming multiprocessors; determines Inductor's split reductions.
    pub sm_count: u32,
}

/// The state of the writer of a run's events.
pub(super) struct Run<'a> {
    pub(super) config: &'a GptConfig,
    pub(super) train: &'a TrainConfig,
    pub(super) gpu: GpuProperties,
    pub(super) parameters: Vec<Parameter>,
    /// Sizes at `batch_size`.
    pub(super) bytes: &'a TensorBytes,
    /// Sizes at `eval_batch_size`.
    pub(super) eval_bytes: &'a TensorBytes,
    /// Parts into which flash attention's forward splits the keys, at `batch_size` and at `eval_batch_size`.
    pub(super) flash_splits: [u64; 2],
    /// The backward of memory-efficient attention, if the run trains with that kernel.
    pub(super) efficient: Option<EfficientBackward>,
    pub(super) w: ProgramBuilder,
    /// Whether the forward thread and the autograd thread have their cuBLAS workspaces.
    pub(super) has_workspace: [bool; 2],
    /// Whether these threads have their cuBLASLt workspaces.
    pub(super) has_lt_workspace: [bool; 2],
    /// Whether the gradient scaler's two scalars are allocated.
    pub(super) has_scaler: bool,
}

/// Slots that outlive sections, one per variable of train.py.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Name {
    X,
    Y,
    NextX,
    NextY,
    EvalX,
    EvalY,
    NextEvalX,
    NextEvalY,
    Logits,
    Loss,
    NewLogits,
    NewLoss,
    EvalLogits,
    EvalLoss,
    ForwardWorkspace,
    BackwardWorkspace,
    ForwardLtWorkspace,
    BackwardLtWorkspace,
    Scaler,
    ScalerGrowth,
    FoundInf,
    DdpBuckets,
    Count,
}

/// Groups of slots, each with one for every parameter. There are fewer layers than parameters.
#[derive(Clone, Copy)]
pub(super) enum Group {
    Parameter,
    Gradient,
    Checkpoint,
    Mask,
    /// The first of the groups of the optimizer's state, the step counts.
    State,
}

/// Number of slots of the names and of `n_groups` groups.
pub(super) const fn n_kept(n_parameters: usize, n_groups: usize) -> usize {
    Name::Count as usize + n_groups * n_parameters
}

/// Kind of a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForwardKind {
    /// Under `no_grad`; `has_logits` if a variable still holds an earlier batch's logits.
    Eval { has_logits: bool },
    /// With autograd; `has_logits` if a variable still holds an earlier micro-step's logits.
    Train { has_logits: bool },
}

impl Run<'_> {
    pub(super) fn name(&self, name: Name) -> Slot {
        ProgramBuilder::kept(name as u32)
    }

    /// Slot of a parameter, or of a layer, in a group.
    pub(super) fn indexed(&self, group: Group, index: usize) -> Slot {
        let slot = n_kept(self.parameters.len(), group as usize) + index;
        ProgramBuilder::kept(u32::try_from(slot).unwrap_or(u32::MAX))
    }

    pub(super) fn gradient(&self, parameter: usize) -> Slot {
        self.indexed(Group::Gradient, parameter)
    }

    /// Slot of a tensor of a parameter's optimizer state.
    pub(super) fn state(&self, which: usize, parameter: usize) -> Slot {
        self.indexed(Group::State, which * self.parameters.len() + parameter)
    }

    /// Attention kernel of this run in a pass.
    pub(super) fn attention_kernel(&self, pass: Pass) -> AttentionKernel {
        attention_kernel(self.config, self.train, self.gpu.compute_capability.architecture(), pass)
    }

    /// Parts into which flash attention's forward without dropout splits the keys.
    pub(super) fn flash_splits(&self, trains: bool) -> u64 {
        if trains { self.flash_splits[0] } else { self.flash_splits[1] }
    }

    /// Allocates the cuBLAS workspace of the computing thread, at that thread's first product.
    pub(super) fn cublas_workspace(&mut self, backward: bool) {
        if std::mem::replace(&mut self.has_workspace[usize::from(backward)], true) {
            return;
        }
        let name = if backward { Name::BackwardWorkspace } else { Name::ForwardWorkspace };
        self.w.alloc_in(self.name(name), Tensor::CublasWorkspace, None);
    }

    /// Allocates the cuBLASLt workspace of the computing thread, at that thread's first product with a bias. The products
    /// of a block's forward have one.
    pub(super) fn cublaslt_workspace(&mut self, backward: bool) {
        if !self.config.bias() || std::mem::replace(&mut self.has_lt_workspace[usize::from(backward)], true) {
            return;
        }
        let name = if backward { Name::BackwardLtWorkspace } else { Name::ForwardLtWorkspace };
        self.w.alloc_in(self.name(name), Tensor::CublasLtWorkspace, None);
    }

    pub(super) fn drops(&self) -> bool {
        self.config.dropout() > 0.0
    }

    /// Whether the model returns all logits; a chunked or fused loss returns none.
    pub(super) fn keeps_logits(&self) -> bool {
        self.train.cross_entropy == CrossEntropy::Whole
    }

    /// Allocates and frees the scratch memory of memory-efficient attention's backward, if the run has that kernel.
    pub(super) fn efficient_backward_scratch(&mut self, layer: Option<u64>) {
        let Some(kernel) = self.efficient else { return };
        let sizes = (self.config.n_head() == 1, self.bytes.elements(Tensor::EffWorkspace) > 0);
        kernel.write_scratch(&mut self.w, layer, sizes);
    }
}

/// Whether a run uses a gradient scaler.
pub(super) fn uses_scaler(train: &TrainConfig) -> bool {
    train.dtype == Dtype::Float16
}
