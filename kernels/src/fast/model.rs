//! The model: forward and backward of one batch.
//!
//! What needs a token's row alone is one chain of work over a few rows, which stay in a core's cache from the layer norm
//! to the products and back; threads share the rows out. Between such chains are what needs a sequence, attention, and
//! what needs all rows, the gradients of weights.

use headroom_shared::gpt::tensors::Tensor;

use super::{
    attention::{Saved, attention_backward, attention_forward},
    classifier::{Classifier, Gradients, classify},
    columns::ColumnSums,
    encoder::{drop_in_place, encoder_backward, encoder_forward},
    gelu::{gelu_backward, gelu_forward},
    norm::{Affine, Normalized, Output, add_bias, add_dropped, norm_backward, norm_forward, restore},
    product::{Into, Mat, Product, product_here},
    room::{Block, Room},
    team::{Crew, Disjoint, Rows},
};
use crate::{
    cpu::{
        attention_forward::Heads,
        dropout::Dropout,
        gpt::{DropoutPass, Micro, Site, Sizes},
    },
    layout::Layout,
};

/// The parameters, how to find them, and who computes.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub(super) layout: &'a Layout,
    pub(super) sizes: Sizes,
    pub(super) params: &'a [f32],
    pub(super) crew: Crew<'a>,
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

/// A branch of a block: its last linear layer, and where that one's result goes before it is dropped, if it is.
struct Branch<'a> {
    rows: Disjoint<'a>,
    dropout: Option<Dropout>,
    bias: Option<&'a [f32]>,
    weight: Mat<'a>,
}

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

    fn range(&self, tensor: Tensor, layer: Option<usize>) -> std::ops::Range<usize> {
        self.layout.range(tensor, layer).expect("every model has this tensor")
    }

    /// Products write matrices' gradients anew in an iteration's first micro-step; sums of vectors add to them.
    pub(super) fn clear_vectors(&self, grads: &mut [f32]) {
        for entry in self.layout.entries() {
            if entry.shape.len() == 1 || entry.parameter.tensor == Tensor::Wpe {
                grads[entry.range.clone()].fill(0.0);
            }
        }
    }

    /// A linear layer's weight, (OC, C).
    fn matrix(&self, (weight, _, width): Linear, layer: usize) -> Mat<'a> {
        let (weight, c) = (self.weight(weight, Some(layer)), width * self.sizes.c);
        Mat::new(weight, weight.len() / c, c)
    }

    fn branch<'b>(
        &'b self,
        rows: &'b mut [f32],
        linear: Linear,
        (layer, site, pass): (usize, Site, DropoutPass),
    ) -> Branch<'b> {
        let (weight, bias) = (self.matrix(linear, layer).transposed(), self.find(linear.1, Some(layer)));
        Branch { rows: Disjoint::new(rows), dropout: pass.at(site), bias, weight }
    }

    /// Adds a branch's linear layer to the residual stream, for some rows.
    fn add_branch(&self, residual: &mut [f32], inp: &[f32], branch: &Branch<'_>, rows: Rows) {
        let c = self.sizes.c;
        let inp = Mat::new(inp, rows.len, inp.len() / rows.len);
        match branch.dropout {
            Some(dropout) => {
                // SAFETY: the task's own rows.
                let out = unsafe { rows.of(&branch.rows, c) };
                product_here(out, inp, branch.weight, Into::Fresh, 1.0);
                add_dropped(residual, out, branch.bias, dropout, rows.start * c);
            }
            None => {
                product_here(residual, inp, branch.weight, Into::Sum, 1.0);
                if let Some(bias) = branch.bias {
                    add_bias(residual, bias);
                }
            }
        }
    }

    /// Up to the last layer norm, whose result is in `room.ln`.
    pub(super) fn forward(&self, room: &mut Room, inp: &[u32], pass: DropoutPass) {
        let Sizes { t, c, l, .. } = self.sizes;
        let (wte, wpe) = (self.weight(Tensor::Wte, None), self.weight(Tensor::Wpe, None));
        encoder_forward(self.crew.team, &mut room.residual, inp, (wte, wpe), (t, c), pass.at(Site::Encoded));
        for layer in 0..l {
            self.block_forward(room, layer, pass);
        }
        let (residual, ln) = (&room.residual, Disjoint::new(&mut room.ln));
        let (xhat, rstd) = (Disjoint::new(&mut room.xhatf), Disjoint::new(&mut room.rstdf));
        self.crew.for_each_rows(inp.len(), |rows| {
            // SAFETY: the task's own rows.
            let output = unsafe { Output { xhat: rows.of(&xhat, c), rstd: rows.of(&rstd, 1), ln: rows.of(&ln, c) } };
            norm_forward(output, rows.read(residual, c), self.affine(LN_F, None));
        });
    }

    fn block_forward(&self, room: &mut Room, layer: usize, pass: DropoutPass) {
        let (c, here) = (self.sizes.c, Some(layer));
        let Room { residual, ln, attproj, fcproj, blocks, .. } = room;
        let n = residual.len() / c;
        let Block { xhat1, rstd1, qkv, atty, lse, xhat2, rstd2, fch, fch_gelu } = &mut blocks[layer];
        let ln = Disjoint::new(ln);
        {
            let (xhat, rstd, qkv) = (Disjoint::new(xhat1), Disjoint::new(rstd1), Disjoint::new(qkv));
            let (residual, affine) = (&*residual, self.affine(LN_1, here));
            let (weight, bias) = (self.matrix(QKV, layer).transposed(), self.find(QKV.1, here));
            self.crew.for_each_rows(n, |rows| {
                // SAFETY: the task's own rows.
                let (ln, xhat, rstd, qkv) =
                    unsafe { (rows.of(&ln, c), rows.of(&xhat, c), rows.of(&rstd, 1), rows.of(&qkv, 3 * c)) };
                norm_forward(Output { xhat, rstd, ln }, rows.read(residual, c), affine);
                linear(qkv, ln, weight, bias);
            });
        }
        attention_forward(atty, lse, qkv, self.heads(pass, layer), self.crew);
        let att_proj = self.branch(attproj, ATT_PROJ, (layer, Site::Attproj(layer), pass));
        let fc_proj = self.branch(fcproj, FC_PROJ, (layer, Site::Fcproj(layer), pass));
        let (residual, xhat, rstd) = (Disjoint::new(residual), Disjoint::new(xhat2), Disjoint::new(rstd2));
        let (fch, fch_gelu) = (Disjoint::new(fch), Disjoint::new(fch_gelu));
        let affine = self.affine(LN_2, here);
        let (weight, bias) = (self.matrix(FC, layer).transposed(), self.find(FC.1, here));
        self.crew.for_each_rows(n, |rows| {
            // SAFETY: the task's own rows.
            let (residual, ln, xhat, rstd) =
                unsafe { (rows.of(&residual, c), rows.of(&ln, c), rows.of(&xhat, c), rows.of(&rstd, 1)) };
            // SAFETY: as above.
            let (fch, fch_gelu) = unsafe { (rows.of(&fch, 4 * c), rows.of(&fch_gelu, 4 * c)) };
            self.add_branch(residual, rows.read(atty, c), &att_proj, rows);
            norm_forward(Output { xhat, rstd, ln }, residual, affine);
            linear(fch, ln, weight, bias);
            gelu_forward(fch_gelu, fch);
            self.add_branch(residual, fch_gelu, &fc_proj, rows);
        });
    }

    /// Losses, and the gradients that start backward.
    pub(super) fn classify(&self, room: &mut Room, targets: &[u32], gradients: Option<(&mut [f32], Micro)>) {
        let Room { ln, logits, losses, dln, .. } = room;
        let wte = self.weight(Tensor::Wte, None);
        let classifier = Classifier { team: self.crew.team, logits, losses, lnf: ln, wte, targets };
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
        {
            let Room { dresidual, dln, xhatf, rstdf, .. } = &mut *room;
            let (dresidual, weight) = (Disjoint::new(dresidual), self.affine(LN_F, None).weight);
            self.crew.for_each_rows(inp.len(), |rows| {
                let (dln, xhat, rstd) = (rows.read(dln, c), rows.read(xhatf, c), rows.read(rstdf, 1));
                // SAFETY: the task's own rows.
                norm_backward(unsafe { rows.of(&dresidual, c) }, None, Normalized { dln, xhat, rstd, weight });
            });
            self.gradients(&[], &self.norm_sums(&Disjoint::new(grads), LN_F, None, dln, xhatf));
        }
        for layer in (0..l).rev() {
            self.block_backward(room, &Disjoint::new(grads), layer, micro);
        }
        if let Some(dropout) = micro.dropout.at(Site::Encoded) {
            let dresidual = Disjoint::new(&mut room.dresidual);
            // SAFETY: the task's own rows.
            self.crew.for_each_rows(inp.len(), |rows| unsafe {
                drop_in_place(rows.of(&dresidual, c), rows.start * c, dropout);
            });
        }
        let wpe = self.range(Tensor::Wpe, None);
        let (before, after) = grads.split_at_mut(wpe.start);
        encoder_backward(self.crew.team, &mut before[wte], &mut after[..wpe.len()], &room.dresidual, inp, (t, c));
    }

    fn block_backward(&self, room: &mut Room, grads: &Disjoint<'_>, layer: usize, micro: Micro) {
        let (c, here) = (self.sizes.c, Some(layer));
        let Room { ln, attproj, fcproj, blocks, dresidual, dresidual2, dln, datty, dqkv, dfch, .. } = room;
        let n = dresidual.len() / c;
        let block = &blocks[layer];
        let [qkv, att_proj, fc, fc_proj] = [QKV, ATT_PROJ, FC, FC_PROJ].map(|linear| self.matrix(linear, layer));
        let [drops_att, drops_fc] = [Site::Attproj(layer), Site::Fcproj(layer)].map(|site| micro.dropout.at(site));
        {
            let (dresidual, dresidual2, ln) = (&*dresidual, Disjoint::new(dresidual2), Disjoint::new(ln));
            let (attproj, fcproj) = (Disjoint::new(attproj), Disjoint::new(fcproj));
            let (dln, dfch, datty) = (Disjoint::new(dln), Disjoint::new(dfch), Disjoint::new(datty));
            let affine = self.affine(LN_2, here);
            self.crew.for_each_rows(n, |rows| {
                // SAFETY: the task's own rows.
                let (dresidual2, ln, dln) = unsafe { (rows.of(&dresidual2, c), rows.of(&ln, c), rows.of(&dln, c)) };
                // SAFETY: as above.
                let (dfch, datty) = unsafe { (rows.of(&dfch, 4 * c), rows.of(&datty, c)) };
                let past = rows.read(dresidual, c);
                let dbranch = dropped(&fcproj, past, c, drops_fc, rows);
                linear(dfch, dbranch, fc_proj, None);
                gelu_backward(dfch, rows.read(&block.fch, 4 * c));
                linear(dln, dfch, fc, None);
                let (xhat, rstd) = (rows.read(&block.xhat2, c), rows.read(&block.rstd2, 1));
                restore(ln, xhat, affine);
                norm_backward(dresidual2, Some(past), Normalized { dln, xhat, rstd, weight: affine.weight });
                linear(datty, dropped(&attproj, dresidual2, c, drops_att, rows), att_proj, None);
            });
        }
        let saved = Saved { qkv: &block.qkv, out: &block.atty, lse: &block.lse };
        attention_backward(dqkv, datty, saved, self.heads(micro.dropout, layer), self.crew);
        let dfcproj = if drops_fc.is_some() { &*fcproj } else { &*dresidual };
        let dattproj = if drops_att.is_some() { &*attproj } else { &*dresidual2 };
        let [scale, shift] = self.norm_sums(grads, LN_2, here, dln, &block.xhat2);
        self.gradients(
            &[
                self.weight_gradient(grads, FC, layer, (dfch, ln), micro),
                self.weight_gradient(grads, FC_PROJ, layer, (dfcproj, &block.fch_gelu), micro),
                self.weight_gradient(grads, ATT_PROJ, layer, (dattproj, &block.atty), micro),
            ],
            &[
                self.bias_sums(grads, FC, layer, dfch),
                self.bias_sums(grads, FC_PROJ, layer, dfcproj),
                self.bias_sums(grads, ATT_PROJ, layer, dattproj),
                scale,
                shift,
            ],
        );
        {
            let (dresidual, dresidual2, ln) = (Disjoint::new(dresidual), &*dresidual2, Disjoint::new(ln));
            let (dln, dqkv, affine) = (Disjoint::new(dln), &*dqkv, self.affine(LN_1, here));
            self.crew.for_each_rows(n, |rows| {
                // SAFETY: the task's own rows.
                let (dresidual, ln, dln) = unsafe { (rows.of(&dresidual, c), rows.of(&ln, c), rows.of(&dln, c)) };
                linear(dln, rows.read(dqkv, 3 * c), qkv, None);
                let (xhat, rstd) = (rows.read(&block.xhat1, c), rows.read(&block.rstd1, 1));
                restore(ln, xhat, affine);
                let past = Some(rows.read(dresidual2, c));
                norm_backward(dresidual, past, Normalized { dln, xhat, rstd, weight: affine.weight });
            });
        }
        let [scale, shift] = self.norm_sums(grads, LN_1, here, dln, &block.xhat1);
        self.gradients(
            &[self.weight_gradient(grads, QKV, layer, (dqkv, ln), micro)],
            &[self.bias_sums(grads, QKV, layer, dqkv), scale, shift],
        );
    }

    /// dweight = dout^T x inp, of all rows.
    fn weight_gradient<'b>(
        &self,
        grads: &'b Disjoint<'_>,
        (weight, _, width): Linear,
        layer: usize,
        (dout, inp): (&'b [f32], &'b [f32]),
        micro: Micro,
    ) -> Product<'b> {
        let c = width * self.sizes.c;
        let range = self.range(weight, Some(layer));
        let (rows, oc) = (inp.len() / c, range.len() / c);
        // SAFETY: each tensor's gradient is computed once at a time.
        let dweight = unsafe { grads.part(range.start, range.len()) };
        Product::new(dweight, Mat::new(dout, rows, oc).transposed(), Mat::new(inp, rows, c), into(micro))
    }

    fn sums<'b>(
        &self,
        grads: &'b Disjoint<'_>,
        tensor: Tensor,
        layer: Option<usize>,
        src: &'b [f32],
        times: Option<&'b [f32]>,
    ) -> Option<ColumnSums<'b>> {
        let range = self.layout.range(tensor, layer)?;
        // SAFETY: each tensor's gradient is computed once at a time.
        Some(ColumnSums::new(unsafe { grads.part(range.start, range.len()) }, src, times))
    }

    fn bias_sums<'b>(
        &self,
        grads: &'b Disjoint<'_>,
        linear: Linear,
        layer: usize,
        dout: &'b [f32],
    ) -> Option<ColumnSums<'b>> {
        self.sums(grads, linear.1, Some(layer), dout, None)
    }

    /// The gradients of a layer norm's scale and shift.
    fn norm_sums<'b>(
        &self,
        grads: &'b Disjoint<'_>,
        norm: Norm,
        layer: Option<usize>,
        dln: &'b [f32],
        xhat: &'b [f32],
    ) -> [Option<ColumnSums<'b>>; 2] {
        [self.sums(grads, norm.0, layer, dln, Some(xhat)), self.sums(grads, norm.1, layer, dln, None)]
    }

    /// Computes the gradients of some tensors, which are different ones.
    fn gradients(&self, products: &[Product<'_>], sums: &[Option<ColumnSums<'_>>]) {
        let pieces = self.crew.team.threads();
        let n_sums: usize = sums.iter().flatten().map(ColumnSums::pieces).sum();
        self.crew.team.for_each(products.len() * pieces + n_sums, |i| {
            if let Some(product) = products.get(i / pieces) {
                // SAFETY: every piece once.
                return unsafe { product.piece(i % pieces, pieces) };
            }
            let mut i = i - products.len() * pieces;
            for sums in sums.iter().flatten() {
                if i < sums.pieces() {
                    // SAFETY: every piece once.
                    return unsafe { sums.piece(i) };
                }
                i -= sums.pieces();
            }
        });
    }
}

/// out = inp x weight + bias, for some rows.
fn linear(out: &mut [f32], inp: &[f32], weight: Mat<'_>, bias: Option<&[f32]>) {
    product_here(out, Mat::new(inp, inp.len() / weight.rows, weight.rows), weight, Into::Fresh, 1.0);
    if let Some(bias) = bias {
        add_bias(out, bias);
    }
}

/// What becomes of a matrix's gradient: in an iteration's first micro-step it is written anew.
fn into(micro: Micro) -> Into {
    if micro.first { Into::Fresh } else { Into::Sum }
}

/// A branch's gradient: the residual stream's, less what was dropped, which is kept for the weight's gradient.
fn dropped<'a>(
    branch: &'a Disjoint<'_>,
    dresidual: &'a [f32],
    c: usize,
    dropout: Option<Dropout>,
    rows: Rows,
) -> &'a [f32] {
    let Some(dropout) = dropout else { return dresidual };
    // SAFETY: the task's own rows.
    let branch = unsafe { rows.of(branch, c) };
    branch.copy_from_slice(dresidual);
    drop_in_place(branch, rows.start * c, dropout);
    branch
}
