//! The whole model from the reference's kernels: logits, loss and gradients. Slow; defines correct results.

use headroom_planner::gpt::{GptConfig, tensors::Tensor};

use super::{
    RealNumber,
    attention_backward::{self, attention_backward},
    attention_forward::{Heads, attention_forward},
    crossentropy::{crossentropy_forward, crossentropy_softmax_backward},
    dropout::{Dropout, dropout},
    encoder::{Positions, encoder_backward, encoder_forward},
    gelu::{gelu_backward, gelu_forward},
    layernorm_backward::{self, layernorm_backward},
    layernorm_forward::{self, layernorm_forward},
    matmul::{self, matmul_backward, matmul_forward},
    residual_forward::residual_forward,
};
use crate::layout::{Layout, TooLarge};

/// A place of dropout in the model. Its number is part of the mask's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// The start of the residual stream, after the embeddings.
    Encoded,
    /// The attention weights of a block.
    Attention(usize),
    /// The output of a block's attention branch.
    Attproj(usize),
    /// The output of a block's MLP branch.
    Fcproj(usize),
}

/// The dropout of one pass over one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DropoutPass {
    /// The probability, from 0 to below 1; 0 in evaluation.
    pub p: f64,
    /// The key, which is unique to this micro-batch.
    pub key: u64,
}

impl DropoutPass {
    /// No dropout.
    pub const NONE: Self = Self { p: 0.0, key: 0 };

    /// The dropout at a place.
    #[must_use]
    pub fn at(&self, site: Site) -> Option<Dropout> {
        let number = match site {
            Site::Encoded => 0,
            Site::Attention(layer) => 1 + 3 * layer as u64,
            Site::Attproj(layer) => 2 + 3 * layer as u64,
            Site::Fcproj(layer) => 3 + 3 * layer as u64,
        };
        Dropout::new(self.p, (crate::rng::split_mix(self.key.wrapping_add(number)) >> 32) as u32)
    }
}

/// A micro-step of an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Micro {
    /// Whether gradients are overwritten instead of accumulated.
    pub first: bool,
    /// The factor of the loss: 1 / `gradient_accumulation_steps`.
    pub loss_scale: f32,
    /// The dropout of this micro-step.
    pub dropout: DropoutPass,
}

/// A model's sizes, as the kernels expect them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Tokens per sequence, T.
    pub t: usize,
    /// Channels, C.
    pub c: usize,
    /// The number of heads, NH.
    pub nh: usize,
    /// The number of blocks, L.
    pub l: usize,
    /// Rows of the embedding, V.
    pub v: usize,
}

impl Sizes {
    /// The sizes of a config, with `t` tokens per sequence.
    ///
    /// # Errors
    /// A size exceeds `usize`.
    pub fn new(config: &GptConfig, t: usize) -> Result<Self, TooLarge> {
        let size = |n: u64| usize::try_from(n).map_err(|_| TooLarge);
        Ok(Self {
            t,
            c: size(config.n_embd())?,
            nh: size(config.n_head())?,
            l: size(config.n_layer())?,
            v: size(config.vocab_size())?,
        })
    }
}

/// The activations of a block that are saved for backward.
#[derive(Debug, Default)]
struct BlockActs<F> {
    residual: Vec<F>,
    ln1: Vec<F>,
    ln1_mean: Vec<F>,
    ln1_rstd: Vec<F>,
    qkv: Vec<F>,
    atty: Vec<F>,
    lse: Vec<F>,
    residual2: Vec<F>,
    ln2: Vec<F>,
    ln2_mean: Vec<F>,
    ln2_rstd: Vec<F>,
    fch: Vec<F>,
    fch_gelu: Vec<F>,
}

/// A reference model: its layout and sizes. Callers pass the parameters.
#[derive(Debug)]
pub struct Gpt {
    layout: Layout,
    sizes: Sizes,
}

/// The results of one forward pass.
#[derive(Debug)]
pub struct Pass<F> {
    /// The logits, (B, T, V).
    pub logits: Vec<F>,
    /// The loss of each token, (B, T).
    pub losses: Vec<F>,
    blocks: Vec<BlockActs<F>>,
    residual: Vec<F>,
    lnf: Vec<F>,
    lnf_mean: Vec<F>,
    lnf_rstd: Vec<F>,
    dropout: DropoutPass,
}

impl<F: RealNumber> Pass<F> {
    /// The mean loss.
    #[must_use]
    pub fn loss(&self) -> F {
        self.losses.iter().copied().sum::<F>() / F::count(self.losses.len())
    }
}

impl Gpt {
    /// A model of a config, for sequences of `t` tokens, at most `block_size`.
    ///
    /// # Errors
    /// The model exceeds the address space.
    pub fn new(config: &GptConfig, t: usize) -> Result<Self, TooLarge> {
        Ok(Self { layout: Layout::new(config)?, sizes: Sizes::new(config, t)? })
    }

    /// The parameter offsets.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn of<'a, F>(&self, flat: &'a [F], tensor: Tensor, layer: Option<usize>) -> Option<&'a [F]> {
        Some(&flat[self.layout.range(tensor, layer)?])
    }

    fn weight<'a, F>(&self, flat: &'a [F], tensor: Tensor, layer: Option<usize>) -> &'a [F] {
        self.of(flat, tensor, layer).expect("every model has this tensor")
    }

    /// Runs the forward pass.
    ///
    /// Shapes: `params` flat in [`Layout`]'s order, `inp` and `targets` (B, T).
    ///
    /// # Panics
    /// If a slice length is inconsistent with the model, or a token exceeds the vocabulary.
    #[must_use]
    pub fn forward<F: RealNumber>(
        &self,
        params: &[F],
        inp: &[u32],
        targets: &[u32],
        dropout_pass: DropoutPass,
    ) -> Pass<F> {
        let Sizes { t, c, l, v, .. } = self.sizes;
        let n = inp.len();
        let mut residual = vec![F::zero(); n * c];
        let (wte, wpe) = (self.weight(params, Tensor::Wte, None), self.weight(params, Tensor::Wpe, None));
        encoder_forward(&mut residual, inp, wte, wpe, Positions { t, first: 0 }, c);
        drop_at(&mut residual, dropout_pass, Site::Encoded);
        let blocks = (0..l).map(|layer| self.block_forward(params, &mut residual, layer, dropout_pass)).collect();
        let (lnf, lnf_mean, lnf_rstd) = self.norm(params, &residual, (Tensor::LnfW, Tensor::LnfB), None);
        let mut logits = vec![F::zero(); n * v];
        matmul_forward(&mut logits, &lnf, wte, None, c);
        let mut losses = vec![F::zero(); n];
        crossentropy_forward(&mut losses, &logits, targets);
        Pass { logits, losses, blocks, residual, lnf, lnf_mean, lnf_rstd, dropout: dropout_pass }
    }

    fn norm<F: RealNumber>(
        &self,
        params: &[F],
        inp: &[F],
        (weight, bias): (Tensor, Tensor),
        layer: Option<usize>,
    ) -> (Vec<F>, Vec<F>, Vec<F>) {
        let rows = inp.len() / self.sizes.c;
        let (mut out, mut mean, mut rstd) = (vec![F::zero(); inp.len()], vec![F::zero(); rows], vec![F::zero(); rows]);
        let output = layernorm_forward::Output { out: &mut out, mean: &mut mean, rstd: &mut rstd };
        layernorm_forward(output, inp, self.weight(params, weight, layer), self.of(params, bias, layer));
        (out, mean, rstd)
    }

    fn linear<F: RealNumber>(
        &self,
        params: &[F],
        inp: &[F],
        (weight, bias): (Tensor, Tensor),
        layer: usize,
        c: usize,
    ) -> Vec<F> {
        let weight = self.weight(params, weight, Some(layer));
        let mut out = vec![F::zero(); inp.len() / c * (weight.len() / c)];
        matmul_forward(&mut out, inp, weight, self.of(params, bias, Some(layer)), c);
        out
    }

    fn block_forward<F: RealNumber>(
        &self,
        params: &[F],
        residual: &mut [F],
        layer: usize,
        dropout_pass: DropoutPass,
    ) -> BlockActs<F> {
        let Sizes { t, c, nh, .. } = self.sizes;
        let n = residual.len() / c;
        let start = residual.to_vec();
        let (ln1, ln1_mean, ln1_rstd) = self.norm(params, residual, (Tensor::Ln1W, Tensor::Ln1B), Some(layer));
        let qkv = self.linear(params, &ln1, (Tensor::QkvW, Tensor::QkvB), layer, c);
        let (mut atty, mut lse) = (vec![F::zero(); n * c], vec![F::zero(); n * nh]);
        let heads = Heads { t, c, nh, dropout: dropout_pass.at(Site::Attention(layer)) };
        attention_forward(&mut atty, &mut lse, &qkv, heads);
        let mut branch = self.linear(params, &atty, (Tensor::AttProjW, Tensor::AttProjB), layer, c);
        drop_at(&mut branch, dropout_pass, Site::Attproj(layer));
        residual_forward(residual, &branch);
        let residual2 = residual.to_vec();
        let (ln2, ln2_mean, ln2_rstd) = self.norm(params, residual, (Tensor::Ln2W, Tensor::Ln2B), Some(layer));
        let fch = self.linear(params, &ln2, (Tensor::FcW, Tensor::FcB), layer, c);
        let mut fch_gelu = vec![F::zero(); fch.len()];
        gelu_forward(&mut fch_gelu, &fch);
        let mut branch = self.linear(params, &fch_gelu, (Tensor::FcProjW, Tensor::FcProjB), layer, 4 * c);
        drop_at(&mut branch, dropout_pass, Site::Fcproj(layer));
        residual_forward(residual, &branch);
        BlockActs {
            residual: start,
            ln1,
            ln1_mean,
            ln1_rstd,
            qkv,
            atty,
            lse,
            residual2,
            ln2,
            ln2_mean,
            ln2_rstd,
            fch,
            fch_gelu,
        }
    }

    /// Adds the gradients of `loss_scale` times the mean loss to `grads`, in the parameters' layout.
    ///
    /// # Panics
    /// If a slice length is inconsistent with the model or the pass.
    pub fn backward<F: RealNumber>(
        &self,
        grads: &mut [F],
        params: &[F],
        pass: &Pass<F>,
        inp: &[u32],
        targets: &[u32],
        loss_scale: F,
    ) {
        let Sizes { t, c, l, .. } = self.sizes;
        let dlosses = vec![loss_scale / F::count(targets.len()); targets.len()];
        let mut dlogits = vec![F::zero(); pass.logits.len()];
        crossentropy_softmax_backward(&mut dlogits, &dlosses, &pass.logits, targets);
        let mut dlnf = vec![F::zero(); pass.lnf.len()];
        self.linear_backward(grads, params, (&mut dlnf, &dlogits), &pass.lnf, (Tensor::Wte, None), None, c);
        let mut dresidual = vec![F::zero(); pass.residual.len()];
        let saved = layernorm_backward::SavedNorm { inp: &pass.residual, mean: &pass.lnf_mean, rstd: &pass.lnf_rstd };
        self.norm_backward(grads, params, (&mut dresidual, &dlnf), saved, (Tensor::LnfW, Tensor::LnfB), None);
        for layer in (0..l).rev() {
            self.block_backward(grads, params, &mut dresidual, pass, layer);
        }
        drop_at(&mut dresidual, pass.dropout, Site::Encoded);
        let [wte, wpe] = [Tensor::Wte, Tensor::Wpe].map(|tensor| self.range(tensor, None));
        let (before, after) = grads.split_at_mut(wpe.start);
        encoder_backward(&mut before[wte], &mut after[..wpe.len()], &dresidual, inp, Positions { t, first: 0 }, c);
    }

    fn range(&self, tensor: Tensor, layer: Option<usize>) -> std::ops::Range<usize> {
        self.layout.range(tensor, layer).expect("every model has this tensor")
    }

    #[expect(clippy::too_many_arguments, reason = "a linear layer's backward has that many operands")]
    fn linear_backward<F: RealNumber>(
        &self,
        grads: &mut [F],
        params: &[F],
        (dinp, dout): (&mut [F], &[F]),
        inp: &[F],
        (weight, bias): (Tensor, Option<Tensor>),
        layer: Option<usize>,
        c: usize,
    ) {
        let range = self.range(weight, layer);
        // A bias follows its weight.
        let n_bias = bias.and_then(|bias| self.layout.range(bias, layer)).map_or(0, |range| range.len());
        let (dweight, rest) = grads[range.start..].split_at_mut(range.len());
        let dbias = (n_bias > 0).then(|| &mut rest[..n_bias]);
        matmul_backward(matmul::Gradients { dinp, dweight, dbias }, dout, inp, &params[range], c);
    }

    fn norm_backward<F: RealNumber>(
        &self,
        grads: &mut [F],
        params: &[F],
        (dinp, dout): (&mut [F], &[F]),
        saved: layernorm_backward::SavedNorm<'_, F>,
        (weight, bias): (Tensor, Tensor),
        layer: Option<usize>,
    ) {
        let range = self.range(weight, layer);
        let n_bias = self.layout.range(bias, layer).map_or(0, |range| range.len());
        let (dweight, rest) = grads[range.start..].split_at_mut(range.len());
        let dbias = (n_bias > 0).then(|| &mut rest[..n_bias]);
        layernorm_backward(layernorm_backward::Gradients { dinp, dweight, dbias }, dout, saved, &params[range]);
    }

    fn block_backward<F: RealNumber>(
        &self,
        grads: &mut [F],
        params: &[F],
        dresidual: &mut [F],
        pass: &Pass<F>,
        layer: usize,
    ) {
        let Sizes { t, c, nh, .. } = self.sizes;
        let acts = &pass.blocks[layer];
        let here = Some(layer);
        let zeros = |like: &[F]| vec![F::zero(); like.len()];

        let mut dbranch = dresidual.to_vec();
        drop_at(&mut dbranch, pass.dropout, Site::Fcproj(layer));
        let mut dfch_gelu = zeros(&acts.fch_gelu);
        let fc_proj = (Tensor::FcProjW, Some(Tensor::FcProjB));
        self.linear_backward(grads, params, (&mut dfch_gelu, &dbranch), &acts.fch_gelu, fc_proj, here, 4 * c);
        let mut dfch = zeros(&acts.fch);
        gelu_backward(&mut dfch, &dfch_gelu, &acts.fch);
        let mut dln2 = zeros(&acts.ln2);
        self.linear_backward(grads, params, (&mut dln2, &dfch), &acts.ln2, (Tensor::FcW, Some(Tensor::FcB)), here, c);
        let saved = layernorm_backward::SavedNorm { inp: &acts.residual2, mean: &acts.ln2_mean, rstd: &acts.ln2_rstd };
        self.norm_backward(grads, params, (dresidual, &dln2), saved, (Tensor::Ln2W, Tensor::Ln2B), here);

        let mut dbranch = dresidual.to_vec();
        drop_at(&mut dbranch, pass.dropout, Site::Attproj(layer));
        let mut datty = zeros(&acts.atty);
        let att_proj = (Tensor::AttProjW, Some(Tensor::AttProjB));
        self.linear_backward(grads, params, (&mut datty, &dbranch), &acts.atty, att_proj, here, c);
        let mut dqkv = zeros(&acts.qkv);
        let heads = Heads { t, c, nh, dropout: pass.dropout.at(Site::Attention(layer)) };
        let saved = attention_backward::SavedAttention { qkv: &acts.qkv, out: &acts.atty, lse: &acts.lse };
        attention_backward(&mut dqkv, &datty, saved, heads);
        let mut dln1 = zeros(&acts.ln1);
        self.linear_backward(grads, params, (&mut dln1, &dqkv), &acts.ln1, (Tensor::QkvW, Some(Tensor::QkvB)), here, c);
        let saved = layernorm_backward::SavedNorm { inp: &acts.residual, mean: &acts.ln1_mean, rstd: &acts.ln1_rstd };
        self.norm_backward(grads, params, (dresidual, &dln1), saved, (Tensor::Ln1W, Tensor::Ln1B), here);
    }
}

fn drop_at<F: RealNumber>(inout: &mut [F], pass: DropoutPass, site: Site) {
    if let Some(mask) = pass.at(site) {
        dropout(inout, mask);
    }
}
