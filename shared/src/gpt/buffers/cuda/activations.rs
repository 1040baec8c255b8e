//! What a forward keeps, what is computed again, and what is on the way.

use serde::Serialize;

use super::{List, Moment};
use crate::gpt::tensors::{Role, Stored, Tensor, TensorTooLarge};

/// How much of a block's forward is computed again in its backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recompute {
    /// Nothing.
    #[default]
    None,
    /// GELU and both layer norms, which are read and written and little else.
    GeluAndLayernorm,
    /// Besides, queries, keys and values, and attention.
    Attention,
    /// All of it, from its input.
    Block,
}

impl Recompute {
    /// All, those that take least time first.
    pub const ALL: [Self; 4] = [Self::None, Self::GeluAndLayernorm, Self::Attention, Self::Block];

    /// As it is written on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::GeluAndLayernorm => "gelu",
            Self::Attention => "attention",
            Self::Block => "block",
        }
    }

    /// The level of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// A tensor of a block: from which level on it is computed again, and when forward and backward need it.
#[derive(Debug)]
pub struct BlockTensor {
    /// The tensor.
    pub stored: Stored,
    /// From this level on it is not kept: there is one for all blocks' forward, and one for their backward.
    pub again_from: Recompute,
    forward: (Moment, Moment),
    /// By levels: from the moment in which it is computed again.
    backward_from: fn(Recompute) -> Moment,
    backward_to: Moment,
}

const fn half(tensor: Tensor) -> Stored {
    Stored { tensor, role: Role::Half }
}

const fn value(tensor: Tensor) -> Stored {
    Stored { tensor, role: Role::Value }
}

/// With attention, or with the block.
fn with_attention(level: Recompute) -> Moment {
    if level == Recompute::Block { Moment::Again } else { Moment::DAttProj }
}

fn with_block(_: Recompute) -> Moment {
    Moment::Again
}

/// A norm's result is needed for its layer's weight; after that its gradient takes its place.
fn ln1_again(level: Recompute) -> Moment {
    if level == Recompute::GeluAndLayernorm { Moment::DQkv } else { with_attention(level) }
}

fn ln2_again(level: Recompute) -> Moment {
    if level == Recompute::Block { Moment::Again } else { Moment::DFc }
}

fn gelu_again(level: Recompute) -> Moment {
    if level == Recompute::Block { Moment::Again } else { Moment::DFcProj }
}

const fn kept(
    stored: Stored,
    again_from: Recompute,
    forward: (Moment, Moment),
    backward_from: fn(Recompute) -> Moment,
    backward_to: Moment,
) -> BlockTensor {
    BlockTensor { stored, again_from, forward, backward_from, backward_to }
}

/// What a block's forward computes and its backward reads, in the order in which the trainer takes them.
pub static BLOCK_TENSORS: [BlockTensor; 12] = {
    use Moment::{AttProj, Attention, DAttention, DFc, DFcProj, DNorm1, DNorm2, Fc, FcProj, Norm1, Norm2, Qkv};
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
        // Its gradient takes its place.
        kept(value(Tensor::Fch), Block, (Fc, Fc), with_block, DFc),
        kept(value(Tensor::FchGelu), GeluAndLayernorm, (Fc, FcProj), gelu_again, DFcProj),
    ]
};

/// Adds all activations, in the order in which the trainer takes them: the residual stream before each block and after
/// the last, each block's, then what all blocks share, forward and backward, then what is on the way.
pub(super) fn activations(list: &mut List, drops: bool, recompute: &[Recompute]) -> Result<(), TensorTooLarge> {
    use Moment::{Again, AttProj, DAttProj, DAttention, DEncode, DFcProj, DQkv, Encode, FcProj, Head, Norm2};
    let n_layer = recompute.len() as u64;
    for layer in 0..=n_layer {
        let to = if layer < n_layer { Moment::DNorm1 } else { Head };
        list.add(half(Tensor::Residual), Some(layer), (Encode, to))?;
    }
    for tensor in &BLOCK_TENSORS {
        for (layer, &level) in (0..).zip(recompute) {
            if level < tensor.again_from {
                // Other blocks' forward comes after this one's, and their backward before.
                list.add(tensor.stored, Some(layer), (Moment::Norm1, Moment::DNorm1))?;
            }
        }
        let levels = recompute.iter().filter(|&&level| level >= tensor.again_from);
        if let Some(from) = levels.map(|&level| (tensor.backward_from)(level)).min() {
            // With dropout the first norm is fused with the block before.
            let is_fused = drops && matches!(tensor.stored.tensor, Tensor::Ln1 | Tensor::Ln1Mean | Tensor::Ln1Rstd);
            let to = if is_fused { FcProj } else { tensor.forward.1 };
            list.add(tensor.stored, None, (tensor.forward.0, to))?;
            list.add(tensor.stored, None, (from, tensor.backward_to))?;
        }
    }
    if drops {
        // A branch before it is dropped and added, also where that is computed again; and its gradient after.
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
    list.add(Tensor::FusedLosses, None, (Head, Moment::LAST))?;
    list.add(half(Tensor::Dresidual), None, (Head, DEncode))?;
    list.add(Tensor::Datty, None, (DAttProj, DAttention))?;
    list.add(Tensor::Dqkv, None, (DAttention, DQkv))?;
    // A row's product of its gradient and itself.
    list.add(Tensor::AttSum, None, (DAttention, DAttention))
}
