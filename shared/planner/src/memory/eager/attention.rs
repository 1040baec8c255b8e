//! Attention with each kernel that PyTorch may select: allocations, saved tensors, and backward.

mod composite;

use super::{
    super::{
        attention_kernel::{AttentionKernel, Pass},
        context::Run,
        program::Slot,
    },
    SavePolicy,
};
use crate::{dtype::Dtype, gpt::tensors::Tensor};

/// Result of attention's forward.
pub(super) struct AttentionForward {
    /// Slots that are freed when the attention module returns.
    pub(super) dead: Vec<Slot>,
    /// Input of `c_proj`, if `saved` does not already hold it.
    pub(super) output: Option<Slot>,
    /// Tensors that backward needs.
    pub(super) saved: SavedAttention,
}

/// Tensors that attention's backward needs, in the order of their release.
#[derive(Default)]
pub(super) struct SavedAttention {
    /// Of a fused kernel: qkv, logsumexp, output, random state.
    pub(super) fused: Vec<Slot>,
    /// Of `AttentionKernel::Math`.
    pub(super) math: Option<SavedMath>,
    /// Of `AttentionKernel::Composite`.
    composite: Option<composite::SavedComposite>,
}

pub(super) struct SavedMath {
    operands: Operands,
    mask: Slot,
    att: Slot,
    att_drop_mask: Option<Slot>,
    att_cast: Option<Slot>,
}

/// Saved operands of attention's products.
enum Operands {
    /// Contiguous copies.
    Copies { q: Slot, k: Slot, v: Slot },
    /// The tensor of which they are views.
    Views { qkv: Slot },
}

pub(super) fn forward(run: &mut Run<'_>, layer: u64, qkv: Slot, trains: bool, saves: SavePolicy) -> AttentionForward {
    let kernel = run.attention_kernel(if trains { Pass::Training } else { Pass::Evaluation });
    match kernel {
        AttentionKernel::Flash => flash(run, layer, qkv, trains, saves),
        AttentionKernel::Cudnn => fused(run, layer, qkv, saves, [Tensor::Atty, Tensor::AttLse]),
        AttentionKernel::Efficient => {
            // Under autograd, the kernel computes the logsumexp even if nothing is saved, as before a recomputation.
            let lse = if trains { Tensor::AttLsePadded } else { Tensor::AttLseNone };
            fused(run, layer, qkv, saves, [Tensor::Atty, lse])
        }
        AttentionKernel::Math => math(run, layer, qkv, trains, saves),
        AttentionKernel::Composite => composite::forward(run, layer, qkv, trains, saves),
    }
}

/// Whether flash attention pads q, k and v: its head sizes are multiples of 8.
fn pads(run: &Run<'_>) -> bool {
    !run.config.head_size().is_multiple_of(8)
}

/// cuDNN's or the memory-efficient kernel, which return the output, the logsumexp and a random state.
fn fused(run: &mut Run<'_>, layer: u64, qkv: Slot, saves: SavePolicy, outputs: [Tensor; 2]) -> AttentionForward {
    let w = &mut run.w;
    let [atty, lse] = outputs.map(|tensor| w.alloc(tensor, Some(layer)));
    let [seed, offset] = [Tensor::AttSeed, Tensor::AttOffset].map(|tensor| w.alloc(tensor, Some(layer)));
    if saves == SavePolicy::Nothing {
        w.free_all([offset, seed, lse]);
        return AttentionForward { dead: vec![atty, qkv], output: None, saved: SavedAttention::default() };
    }
    let saved = SavedAttention { fused: vec![qkv, lse, atty, seed, offset], ..SavedAttention::default() };
    AttentionForward { dead: Vec::new(), output: None, saved }
}

/// Flash attention, with q, k and v padded if the head size is not a multiple of 8.
fn flash(run: &mut Run<'_>, layer: u64, qkv: Slot, trains: bool, saves: SavePolicy) -> AttentionForward {
    let at = Some(layer);
    let pads = pads(run);
    let n_splits = if run.drops() && trains { 1 } else { run.flash_splits(trains) };
    let w = &mut run.w;
    let padded: Vec<_> = (0..if pads { 3 } else { 0 }).map(|_| w.alloc(Tensor::QkvPadded, at)).collect();
    let mut atty = w.alloc(if pads { Tensor::AttyPadded } else { Tensor::Atty }, at);
    let lse = w.alloc(Tensor::AttLse, at);
    let splits =
        (n_splits > 1).then(|| [Tensor::FlashLseSplits, Tensor::FlashOutSplits].map(|tensor| w.alloc(tensor, at)));
    let [rng, unused] = [Tensor::AttRng, Tensor::AttRngUnused].map(|tensor| w.alloc(tensor, at));
    w.free_all(splits.into_iter().flatten());
    // A debug mask, which is freed at once.
    w.transient(Tensor::AttDebugMask, at);
    if saves == SavePolicy::Nothing {
        w.free_all([unused, rng, lse]);
        w.free_all(padded);
        if pads {
            let rows = w.alloc(Tensor::AttyRows, at);
            w.free(atty);
            atty = rows;
        }
        return AttentionForward { dead: vec![atty, qkv], output: None, saved: SavedAttention::default() };
    }
    if pads {
        let rows = w.alloc(Tensor::AttyRows, at);
        let fused = padded.into_iter().chain([lse, atty, rng, unused]).collect();
        let saved = SavedAttention { fused, ..SavedAttention::default() };
        return AttentionForward { dead: vec![qkv], output: Some(rows), saved };
    }
    let saved = SavedAttention { fused: vec![qkv, lse, atty, rng, unused], ..SavedAttention::default() };
    AttentionForward { dead: Vec::new(), output: None, saved }
}

/// Whether `matmul` uses q, k and v of shape (B, H, T, D) without a copy. Its `expand(...).reshape({B * H, ...})` joins
/// the first two axes: a view if one of them is 1, otherwise a copy.
///
/// Source: `_matmul_impl` in aten/src/ATen/native/LinearAlgebra.cpp (2.11).
fn joins_heads_without_copy(run: &Run<'_>, trains: bool) -> bool {
    let batch_size = if trains { run.train.batch_size } else { run.train.eval_batch() };
    batch_size == 1 || run.config.n_head() == 1
}

/// Converts the output per head to rows of all heads: `transpose(1, 2).contiguous()`, which does not copy with one
/// head.
fn rows_of_heads(run: &mut Run<'_>, layer: u64, heads: Slot) -> Slot {
    if run.config.n_head() == 1 {
        return heads;
    }
    let rows = run.w.alloc(Tensor::AttyRows, Some(layer));
    run.w.free(heads);
    rows
}

/// Converts the gradient of q, k or v per head to a part of qkv's gradient, by the inverse transposition.
fn gradient_rows(run: &mut Run<'_>, layer: u64, by_head: Slot) -> Slot {
    if run.config.n_head() == 1 {
        return by_head;
    }
    let rows = run.w.alloc(Tensor::DkRows, Some(layer));
    run.w.free(by_head);
    rows
}

fn math(run: &mut Run<'_>, layer: u64, qkv: Slot, trains: bool, saves: SavePolicy) -> AttentionForward {
    let at = Some(layer);
    let keeps = saves == SavePolicy::All;
    let half = run.train.is_half();
    let copies_for_softmax = run.train.dtype == Dtype::Bfloat16;
    let copies = !joins_heads_without_copy(run, trains);
    let w = &mut run.w;
    let q_and_k = copies.then(|| [Tensor::QClone, Tensor::KClone].map(|tensor| w.alloc(tensor, at)));
    let preatt = w.alloc(Tensor::Preatt, at);
    if let (false, Some([q, k])) = (keeps, q_and_k) {
        w.free_all([k, q]);
    }
    let scaled = w.alloc(Tensor::PreattScaled, at);
    w.free(preatt);
    let mask = w.alloc(Tensor::AttMask, at);
    let masked = w.alloc(Tensor::PreattMasked, at);
    if !keeps {
        w.free(mask);
    }
    w.free(scaled);
    // softmax converts float16 to float32 inside its kernel (`half_to_float`); bfloat16 is copied first.
    let masked_f32 = copies_for_softmax.then(|| w.alloc(Tensor::PreattF32, at));
    let att = w.alloc(Tensor::Att, at);
    w.free_some(masked_f32);
    w.free(masked);
    let drops = run.config.dropout() > 0.0 && trains;
    let w = &mut run.w;
    let mut named = att;
    let mut att_drop_mask = None;
    if drops {
        named = w.alloc(Tensor::AttDropped, at);
        let mask = w.alloc(Tensor::AttDropMask, at);
        if keeps {
            att_drop_mask = Some(mask);
        } else {
            w.free_all([mask, att]);
        }
    }
    let att_cast = half.then(|| w.alloc(Tensor::AttCast, at));
    let v = copies.then(|| w.alloc(Tensor::VClone, at));
    let heads = w.alloc(Tensor::AttyHeads, at);
    if !keeps {
        w.free_some(v);
        w.free_some(att_cast);
    }
    let rows = rows_of_heads(run, layer, heads);
    if !keeps {
        return AttentionForward { dead: vec![rows, qkv, named], output: None, saved: SavedAttention::default() };
    }
    let mut dead = Vec::new();
    let operands = match (q_and_k, v) {
        (Some([q, k]), Some(v)) => {
            dead.push(qkv);
            Operands::Copies { q, k, v }
        }
        _ => Operands::Views { qkv },
    };
    // In float32, the product saves the matrix after dropout; in half precision, it saves the cast copy.
    let operand = att_cast.or_else(|| drops.then_some(named));
    if drops && half {
        dead.push(named);
    }
    let math = SavedMath { operands, mask, att, att_drop_mask, att_cast: operand };
    AttentionForward {
        dead,
        output: Some(rows),
        saved: SavedAttention { math: Some(math), ..SavedAttention::default() },
    }
}

/// Attention's backward: computes the gradient of qkv from the gradient of the output.
pub(super) fn backward(run: &mut Run<'_>, layer: u64, datty: Slot, saved: SavedAttention) -> Slot {
    match saved {
        SavedAttention { math: Some(math), .. } => math_backward(run, layer, datty, &math),
        SavedAttention { composite: Some(saved), .. } => composite::backward(run, layer, datty, &saved),
        SavedAttention { fused, .. } => fused_backward(run, layer, datty, fused),
    }
}

fn fused_backward(run: &mut Run<'_>, layer: u64, datty: Slot, saved: Vec<Slot>) -> Slot {
    let at = Some(layer);
    let kernel = run.attention_kernel(Pass::Training);
    if kernel == AttentionKernel::Flash && pads(run) {
        return padded_flash_backward(run, layer, datty, saved);
    }
    let w = &mut run.w;
    let [dq, dk, dv] = [Tensor::Dq, Tensor::Dk, Tensor::Dv].map(|tensor| w.alloc(tensor, at));
    match kernel {
        AttentionKernel::Flash => {
            let softmax_d = w.alloc(Tensor::FlashSoftmaxD, at);
            let dq_accum = w.alloc(Tensor::FlashDqAccum, at);
            w.free_all([softmax_d, dq_accum]);
        }
        AttentionKernel::Cudnn => w.transient(Tensor::CudnnDqAccum, at),
        AttentionKernel::Efficient => run.efficient_backward_scratch(at),
        AttentionKernel::Math | AttentionKernel::Composite => {}
    }
    let w = &mut run.w;
    w.free(datty);
    w.free_all(saved);
    let dqkv = w.alloc(Tensor::Dqkv, at);
    w.free_all([dq, dk, dv]);
    dqkv
}

fn padded_flash_backward(run: &mut Run<'_>, layer: u64, datty: Slot, saved: Vec<Slot>) -> Slot {
    let at = Some(layer);
    let w = &mut run.w;
    let datty_padded = w.alloc(Tensor::DattyPadded, at);
    w.free(datty);
    let padded = [(); 3].map(|()| w.alloc(Tensor::DqkvPadded, at));
    let softmax_d = w.alloc(Tensor::FlashSoftmaxD, at);
    let dq_accum = w.alloc(Tensor::FlashDqAccum, at);
    w.free_all([softmax_d, dq_accum, datty_padded]);
    w.free_all(saved);
    let [dq, dk, dv] = padded;
    let [dv, dk, dq] = [(dv, Tensor::Dv), (dk, Tensor::Dk), (dq, Tensor::Dq)].map(|(padded, tensor)| {
        let slot = w.alloc(tensor, at);
        w.free(padded);
        slot
    });
    // Autograd runs the nodes in reverse order of creation: v's, then q's, then k's.
    let rows = [dv, dq, dk].map(|by_head| gradient_rows(run, layer, by_head));
    let dqkv = run.w.alloc(Tensor::Dqkv, at);
    run.w.free_all(rows);
    dqkv
}

fn math_backward(run: &mut Run<'_>, layer: u64, datty: Slot, saved: &SavedMath) -> Slot {
    let at = Some(layer);
    let (half, dtype) = (run.train.is_half(), run.train.dtype);
    let w = &mut run.w;
    let mut by_head = datty;
    if let Operands::Copies { .. } = saved.operands {
        by_head = w.alloc(Tensor::DattyClone, at);
        w.free(datty);
    }
    let dv = w.alloc(Tensor::DvHeads, at);
    let mut datt = w.alloc(Tensor::DattCast, at);
    w.free(by_head);
    if let Operands::Copies { v, .. } = saved.operands {
        w.free(v);
    }
    w.free_some(saved.att_cast);
    if half {
        let wide = w.alloc(Tensor::DattF32, at);
        w.free(datt);
        datt = wide;
    }
    if let Some(mask) = saved.att_drop_mask {
        let before = w.alloc(Tensor::DattDropped, at);
        w.free_all([datt, mask]);
        datt = before;
    }
    let narrows_inside = dtype == Dtype::Float16;
    let mut gradient = w.alloc(if narrows_inside { Tensor::DpreattCast } else { Tensor::Dpreatt }, at);
    w.free_all([datt, saved.att]);
    if half && !narrows_inside {
        let narrow = w.alloc(Tensor::DpreattCast, at);
        w.free(gradient);
        gradient = narrow;
    }
    let masked = w.alloc(Tensor::DpreattMasked, at);
    w.free_all([gradient, saved.mask]);
    let scaled = w.alloc(Tensor::DpreattScaled, at);
    w.free(masked);
    let dk = w.alloc(Tensor::DkHeads, at);
    let dq = w.alloc(Tensor::DqHeads, at);
    w.free(scaled);
    match saved.operands {
        Operands::Copies { q, k, .. } => w.free_all([k, q]),
        Operands::Views { qkv } => w.free(qkv),
    }
    let [dv, dq] = [dv, dq].map(|by_head| gradient_rows(run, layer, by_head));
    let dqkv = run.w.alloc(Tensor::Dqkv, at);
    run.w.free_all([dv, dk, dq]);
    dqkv
}
