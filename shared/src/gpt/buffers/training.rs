//! What the trainer on CPU threads allocates.

use super::{Buffers, Companion};
use crate::gpt::{
    GptConfig,
    tensors::{Dims, Tensor, TensorTooLarge},
};

/// What the trainer on CPU threads allocates, in float32: everything, for the whole run.
///
/// # Errors
/// A tensor is larger than any machine's memory.
pub fn cpu_training(config: &GptConfig, batch_size: u64, threads: u64) -> Result<Buffers, TensorTooLarge> {
    let mut buffers = Buffers::new(Dims { threads, ..Dims::without_card(config, batch_size) });
    for role in [Companion::Itself, Companion::Gradient, Companion::ExpAvg, Companion::ExpAvgSq] {
        buffers.add_parameters(config, role)?;
    }
    // Inputs, and targets.
    for tensor in [Tensor::Tokens, Tensor::Tokens, Tensor::Residual, Tensor::Ln1] {
        buffers.add(tensor, None)?;
    }
    // A block's two branches before dropout, and their gradients after.
    if config.dropout() > 0.0 {
        buffers.add(Tensor::Attproj, None)?;
        buffers.add(Tensor::Fcproj, None)?;
    }
    buffers.add_blocks(config, &CPU_BLOCK)?;
    for tensor in CPU_ONCE {
        buffers.add(tensor, None)?;
    }
    Ok(buffers)
}

/// What a block's forward keeps for its backward on the CPU. Residuals are added in place: a layer norm's backward
/// needs only its normalised rows, which its result is made of again.
const CPU_BLOCK: [Tensor; 9] = [
    Tensor::Xhat1,
    Tensor::Ln1Rstd,
    Tensor::Qkv,
    Tensor::AttyRows,
    Tensor::AttLse,
    Tensor::Xhat2,
    Tensor::Ln2Rstd,
    Tensor::Fch,
    Tensor::FchGelu,
];

const CPU_ONCE: [Tensor; 11] = [
    Tensor::XhatF,
    Tensor::LnfRstd,
    Tensor::TrainerLogits,
    Tensor::FusedLosses,
    // After a block, and between its branches.
    Tensor::Dresidual,
    Tensor::Dresidual,
    Tensor::Dln1,
    Tensor::Datty,
    Tensor::Dqkv,
    Tensor::Dfch,
    Tensor::AttScratch,
];
