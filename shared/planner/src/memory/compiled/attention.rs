//! Attention in compiled code: fused kernels are called directly; math attention becomes products and fused operations.

use super::{
    BufferUse,
    wrapper::{Buf, Graph},
};
use crate::{
    dtype::Dtype,
    gpt::tensors::Tensor,
    memory::{
        attention_kernel::{AttentionKernel, Pass},
        context::Run,
    },
};

/// Attention's output (the input of `c_proj`), and the other tensors that its backward reads.
pub(super) struct Attention {
    pub(super) out: (Tensor, Buf),
    pub(super) saved: Vec<(Tensor, Buf)>,
}

pub(super) fn forward(run: &Run<'_>, g: &mut Graph, layer: u64, qkv: Buf, keeps: BufferUse) -> Attention {
    match run.attention_kernel(Pass::Training) {
        AttentionKernel::Math => math(run, g, layer, qkv, keeps),
        kernel => fused(g, layer, qkv, kernel, keeps),
    }
}

fn fused(g: &mut Graph, layer: u64, qkv: Buf, kernel: AttentionKernel, keeps: BufferUse) -> Attention {
    let trains = keeps != BufferUse::Nothing;
    let at = Some(layer);
    let (lse, random): (_, &[Tensor]) = match kernel {
        AttentionKernel::Flash => (Tensor::AttLse, &[Tensor::AttRng, Tensor::AttRngUnused, Tensor::AttDebugMask]),
        AttentionKernel::Efficient if !trains => (Tensor::AttLseNone, &[Tensor::AttSeed, Tensor::AttOffset]),
        AttentionKernel::Efficient => (Tensor::AttLsePadded, &[Tensor::AttSeed, Tensor::AttOffset]),
        AttentionKernel::Cudnn | AttentionKernel::Math | AttentionKernel::Composite => {
            (Tensor::AttLse, &[Tensor::AttSeed, Tensor::AttOffset])
        }
    };
    let out = g.external(Tensor::Atty, at);
    let mut outputs = vec![(Tensor::Atty, out), (lse, g.external(lse, at))];
    outputs.extend(random.iter().map(|&tensor| (tensor, g.external(tensor, at))));
    let bufs: Vec<_> = outputs.iter().map(|&(_, buf)| buf).collect();
    g.kernel(&bufs, &[qkv]);
    outputs.retain(|&(tensor, _)| tensor != Tensor::AttDebugMask);
    outputs.push((Tensor::Qkv, qkv));
    finish(g, outputs, keeps)
}

/// Marks the tensors that backward needs as outputs of the graph; the first of `all` is attention's output.
fn finish(g: &mut Graph, mut all: Vec<(Tensor, Buf)>, keeps: BufferUse) -> Attention {
    let out = all.remove(0);
    if keeps == BufferUse::ForBackward {
        for &(_, buf) in all.iter().chain([&out]) {
            g.keep(buf);
        }
    }
    Attention { out, saved: all }
}

fn math(run: &Run<'_>, g: &mut Graph, layer: u64, qkv: Buf, keeps: BufferUse) -> Attention {
    let trains = keeps != BufferUse::Nothing;
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
    kept.splice(0..0, [(Tensor::AttyRows, out)]);
    // In float32 without dropout, backward needs only the attention weights, which overwrite the softmax's input.
    if half || drops {
        kept.extend([(Tensor::Preatt, preatt), (Tensor::AttMax, max), (Tensor::AttSum, sum)]);
    }
    kept.extend([
        (if half { Tensor::AttCast } else { Tensor::Att }, weights),
        (Tensor::VClone, v),
        (Tensor::QClone, q),
        (Tensor::KClone, k),
    ]);
    finish(g, kept, keeps)
}

/// Computes the gradient of qkv from the gradient of `c_proj`'s input.
pub(super) fn backward(run: &Run<'_>, g: &mut Graph, layer: u64, datty: Buf, saved: &Attention) -> Buf {
    let at = Some(layer);
    if run.attention_kernel(Pass::Training) == AttentionKernel::Math {
        return math_backward(run, g, at, datty, &saved.saved);
    }
    let [dq, dk, dv] = [Tensor::Dq, Tensor::Dk, Tensor::Dv].map(|tensor| g.external(tensor, at));
    let reads: Vec<_> = [datty, saved.out.1].into_iter().chain(saved.saved.iter().map(|&(_, buf)| buf)).collect();
    g.kernel(&[dq, dk, dv], &reads);
    match run.attention_kernel(Pass::Training) {
        AttentionKernel::Flash => g.scratch(&[Tensor::FlashSoftmaxD, Tensor::FlashDqAccum]),
        AttentionKernel::Cudnn => g.scratch(&[Tensor::CudnnDqAccum]),
        AttentionKernel::Efficient => g.scratch(&[Tensor::EffWorkspace]),
        AttentionKernel::Math | AttentionKernel::Composite => {}
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
