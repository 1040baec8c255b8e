//! Backward of the whole model from the last block to the first, and gradient accumulation.

use super::{
    super::{
        context::{Name, Run, uses_scaler},
        program::Slot,
    },
    SavedTensors, attention,
    block::{self, SavedBlock, SavedLinear},
    loss,
};
use crate::gpt::tensors::Tensor;

/// Number of indices above which `embedding_dense_backward` sorts them (aten/src/ATen/native/cuda/Embedding.cu).
pub(crate) const EMBEDDING_SORT_ABOVE: u64 = 3072;

/// Backward of one micro-step; with `accumulates`, gradients of an earlier micro-step exist.
pub(in crate::memory) fn backward(run: &mut Run<'_>, saved: Option<SavedTensors>, accumulates: bool) {
    let Some(saved) = saved else { return };
    let mut backward = Backward { run, accumulates, parameter: 0 };
    backward.parameter = backward.run.parameters.len();
    backward.whole(saved);
}

struct Backward<'r, 'a> {
    run: &'r mut Run<'a>,
    accumulates: bool,
    /// Index of the next parameter, counting down: gradients are computed in reverse parameter order.
    parameter: usize,
}

impl Backward<'_, '_> {
    fn whole(&mut self, saved: SavedTensors) {
        let scaled_loss = uses_scaler(self.run.train).then(|| {
            if !std::mem::replace(&mut self.run.has_scaler, true) {
                self.run.w.alloc_in(self.run.name(Name::Scaler), Tensor::Scaler, None);
                self.run.w.alloc_in(self.run.name(Name::ScalerGrowth), Tensor::ScalerGrowth, None);
            }
            self.run.w.alloc(Tensor::Scalar, None)
        });
        let ones = self.run.w.alloc(Tensor::Scalar, None);
        let scaled = uses_scaler(self.run.train).then(|| self.run.w.alloc(Tensor::Scalar, None));
        let loss::LossGradients { dlm_head, dlnf } = loss::backward(self.run, &saved.loss, scaled);

        let last = saved.residuals.last().copied().unwrap_or(saved.encoded);
        let (mut residual, added) = self.norm(Tensor::Dresidual, None, dlnf, [last, saved.lnf_mean, saved.lnf_rstd]);
        self.run.w.free_all(added);
        let inputs = std::iter::once(saved.encoded).chain(saved.residuals.iter().copied());
        let blocks: Vec<_> = saved.blocks.into_iter().zip(inputs).enumerate().collect();
        for (layer, (block, input)) in blocks.into_iter().rev() {
            residual = self.block(layer as u64, block, input, residual);
        }
        self.embeddings(residual, saved.encoded_mask, saved.pos, dlm_head);
        self.run.w.free(ones);
        self.run.w.free_some(scaled_loss);
    }

    /// Allocates a finished gradient. The first micro-step keeps it; later ones add it to the sum and free it.
    ///
    /// A kept gradient is stored in its parameter's slot; an added one is transient, and its slot is returned.
    fn gradient(&mut self, tensor: Tensor, layer: Option<u64>) -> Option<Slot> {
        self.parameter = self.parameter.saturating_sub(1);
        self.gradient_of(self.parameter, tensor, layer)
    }

    /// The same as [`Self::gradient`] for a parameter index.
    fn gradient_of(&mut self, parameter: usize, tensor: Tensor, layer: Option<u64>) -> Option<Slot> {
        if self.accumulates {
            return Some(self.run.w.alloc(tensor, layer));
        }
        let slot = self.run.gradient(parameter);
        self.run.w.alloc_in(slot, tensor, layer);
        None
    }

    /// A layer norm's backward: returns the gradient of its input, and the transient gradients of its parameters. Frees
    /// its saved tensors and its output's gradient.
    fn norm(&mut self, out: Tensor, layer: Option<u64>, gradient: Slot, saved: [Slot; 3]) -> (Slot, Vec<Slot>) {
        let [input, mean, rstd] = saved;
        let dinput = self.run.w.alloc(out, layer);
        let added = self.norm_gradients(layer);
        self.run.w.free_all([gradient, input, mean, rstd]);
        (dinput, added)
    }

    /// Gradients of a layer norm's weight and bias. The bias is the later parameter but the kernel's second result.
    fn norm_gradients(&mut self, layer: Option<u64>) -> Vec<Slot> {
        let n = if self.run.config.bias() { 2 } else { 1 };
        (0..n).filter_map(|_| self.gradient(Tensor::DvecC, layer)).collect()
    }

    fn block(&mut self, layer: u64, saved: Option<SavedBlock>, input: Slot, residual: Slot) -> Slot {
        let at = Some(layer);
        let mut before_mlp = None;
        let saved = match saved {
            Some(saved) => saved,
            None => {
                // The first operation of the block's backward that needs a saved tensor triggers the block's
                // recomputation.
                before_mlp = self.run.train.is_half().then(|| self.run.w.alloc(Tensor::DresidualCast, at));
                match block::recompute(self.run, layer) {
                    Some(saved) => saved,
                    None => return residual,
                }
            }
        };
        let dln2 = self.mlp(layer, &saved, residual, before_mlp);
        let sum = self.join(layer, residual, dln2, [saved.residual2, saved.ln2.mean, saved.ln2.rstd]);

        let dout = self.branch_gradient(layer, saved.attproj_mask, sum, None);
        let datty = self.linear(
            layer,
            dout,
            saved.att_proj_linear,
            &Linear {
                dinput: Tensor::Datty,
                dweight: [Tensor::DattProjWCast, Tensor::DattProjW],
                dbias: [Tensor::DvecCCast, Tensor::DvecC],
                widened: None,
            },
            dout != sum,
        );
        let dqkv = attention::backward(self.run, layer, datty, saved.attention);
        let dln1 = self.linear(
            layer,
            dqkv,
            saved.qkv_linear,
            &Linear {
                dinput: Tensor::Dln1Cast,
                dweight: [Tensor::DqkvWCast, Tensor::DqkvW],
                dbias: [Tensor::DvecC3Cast, Tensor::DvecC3],
                widened: Some(Tensor::Dln1),
            },
            true,
        );
        self.join(layer, sum, dln1, [input, saved.ln1.mean, saved.ln1.rstd])
    }

    /// Joins a branch with the residual stream: the norm's backward, and the sum of both gradients.
    fn join(&mut self, layer: u64, residual: Slot, dnorm: Slot, saved: [Slot; 3]) -> Slot {
        let (branch, added) = self.norm(Tensor::DlnInput, Some(layer), dnorm, saved);
        let sum = self.run.w.alloc(Tensor::Dresidual, Some(layer));
        self.run.w.free_all([residual, branch]);
        self.run.w.free_all(added);
        sum
    }

    fn mlp(&mut self, layer: u64, saved: &SavedBlock, residual: Slot, cast: Option<Slot>) -> Slot {
        let at = Some(layer);
        let dout = self.branch_gradient(layer, saved.fcproj_mask, residual, cast);
        let fc_proj = SavedLinear { input: Some(saved.fch_gelu), ..saved.fc_proj_linear };
        let dgelu = self.linear(
            layer,
            dout,
            fc_proj,
            &Linear {
                dinput: Tensor::DfchGelu,
                dweight: [Tensor::DfcProjWCast, Tensor::DfcProjW],
                dbias: [Tensor::DvecCCast, Tensor::DvecC],
                widened: None,
            },
            dout != residual,
        );
        let dfch = self.run.w.alloc(Tensor::Dfch, at);
        self.run.w.free_all([dgelu, saved.fch]);
        self.linear(
            layer,
            dfch,
            saved.fc_linear,
            &Linear {
                dinput: Tensor::Dln2Cast,
                dweight: [Tensor::DfcWCast, Tensor::DfcW],
                dbias: [Tensor::DvecC4Cast, Tensor::DvecC4],
                widened: Some(Tensor::Dln2),
            },
            true,
        )
    }

    /// Gradient that enters a branch of the residual stream: cast to half precision, then passed through dropout.
    fn branch_gradient(&mut self, layer: u64, mask: Option<Slot>, residual: Slot, cast: Option<Slot>) -> Slot {
        let at = Some(layer);
        let w = &mut self.run.w;
        let mut gradient = match cast {
            Some(cast) => cast,
            None if self.run.train.is_half() => w.alloc(Tensor::DresidualCast, at),
            None => residual,
        };
        if let Some(mask) = mask {
            let before = w.alloc(Tensor::Ddropped, at);
            if gradient != residual {
                w.free(gradient);
            }
            w.free(mask);
            gradient = before;
        }
        gradient
    }

    /// A linear layer's backward: returns the gradient of its input. With `owns_gradient`, frees the gradient of its
    /// output.
    fn linear(&mut self, layer: u64, dout: Slot, saved: SavedLinear, rows: &Linear, owns_gradient: bool) -> Slot {
        let at = Some(layer);
        let half = self.run.train.is_half();
        let bias = self.run.config.bias();
        let weight = self.next_weight(bias);
        let [narrow, wide] = rows.dweight;
        // `mm` computes the weight's gradient first, `addmm` the input's.
        let (dinput, dweight);
        if bias {
            dinput = self.run.w.alloc(rows.dinput, at);
            dweight = self.linear_gradient(weight, if half { narrow } else { wide }, at);
        } else {
            dweight = self.linear_gradient(weight, if half { narrow } else { wide }, at);
            dinput = self.run.w.alloc(rows.dinput, at);
        }
        let [narrow_bias, wide_bias] = rows.dbias;
        // In a checkpointed block, the node holds the only references and drops them when it returns. Otherwise they
        // live until the node's gradients are validated, after the sum for the bias (`validate_outputs` in
        // torch/csrc/autograd/engine.cpp).
        let saved = [saved.weight_cast, saved.input];
        let checkpoints = self.run.train.activation_checkpointing;
        if checkpoints {
            saved.into_iter().for_each(|slot| self.run.w.free_some(slot));
        }
        let dbias = bias.then(|| self.linear_gradient(weight + 1, if half { narrow_bias } else { wide_bias }, at));
        if owns_gradient {
            self.run.w.free(dout);
        }
        if !checkpoints {
            saved.into_iter().for_each(|slot| self.run.w.free_some(slot));
        }
        let mut out = dinput;
        if let (true, Some(tensor)) = (half, rows.widened) {
            out = self.run.w.alloc(tensor, at);
            self.run.w.free(dinput);
        }
        self.finish_gradient(weight, wide, at, dweight);
        if let Some(dbias) = dbias {
            self.finish_gradient(weight + 1, wide_bias, at, dbias);
        }
        out
    }

    /// Parameter index of a linear layer's weight, counting down; its bias has the next higher index.
    fn next_weight(&mut self, bias: bool) -> usize {
        self.parameter = self.parameter.saturating_sub(if bias { 2 } else { 1 });
        self.parameter
    }

    /// Slot for a linear layer's gradient of its weight or bias: a separate tensor in half precision, the gradient
    /// itself in float32.
    fn linear_gradient(&mut self, parameter: usize, tensor: Tensor, layer: Option<u64>) -> Option<Slot> {
        if self.run.train.is_half() {
            return Some(self.run.w.alloc(tensor, layer));
        }
        self.gradient_of(parameter, tensor, layer)
    }

    /// Converts a product's result to the parameter's gradient, or adds it to the existing gradient.
    fn finish_gradient(&mut self, parameter: usize, wide: Tensor, layer: Option<u64>, made: Option<Slot>) {
        let Some(made) = made else { return };
        if !self.run.train.is_half() {
            self.run.w.free(made);
            return;
        }
        let added = self.gradient_of(parameter, wide, layer);
        self.run.w.free(made);
        self.run.w.free_some(added);
    }

    fn embeddings(&mut self, residual: Slot, mask: Option<Slot>, pos: Slot, dlm_head: Slot) {
        let mut gradient = residual;
        if let Some(mask) = mask {
            let before = self.run.w.alloc(Tensor::DencodedDropped, None);
            self.run.w.free_all([gradient, mask]);
            gradient = before;
        }
        let (wte, wpe) = (0, 1);
        // Summed over the batch, even if the batch size is one.
        let summed = self.run.w.alloc(Tensor::DposSum, None);
        let dwpe = self.gradient_of(wpe, Tensor::Dwpe, None);
        if self.run.config.block_size() > EMBEDDING_SORT_ABOVE {
            embedding_scratch(self.run, POSITION_SCRATCH);
        }
        self.run.w.free_all([summed, pos]);
        self.run.w.free_some(dwpe);
        let dwte = self.run.w.alloc(Tensor::DwteEmbedding, None);
        if self.run.train.batch_size.saturating_mul(self.run.config.block_size()) > EMBEDDING_SORT_ABOVE {
            embedding_scratch(self.run, TOKEN_SCRATCH);
        }
        self.run.w.free(gradient);
        self.run.w.free_kept(self.run.name(Name::X));
        // lm_head and wte are one parameter: their gradients are added into a third tensor.
        let added = self.gradient_of(wte, Tensor::Dwte, None);
        self.run.w.free_all([dlm_head, dwte]);
        self.run.w.free_some(added);
    }
}

/// Table rows of a linear layer's gradients: narrow, and wide if autocast casts back.
struct Linear {
    dinput: Tensor,
    dweight: [Tensor; 2],
    dbias: [Tensor; 2],
    widened: Option<Tensor>,
}

const TOKEN_SCRATCH: [Tensor; 4] =
    [Tensor::EmbIndices, Tensor::EmbCounts, Tensor::EmbPartialOffsets, Tensor::EmbPartialSums];
const POSITION_SCRATCH: [Tensor; 4] =
    [Tensor::PosIndices, Tensor::PosCounts, Tensor::PosPartialOffsets, Tensor::PosPartialSums];

/// Scratch memory of an embedding's gradient: the sort and the segmented sum.
fn embedding_scratch(run: &mut Run<'_>, [indices, counts, offsets, sums]: [Tensor; 4]) {
    let order = [indices, indices, indices, Tensor::EmbScalar, counts, counts, Tensor::EmbScalar, offsets, sums];
    let held: Vec<_> = order.into_iter().map(|tensor| run.w.alloc(tensor, None)).collect();
    run.w.free_all(held);
}
