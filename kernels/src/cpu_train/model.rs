//! The model: forward and backward of one batch.
//!
//! Operations on a token's row alone form a chain over a few rows. These stay in a core's cache from the layer norm
//! through the products and back. The rows are divided among the threads. Between these chains run attention, which
//! needs whole sequences, and the gradients of weights, which need all rows.

use headroom_planner::gpt::tensors::Tensor;

use super::{
    attention::{SavedAttention, attention_backward, attention_forward},
    buffers::{Block, PassBuffers},
    classifier::{Classifier, Gradients, classify},
    columns::ColumnSums,
    encoder::{drop_in_place, encoder_backward, encoder_forward},
    gelu::{gelu_backward, gelu_forward},
    norm::{Affine, NormInputs, Output, add_bias, add_dropped, norm_backward, norm_forward, restore},
    product::{Mat, OutputMode, Product, product_here},
    thread_pool::{DisjointSlice, Rows, Workers},
};
use crate::{
    layout::Layout,
    reference::{
        attention_forward::Heads,
        dropout::Dropout,
        gpt::{DropoutPass, Micro, Site, Sizes},
    },
};

/// A model's parameters, their layout, and the threads that compute.
#[derive(Clone, Copy)]
pub(super) struct Model<'a> {
    pub(super) layout: &'a Layout,
    pub(super) sizes: Sizes,
    pub(super) params: &'a [f32],
    pub(super) crew: Workers<'a>,
}

/// A linear layer: its weight, its bias, and the width of its input as a multiple of C.
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

/// The last linear layer of a block's branch, with the buffer for its output before dropout, if any.
struct Branch<'a> {
    rows: DisjointSlice<'a>,
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

    /// Zeroes the gradients of vectors and `wpe`, which are always accumulated. Products overwrite matrix gradients in
    /// an iteration's first micro-step.
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
        Branch { rows: DisjointSlice::new(rows), dropout: pass.at(site), bias, weight }
    }

    /// Adds the output of a branch's linear layer to the residual stream, for the given rows.
    fn add_branch(&self, residual: &mut [f32], inp: &[f32], branch: &Branch<'_>, rows: Rows) {
        let c = self.sizes.c;
        let inp = Mat::new(inp, rows.len, inp.len() / rows.len);
        match branch.dropout {
            Some(dropout) => {
                // SAFETY: these rows belong to this task only.
                let out = unsafe { rows.of(&branch.rows, c) };
                product_here(out, inp, branch.weight, OutputMode::Fresh, 1.0);
                add_dropped(residual, out, branch.bias, dropout, rows.start * c);
            }
            None => {
                product_here(residual, inp, branch.weight, OutputMode::Sum, 1.0);
                if let Some(bias) = branch.bias {
                    add_bias(residual, bias);
                }
            }
        }
    }

    /// Computes forward up to the last layer norm, whose output is in `buffers.ln`.
    pub(super) fn forward(&self, buffers: &mut PassBuffers, inp: &[u32], pass: DropoutPass) {
        let Sizes { t, c, l, .. } = self.sizes;
        let (wte, wpe) = (self.weight(Tensor::Wte, None), self.weight(Tensor::Wpe, None));
        encoder_forward(self.crew.thread_pool, &mut buffers.residual, inp, (wte, wpe), (t, c), pass.at(Site::Encoded));
        for layer in 0..l {
            self.block_forward(buffers, layer, pass);
        }
        let (residual, ln) = (&buffers.residual, DisjointSlice::new(&mut buffers.ln));
        let (xhat, rstd) = (DisjointSlice::new(&mut buffers.xhatf), DisjointSlice::new(&mut buffers.rstdf));
        self.crew.for_each_rows(inp.len(), |rows| {
            // SAFETY: these rows belong to this task only.
            let output = unsafe { Output { xhat: rows.of(&xhat, c), rstd: rows.of(&rstd, 1), ln: rows.of(&ln, c) } };
            norm_forward(output, rows.read(residual, c), self.affine(LN_F, None));
        });
    }

    fn block_forward(&self, buffers: &mut PassBuffers, layer: usize, pass: DropoutPass) {
        let (c, here) = (self.sizes.c, Some(layer));
        let PassBuffers { residual, ln, attproj, fcproj, blocks, .. } = buffers;
        let n = residual.len() / c;
        let Block { xhat1, rstd1, qkv, atty, lse, xhat2, rstd2, fch, fch_gelu } = &mut blocks[layer];
        let ln = DisjointSlice::new(ln);
        {
            let (xhat, rstd, qkv) = (DisjointSlice::new(xhat1), DisjointSlice::new(rstd1), DisjointSlice::new(qkv));
            let (residual, affine) = (&*residual, self.affine(LN_1, here));
            let (weight, bias) = (self.matrix(QKV, layer).transposed(), self.find(QKV.1, here));
            self.crew.for_each_rows(n, |rows| {
                // SAFETY: these rows belong to this task only.
                let (ln, xhat, rstd, qkv) =
                    unsafe { (rows.of(&ln, c), rows.of(&xhat, c), rows.of(&rstd, 1), rows.of(&qkv, 3 * c)) };
                norm_forward(Output { xhat, rstd, ln }, rows.read(residual, c), affine);
                linear(qkv, ln, weight, bias);
            });
        }
        attention_forward(atty, lse, qkv, self.heads(pass, layer), self.crew);
        let att_proj = self.branch(attproj, ATT_PROJ, (layer, Site::Attproj(layer), pass));
        let fc_proj = self.branch(fcproj, FC_PROJ, (layer, Site::Fcproj(layer), pass));
        let (residual, xhat, rstd) =
            (DisjointSlice::new(residual), DisjointSlice::new(xhat2), DisjointSlice::new(rstd2));
        let (fch, fch_gelu) = (DisjointSlice::new(fch), DisjointSlice::new(fch_gelu));
        let affine = self.affine(LN_2, here);
        let (weight, bias) = (self.matrix(FC, layer).transposed(), self.find(FC.1, here));
        self.crew.for_each_rows(n, |rows| {
            // SAFETY: these rows belong to this task only.
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

    /// Computes losses, and the gradients that start backward if requested.
    pub(super) fn classify(&self, buffers: &mut PassBuffers, targets: &[u32], gradients: Option<(&mut [f32], Micro)>) {
        let PassBuffers { ln, logits, losses, dln, .. } = buffers;
        let wte = self.weight(Tensor::Wte, None);
        let classifier = Classifier { thread_pool: self.crew.thread_pool, logits, losses, lnf: ln, wte, targets };
        let gradients = gradients.map(|(dwte, micro)| Gradients {
            dlnf: dln,
            dwte,
            into: into(micro),
            dloss: micro.loss_scale / targets.len() as f32,
        });
        classify(classifier, gradients);
    }

    pub(super) fn backward(
        &self,
        buffers: &mut PassBuffers,
        grads: &mut [f32],
        inp: &[u32],
        targets: &[u32],
        micro: Micro,
    ) {
        let Sizes { t, c, l, .. } = self.sizes;
        let wte = self.range(Tensor::Wte, None);
        self.classify(buffers, targets, Some((&mut grads[wte.clone()], micro)));
        {
            let PassBuffers { dresidual, dln, xhatf, rstdf, .. } = &mut *buffers;
            let (dresidual, weight) = (DisjointSlice::new(dresidual), self.affine(LN_F, None).weight);
            self.crew.for_each_rows(inp.len(), |rows| {
                let (dln, xhat, rstd) = (rows.read(dln, c), rows.read(xhatf, c), rows.read(rstdf, 1));
                // SAFETY: these rows belong to this task only.
                norm_backward(unsafe { rows.of(&dresidual, c) }, None, NormInputs { dln, xhat, rstd, weight });
            });
            self.gradients(&[], &self.norm_sums(&DisjointSlice::new(grads), LN_F, None, dln, xhatf));
        }
        for layer in (0..l).rev() {
            self.block_backward(buffers, &DisjointSlice::new(grads), layer, micro);
        }
        if let Some(dropout) = micro.dropout.at(Site::Encoded) {
            let dresidual = DisjointSlice::new(&mut buffers.dresidual);
            // SAFETY: these rows belong to this task only.
            self.crew.for_each_rows(inp.len(), |rows| unsafe {
                drop_in_place(rows.of(&dresidual, c), rows.start * c, dropout);
            });
        }
        let wpe = self.range(Tensor::Wpe, None);
        let (before, after) = grads.split_at_mut(wpe.start);
        encoder_backward(
            self.crew.thread_pool,
            &mut before[wte],
            &mut after[..wpe.len()],
            &buffers.dresidual,
            inp,
            (t, c),
        );
    }

    fn block_backward(&self, buffers: &mut PassBuffers, grads: &DisjointSlice<'_>, layer: usize, micro: Micro) {
        let (c, here) = (self.sizes.c, Some(layer));
        let PassBuffers { ln, attproj, fcproj, blocks, dresidual, dresidual2, dln, datty, dqkv, dfch, .. } = buffers;
        let n = dresidual.len() / c;
        let block = &blocks[layer];
        let [qkv, att_proj, fc, fc_proj] = [QKV, ATT_PROJ, FC, FC_PROJ].map(|linear| self.matrix(linear, layer));
        let [drops_att, drops_fc] = [Site::Attproj(layer), Site::Fcproj(layer)].map(|site| micro.dropout.at(site));
        {
            let (dresidual, dresidual2, ln) = (&*dresidual, DisjointSlice::new(dresidual2), DisjointSlice::new(ln));
            let (attproj, fcproj) = (DisjointSlice::new(attproj), DisjointSlice::new(fcproj));
            let (dln, dfch, datty) = (DisjointSlice::new(dln), DisjointSlice::new(dfch), DisjointSlice::new(datty));
            let affine = self.affine(LN_2, here);
            self.crew.for_each_rows(n, |rows| {
                // SAFETY: these rows belong to this task only.
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
                norm_backward(dresidual2, Some(past), NormInputs { dln, xhat, rstd, weight: affine.weight });
                linear(datty, dropped(&attproj, dresidual2, c, drops_att, rows), att_proj, None);
            });
        }
        let saved = SavedAttention { qkv: &block.qkv, out: &block.atty, lse: &block.lse };
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
            let (dresidual, dresidual2, ln) = (DisjointSlice::new(dresidual), &*dresidual2, DisjointSlice::new(ln));
            let (dln, dqkv, affine) = (DisjointSlice::new(dln), &*dqkv, self.affine(LN_1, here));
            self.crew.for_each_rows(n, |rows| {
                // SAFETY: these rows belong to this task only.
                let (dresidual, ln, dln) = unsafe { (rows.of(&dresidual, c), rows.of(&ln, c), rows.of(&dln, c)) };
                linear(dln, rows.read(dqkv, 3 * c), qkv, None);
                let (xhat, rstd) = (rows.read(&block.xhat1, c), rows.read(&block.rstd1, 1));
                restore(ln, xhat, affine);
                let past = Some(rows.read(dresidual2, c));
                norm_backward(dresidual, past, NormInputs { dln, xhat, rstd, weight: affine.weight });
            });
        }
        let [scale, shift] = self.norm_sums(grads, LN_1, here, dln, &block.xhat1);
        self.gradients(
            &[self.weight_gradient(grads, QKV, layer, (dqkv, ln), micro)],
            &[self.bias_sums(grads, QKV, layer, dqkv), scale, shift],
        );
    }

    /// dweight = dout^T x inp, over all rows.
    fn weight_gradient<'b>(
        &self,
        grads: &'b DisjointSlice<'_>,
        (weight, _, width): Linear,
        layer: usize,
        (dout, inp): (&'b [f32], &'b [f32]),
        micro: Micro,
    ) -> Product<'b> {
        let c = width * self.sizes.c;
        let range = self.range(weight, Some(layer));
        let (rows, oc) = (inp.len() / c, range.len() / c);
        // SAFETY: only one computation per tensor's gradient exists at a time.
        let dweight = unsafe { grads.part(range.start, range.len()) };
        Product::new(dweight, Mat::new(dout, rows, oc).transposed(), Mat::new(inp, rows, c), into(micro))
    }

    fn sums<'b>(
        &self,
        grads: &'b DisjointSlice<'_>,
        tensor: Tensor,
        layer: Option<usize>,
        src: &'b [f32],
        times: Option<&'b [f32]>,
    ) -> Option<ColumnSums<'b>> {
        let range = self.layout.range(tensor, layer)?;
        // SAFETY: only one computation per tensor's gradient exists at a time.
        Some(ColumnSums::new(unsafe { grads.part(range.start, range.len()) }, src, times))
    }

    fn bias_sums<'b>(
        &self,
        grads: &'b DisjointSlice<'_>,
        linear: Linear,
        layer: usize,
        dout: &'b [f32],
    ) -> Option<ColumnSums<'b>> {
        self.sums(grads, linear.1, Some(layer), dout, None)
    }

    /// The sums for the gradients of a layer norm's scale and shift.
    fn norm_sums<'b>(
        &self,
        grads: &'b DisjointSlice<'_>,
        norm: Norm,
        layer: Option<usize>,
        dln: &'b [f32],
        xhat: &'b [f32],
    ) -> [Option<ColumnSums<'b>>; 2] {
        [self.sums(grads, norm.0, layer, dln, Some(xhat)), self.sums(grads, norm.1, layer, dln, None)]
    }

    /// Computes the gradients of several distinct tensors in parallel.
    fn gradients(&self, gemm: &[Product<'_>], sums: &[Option<ColumnSums<'_>>]) {
        let pieces = self.crew.thread_pool.threads();
        let n_sums: usize = sums.iter().flatten().map(ColumnSums::pieces).sum();
        self.crew.thread_pool.for_each(gemm.len() * pieces + n_sums, |i| {
            if let Some(product) = gemm.get(i / pieces) {
                // SAFETY: every piece is computed once.
                return unsafe { product.piece(i % pieces, pieces) };
            }
            let mut i = i - gemm.len() * pieces;
            for sums in sums.iter().flatten() {
                if i < sums.pieces() {
                    // SAFETY: every piece is computed once.
                    return unsafe { sums.piece(i) };
                }
                i -= sums.pieces();
            }
        });
    }
}

/// out = inp x weight + bias, for the given rows.
fn linear(out: &mut [f32], inp: &[f32], weight: Mat<'_>, bias: Option<&[f32]>) {
    product_here(out, Mat::new(inp, inp.len() / weight.rows, weight.rows), weight, OutputMode::Fresh, 1.0);
    if let Some(bias) = bias {
        add_bias(out, bias);
    }
}

/// Whether a matrix gradient is overwritten, as in an iteration's first micro-step, or accumulated.
fn into(micro: Micro) -> OutputMode {
    if micro.first { OutputMode::Fresh } else { OutputMode::Sum }
}

/// Returns a branch's gradient: the residual stream's gradient after dropout. With dropout, it is kept in `branch` for
/// the weight's gradient.
fn dropped<'a>(
    branch: &'a DisjointSlice<'_>,
    dresidual: &'a [f32],
    c: usize,
    dropout: Option<Dropout>,
    rows: Rows,
) -> &'a [f32] {
    let Some(dropout) = dropout else { return dresidual };
    // SAFETY: these rows belong to this task only.
    let branch = unsafe { rows.of(branch, c) };
    branch.copy_from_slice(dresidual);
    drop_in_place(branch, rows.start * c, dropout);
    branch
}
