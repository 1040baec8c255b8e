//! The model: forward and backward of one batch, kernel by kernel.

use headroom_shared::gpt::tensors::Tensor;
use rayon::prelude::*;

use super::{
    attention::{Saved, Workspace, attention_backward, attention_forward},
    classifier::{Classifier, Gradients, classify},
    columns::{add_column_sums, add_norm_gradients},
    encoder::{drop_in_place, dropped_copy, encoder_backward, encoder_forward},
    gelu::{gelu_backward, gelu_forward},
    norm::{Affine, Output, Pending, add_and_norm, norm_backward, restore},
    product::{Into, Mat, product},
    room::Room,
    trainer::Micro,
};
use crate::{
    cpu::{
        attention_forward::Heads,
        gpt::{DropoutPass, Site, Sizes},
    },
    layout::Layout,
};

/// The parameters, and how to find them.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub(super) layout: &'a Layout,
    pub(super) sizes: Sizes,
    pub(super) threads: usize,
    pub(super) params: &'a [f32],
}

/// A linear layer: its weight, its bias, and the width of its input over C.
type Linear = (Tensor, Tensor, usize);

const QKV: Linear = (Tensor::QkvW, Tensor::QkvB, 1);
const ATT_PROJ: Linear = (Tensor::AttProjW, Tensor::AttProjB, 1);
const FC: Linear = (Tensor::FcW, Tensor::FcB, 1);
const FC_PROJ: Linear = (Tensor::FcProjW, Tensor::FcProjB, 4);

/// A layer norm: its scale and its shift.
type Norm = (Tensor, Tensor);

const LN_1: Norm = (Tensor::Ln1W, Tensor::Ln1B);
const LN_2: Norm = (Tensor::Ln2W, Tensor::Ln2B);
const LN_F: Norm = (Tensor::LnfW, Tensor::LnfB);

impl<'a> Model<'a> {
    fn find(&self, tensor: Tensor, layer: Option<usize>) -> Option<&'a [f32]> {
        Some(&self.params[self.layout.range(tensor, layer)?])
    }

    fn weight(&self, tensor: Tensor, layer: Option<usize>) -> &'a [f32] {
        self.find(tensor, layer).expect("every model has this tensor")
    }

    fn affine(&self, norm: Norm, layer: Option<usize>) -> Affine<'a> {
        Affine { weight: self.weight(norm.0, layer), bias: self.find(norm.1, layer) }
    }

    fn heads(&self, pass: DropoutPass, layer: usize) -> Heads {
        let Sizes { t, c, nh, .. } = self.sizes;
        Heads { t, c, nh, dropout: pass.at(Site::Attention(layer)) }
    }

    /// Products write matrices' gradients anew in an iteration's first micro-step; sums of vectors add to them.
    pub(super) fn clear_vectors(&self, grads: &mut [f32]) {
        for entry in self.layout.entries() {
            if entry.shape.len() == 1 || entry.parameter.tensor == Tensor::Wpe {
                grads[entry.range.clone()].fill(0.0);
            }
        }
    }

    /// out = inp x weight^T + bias.
    fn linear(&self, out: &mut [f32], inp: &[f32], (weight, bias, width): Linear, layer: usize) {
        let c = width * self.sizes.c;
        let weight = self.weight(weight, Some(layer));
        let (rows, oc) = (inp.len() / c, weight.len() / c);
        let into = match self.find(bias, Some(layer)) {
            None => Into::Fresh,
            Some(bias) => {
                out.par_chunks_mut(16 * oc).for_each(|rows| {
                    rows.chunks_exact_mut(oc).for_each(|row| row.copy_from_slice(bias));
                });
                Into::Sum
            }
        };
        product(self.threads, out, Mat::new(inp, rows, c), Mat::new(weight, oc, c).transposed(), into);
    }

    /// Adds a branch's linear layer to the residual stream, or leaves it in `branch` where some of it is dropped; gives
    /// what is still to be added.
    fn branch<'b>(
        &'b self,
        residual: &mut [f32],
        branch: &'b mut [f32],
        inp: &[f32],
        (weight, bias, width): Linear,
        (layer, site, pass): (usize, Site, DropoutPass),
    ) -> Pending<'b> {
        let c = width * self.sizes.c;
        let weight = self.weight(weight, Some(layer));
        let bias = self.find(bias, Some(layer));
        let (inp, weight) = (Mat::new(inp, inp.len() / c, c), Mat::new(weight, self.sizes.c, c).transposed());
        match pass.at(site) {
            Some(dropout) => {
                product(self.threads, branch, inp, weight, Into::Fresh);
                Pending::Dropped(branch, bias, dropout)
            }
            None => {
                product(self.threads, residual, inp, weight, Into::Sum);
                bias.map_or(Pending::Nothing, Pending::Bias)
            }
        }
    }

    /// Up to the last layer norm, whose result is in `room.ln`.
    pub(super) fn forward(&self, room: &mut Room, inp: &[u32], pass: DropoutPass) {
        let Sizes { t, c, .. } = self.sizes;
        let Room { residual, ln, branch, blocks, xhatf, rstdf, scratch, .. } = room;
        let (wte, wpe) = (self.weight(Tensor::Wte, None), self.weight(Tensor::Wpe, None));
        encoder_forward(residual, inp, wte, wpe, (t, c), pass.at(Site::Encoded));
        let mut pending = Pending::Nothing;
        for (layer, block) in blocks.iter_mut().enumerate() {
            let output = Output { xhat: &mut block.xhat1, rstd: &mut block.rstd1, ln };
            add_and_norm(output, residual, pending, self.affine(LN_1, Some(layer)));
            self.linear(&mut block.qkv, ln, QKV, layer);
            let workspace = Workspace { data: scratch, threads: self.threads };
            attention_forward(&mut block.atty, &mut block.lse, &block.qkv, self.heads(pass, layer), workspace);
            let pending2 = self.branch(residual, branch, &block.atty, ATT_PROJ, (layer, Site::Attproj(layer), pass));
            let output = Output { xhat: &mut block.xhat2, rstd: &mut block.rstd2, ln };
            add_and_norm(output, residual, pending2, self.affine(LN_2, Some(layer)));
            self.linear(&mut block.fch, ln, FC, layer);
            gelu_forward(&mut block.fch_gelu, &block.fch);
            pending = self.branch(residual, branch, &block.fch_gelu, FC_PROJ, (layer, Site::Fcproj(layer), pass));
        }
        add_and_norm(Output { xhat: xhatf, rstd: rstdf, ln }, residual, pending, self.affine(LN_F, None));
    }

    /// Losses, and the gradients that start backward.
    pub(super) fn classify(&self, room: &mut Room, targets: &[u32], gradients: Option<(&mut [f32], Micro)>) {
        let Room { ln, logits, losses, dln, .. } = room;
        let wte = self.weight(Tensor::Wte, None);
        let classifier = Classifier { threads: self.threads, logits, losses, lnf: ln, wte, targets };
        let gradients = gradients.map(|(dwte, micro)| Gradients {
            dlnf: dln,
            dwte,
            into: into(micro),
            dloss: micro.loss_scale / targets.len() as f32,
        });
        classify(classifier, gradients);
    }

    pub(super) fn backward(&self, room: &mut Room, grads: &mut [f32], inp: &[u32], targets: &[u32], micro: Micro) {
        let Sizes { t, c, l, .. } = self.sizes;
        let wte = self.range(Tensor::Wte, None);
        self.classify(room, targets, Some((&mut grads[wte.clone()], micro)));
        self.norm_backward(grads, &mut room.dresidual, false, &room.dln, (&room.xhatf, &room.rstdf), LN_F, None);
        for layer in (0..l).rev() {
            self.block_backward(room, grads, layer, micro);
        }
        if let Some(dropout) = micro.dropout.at(Site::Encoded) {
            drop_in_place(&mut room.dresidual, c, dropout);
        }
        let wpe = self.range(Tensor::Wpe, None);
        let (before, after) = grads.split_at_mut(wpe.start);
        encoder_backward(&mut before[wte], &mut after[..wpe.len()], &room.dresidual, inp, (t, c));
    }

    fn range(&self, tensor: Tensor, layer: Option<usize>) -> std::ops::Range<usize> {
        self.layout.range(tensor, layer).expect("every model has this tensor")
    }

    fn block_backward(&self, room: &mut Room, grads: &mut [f32], layer: usize, micro: Micro) {
        let Room { ln, branch, blocks, dresidual, dln, datty, dqkv, dfch, scratch, .. } = room;
        let (block, pass, c) = (&blocks[layer], micro.dropout, self.sizes.c);
        let here = Some(layer);

        let dbranch = dropped(branch, dresidual, c, pass, Site::Fcproj(layer));
        self.linear_backward(grads, dfch, dbranch, &block.fch_gelu, FC_PROJ, layer, micro);
        gelu_backward(dfch, &block.fch);
        restore(ln, &block.xhat2, self.affine(LN_2, here));
        self.linear_backward(grads, dln, dfch, ln, FC, layer, micro);
        self.norm_backward(grads, dresidual, true, dln, (&block.xhat2, &block.rstd2), LN_2, here);

        let dbranch = dropped(branch, dresidual, c, pass, Site::Attproj(layer));
        self.linear_backward(grads, datty, dbranch, &block.atty, ATT_PROJ, layer, micro);
        let saved = Saved { qkv: &block.qkv, out: &block.atty, lse: &block.lse };
        let workspace = Workspace { data: scratch, threads: self.threads };
        attention_backward(dqkv, datty, saved, self.heads(pass, layer), workspace);
        restore(ln, &block.xhat1, self.affine(LN_1, here));
        self.linear_backward(grads, dln, dqkv, ln, QKV, layer, micro);
        self.norm_backward(grads, dresidual, true, dln, (&block.xhat1, &block.rstd1), LN_1, here);
    }

    /// dinp = dout x weight; dweight and dbias take their shares.
    #[expect(clippy::too_many_arguments, reason = "a linear layer's backward has that many operands")]
    fn linear_backward(
        &self,
        grads: &mut [f32],
        dinp: &mut [f32],
        dout: &[f32],
        inp: &[f32],
        (weight, bias, width): Linear,
        layer: usize,
        micro: Micro,
    ) {
        let c = width * self.sizes.c;
        let range = self.range(weight, Some(layer));
        let (rows, oc) = (inp.len() / c, range.len() / c);
        if let Some(bias) = self.layout.range(bias, Some(layer)) {
            add_column_sums(&mut grads[bias], dout);
        }
        let dout = Mat::new(dout, rows, oc);
        product(self.threads, dinp, dout, Mat::new(&self.params[range.clone()], oc, c), Into::Fresh);
        product(self.threads, &mut grads[range], dout.transposed(), Mat::new(inp, rows, c), into(micro));
    }

    #[expect(clippy::too_many_arguments, reason = "a layer norm's backward has that many operands")]
    fn norm_backward(
        &self,
        grads: &mut [f32],
        dresidual: &mut [f32],
        adds: bool,
        dln: &[f32],
        (xhat, rstd): (&[f32], &[f32]),
        (weight, bias): Norm,
        layer: Option<usize>,
    ) {
        let range = self.range(weight, layer);
        norm_backward(dresidual, adds, dln, xhat, rstd, &self.params[range.clone()]);
        // A bias follows its weight.
        let n_bias = self.layout.range(bias, layer).map_or(0, |range| range.len());
        let (dweight, rest) = grads[range.start..].split_at_mut(range.len());
        add_norm_gradients(dweight, (n_bias > 0).then(|| &mut rest[..n_bias]), dln, xhat);
    }
}

/// What becomes of a matrix's gradient: in an iteration's first micro-step it is written anew.
fn into(micro: Micro) -> Into {
    if micro.first { Into::Fresh } else { Into::Sum }
}

/// A branch's gradient: the residual stream's, less what was dropped.
fn dropped<'a>(branch: &'a mut [f32], dresidual: &'a [f32], c: usize, pass: DropoutPass, site: Site) -> &'a [f32] {
    match pass.at(site) {
        None => dresidual,
        Some(dropout) => {
            dropped_copy(branch, dresidual, c, dropout);
            branch
        }
    }
}
