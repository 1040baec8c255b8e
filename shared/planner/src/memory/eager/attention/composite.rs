//! `scaled_dot_product_attention` if no fused kernel supports the dtype or the head size. Examples are bfloat16 below
//! compute capability 8.0, and float32 with a head size that is not a multiple of 4.
//!
//! Source: `_scaled_dot_product_attention_math`, `convert_boolean_attn_mask` and `_safe_softmax` of
//! aten/src/ATen/native/transformers/attention.cpp (2.11). All computation is in float32: half precision is converted
//! first and converted back at the end. Checked against the operations and storages of PyTorch 2.11, forward and
//! backward.

use super::{AttentionForward, SavedAttention, gradient_rows, joins_heads_without_copy, rows_of_heads};
use crate::{
    gpt::tensors::Tensor,
    memory::{context::Run, eager::SavePolicy, program::Slot},
};

/// Tensors that backward needs.
pub(super) struct SavedComposite {
    q: Slot,
    k: Slot,
    /// v, or the tensor of which it is a view.
    v: Slot,
    /// Whether the products need contiguous copies of their operands.
    copies: bool,
    att: Slot,
    /// The weights after dropout, with the mask.
    dropped: Option<[Slot; 2]>,
}

pub(super) fn forward(run: &mut Run<'_>, layer: u64, qkv: Slot, trains: bool, saves: SavePolicy) -> AttentionForward {
    let at = Some(layer);
    let keeps = saves == SavePolicy::All;
    let drops = run.drops() && trains;
    let half = run.train.is_half();
    let copies = !joins_heads_without_copy(run, trains);
    // The products save views of their arguments.
    let keeps_views = keeps && !copies;
    let w = &mut run.w;
    let mut wide: Vec<Slot> = (0..if half { 3 } else { 0 }).map(|_| w.alloc(Tensor::WideQkv, at)).collect();
    let scaled_q = w.alloc(Tensor::WideQkv, at);
    let ones = w.alloc(Tensor::CausalMask, at);
    let triangle = w.alloc(Tensor::CausalMask, at);
    w.free(ones);
    // The two values of the mask: 0 and minus infinity.
    let values = [(); 2].map(|()| w.alloc(Tensor::Scalar, at));
    let bias = w.alloc(Tensor::CausalBias, at);
    w.free_all(values);
    w.free(triangle);
    let scaled_k = w.alloc(Tensor::WideQkv, at);
    let [q, k] = if copies { [(); 2].map(|()| w.alloc(Tensor::WideOperand, at)) } else { [scaled_q, scaled_k] };
    // The mask is added in place.
    let preatt = w.alloc(Tensor::PreattF32, at);
    if !keeps_views {
        w.free(scaled_k);
    }
    if copies && !keeps {
        w.free_all([q, k]);
    }
    let att = w.alloc(Tensor::Att, at);
    // A fully masked row is overwritten with zeros, which requires a check of every entry.
    let hidden = w.alloc(Tensor::AttHidden, at);
    let hidden_rows = w.alloc(Tensor::AttHiddenRows, at);
    let zero = w.alloc(Tensor::Scalar, at);
    w.free_all([zero, hidden_rows, hidden, preatt]);
    let mut named = att;
    let mut dropped = None;
    if drops {
        named = w.alloc(Tensor::AttDropped, at);
        let mask = w.alloc(Tensor::AttDropMask, at);
        if keeps {
            dropped = Some([named, mask]);
        } else {
            w.free_all([mask, att]);
        }
    }
    // The attention weights are a second result, which is unused.
    let second = half.then(|| w.alloc(Tensor::AttCast, at));
    let v_copy = copies.then(|| w.alloc(Tensor::WideOperand, at));
    let mut atty = w.alloc(Tensor::WideAtty, at);
    if !keeps {
        w.free_some(v_copy);
    }
    if half {
        let narrow = w.alloc(Tensor::Atty, at);
        w.free(atty);
        atty = narrow;
    }
    let v_view = if keeps_views { wide.pop().or(Some(qkv)) } else { None };
    w.free_all(wide);
    if !keeps_views {
        w.free(scaled_q);
    }
    w.free(bias);
    w.free_some(second);
    if !keeps {
        w.free(named);
    }
    let rows = rows_of_heads(run, layer, atty);
    if !keeps {
        return AttentionForward { dead: vec![rows, qkv], output: None, saved: SavedAttention::default() };
    }
    let v = v_view.or(v_copy).unwrap_or(qkv);
    let dead = if v == qkv { Vec::new() } else { vec![qkv] };
    let composite = Some(SavedComposite { q, k, v, copies, att, dropped });
    AttentionForward { dead, output: Some(rows), saved: SavedAttention { composite, ..SavedAttention::default() } }
}

pub(super) fn backward(run: &mut Run<'_>, layer: u64, datty: Slot, saved: &SavedComposite) -> Slot {
    let at = Some(layer);
    let half = run.train.is_half();
    let w = &mut run.w;
    let mut gradient = datty;
    if half {
        gradient = w.alloc(Tensor::WideDatty, at);
        w.free(datty);
    }
    if saved.copies {
        let by_head = w.alloc(Tensor::WideDatty, at);
        w.free(gradient);
        gradient = by_head;
    }
    let dv = w.alloc(Tensor::WideDqkv, at);
    let mut datt = w.alloc(Tensor::DattF32, at);
    w.free_all([saved.v, gradient]);
    if let Some([dropped, mask]) = saved.dropped {
        w.free(dropped);
        let before = w.alloc(Tensor::DattDropped, at);
        w.free_all([datt, mask]);
        datt = before;
    }
    let dpreatt = w.alloc(Tensor::Dpreatt, at);
    w.free_all([saved.att, datt]);
    let [dk, dq] = [(); 2].map(|()| w.alloc(Tensor::WideDqkv, at));
    w.free_all([saved.q, saved.k, dpreatt]);
    // The gradients of both operands are scaled.
    let [dk, dq] = [dk, dq].map(|unscaled| {
        let slot = w.alloc(Tensor::WideDqkv, at);
        w.free(unscaled);
        slot
    });
    let mut gradients = [dv, dk, dq];
    if half {
        gradients = [(dv, Tensor::DvHeads), (dk, Tensor::DkHeads), (dq, Tensor::DqHeads)].map(|(wide, narrow)| {
            let slot = w.alloc(narrow, at);
            w.free(wide);
            slot
        });
    }
    let [dv, dk, dq] = gradients;
    let [dv, dq] = [dv, dq].map(|by_head| gradient_rows(run, layer, by_head));
    let dqkv = run.w.alloc(Tensor::Dqkv, at);
    run.w.free_all([dk, dv, dq]);
    dqkv
}
