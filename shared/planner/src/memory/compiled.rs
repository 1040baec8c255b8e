//! Events of `torch.compile`: the allocations of Inductor's generated code.
//!
//! Inductor generates three graphs: evaluation, training forward, training backward. Each is written as a list of
//! kernels with their operands; `wrapper` then plans the buffers as Inductor's wrapper code does. The kernels follow
//! from Inductor's fusion. Elementwise operations are fused with their neighbours; matrix products and attention remain
//! separate. Each layer norm sums the residual stream again until it would read too many buffers.
//!
//! Source: generated code of PyTorch 2.11 for many shapes, and torch/_inductor.

mod attention;
mod backward;
mod block;
mod forward;
mod inference;
mod loss;
mod residual;
mod saved;
mod wrapper;

pub(super) use backward::backward;

use super::{
    context::{ForwardKind, Run},
    program::Slot,
};
use crate::gpt::tensors::Tensor;

/// The forward graphs, which are the same in every execution and therefore planned once per run.
#[derive(Default)]
pub(super) struct Graphs {
    eval: Option<wrapper::PlannedGraph>,
    train: Option<forward::Forward>,
}

/// Use of a block's buffers after its computation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BufferUse {
    /// The graph returns the tensors that backward needs.
    ForBackward,
    /// Forward of a checkpointed block: only its input is saved, by the caller.
    Nothing,
    /// Recomputation inside the backward graph, which uses the buffers directly. The norms store their statistics
    /// instead of the normalised stream.
    InGraph,
}

/// Tensors that a compiled forward saves for its backward.
pub struct CompiledSavedTensors {
    pos: Slot,
    embedding: SavedEmbedding,
    /// Saved tensors of every block, or the input of each block but the first.
    blocks: SavedBlocks,
    /// Tensors that the final norm's backward reads, and lm_head's input.
    lnf: Vec<(Tensor, Slot)>,
    lnf_out: Slot,
    wte_cast: Option<Slot>,
    /// Tensors that the loss's backward reads besides logits and targets.
    loss: Vec<(Tensor, Slot)>,
}

/// How backward obtains the first layer norm's input.
enum SavedEmbedding {
    /// Both embeddings, their dropout mask, and the norm's statistics if saved; the input is summed again.
    Parts { terms: Vec<(Tensor, Slot)>, mask: Option<Slot> },
    /// The normalised input, as for every other norm.
    Normalized { saved: Vec<(Tensor, Slot)>, mask: Option<Slot> },
}

enum SavedBlocks {
    Whole(Vec<SavedBlock>),
    /// The residual stream between the blocks; each block is recomputed.
    Checkpointed(Vec<Slot>),
}

struct SavedBlock {
    ln1: Option<Vec<(Tensor, Slot)>>,
    ln1_out: Slot,
    qkv_weight: Option<Slot>,
    attention: (Tensor, Slot),
    attention_saved: Vec<(Tensor, Slot)>,
    att_proj_weight: Option<Slot>,
    attproj_mask: Option<Slot>,
    ln2: Vec<(Tensor, Slot)>,
    ln2_out: Slot,
    fc_weight: Option<Slot>,
    fch: Slot,
    fch_gelu: Slot,
    fc_proj_weight: Option<Slot>,
    fcproj_mask: Option<Slot>,
}

/// Writes a forward; under autograd, returns the tensors that backward needs.
pub(super) fn forward(run: &mut Run<'_>, graphs: &mut Graphs, kind: ForwardKind) -> Option<CompiledSavedTensors> {
    match kind {
        ForwardKind::Eval { has_logits } => {
            inference::forward(run, graphs, has_logits);
            None
        }
        ForwardKind::Train { has_logits } => forward::forward(run, graphs, has_logits),
    }
}
