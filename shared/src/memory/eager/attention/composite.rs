//! `scaled_dot_product_attention` where no fused kernel takes the dtype or the head size: for example bfloat16 below
//! compute capability 8.0, or float32 with a head size that is not a multiple of 4.
//!
//! Source: `_scaled_dot_product_attention_math`, `convert_boolean_attn_mask` and `_safe_softmax` of
//! aten/src/ATen/native/transformers/attention.cpp (2.11). Everything is computed in float32: half precision is widened
//! first and narrowed at the end. Checked against the operations and storages of PyTorch 2.11, forward and backward.

use super::{Attended, SavedAttention};
use crate::{
    gpt::tensors::Tensor,
    memory::{eager::Saves, program::Slot, run::Run},
};

/// What backward needs.
pub(super) struct SavedComposite {
    q: Slot,
    k: Slot,
    v: Slot,
    att: Slot,
    /// After dropout, with its mask.
    dropped: Option<[Slot; 2]>,
}

pub(super) fn forward(run: &mut Run<'_>, layer: u64, qkv: Slot, trains: bool, saves: Saves) -> Attended {
    let at = Some(layer);
    let keeps = saves == Saves::All;
    let drops = run.drops() && trains;
    let half = run.train.is_half();
    let w = &mut run.w;
    let wide: Vec<Slot> = (0..if half { 3 } else { 0 }).map(|_| w.alloc(Tensor::WideQkv, at)).collect();
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
    let [q, k] = [(); 2].map(|()| w.alloc(Tensor::WideOperand, at));
    // The mask is added in place.
    let preatt = w.alloc(Tensor::PreattF32, at);
    w.free(scaled_k);
    if !keeps {
        w.free_all([q, k]);
    }
    let att = w.alloc(Tensor::Att, at);
    // A row that is masked altogether is overwritten with zeros, for which there is a look at every entry.
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
    // The attention weights are a second result, which no caller uses.
    let second = half.then(|| w.alloc(Tensor::AttCast, at));
    let v = w.alloc(Tensor::WideOperand, at);
    let mut atty = w.alloc(Tensor::WideAtty, at);
    if !keeps {
        w.free(v);
    }
    if half {
        let narrow = w.alloc(Tensor::Atty, at);
        w.free(atty);
        atty = narrow;
    }
    w.free_all(wide);
    w.free_all([scaled_q, bias]);
    w.free_some(second);
    if !keeps {
        w.free(named);
    }
    let rows = w.alloc(Tensor::AttyRows, at);
    w.free(atty);
    if !keeps {
        return Attended { dead: vec![rows, qkv], output: None, saved: SavedAttention::default() };
    }
    let composite = Some(SavedComposite { q, k, v, att, dropped });
    let saved = SavedAttention { composite, ..SavedAttention::default() };
    Attended { dead: vec![qkv], output: Some(rows), saved }
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
    let datty = w.alloc(Tensor::WideDatty, at);
    w.free(gradient);
    let dv = w.alloc(Tensor::WideDqkv, at);
    let mut datt = w.alloc(Tensor::DattF32, at);
    w.free_all([saved.v, datty]);
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
    // Both products are scaled.
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
    let [dv, dq] = [dv, dq].map(|by_head| {
        let rows = w.alloc(Tensor::DkRows, at);
        w.free(by_head);
        rows
    });
    let dqkv = w.alloc(Tensor::Dqkv, at);
    w.free_all([dk, dv, dq]);
    dqkv
}
