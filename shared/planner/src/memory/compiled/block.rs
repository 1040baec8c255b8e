//! A transformer block in compiled code, in the training forward and in a recomputation.

use super::{
    BufferUse, attention,
    residual::Residual,
    wrapper::{Buf, Graph},
};
use crate::{gpt::tensors::Tensor, memory::context::Run};

/// A layer norm's output, and the tensors that its backward reads besides the gradient.
#[derive(Clone)]
pub(super) struct Norm {
    pub(super) out: Buf,
    pub(super) saved: Vec<(Tensor, Buf)>,
}

/// Tensors that a block's backward reads.
pub(super) struct Block {
    /// `None` for the first block, whose input is saved with the embedding.
    pub(super) ln1: Option<Vec<(Tensor, Buf)>>,
    pub(super) ln1_out: Buf,
    pub(super) qkv_weight: Option<Buf>,
    pub(super) attention: attention::Attention,
    pub(super) att_proj_weight: Option<Buf>,
    pub(super) attproj_mask: Option<Buf>,
    pub(super) ln2: Vec<(Tensor, Buf)>,
    pub(super) ln2_out: Buf,
    pub(super) fc_weight: Option<Buf>,
    pub(super) fch: Buf,
    pub(super) fch_gelu: Buf,
    pub(super) fc_proj_weight: Option<Buf>,
    pub(super) fcproj_mask: Option<Buf>,
}

/// Writes a block's kernels up to the activation of its MLP, or through its last product with `through_mlp`. The
/// residual stream then holds the branches as terms.
pub(super) fn write(
    run: &Run<'_>,
    g: &mut Graph,
    layer: u64,
    (ln1_out, residual): (Buf, &mut Residual),
    seeds: Option<Buf>,
    (keeps, through_mlp): (BufferUse, bool),
) -> Block {
    let at = Some(layer);
    let ctx = Context { run, at, keeps };
    let qkv = ctx.linear(g, ln1_out, [Tensor::QkvWCast, Tensor::QkvBCast, Tensor::Qkv], None);
    let attention = attention::forward(run, g, layer, qkv.out, keeps);
    let att_proj = ctx.linear(g, attention.out.1, [Tensor::AttProjWCast, Tensor::AttProjBCast, Tensor::Attproj], None);
    let attproj_mask = seeds.map(|_| ctx.kept(g, Tensor::AttprojMask));
    residual.add(att_proj.out, attproj_mask);
    let rows = [Tensor::Xhat2, Tensor::Ln2Mean, Tensor::Ln2Rstd, Tensor::Ln2Out];
    let ln2 = norm(g, ctx, rows, residual, FusedDropout { mask: attproj_mask, seeds }, Sum::WhenRead);
    let fc = ctx.linear(g, ln2.out, [Tensor::FcWCast, Tensor::FcBCast, Tensor::Fch], None);
    // Without a bias, the next weight is cast before the activation, with a bias after it.
    let fc_proj_rows = [Tensor::FcProjWCast, Tensor::FcProjBCast, Tensor::Fcproj];
    let early = (!run.config.bias()).then(|| ctx.cast(g, fc_proj_rows[0])).flatten();
    let fch_gelu = ctx.kept(g, Tensor::FchGelu);
    let activation = g.kernel(&[fch_gelu], &[fc.out]);
    match keeps {
        BufferUse::ForBackward => activation.keep(fc.out),
        BufferUse::Nothing => {
            activation.in_place(fch_gelu, &[fc.out]);
        }
        BufferUse::InGraph => {}
    }
    let mut fc_proj_weight = early;
    let mut fcproj_mask = None;
    if through_mlp {
        let fc_proj = ctx.linear(g, fch_gelu, fc_proj_rows, early);
        fc_proj_weight = fc_proj.weight;
        fcproj_mask = seeds.map(|_| ctx.kept(g, Tensor::FcprojMask));
        residual.add(fc_proj.out, fcproj_mask);
    } else if fc_proj_weight.is_none() {
        fc_proj_weight = ctx.cast(g, fc_proj_rows[0]);
    }
    Block {
        ln1: None,
        ln1_out,
        qkv_weight: qkv.weight,
        attention,
        att_proj_weight: att_proj.weight,
        attproj_mask,
        ln2: ln2.saved,
        ln2_out: ln2.out,
        fc_weight: fc.weight,
        fch: fc.out,
        fch_gelu,
        fc_proj_weight,
        fcproj_mask,
    }
}

/// Dropout of a branch, fused into a norm's kernel.
#[derive(Clone, Copy)]
pub(super) struct FusedDropout {
    pub(super) mask: Option<Buf>,
    pub(super) seeds: Option<Buf>,
}

/// Whether a norm's kernel stores the sum of the residual stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    /// If it would otherwise be read too often.
    WhenRead,
    /// Always: a checkpointed block starts from the stream.
    Always,
    /// Never: nothing reads the stream afterwards.
    Never,
}

/// A layer norm after a branch: sums the residual stream, stores the sum if required, and writes its output and the
/// tensors that its backward reads. Rows: normalised stream, mean, inverse deviation, output.
pub(super) fn norm(
    g: &mut Graph,
    ctx: Context<'_, '_>,
    [xhat, mean, rstd, out]: [Tensor; 4],
    residual: &mut Residual,
    masked: FusedDropout,
    sum: Sum,
) -> Norm {
    let summed = residual.summed();
    let stores = sum == Sum::Always || (sum == Sum::WhenRead && summed.stores);
    let stored = stores.then(|| g.planned(Tensor::Residual, ctx.at));
    let rows: &[Tensor] = match ctx.keeps {
        BufferUse::ForBackward => &[xhat, out, rstd],
        BufferUse::Nothing => &[out],
        BufferUse::InGraph => &[mean, rstd, out],
    };
    let written: Vec<_> = rows.iter().map(|&row| (row, ctx.kept(g, row))).collect();
    let outputs: Vec<_> = masked.mask.into_iter().chain(stored).chain(written.iter().map(|&(_, buf)| buf)).collect();
    let reads: Vec<_> =
        summed.reads.iter().copied().filter(|read| Some(*read) != masked.mask).chain(masked.seeds).collect();
    let find = |row: Tensor| written.iter().find(|(tensor, _)| *tensor == row).map(|&(_, buf)| buf);
    let kernel = g.kernel(&outputs, &reads);
    match (stored, find(xhat)) {
        (Some(sum), _) => {
            kernel.in_place(sum, &summed.reads);
        }
        (None, Some(xhat)) if sum == Sum::Never => {
            kernel.in_place(xhat, &summed.reads);
        }
        _ => {}
    }
    let out = find(out).unwrap_or(outputs[0]);
    let mut saved: Vec<_> = written.into_iter().filter(|&(_, buf)| buf != out).collect();
    if ctx.keeps == BufferUse::InGraph {
        saved.extend(summed.reads.iter().map(|&term| (Tensor::Residual, term)));
    }
    if let Some(sum) = stored {
        residual.stored(sum);
    }
    Norm { out, saved }
}

/// Context of a kernel: run, block and use of its buffers.
#[derive(Clone, Copy)]
pub(super) struct Context<'r, 'a> {
    pub(super) run: &'r Run<'a>,
    pub(super) at: Option<u64>,
    pub(super) keeps: BufferUse,
}

/// A linear layer's output, and its weight as the product reads it.
pub(super) struct Linear {
    pub(super) weight: Option<Buf>,
    pub(super) out: Buf,
}

impl Context<'_, '_> {
    /// Allocates a buffer that the graph returns if it saves tensors for backward.
    pub(super) fn kept(&self, g: &mut Graph, tensor: Tensor) -> Buf {
        let buf = g.planned(tensor, self.at);
        if self.keeps == BufferUse::ForBackward {
            g.keep(buf);
        }
        buf
    }

    /// Half-precision copy of a weight.
    pub(super) fn cast(&self, g: &mut Graph, tensor: Tensor) -> Option<Buf> {
        self.run.train.is_half().then(|| {
            let cast = self.kept(g, tensor);
            g.kernel(&[cast], &[]);
            cast
        })
    }

    /// A linear layer: the casts of weight (unless already cast) and bias, and the product.
    fn linear(&self, g: &mut Graph, input: Buf, [weight, bias, out]: [Tensor; 3], early: Option<Buf>) -> Linear {
        let weight = early.or_else(|| self.cast(g, weight));
        let bias = (self.run.config.bias() && self.run.train.is_half()).then(|| {
            let bias = g.planned(bias, self.at);
            g.kernel(&[bias], &[]);
            bias
        });
        let out = g.planned(out, self.at);
        let reads: Vec<_> = [input].into_iter().chain(weight).chain(bias).collect();
        g.kernel(&[out], &reads).product();
        if self.keeps == BufferUse::ForBackward {
            g.keep(input);
        }
        Linear { weight, out }
    }
}
