//! The model, its gradients and its optimizer's state, and what a training loop asks of them.

use headroom_shared::gpt::{
    GptConfig,
    buffers::{Buffers, cpu_training},
    tensors::{Role, Tensor, TensorTooLarge},
};
use thiserror::Error;

use super::{
    adamw,
    arena::Arena,
    attention::{Saved, Workspace, attention_backward, attention_forward},
    classifier::{Classifier, Gradients, classify},
    columns::{add_column_sums, add_norm_gradients},
    encoder::{drop_in_place, dropped_copy, encoder_backward, encoder_forward},
    gelu::{gelu_backward, gelu_forward},
    initial::initialize,
    norm::{Affine, Output, Pending, add_and_norm, norm_backward, restore},
    product::{Into, Mat, product},
    team::Team,
};
use crate::{
    cpu::{
        adamw_update::AdamW,
        attention_forward::Heads,
        gpt::{DropoutPass, Site, Sizes},
    },
    layout::{Layout, TooLarge},
};

/// Why there is no trainer.
#[derive(Debug, Error)]
pub enum TrainerError {
    /// The model.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A tensor of it.
    #[error(transparent)]
    Tensor(#[from] TensorTooLarge),
    /// The threads.
    #[error("the threads that compute cannot be started: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// One micro-step of an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Micro {
    /// Whether gradients start anew; else they add up.
    pub first: bool,
    /// What the loss counts: 1 / `gradient_accumulation_steps`.
    pub loss_scale: f32,
    /// What is dropped.
    pub dropout: DropoutPass,
}

/// What a block's forward keeps for its backward.
#[derive(Debug)]
struct Block {
    xhat1: Vec<f32>,
    rstd1: Vec<f32>,
    qkv: Vec<f32>,
    atty: Vec<f32>,
    lse: Vec<f32>,
    xhat2: Vec<f32>,
    rstd2: Vec<f32>,
    fch: Vec<f32>,
    fch_gelu: Vec<f32>,
}

/// Room for one pass; (N, ...) with N = B * T.
#[derive(Debug)]
struct Room {
    residual: Vec<f32>,
    ln: Vec<f32>,
    /// A branch before dropout, and its gradient after; empty without dropout.
    branch: Vec<f32>,
    blocks: Vec<Block>,
    xhatf: Vec<f32>,
    rstdf: Vec<f32>,
    logits: Vec<f32>,
    losses: Vec<f32>,
    dresidual: Vec<f32>,
    dln: Vec<f32>,
    datty: Vec<f32>,
    dqkv: Vec<f32>,
    dfch: Vec<f32>,
    scratch: Vec<f32>,
}

/// A GPT that trains on CPU threads.
#[derive(Debug)]
pub struct Trainer {
    layout: Layout,
    sizes: Sizes,
    team: Team,
    planned: Buffers,
    allocated_bytes: u64,
    params: Vec<f32>,
    grads: Vec<f32>,
    m: Vec<f32>,
    v: Vec<f32>,
    inputs: Vec<u32>,
    targets: Vec<u32>,
    room: Room,
}

impl Trainer {
    /// Allocates everything a run needs, for micro-batches of `batch_size` sequences of `block_size` tokens.
    ///
    /// # Errors
    /// The model is larger than this machine can address, or its threads cannot be started.
    pub fn new(config: &GptConfig, batch_size: u64, threads: usize) -> Result<Self, TrainerError> {
        let layout = Layout::new(config)?;
        let sizes = Sizes::new(config, usize::try_from(config.block_size()).map_err(|_| TooLarge)?)?;
        let team = Team::new(threads)?;
        let planned = cpu_training(config, batch_size, team.threads() as u64)?;
        if planned.bytes() > isize::MAX.unsigned_abs() as u64 {
            return Err(TooLarge.into());
        }
        let mut arena = Arena::new(&planned);
        let n = layout.entries().len();
        let [params, grads] = [Role::Value, Role::Value].map(|role| arena.flat(n, role));
        let [m, v] = [Role::ExpAvg, Role::ExpAvgSq].map(|role| arena.flat(n, role));
        let [inputs, targets] = [Tensor::Tokens; 2].map(|tensor| arena.tokens(tensor));
        let room = Room::new(&mut arena, sizes.l, config.dropout() > 0.0);
        let allocated_bytes = arena.finish();
        Ok(Self { layout, sizes, team, allocated_bytes, planned, params, grads, m, v, inputs, targets, room })
    }

    /// What was to be allocated.
    #[must_use]
    pub fn planned(&self) -> &Buffers {
        &self.planned
    }

    /// What was allocated.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    /// Where each parameter lies in the flat buffers.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The threads.
    #[must_use]
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// The parameters.
    #[must_use]
    pub fn params(&self) -> &[f32] {
        &self.params
    }

    /// The gradients of the last iteration.
    #[must_use]
    pub fn grads(&self) -> &[f32] {
        &self.grads
    }

    /// AdamW's first and second moments.
    #[must_use]
    pub fn moments(&self) -> (&[f32], &[f32]) {
        (&self.m, &self.v)
    }

    /// Parameters and moments, to read a checkpoint into.
    pub fn state_mut(&mut self) -> (&mut [f32], &mut [f32], &mut [f32]) {
        (&mut self.params, &mut self.m, &mut self.v)
    }

    /// Gives the parameters a fresh model's values.
    pub fn initialize(&mut self, seed: u64) {
        let (params, layout, l) = (&mut self.params, &self.layout, self.sizes.l);
        self.team.install(|| initialize(params, layout, l, seed));
    }

    /// The batch to be computed next, (B, T) each: inputs and targets, to be written by the caller.
    pub fn batch_mut(&mut self) -> (&mut [u32], &mut [u32]) {
        (&mut self.inputs, &mut self.targets)
    }

    /// The mean loss of the batch, without dropout.
    ///
    /// # Panics
    /// A token of the batch is no row of the embedding.
    pub fn loss(&mut self) -> f64 {
        self.run(None)
    }

    /// Forward and backward of the batch: adds to the gradients, and gives the mean loss.
    ///
    /// # Panics
    /// A token of the batch is no row of the embedding.
    pub fn micro_step(&mut self, micro: Micro) -> f64 {
        self.run(Some(micro))
    }

    fn run(&mut self, micro: Option<Micro>) -> f64 {
        let (inp, targets, v) = (&self.inputs, &self.targets, self.sizes.v);
        assert!(inp.iter().chain(targets).all(|&token| (token as usize) < v), "a token is a row of the embedding");
        let model =
            Model { layout: &self.layout, sizes: self.sizes, threads: self.team.threads(), params: &self.params };
        let (grads, room) = (&mut self.grads, &mut self.room);
        self.team.install(|| {
            if let Some(micro) = micro {
                if micro.first {
                    model.clear_vectors(grads);
                }
                model.forward(room, inp, micro.dropout);
                model.backward(room, grads, inp, targets, micro);
            } else {
                model.forward(room, inp, DropoutPass::NONE);
                model.classify(room, targets, None);
            }
        });
        self.room.losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / targets.len() as f64
    }

    /// The length of all gradients together.
    #[must_use]
    pub fn gradient_norm(&self) -> f64 {
        self.team.install(|| adamw::norm(&self.grads))
    }

    /// Updates every parameter from its gradient. `weight_decay` is that of matrices; vectors do not decay.
    pub fn update(&mut self, adamw: AdamW) {
        let state = adamw::State { params: &mut self.params, m: &mut self.m, v: &mut self.v, grads: &self.grads };
        let layout = &self.layout;
        self.team.install(|| adamw::adamw_update(state, layout, adamw));
    }
}

impl Room {
    fn new(arena: &mut Arena<'_>, l: usize, drops: bool) -> Self {
        let [residual, ln] = [Tensor::Residual, Tensor::Ln1].map(|tensor| arena.floats(tensor));
        let branch = if drops { arena.floats(Tensor::Attproj) } else { Vec::new() };
        let blocks = (0..l).map(|_| Block::new(arena)).collect();
        let [xhatf, rstdf, logits, losses] =
            [Tensor::XhatF, Tensor::LnfRstd, Tensor::TrainerLogits, Tensor::FusedLosses]
                .map(|tensor| arena.floats(tensor));
        let [dresidual, dln, datty, dqkv, dfch, scratch] =
            [Tensor::Dresidual, Tensor::Dln1, Tensor::Datty, Tensor::Dqkv, Tensor::Dfch, Tensor::AttScratch]
                .map(|tensor| arena.floats(tensor));
        Self { residual, ln, branch, blocks, xhatf, rstdf, logits, losses, dresidual, dln, datty, dqkv, dfch, scratch }
    }
}

impl Block {
    fn new(arena: &mut Arena<'_>) -> Self {
        let mut next = |tensor| arena.floats(tensor);
        Self {
            xhat1: next(Tensor::Xhat1),
            rstd1: next(Tensor::Ln1Rstd),
            qkv: next(Tensor::Qkv),
            atty: next(Tensor::AttyRows),
            lse: next(Tensor::AttLse),
            xhat2: next(Tensor::Xhat2),
            rstd2: next(Tensor::Ln2Rstd),
            fch: next(Tensor::Fch),
            fch_gelu: next(Tensor::FchGelu),
        }
    }
}

/// The parameters, and how to find them.
#[derive(Clone, Copy)]
struct Model<'a> {
    layout: &'a Layout,
    sizes: Sizes,
    threads: usize,
    params: &'a [f32],
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
    fn clear_vectors(&self, grads: &mut [f32]) {
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
                use rayon::prelude::*;
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
    fn forward(&self, room: &mut Room, inp: &[u32], pass: DropoutPass) {
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
    fn classify(&self, room: &mut Room, targets: &[u32], gradients: Option<(&mut [f32], Micro)>) {
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

    fn backward(&self, room: &mut Room, grads: &mut [f32], inp: &[u32], targets: &[u32], micro: Micro) {
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
