//! Activations of the built-in trainer: saved, recomputed and temporary tensors.

use serde::Serialize;

use super::{List, PlanTime};
use crate::gpt::tensors::{Role, Tensor, TensorId, TensorTooLarge};

/// Level of activation recomputation of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// Nothing is recomputed.
    #[default]
    None,
    /// GELU and both layer norms, which are cheap memory-bound operations.
    GeluAndLayernorm,
    /// In addition, queries, keys and values, and attention.
    Attention,
    /// The whole block, from its input.
    Block,
}

impl Recompute {
    /// All levels, fastest first.
    pub const ALL: [Self; 4] = [Self::None, Self::GeluAndLayernorm, Self::Attention, Self::Block];

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::GeluAndLayernorm => "gelu",
            Self::Attention => "attention",
            Self::Block => "block",
        }
    }

    /// The level with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A tensor of a block: its recompute level, and its lifetimes in forward and backward.
#[derive(Debug)]
pub struct BlockTensor {
    /// Tensor of the table, with its role.
    pub stored: TensorId,
    /// Lowest level that recomputes the tensor. From this level on, all blocks share one buffer in forward and one in
    /// backward.
    pub again_from: Recompute,
    forward: (PlanTime, PlanTime),
    /// Moment of recomputation, by level.
    backward_from: fn(Recompute) -> PlanTime,
    backward_to: PlanTime,
}

const fn half(tensor: Tensor) -> TensorId {
    TensorId { tensor, role: Role::Half }
}

const fn value(tensor: Tensor) -> TensorId {
    TensorId { tensor, role: Role::Value }
}

/// Recomputed with attention, or with the block.
fn with_attention(level: Recompute) -> PlanTime {
    if level == Recompute::Block { PlanTime::Again } else { PlanTime::DAttProj }
}

fn with_block(_: Recompute) -> PlanTime {
    PlanTime::Again
}

/// A norm's result is needed for its layer's weight gradient; after that, its own gradient reuses the buffer.
fn ln1_again(level: Recompute) -> PlanTime {
    if level == Recompute::GeluAndLayernorm { PlanTime::DQkv } else { with_attention(level) }
}

fn ln2_again(level: Recompute) -> PlanTime {
    if level == Recompute::Block { PlanTime::Again } else { PlanTime::DFc }
}

fn gelu_again(level: Recompute) -> PlanTime {
    if level == Recompute::Block { PlanTime::Again } else { PlanTime::DFcProj }
}

const fn kept(
    stored: TensorId,
    again_from: Recompute,
    forward: (PlanTime, PlanTime),
    backward_from: fn(Recompute) -> PlanTime,
    backward_to: PlanTime,
) -> BlockTensor {
    BlockTensor { stored, again_from, forward, backward_from, backward_to }
}

/// Tensors that a block's forward computes and its backward reads, in the order in which the trainer allocates them.
pub static BLOCK_TENSORS: [BlockTensor; 12] = {
    use PlanTime::{AttProj, Attention, DAttention, DFc, DFcProj, DNorm1, DNorm2, Fc, FcProj, Norm1, Norm2, Qkv};
    use Recompute::{Attention as AttentionAgain, Block, GeluAndLayernorm};
    [
        kept(half(Tensor::Ln1), GeluAndLayernorm, (Norm1, Qkv), ln1_again, DNorm1),
        kept(value(Tensor::Ln1Mean), Block, (Norm1, Norm1), with_block, DNorm1),
        kept(value(Tensor::Ln1Rstd), Block, (Norm1, Norm1), with_block, DNorm1),
        kept(value(Tensor::Qkv), AttentionAgain, (Qkv, Attention), with_attention, DAttention),
        kept(value(Tensor::AttyRows), AttentionAgain, (Attention, AttProj), with_attention, DAttention),
        kept(value(Tensor::AttLse), AttentionAgain, (Attention, Attention), with_attention, DAttention),
        kept(half(Tensor::Residual2), Block, (AttProj, FcProj), with_block, DNorm2),
        kept(half(Tensor::Ln2), GeluAndLayernorm, (Norm2, Fc), ln2_again, DNorm2),
        kept(value(Tensor::Ln2Mean), Block, (Norm2, Norm2), with_block, DNorm2),
        kept(value(Tensor::Ln2Rstd), Block, (Norm2, Norm2), with_block, DNorm2),
        // Its gradient reuses the buffer.
        kept(value(Tensor::Fch), Block, (Fc, Fc), with_block, DFc),
        kept(value(Tensor::FchGelu), GeluAndLayernorm, (Fc, FcProj), gelu_again, DFcProj),
    ]
};

/// Adds all activations in the trainer's order. The residual stream before each block and after the last comes first,
/// then each block's tensors. Tensors shared by all blocks in forward and backward follow, then temporary tensors.
pub(super) fn activations(list: &mut List, drops: bool, recompute: &[Recompute]) -> Result<(), TensorTooLarge> {
    use PlanTime::{Again, AttProj, DAttProj, DAttention, DEncode, DFcProj, DQkv, Encode, FcProj, Head, Norm2};
    let n_layer = recompute.len() as u64;
    for layer in 0..=n_layer {
        let to = if layer < n_layer { PlanTime::DNorm1 } else { Head };
        list.add(half(Tensor::Residual), Some(layer), (Encode, to))?;
    }
    for tensor in &BLOCK_TENSORS {
        for (layer, &level) in (0..).zip(recompute) {
            if level < tensor.again_from {
                // Other blocks' forward follows this block's, and their backward precedes it.
                list.add(tensor.stored, Some(layer), (PlanTime::Norm1, PlanTime::DNorm1))?;
            }
        }
        let levels = recompute.iter().filter(|&&level| level >= tensor.again_from);
        if let Some(from) = levels.map(|&level| (tensor.backward_from)(level)).min() {
            // With dropout, the first norm is fused with the previous block.
            let is_fused = drops && matches!(tensor.stored.tensor, Tensor::Ln1 | Tensor::Ln1Mean | Tensor::Ln1Rstd);
            let to = if is_fused { FcProj } else { tensor.forward.1 };
            list.add(tensor.stored, None, (tensor.forward.0, to))?;
            list.add(tensor.stored, None, (from, tensor.backward_to))?;
        }
    }
    if drops {
        // A branch before dropout and addition, also in recomputation; then its gradient.
        list.add(Tensor::Attproj, None, (AttProj, Norm2))?;
        list.add(Tensor::Attproj, None, (Again, Again))?;
        list.add(Tensor::Fcproj, None, (FcProj, FcProj))?;
        list.add(Tensor::Ddropped, None, (DFcProj, DFcProj))?;
        list.add(Tensor::Ddropped, None, (DAttProj, DAttProj))?;
    }
    let from = if drops { FcProj } else { Head };
    list.add(half(Tensor::Lnf), None, (from, Head))?;
    list.add(Tensor::LnfMean, None, (from, Head))?;
    list.add(Tensor::LnfRstd, None, (from, Head))?;
    list.add(Tensor::FusedLosses, None, (Head, PlanTime::LAST))?;
    list.add(half(Tensor::Dresidual), None, (Head, DEncode))?;
    list.add(Tensor::Datty, None, (DAttProj, DAttention))?;
    list.add(Tensor::Dqkv, None, (DAttention, DQkv))?;
    // Dot product of each row with its gradient.
    list.add(Tensor::AttSum, None, (DAttention, DAttention))
}
