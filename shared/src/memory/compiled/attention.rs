//! Attention in compiled code: fused kernels are called as they are, the slow one becomes products and fused steps.

use super::wrapper::{Buf, Graph, Slots};
use crate::{
    dtype::Dtype,
    gpt::tensors::Tensor,
    memory::{
        program::Slot,
        run::{AttentionKernel, Run},
    },
};

/// Attention's output and what it keeps for backward.
pub(super) struct Attended {
    /// The input of `c_proj`.
    pub(super) out: Buf,
    kept: Vec<(Tensor, Buf)>,
    is_math: bool,
}

/// What attention's backward needs, in the order it was kept.
pub(super) struct SavedAttention {
    /// The input of `c_proj`.
    pub(super) out: (Tensor, Slot),
    saved: Vec<(Tensor, Slot)>,
    is_math: bool,
}

impl Attended {
    pub(super) fn saved(&self, slots: &Slots) -> Option<SavedAttention> {
        let mut saved = Vec::new();
        for &(tensor, buf) in &self.kept {
            saved.push((tensor, slots.of(buf)?));
        }
        let out = *saved.first()?;
        Some(SavedAttention { out, saved: saved.split_off(1), is_math: self.is_math })
    }
}

pub(super) fn forward(run: &Run<'_>, g: &mut Graph, layer: u64, qkv: Buf, trains: bool) -> Attended {
    match run.attention_kernel() {
        AttentionKernel::Math => math(run, g, layer, qkv, trains),
        kernel => fused(g, layer, qkv, kernel, trains),
    }
}

fn fused(g: &mut Graph, layer: u64, qkv: Buf, kernel: AttentionKernel, trains: bool) -> Attended {
    let at = Some(layer);
    let (lse, random): (_, &[Tensor]) = match kernel {
        AttentionKernel::Flash => (Tensor::AttLse, &[Tensor::AttRng, Tensor::AttRngUnused, Tensor::AttDebugMask]),
        AttentionKernel::Efficient if !trains => (Tensor::AttLseNone, &[Tensor::AttSeed, Tensor::AttOffset]),
        AttentionKernel::Efficient => (Tensor::AttLsePadded, &[Tensor::AttSeed, Tensor::AttOffset]),
        AttentionKernel::Cudnn | AttentionKernel::Math => (Tensor::AttLse, &[Tensor::AttSeed, Tensor::AttOffset]),
    };
    let out = g.external(Tensor::Atty, at);
    let mut outputs = vec![(Tensor::Atty, out), (lse, g.external(lse, at))];
    outputs.extend(random.iter().map(|&tensor| (tensor, g.external(tensor, at))));
    let bufs: Vec<_> = outputs.iter().map(|&(_, buf)| buf).collect();
    g.kernel(&bufs, &[qkv]);
    let mut kept = Vec::new();
    if trains {
        outputs.retain(|&(tensor, _)| tensor != Tensor::AttDebugMask);
        kept = outputs;
        kept.push((Tensor::Qkv, qkv));
        for &(_, buf) in &kept {
            g.keep(buf);
        }
    }
    Attended { out, kept, is_math: false }
}

fn math(run: &Run<'_>, g: &mut Graph, layer: u64, qkv: Buf, trains: bool) -> Attended {
    let at = Some(layer);
    let half = run.train.is_half();
    let drops = run.drops() && trains;
    let q = g.planned(Tensor::QClone, at);
    g.kernel(&[q], &[qkv]);
    let k = g.planned(Tensor::KClone, at);
    g.kernel(&[k], &[qkv]);
    let preatt = g.planned(Tensor::Preatt, at);
    g.kernel(&[preatt], &[q, k]).product();
    let (max, sum) = (g.planned(Tensor::AttMax, at), g.planned(Tensor::AttSum, at));
    let mut kept = Vec::new();
    let weights = if drops {
        let mask = g.planned(Tensor::AttDropMask, at);
        let att = g.planned(if half { Tensor::AttCast } else { Tensor::Att }, at);
        g.kernel(&[max, sum, mask, att], &[preatt]);
        kept.push((Tensor::AttDropMask, mask));
        att
    } else {
        g.kernel(&[max, sum], &[preatt]);
        let att = g.planned(if half { Tensor::AttCast } else { Tensor::Att }, at);
        let kernel = g.kernel(&[att], &[preatt, max, sum]);
        kernel.in_place(att, &[preatt]);
        att
    };
    let v = g.planned(Tensor::VClone, at);
    g.kernel(&[v], &[qkv]);
    let heads = g.planned(Tensor::AttyHeads, at);
    g.kernel(&[heads], &[weights, v]).product();
    let out = g.planned(Tensor::AttyRows, at);
    g.kernel(&[out], &[heads]);
    if trains {
        kept.splice(0..0, [(Tensor::AttyRows, out)]);
        kept.extend([
            (Tensor::Preatt, preatt),
            (Tensor::AttMax, max),
            (Tensor::AttSum, sum),
            (if half { Tensor::AttCast } else { Tensor::Att }, weights),
            (Tensor::VClone, v),
            (Tensor::QClone, q),
            (Tensor::KClone, k),
        ]);
        for &(_, buf) in &kept {
            g.keep(buf);
        }
    }
    Attended { out, kept, is_math: true }
}

/// From the gradient of `c_proj`'s input to the gradient of qkv.
pub(super) fn backward(run: &Run<'_>, g: &mut Graph, layer: u64, datty: Buf, out: Buf, saved: &SavedAttention) -> Buf {
    let inputs: Vec<_> = saved.saved.iter().map(|&(tensor, slot)| (tensor, g.input(tensor, slot))).collect();
    let at = Some(layer);
    if saved.is_math {
        return math_backward(run, g, at, datty, &inputs);
    }
    let [dq, dk, dv] = [Tensor::Dq, Tensor::Dk, Tensor::Dv].map(|tensor| g.external(tensor, at));
    let reads: Vec<_> = [datty, out].into_iter().chain(inputs.iter().map(|&(_, buf)| buf)).collect();
    g.kernel(&[dq, dk, dv], &reads);
    match run.attention_kernel() {
        AttentionKernel::Flash => g.scratch(&[Tensor::FlashSoftmaxD, Tensor::FlashDqAccum]),
        AttentionKernel::Cudnn => g.scratch(&[Tensor::CudnnDqAccum]),
        AttentionKernel::Efficient | AttentionKernel::Math => {}
    }
    let dqkv = g.planned(Tensor::Dqkv, at);
    g.kernel(&[dqkv], &[dq, dk, dv]);
    dqkv
}

fn math_backward(run: &Run<'_>, g: &mut Graph, at: Option<u64>, datty: Buf, saved: &[(Tensor, Buf)]) -> Buf {
    let of = |wanted: Tensor| saved.iter().find(|(tensor, _)| *tensor == wanted).map(|&(_, buf)| buf);
    let all = |wanted: &[Tensor]| wanted.iter().filter_map(|&tensor| of(tensor)).collect::<Vec<_>>();
    let datty_heads = g.planned(Tensor::DattyClone, at);
    g.kernel(&[datty_heads], &[datty]);
    let dv = g.planned(Tensor::DvHeads, at);
    let mut reads = vec![datty_heads];
    reads.extend(all(&[Tensor::AttCast, Tensor::Att]));
    g.kernel(&[dv], &reads).product();
    let datt = g.planned(Tensor::DattCast, at);
    let mut reads = vec![datty_heads];
    reads.extend(all(&[Tensor::VClone]));
    g.kernel(&[datt], &reads).product();
    let dpreatt = g.planned(Tensor::DpreattScaled, at);
    let mut reads = vec![datt];
    reads.extend(all(&[Tensor::AttDropMask, Tensor::Preatt, Tensor::AttMax, Tensor::AttSum]));
    g.kernel(&[dpreatt], &reads);
    if run.train.dtype == Dtype::Float32 || run.train.is_half() {
        g.in_place(dpreatt, &[datt]);
    }
    let dk = g.planned(Tensor::DkHeads, at);
    let mut reads = vec![dpreatt];
    reads.extend(all(&[Tensor::QClone]));
    g.kernel(&[dk], &reads).product();
    let dq = g.planned(Tensor::DqHeads, at);
    let mut reads = vec![dpreatt];
    reads.extend(all(&[Tensor::KClone]));
    g.kernel(&[dq], &reads).product();
    let dqkv = g.planned(Tensor::Dqkv, at);
    g.kernel(&[dqkv], &[dq, dk, dv]);
    dqkv
}
