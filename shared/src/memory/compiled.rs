//! The events of `torch.compile`: what the code Inductor generates allocates.
//!
//! Three graphs: evaluation, training forward, training backward. Each is written as a list of kernels with what they
//! read and write; `wrapper` then plans their buffers as Inductor's wrapper code does. Which kernels there are follows
//! from Inductor's fusion: everything elementwise goes into its neighbour, matrix products and attention stay apart, and
//! the residual stream is added up anew by each layer norm until too many buffers would be read.
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
    program::Slot,
    run::{ForwardKind, Run},
};
use crate::gpt::tensors::Tensor;

/// The forward graphs: the same each time they run, and so planned once a run.
#[derive(Default)]
pub(super) struct Graphs {
    eval: Option<wrapper::Planned>,
    train: Option<forward::Forward>,
}

/// What a compiled forward leaves for its backward.
pub struct Saved {
    pos: Slot,
    embedding: SavedEmbedding,
    /// Every block's saved tensors, or what each block but the first starts from.
    blocks: SavedBlocks,
    /// What the final norm's backward reads, and lm_head's input.
    lnf: Vec<(Tensor, Slot)>,
    lnf_out: Slot,
    wte_cast: Option<Slot>,
    /// What the loss's backward reads besides logits and targets.
    loss: Vec<(Tensor, Slot)>,
}

/// How the first layer norm's input is known in backward.
enum SavedEmbedding {
    /// Both embeddings, their dropout's mask, and the norm's statistics where they are saved: the input is added up
    /// again.
    Parts { terms: Vec<(Tensor, Slot)>, mask: Option<Slot> },
    /// Normalized, as in every other norm.
    Normalized { saved: Vec<(Tensor, Slot)>, mask: Option<Slot> },
}

enum SavedBlocks {
    Whole(Vec<SavedBlock>),
    /// The residual stream between the blocks; each block is computed again.
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

/// Writes a forward; under autograd it leaves what backward needs.
pub(super) fn forward(run: &mut Run<'_>, kind: ForwardKind) -> Option<Saved> {
    match kind {
        ForwardKind::Eval { has_logits } => {
            inference::forward(run, has_logits);
            None
        }
        ForwardKind::Train { has_logits } => forward::forward(run, has_logits),
    }
}
