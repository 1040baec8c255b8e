//! Room for one pass: what forward keeps, and what is on the way.

use headroom_shared::gpt::tensors::Tensor;

use super::arena::Arena;

/// What a block's forward keeps for its backward.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) xhat1: Vec<f32>,
    pub(super) rstd1: Vec<f32>,
    pub(super) qkv: Vec<f32>,
    pub(super) atty: Vec<f32>,
    pub(super) lse: Vec<f32>,
    pub(super) xhat2: Vec<f32>,
    pub(super) rstd2: Vec<f32>,
    pub(super) fch: Vec<f32>,
    pub(super) fch_gelu: Vec<f32>,
}

/// Room for one pass; (N, ...) with N = B * T.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) residual: Vec<f32>,
    pub(super) ln: Vec<f32>,
    /// A branch before dropout, and its gradient after; empty without dropout.
    pub(super) branch: Vec<f32>,
    pub(super) blocks: Vec<Block>,
    pub(super) xhatf: Vec<f32>,
    pub(super) rstdf: Vec<f32>,
    pub(super) logits: Vec<f32>,
    pub(super) losses: Vec<f32>,
    pub(super) dresidual: Vec<f32>,
    pub(super) dln: Vec<f32>,
    pub(super) datty: Vec<f32>,
    pub(super) dqkv: Vec<f32>,
    pub(super) dfch: Vec<f32>,
    pub(super) scratch: Vec<f32>,
}

impl Room {
    pub(super) fn new(arena: &mut Arena<'_>, l: usize, drops: bool) -> Self {
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
