//! Events of PyTorch's eager engine: one kernel per operation, under autocast, with autograd's saved tensors.
//!
//! Follows nanoGPT's model.py line by line; a tensor is freed where it goes out of scope there.

mod attention;
mod backward;
mod block;
mod loss;

pub(crate) use backward::EMBEDDING_SORT_ABOVE;
pub(super) use backward::backward;

use super::{
    context::{ForwardKind, Name, Run},
    program::Slot,
};
use crate::gpt::tensors::Tensor;

/// Whether autograd saves the tensors for an operation's backward.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SavePolicy {
    /// Under `no_grad`, or in the first pass of a checkpointed block.
    Nothing,
    /// With autograd.
    All,
}

/// A layer norm's output and its statistics.
struct Norm {
    out: Slot,
    mean: Slot,
    rstd: Slot,
}

/// Tensors that forward saves for backward.
pub struct SavedTensors {
    pos: Slot,
    /// The input of the first block.
    encoded: Slot,
    encoded_mask: Option<Slot>,
    /// Per block, first to last; all `None` with checkpointing.
    blocks: Vec<Option<block::SavedBlock>>,
    /// Inputs of each block but the first, and of the last norm: the residual stream.
    residuals: Vec<Slot>,
    lnf_mean: Slot,
    lnf_rstd: Slot,
    loss: loss::SavedLoss,
}

/// Writes a forward; under autograd, returns the tensors that backward needs.
pub(super) fn forward(run: &mut Run<'_>, kind: ForwardKind) -> Option<SavedTensors> {
    let trains = matches!(kind, ForwardKind::Train { .. });
    let half = run.train.is_half();
    let drops = run.drops() && trains;
    let blocks_save = if trains && !run.train.activation_checkpointing { SavePolicy::All } else { SavePolicy::Nothing };

    let pos = run.w.alloc(Tensor::Pos, None);
    let tok_emb = run.w.alloc(Tensor::TokEmb, None);
    let pos_emb = run.w.alloc(Tensor::PosEmb, None);
    let mut x = run.w.alloc(Tensor::Encoded, None);
    let mut encoded_mask = None;
    if drops {
        let dropped = run.w.alloc(Tensor::EncodedDropped, None);
        encoded_mask = Some(run.w.alloc(Tensor::EncodedMask, None));
        run.w.free(x);
        x = dropped;
    }
    let encoded = x;
    let mut casts = block::CastCache::default();
    let mut blocks = Vec::new();
    let mut residuals = Vec::new();
    for layer in 0..run.config.n_layer() {
        let (out, saved) = block::forward(run, layer, x, trains, blocks_save, &mut casts);
        blocks.push(saved);
        if blocks_save == SavePolicy::Nothing && !trains {
            run.w.free(x);
        }
        x = out;
        residuals.push(x);
    }
    let lnf = Norm {
        out: run.w.alloc(Tensor::Lnf, None),
        mean: run.w.alloc(Tensor::LnfMean, None),
        rstd: run.w.alloc(Tensor::LnfRstd, None),
    };
    if !trains {
        run.w.free_all([lnf.mean, lnf.rstd, x]);
    }
    let saved_loss = loss::forward(run, trains, lnf.out, &mut casts);

    // The forward function returns and releases its variables.
    if !trains {
        run.w.free(pos);
    }
    run.w.free_all([tok_emb, pos_emb]);
    if half || !trains {
        run.w.free(lnf.out);
    }
    release_names(run, kind);
    if trains {
        let divided = run.name(Name::NewLoss);
        let raw = saved_loss.as_ref().map(|saved| saved.raw_loss);
        run.w.alloc_in(divided, Tensor::ScaledLoss, None);
        run.w.free_some(raw);
    }
    // autocast's context ends and frees all copies that autograd does not save.
    run.w.free_all(casts.released(trains, run.train.activation_checkpointing));
    saved_loss.filter(|_| trains).map(|loss| SavedTensors {
        pos,
        encoded,
        encoded_mask,
        blocks,
        residuals,
        lnf_mean: lnf.mean,
        lnf_rstd: lnf.rstd,
        loss,
    })
}

/// `logits, loss = model(X, Y)` releases the previous tensors of these variables.
fn release_names(run: &mut Run<'_>, kind: ForwardKind) {
    let (has_logits, logits, loss) = match kind {
        ForwardKind::Eval { has_logits } => (has_logits, Name::EvalLogits, Name::EvalLoss),
        ForwardKind::Train { has_logits } => (has_logits, Name::Logits, Name::Loss),
    };
    if has_logits && run.keeps_logits() {
        for name in [logits, loss] {
            run.w.free_kept(run.name(name));
        }
    }
}
