//! The model on the GPU: forward and backward as a sequence of launches over a run's tensors.
//!
//! Nothing is computed here: each line is an op with its inputs and outputs. Activation recomputation uses the same ops
//! as the forward pass, so its level does not change a bit of the result.

use headroom_planner::gpt::{buffers::cuda::Recompute, tensors::Tensor};

use super::{
    Attention, Bf16, CudaError, Device, Slice,
    gemm::Gemm,
    ops::{
        attention_backward,
        bias_backward::{self, bias_backward},
        classifier::classifier,
        dropout::dropout,
        encoder_backward::{self, TokenOrder, encoder_backward},
        encoder_forward::encoder_forward,
        gelu::gelu_forward,
        layernorm_backward::{self, layernorm_backward},
        layernorm_forward::{self, Residual, layernorm_forward, residual_layernorm_forward},
        losses::losses_sum,
        matmul,
    },
    tensors::{Block, ForwardBackward, RunTensors},
};
use crate::{
    layout::Layout,
    reference::{
        attention_forward::Heads,
        dropout::Dropout,
        encoder::Positions,
        gpt::{DropoutPass, Site, Sizes},
    },
};

/// Scale and shift of a layer norm.
type Norm = (Tensor, Tensor);
/// Weight and bias of a linear layer, and its input width as a multiple of C.
type Linear = (Tensor, Tensor, u64);

const LN1: Norm = (Tensor::Ln1W, Tensor::Ln1B);
const LN2: Norm = (Tensor::Ln2W, Tensor::Ln2B);
const LNF: Norm = (Tensor::LnfW, Tensor::LnfB);
const QKV: Linear = (Tensor::QkvW, Tensor::QkvB, 1);
const ATT_PROJ: Linear = (Tensor::AttProjW, Tensor::AttProjB, 1);
const FC: Linear = (Tensor::FcW, Tensor::FcB, 1);
const FC_PROJ: Linear = (Tensor::FcProjW, Tensor::FcProjB, 4);

/// Output of a layer norm, with the statistics of its rows.
#[derive(Clone, Copy)]
struct NormOutput {
    out: Slice<Bf16>,
    mean: Slice<f32>,
    rstd: Slice<f32>,
}

impl From<NormOutput> for layernorm_forward::Output {
    fn from(NormOutput { out, mean, rstd }: NormOutput) -> Self {
        Self { out, mean, rstd }
    }
}

/// Selects one of a tensor's two slices.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BufferHalf {
    Forward,
    Backward,
}

impl BufferHalf {
    fn of<T>(self, twice: ForwardBackward<T>) -> Slice<T> {
        if self == Self::Forward { twice.forward } else { twice.backward }
    }
}

/// Context of a pass over a micro-batch.
pub(super) struct Model<'a> {
    pub device: &'a Device,
    pub gemm: &'a dyn Gemm,
    pub attention: &'a dyn Attention,
    pub layout: &'a Layout,
    pub sizes: Sizes,
    pub tensors: &'a RunTensors,
    pub recompute: &'a [Recompute],
    pub dropout: DropoutPass,
    /// Number of rows whose logits are in memory at a time.
    pub chunk_rows: u64,
}

impl Model<'_> {
    fn n_layer(&self) -> usize {
        self.recompute.len()
    }

    fn c(&self) -> u64 {
        self.sizes.c as u64
    }

    fn index(&self, tensor: Tensor, layer: Option<usize>) -> Option<usize> {
        let layer = layer.map(|layer| layer as u64);
        let is_it = |entry: &crate::layout::Entry| entry.parameter.tensor == tensor && entry.parameter.layer == layer;
        self.layout.entries().iter().position(is_it)
    }

    fn weight(&self, tensor: Tensor, layer: Option<usize>) -> Option<Slice<Bf16>> {
        Some(self.tensors.parameters[self.index(tensor, layer)?].weight)
    }

    fn grad(&self, tensor: Tensor, layer: Option<usize>) -> Option<Slice<f32>> {
        Some(self.tensors.parameters[self.index(tensor, layer)?].grad)
    }

    /// Unwraps the slice of a tensor that every model has. A missing one becomes an empty slice, which every op
    /// rejects.
    fn needed<T: super::Element>(slice: Option<Slice<T>>) -> Slice<T> {
        slice.unwrap_or_else(|| Slice::new(0, 0))
    }

    fn heads(&self, layer: usize) -> Heads {
        let Sizes { t, c, nh, .. } = self.sizes;
        Heads { t, c, nh, dropout: self.dropout.at(Site::Attention(layer)) }
    }

    fn positions(&self) -> Positions {
        Positions { t: self.sizes.t, first: 0 }
    }

    fn norm(&self, output: NormOutput, inp: Slice<Bf16>, norm: Norm, layer: Option<usize>) -> Result<(), CudaError> {
        let (weight, bias) = (Self::needed(self.weight(norm.0, layer)), self.weight(norm.1, layer));
        layernorm_forward(self.device, output.into(), inp, weight, bias)
    }

    /// Adds a branch, with dropout, to the residual stream and normalizes the sum.
    fn add_and_norm(
        &self,
        stream: Residual,
        output: NormOutput,
        norm: Norm,
        layer: Option<usize>,
    ) -> Result<(), CudaError> {
        let (weight, bias) = (Self::needed(self.weight(norm.0, layer)), self.weight(norm.1, layer));
        residual_layernorm_forward(self.device, stream, output.into(), weight, bias)
    }

    fn linear(&self, linear: Linear, layer: usize) -> (Slice<Bf16>, Option<Slice<Bf16>>, u64) {
        let (weight, bias, times) = linear;
        (Self::needed(self.weight(weight, Some(layer))), self.weight(bias, Some(layer)), times * self.c())
    }

    fn first_norm(block: &Block, side: BufferHalf) -> NormOutput {
        NormOutput { out: side.of(block.ln1), mean: side.of(block.ln1_mean), rstd: side.of(block.ln1_rstd) }
    }

    fn second_norm(block: &Block, side: BufferHalf) -> NormOutput {
        NormOutput { out: side.of(block.ln2), mean: side.of(block.ln2_mean), rstd: side.of(block.ln2_rstd) }
    }

    fn last_norm(&self) -> NormOutput {
        NormOutput { out: self.tensors.lnf, mean: self.tensors.lnf_mean, rstd: self.tensors.lnf_rstd }
    }

    /// Runs the forward pass up to the last layer norm.
    pub fn forward(&self) -> Result<(), CudaError> {
        let [wte, wpe] = [Tensor::Wte, Tensor::Wpe].map(|tensor| Self::needed(self.weight(tensor, None)));
        let (out, dropped) = (self.tensors.residuals[0], self.dropout.at(Site::Encoded));
        encoder_forward(self.device, out, self.tensors.inputs, wte, wpe, self.positions(), self.c(), dropped)?;
        // With dropout, each block's first norm is fused with the preceding addition of a branch.
        let mut is_normed = false;
        for layer in 0..self.n_layer() {
            let block = &self.tensors.blocks[layer];
            if !is_normed {
                self.norm(
                    Self::first_norm(block, BufferHalf::Forward),
                    self.tensors.residuals[layer],
                    LN1,
                    Some(layer),
                )?;
            }
            self.attention(layer, BufferHalf::Forward)?;
            self.add_attention(layer, BufferHalf::Forward)?;
            self.widen(layer, BufferHalf::Forward)?;
            is_normed = self.add_wide(layer)?;
        }
        if !is_normed {
            self.norm(self.last_norm(), self.tensors.residuals[self.n_layer()], LNF, None)?;
        }
        Ok(())
    }

    /// Computes QKV and attention from the output of the first norm.
    fn attention(&self, layer: usize, side: BufferHalf) -> Result<(), CudaError> {
        let block = &self.tensors.blocks[layer];
        let qkv = side.of(block.qkv);
        let (weight, bias, c) = self.linear(QKV, layer);
        self.gemm.forward(self.device, qkv, side.of(block.ln1), weight, bias, c)?;
        self.attention.forward(self.device, side.of(block.atty), side.of(block.lse), qkv, self.heads(layer))
    }

    /// Projects attention's output, adds the result to the residual stream, and computes the second norm.
    fn add_attention(&self, layer: usize, side: BufferHalf) -> Result<(), CudaError> {
        let block = &self.tensors.blocks[layer];
        let (weight, bias, c) = self.linear(ATT_PROJ, layer);
        let (inp, atty, residual) = (self.tensors.residuals[layer], side.of(block.atty), side.of(block.residual2));
        let normed = Self::second_norm(block, side);
        let Some((branches, dropped)) = self.branches(Site::Attproj(layer)) else {
            self.gemm.residual_forward(self.device, residual, atty, weight, bias, inp, c)?;
            return self.norm(normed, residual, LN2, Some(layer));
        };
        let branch = side.of(branches.attproj);
        self.gemm.forward(self.device, branch, atty, weight, bias, c)?;
        let stream = Residual { residual, inp, branch, dropout: dropped };
        self.add_and_norm(stream, normed, LN2, Some(layer))
    }

    /// Buffers of the branches and the dropout at `site`; `None` for a model without dropout.
    fn branches(&self, site: Site) -> Option<(super::tensors::Branches, Option<Dropout>)> {
        self.tensors.branches.map(|branches| (branches, self.dropout.at(site)))
    }

    /// Computes the MLP's first linear layer, of 4C channels, and GELU.
    fn widen(&self, layer: usize, side: BufferHalf) -> Result<(), CudaError> {
        let block = &self.tensors.blocks[layer];
        let (weight, bias, c) = self.linear(FC, layer);
        let (gelu, out, inp) = (side.of(block.fch_gelu), side.of(block.fch), side.of(block.ln2));
        self.gemm.gelu_forward(self.device, gelu, out, inp, weight, bias, c)
    }

    /// Computes the MLP's second linear layer and adds its result to the stream. Returns whether the next norm is
    /// computed too.
    fn add_wide(&self, layer: usize) -> Result<bool, CudaError> {
        let block = &self.tensors.blocks[layer];
        let (weight, bias, c) = self.linear(FC_PROJ, layer);
        let (inp, wide) = (block.residual2.forward, block.fch_gelu.forward);
        let residual = self.tensors.residuals[layer + 1];
        let Some((branches, dropped)) = self.branches(Site::Fcproj(layer)) else {
            self.gemm.residual_forward(self.device, residual, wide, weight, bias, inp, c)?;
            return Ok(false);
        };
        let branch = branches.fcproj;
        self.gemm.forward(self.device, branch, wide, weight, bias, c)?;
        let stream = Residual { residual, inp, branch, dropout: dropped };
        let (normed, norm, next) = match self.tensors.blocks.get(layer + 1) {
            Some(next) => (Self::first_norm(next, BufferHalf::Forward), LN1, Some(layer + 1)),
            None => (self.last_norm(), LNF, None),
        };
        self.add_and_norm(stream, normed, norm, next)?;
        Ok(true)
    }

    /// Computes the losses of all rows, chunk by chunk, and their mean. With `loss_scale`, also computes the gradients
    /// of the scaled mean, down to the residual stream before the last norm.
    pub fn classify(&self, loss_scale: Option<f32>) -> Result<(), CudaError> {
        let tensors = self.tensors;
        let (c, v, n) = (self.c(), self.sizes.v as u64, tensors.targets.len());
        let wte = Self::needed(self.weight(Tensor::Wte, None));
        let padded = wte.len() / c;
        let mean = 1.0 / n as f32;
        let mut first = 0;
        while first < n {
            let rows = self.chunk_rows.min(n - first);
            let lnf = tensors.lnf.part(first * c, rows * c)?;
            let logits = tensors.logits.part(0, rows * padded)?;
            let (losses, targets) = (tensors.losses.part(first, rows)?, tensors.targets.part(first, rows)?);
            self.gemm.forward(self.device, logits, lnf, wte, None, c)?;
            classifier(self.device, losses, logits, targets, v, loss_scale.map(|scale| scale * mean))?;
            if loss_scale.is_some() {
                self.weight_gradient(self.grad(Tensor::Wte, None), logits, lnf, c)?;
                // The rows are no longer needed, so their gradient overwrites them.
                self.gemm.backward_inp(self.device, lnf, logits, wte, c)?;
            }
            first += rows;
        }
        losses_sum(self.device, tensors.loss, tensors.losses, mean, false)?;
        if loss_scale.is_some() {
            let saved = (tensors.residuals[self.n_layer()], tensors.lnf_mean, tensors.lnf_rstd);
            self.norm_backward((tensors.dresidual, false), tensors.lnf, saved, LNF, None)?;
        }
        Ok(())
    }

    /// Runs the backward pass from the gradient of the residual stream before the last norm to that of the embeddings.
    pub fn backward(&self, tokens: &TokenOrder) -> Result<(), CudaError> {
        for layer in (0..self.n_layer()).rev() {
            self.block_backward(layer)?;
        }
        let [dwte, dwpe] = [Tensor::Wte, Tensor::Wpe].map(|tensor| Self::needed(self.grad(tensor, None)));
        // Rows of padding follow the vocabulary.
        let dwte = dwte.part(0, self.sizes.v as u64 * self.c())?;
        let (gradients, order) = (encoder_backward::Gradients { dwte, dwpe }, (tokens, self.tensors.token_order));
        let (positions, dropped) = (self.positions(), self.dropout.at(Site::Encoded));
        encoder_backward(self.device, gradients, self.tensors.dresidual, order, positions, self.c(), dropped)
    }

    fn block_backward(&self, layer: usize) -> Result<(), CudaError> {
        let (tensors, level, here) = (self.tensors, self.recompute[layer], Some(layer));
        let block = &tensors.blocks[layer];
        let (residual, back) = (tensors.residuals[layer], BufferHalf::Backward);
        if level == Recompute::Block {
            self.norm(Self::first_norm(block, back), residual, LN1, here)?;
            self.attention(layer, back)?;
            self.add_attention(layer, back)?;
            self.widen(layer, back)?;
        }

        // The MLP.
        let (fch, fch_gelu, ln2) = (block.fch.backward, block.fch_gelu.backward, block.ln2.backward);
        if matches!(level, Recompute::GeluAndLayernorm | Recompute::Attention) {
            gelu_forward(self.device, fch_gelu, fch)?;
        }
        let dbranch = self.dropped(Site::Fcproj(layer), |branches| branches.dfcproj)?;
        self.linear_gradients(FC_PROJ, layer, dbranch, fch_gelu)?;
        let (weight, _, c) = self.linear(FC_PROJ, layer);
        // GELU's input is no longer needed, so its gradient overwrites it. GELU's output serves as scratch memory.
        self.gemm.gelu_backward_inp(self.device, fch, dbranch, weight, fch, fch_gelu, c)?;
        if matches!(level, Recompute::GeluAndLayernorm | Recompute::Attention) {
            self.norm(Self::second_norm(block, back), block.residual2.backward, LN2, here)?;
        }
        self.linear_backward(FC, layer, (ln2, fch))?;
        let saved = (block.residual2.backward, block.ln2_mean.backward, block.ln2_rstd.backward);
        self.norm_backward((tensors.dresidual, true), ln2, saved, LN2, here)?;

        // Attention.
        let (ln1, atty) = (block.ln1.backward, block.atty.backward);
        if level == Recompute::Attention {
            self.norm(Self::first_norm(block, back), residual, LN1, here)?;
            self.attention(layer, back)?;
        }
        let dbranch = self.dropped(Site::Attproj(layer), |branches| branches.dattproj)?;
        self.linear_gradients(ATT_PROJ, layer, dbranch, atty)?;
        let (weight, _, c) = self.linear(ATT_PROJ, layer);
        self.gemm.backward_inp(self.device, tensors.datty, dbranch, weight, c)?;
        let saved = attention_backward::SavedAttention { qkv: block.qkv.backward, out: atty, lse: block.lse.backward };
        self.attention.backward(
            self.device,
            tensors.dqkv,
            tensors.datt_rows,
            tensors.datty,
            saved,
            self.heads(layer),
        )?;
        if level == Recompute::GeluAndLayernorm {
            self.norm(Self::first_norm(block, back), residual, LN1, here)?;
        }
        self.linear_backward(QKV, layer, (ln1, tensors.dqkv))?;
        let saved = (residual, block.ln1_mean.backward, block.ln1_rstd.backward);
        self.norm_backward((tensors.dresidual, true), ln1, saved, LN1, here)
    }

    /// Returns the gradient of a branch: the stream's gradient, with the dropout of the forward pass.
    fn dropped(
        &self,
        site: Site,
        tensors: fn(&super::tensors::Branches) -> Slice<Bf16>,
    ) -> Result<Slice<Bf16>, CudaError> {
        let Some((branches, Some(dropped))) = self.branches(site) else { return Ok(self.tensors.dresidual) };
        let out = tensors(&branches);
        dropout(self.device, out, self.tensors.dresidual, dropped)?;
        Ok(out)
    }

    /// Computes the gradients of a linear layer; that of its input overwrites the input.
    fn linear_backward(
        &self,
        linear: Linear,
        layer: usize,
        (inp, dout): (Slice<Bf16>, Slice<Bf16>),
    ) -> Result<(), CudaError> {
        self.linear_gradients(linear, layer, dout, inp)?;
        let (weight, _, c) = self.linear(linear, layer);
        self.gemm.backward_inp(self.device, inp, dout, weight, c)
    }

    /// Computes the gradients of a linear layer's weight and bias.
    fn linear_gradients(
        &self,
        (weight, bias, times): Linear,
        layer: usize,
        dout: Slice<Bf16>,
        inp: Slice<Bf16>,
    ) -> Result<(), CudaError> {
        self.weight_gradient(self.grad(weight, Some(layer)), dout, inp, times * self.c())?;
        let Some(dbias) = self.grad(bias, Some(layer)) else { return Ok(()) };
        let parts = bias_backward::planes_elements(dout.len() / dbias.len(), dbias.len());
        bias_backward(self.device, dbias, self.tensors.parts.part(0, parts)?, dout, true)
    }

    fn weight_gradient(
        &self,
        dweight: Option<Slice<f32>>,
        dout: Slice<Bf16>,
        inp: Slice<Bf16>,
        c: u64,
    ) -> Result<(), CudaError> {
        let dweight = Self::needed(dweight);
        let parts = self.tensors.parts.part(0, matmul::planes_elements(inp.len() / c, c, dweight.len() / c))?;
        self.gemm.backward_weight(self.device, dweight, parts, dout, inp, c, true)
    }

    fn norm_backward(
        &self,
        (dinp, accumulate): (Slice<Bf16>, bool),
        dout: Slice<Bf16>,
        (inp, mean, rstd): (Slice<Bf16>, Slice<f32>, Slice<f32>),
        norm: Norm,
        layer: Option<usize>,
    ) -> Result<(), CudaError> {
        let dweight = Self::needed(self.grad(norm.0, layer));
        let dbias = self.grad(norm.1, layer);
        let parts = self.tensors.parts.part(0, layernorm_backward::sums_elements(mean.len(), self.c())?)?;
        let gradients = layernorm_backward::Gradients { dinp, dweight, dbias, accumulate };
        let saved = layernorm_backward::SavedNorm { inp, mean, rstd };
        layernorm_backward(self.device, gradients, parts, dout, saved, Self::needed(self.weight(norm.0, layer)))
    }
}
