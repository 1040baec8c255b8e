//! `lm_head` and the cross-entropy: whole, chunked, or fused into one kernel.

use super::{
    super::{
        context::{Name, Run},
        program::Slot,
    },
    block::CastCache,
};
use crate::{
    gpt::tensors::{CROSS_ENTROPY_CHUNKS, Tensor},
    train_config::CrossEntropy,
};

/// Tensors that the loss saves for its backward.
pub(super) struct SavedLoss {
    /// The loss before division by the accumulation steps.
    pub(super) raw_loss: Slot,
    pub(super) kind: SavedKind,
    /// lm_head's weight in half precision.
    pub(super) weight_cast: Option<Slot>,
    /// lm_head's input.
    pub(super) input: Slot,
}

pub(super) enum SavedKind {
    Whole {
        log_probs: Slot,
        log_probs_f32: Option<Slot>,
        total_weight: Slot,
    },
    Chunked,
    /// The gradients of lm_head and of its input, computed in forward.
    Fused {
        dlm_head: Slot,
        dlnf: Slot,
    },
}

/// Forward of lm_head and loss. If nothing is saved, the loss is in slot [`Name::NewLoss`].
pub(super) fn forward(run: &mut Run<'_>, trains: bool, lnf: Slot, casts: &mut CastCache) -> Option<SavedLoss> {
    let half = run.train.is_half();
    let weight_cast = casts.lm_head(run);
    let lnf_cast = half.then(|| run.w.alloc(Tensor::LnfCast, None));
    let input = lnf_cast.unwrap_or(lnf);
    let (kind, raw_loss) = match run.train.cross_entropy {
        CrossEntropy::Whole => whole(run, trains, lnf_cast),
        CrossEntropy::Chunked => chunked(run, trains),
        CrossEntropy::Fused => fused(run, trains),
    };
    if !trains && run.train.cross_entropy != CrossEntropy::Whole {
        run.w.free_some(lnf_cast);
    }
    let (Some(kind), Some(raw_loss)) = (kind, raw_loss) else { return None };
    Some(SavedLoss { raw_loss, kind, weight_cast, input })
}

fn whole(run: &mut Run<'_>, trains: bool, lnf_cast: Option<Slot>) -> (Option<SavedKind>, Option<Slot>) {
    let half = run.train.is_half();
    run.w.alloc_in(run.name(Name::NewLogits), Tensor::Logits, None);
    run.cublas_workspace(false);
    if !trains {
        run.w.free_some(lnf_cast);
    }
    let log_probs = run.w.alloc(Tensor::LogProbs, None);
    let log_probs_f32 = half.then(|| run.w.alloc(Tensor::LogProbsF32, None));
    if trains {
        let raw_loss = run.w.alloc(Tensor::Loss, None);
        let total_weight = run.w.alloc(Tensor::LossWeight, None);
        return (Some(SavedKind::Whole { log_probs, log_probs_f32, total_weight }), Some(raw_loss));
    }
    run.w.alloc_in(run.name(Name::NewLoss), Tensor::Loss, None);
    let total_weight = run.w.alloc(Tensor::LossWeight, None);
    run.w.free(total_weight);
    run.w.free_some(log_probs_f32);
    run.w.free(log_probs);
    (None, None)
}

fn chunked(run: &mut Run<'_>, trains: bool) -> (Option<SavedKind>, Option<Slot>) {
    let half = run.train.is_half();
    let total = if trains { run.w.alloc(Tensor::Loss, None) } else { run.name(Name::NewLoss) };
    if !trains {
        run.w.alloc_in(total, Tensor::Loss, None);
    }
    for _ in 0..CROSS_ENTROPY_CHUNKS {
        let logits = run.w.alloc(Tensor::ChunkLogits, None);
        run.cublas_workspace(false);
        let log_probs = run.w.alloc(Tensor::ChunkLogProbs, None);
        let wide = half.then(|| run.w.alloc(Tensor::ChunkLogProbsF32, None));
        run.w.transient(Tensor::Scalar, None);
        run.w.free_some(wide);
        run.w.free_all([log_probs, logits]);
    }
    (trains.then_some(SavedKind::Chunked), trains.then_some(total))
}

fn fused(run: &mut Run<'_>, trains: bool) -> (Option<SavedKind>, Option<Slot>) {
    let total = if trains { run.w.alloc(Tensor::Loss, None) } else { run.name(Name::NewLoss) };
    if !trains {
        run.w.alloc_in(total, Tensor::Loss, None);
    }
    let gradients = trains.then(|| {
        let dlnf = run.w.alloc(Tensor::DlnfCast, None);
        (run.w.alloc(Tensor::DlmHeadCast, None), dlnf)
    });
    let losses = run.w.alloc(Tensor::FusedLosses, None);
    // Every chunk makes the same allocations; the second one shows the reuse of the first one's memory.
    for _ in 0..2 {
        let logits = run.w.alloc(Tensor::FusedLogits, None);
        run.cublas_workspace(false);
        run.w.free(logits);
    }
    run.w.free(losses);
    match gradients {
        Some((dlm_head, dlnf)) => (Some(SavedKind::Fused { dlm_head, dlnf }), Some(total)),
        None => (None, None),
    }
}

/// Result of the loss's backward: the gradients of lm_head's weight and of its input.
pub(super) struct LossGradients {
    pub(super) dlm_head: Slot,
    pub(super) dlnf: Slot,
}

/// Backward of loss and lm_head; `scaled` is the loss's gradient with the gradient scaler's factor.
pub(super) fn backward(run: &mut Run<'_>, saved: &SavedLoss, scaled: Option<Slot>) -> LossGradients {
    match saved.kind {
        SavedKind::Whole { log_probs, log_probs_f32, total_weight } => {
            let half = run.train.is_half();
            let scalar = run.w.alloc(Tensor::Scalar, None);
            run.w.free_some(scaled);
            // In float32, cast rows and uncast rows are the same tensors and are stored once.
            let mut gradient = run.w.alloc(if half { Tensor::DlogProbsF32 } else { Tensor::DlogProbs }, None);
            run.w.free(scalar);
            run.w.free_some(log_probs_f32);
            run.w.free_kept(run.name(Name::Y));
            run.w.free(total_weight);
            if half {
                let narrow = run.w.alloc(Tensor::DlogProbs, None);
                run.w.free(gradient);
                gradient = narrow;
            }
            let dlogits = run.w.alloc(Tensor::Dlogits, None);
            run.w.free_all([gradient, log_probs]);
            let dlm_head = run.w.alloc(if half { Tensor::DlmHeadCast } else { Tensor::DlmHead }, None);
            run.cublas_workspace(true);
            let dlnf = run.w.alloc(Tensor::DlnfCast, None);
            run.w.free(dlogits);
            run.w.free_some(saved.weight_cast);
            run.w.free(saved.input);
            widen(run, dlm_head, dlnf)
        }
        SavedKind::Chunked => {
            let scalar = run.w.alloc(Tensor::Scalar, None);
            run.w.free_some(scaled);
            chunked_backward(run, scalar, saved.weight_cast, saved.input)
        }
        SavedKind::Fused { dlm_head, dlnf } => {
            let scalar = run.w.alloc(Tensor::Scalar, None);
            run.w.free_some(scaled);
            run.cublas_workspace(true);
            run.w.free(scalar);
            run.w.free_kept(run.name(Name::Y));
            run.w.free_some(saved.weight_cast);
            run.w.free(saved.input);
            widen(run, dlm_head, dlnf)
        }
    }
}

/// Backward of autocast's casts: converts half-precision gradients to float32.
fn widen(run: &mut Run<'_>, dlm_head: Slot, dlnf: Slot) -> LossGradients {
    if !run.train.is_half() {
        return LossGradients { dlm_head, dlnf };
    }
    let dlnf_f32 = run.w.alloc(Tensor::Dlnf, None);
    run.w.free(dlnf);
    let dlm_head_f32 = run.w.alloc(Tensor::DlmHead, None);
    run.w.free(dlm_head);
    LossGradients { dlm_head: dlm_head_f32, dlnf: dlnf_f32 }
}

/// Recomputes each chunk and adds its part of the gradients to the sum.
fn chunked_backward(run: &mut Run<'_>, scalar: Slot, weight_cast: Option<Slot>, input: Slot) -> LossGradients {
    let (first, first_input) = chunk_backward(run);
    let dlnf = run.w.alloc(Tensor::DlnfCast, None);
    run.w.free(first_input);
    for _ in 1..CROSS_ENTROPY_CHUNKS {
        let (part, input_part) = chunk_backward(run);
        run.w.free_all([part, input_part]);
    }
    run.w.free(scalar);
    run.w.free_kept(run.name(Name::Y));
    run.w.free_some(weight_cast);
    run.w.free(input);
    widen(run, first, dlnf)
}

/// One chunk: its part of the gradients of lm_head's weight and of its input.
fn chunk_backward(run: &mut Run<'_>) -> (Slot, Slot) {
    let half = run.train.is_half();
    let logits = run.w.alloc(Tensor::ChunkLogits, None);
    let log_probs = run.w.alloc(Tensor::ChunkLogProbs, None);
    let wide = half.then(|| run.w.alloc(Tensor::ChunkLogProbsF32, None));
    let mut gradient = run.w.alloc(if half { Tensor::ChunkDlogProbsF32 } else { Tensor::ChunkDlogProbs }, None);
    run.w.free_some(wide);
    if half {
        let narrow = run.w.alloc(Tensor::ChunkDlogProbs, None);
        run.w.free(gradient);
        gradient = narrow;
    }
    let dlogits = run.w.alloc(Tensor::ChunkDlogits, None);
    run.w.free_all([gradient, log_probs, logits]);
    let part = run.w.alloc(if half { Tensor::DlmHeadCast } else { Tensor::DlmHead }, None);
    run.cublas_workspace(true);
    let input_part = run.w.alloc(Tensor::ChunkDlnf, None);
    run.w.free(dlogits);
    (part, input_part)
}
