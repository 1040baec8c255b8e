//! The events of PyTorch's eager engine: one kernel an operation, under autocast, with autograd's saved tensors.
//!
//! Follows model.py of nanoGPT line by line; where a tensor goes out of scope there, it is given back here.

mod attention;
mod backward;
mod block;
mod loss;

pub(super) use backward::backward;

use super::{
    program::Slot,
    run::{ForwardKind, Name, Run},
};
use crate::gpt::tensors::Tensor;

/// Whether autograd saves what an operation needs for its backward.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Saves {
    /// Under `no_grad`, or inside a checkpointed block's first pass.
    Nothing,
    /// With autograd.
    All,
}

/// A layer norm's saved statistics and its input.
struct Norm {
    out: Slot,
    mean: Slot,
    rstd: Slot,
}

/// What forward leaves for backward.
pub struct Saved {
    pos: Slot,
    /// The input of the first block.
    encoded: Slot,
    encoded_mask: Option<Slot>,
    /// Per block, first to last; empty of content where blocks are checkpointed.
    blocks: Vec<Option<block::SavedBlock>>,
    /// Input of each block but the first, and of the last norm: what flows along the residual stream.
    residuals: Vec<Slot>,
    lnf_mean: Slot,
    lnf_rstd: Slot,
    loss: loss::SavedLoss,
}

/// Writes a forward; under autograd it leaves what backward needs.
pub(super) fn forward(run: &mut Run<'_>, kind: ForwardKind) -> Option<Saved> {
    let trains = matches!(kind, ForwardKind::Train { .. });
    let half = run.train.is_half();
    let drops = run.drops() && trains;
    let blocks_save = if trains && !run.train.activation_checkpointing { Saves::All } else { Saves::Nothing };

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
        if blocks_save == Saves::Nothing && !trains {
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

    // The forward function returns and its names go.
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
    // autocast's context ends: what autograd does not hold goes.
    run.w.free_all(casts.released(trains, run.train.activation_checkpointing));
    saved_loss.filter(|_| trains).map(|loss| Saved {
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

/// `logits, loss = model(X, Y)` lets go of what the names held before.
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
