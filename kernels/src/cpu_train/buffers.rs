//! Buffers for one pass: saved activations and temporaries.

use headroom_planner::gpt::tensors::Tensor;

use super::arena::{Arena, Floats};

/// The activations of a block that are saved for backward.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) xhat1: Floats,
    pub(super) rstd1: Floats,
    pub(super) qkv: Floats,
    pub(super) atty: Floats,
    pub(super) lse: Floats,
    pub(super) xhat2: Floats,
    pub(super) rstd2: Floats,
    pub(super) fch: Floats,
    pub(super) fch_gelu: Floats,
}

/// Buffers for one pass; shapes are (N, ...) with N = B * T.
#[derive(Debug)]
pub(super) struct PassBuffers {
    pub(super) residual: Floats,
    pub(super) ln: Floats,
    /// The attention branch before dropout in forward, its gradient after dropout in backward; empty without dropout.
    pub(super) attproj: Floats,
    /// The same for the MLP branch.
    pub(super) fcproj: Floats,
    pub(super) blocks: Vec<Block>,
    pub(super) xhatf: Floats,
    pub(super) rstdf: Floats,
    pub(super) logits: Floats,
    pub(super) losses: Floats,
    /// The gradient of the residual stream after a block.
    pub(super) dresidual: Floats,
    /// The gradient of the residual stream between the block's branches.
    pub(super) dresidual2: Floats,
    pub(super) dln: Floats,
    pub(super) datty: Floats,
    pub(super) dqkv: Floats,
    pub(super) dfch: Floats,
}

impl PassBuffers {
    pub(super) fn new(arena: &mut Arena<'_>, l: usize, drops: bool) -> Self {
        let [residual, ln] = [Tensor::Residual, Tensor::Ln1].map(|tensor| arena.floats(tensor));
        let [attproj, fcproj] =
            [Tensor::Attproj, Tensor::Fcproj].map(|tensor| if drops { arena.floats(tensor) } else { Floats::new(0) });
        let blocks = (0..l).map(|_| Block::new(arena)).collect();
        let mut next = |tensor| arena.floats(tensor);
        Self {
            residual,
            ln,
            attproj,
            fcproj,
            blocks,
            xhatf: next(Tensor::XhatF),
            rstdf: next(Tensor::LnfRstd),
            logits: next(Tensor::TrainerLogits),
            losses: next(Tensor::FusedLosses),
            dresidual: next(Tensor::Dresidual),
            dresidual2: next(Tensor::Dresidual),
            dln: next(Tensor::Dln1),
            datty: next(Tensor::Datty),
            dqkv: next(Tensor::Dqkv),
            dfch: next(Tensor::Dfch),
        }
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
