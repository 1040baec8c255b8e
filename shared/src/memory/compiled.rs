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
mod forward;
mod inference;
mod residual;
mod wrapper;

pub(super) use backward::backward;

use super::{
    program::Slot,
    run::{ForwardKind, Run},
};

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
    layers: Vec<SavedLayer>,
    /// The final norm: normalized input, inverse deviation, and lm_head's input.
    lnf: [Slot; 2],
    lnf_out: Slot,
    wte_cast: Option<Slot>,
    logits_max: Slot,
    logits_log_sum: Slot,
    loss_count: Slot,
}

/// How the first layer norm's input is known in backward.
enum SavedEmbedding {
    /// Both embeddings, mean and inverse deviation: the input is added up again.
    Parts([Slot; 4]),
    /// Normalized, as in every other norm.
    Normalized { xhat: Slot, rstd: Slot, mask: Option<Slot> },
}

struct SavedLayer {
    /// `None` for the first block's, whose input the embedding saves.
    ln1: Option<[Slot; 2]>,
    ln1_out: Slot,
    qkv_weight: Option<Slot>,
    attention: attention::SavedAttention,
    att_proj_weight: Option<Slot>,
    attproj_mask: Option<Slot>,
    ln2: [Slot; 2],
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
