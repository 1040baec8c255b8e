//! Buffers of the trainer on the CPU.

use super::{Buffers, CompanionTensor};
use crate::gpt::{
    GptConfig,
    tensors::{Dims, Tensor, TensorTooLarge},
};

/// Buffers of the trainer on the CPU, all in float32 and allocated for the whole run.
///
/// # Errors
/// [`TensorTooLarge`] if a tensor exceeds the maximum size.
pub fn cpu_training(config: &GptConfig, batch_size: u64, threads: u64) -> Result<Buffers, TensorTooLarge> {
    let mut buffers = Buffers::new(Dims { threads, ..Dims::without_gpu(config, batch_size) });
    for role in [CompanionTensor::Itself, CompanionTensor::Gradient, CompanionTensor::ExpAvg, CompanionTensor::ExpAvgSq]
    {
        buffers.add_parameters(config, role)?;
    }
    // Inputs and targets.
    for tensor in [Tensor::Tokens, Tensor::Tokens, Tensor::Residual, Tensor::Ln1] {
        buffers.add(tensor, None)?;
    }
    // A block's two branches before dropout, and their gradients after it.
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

/// Tensors that a block's forward saves for its backward on the CPU. Residuals are added in place. A layer norm's
/// backward needs only its normalised rows, from which its result is recomputed.
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
    // Gradients after a block, and between its branches.
    Tensor::Dresidual,
    Tensor::Dresidual,
    Tensor::Dln1,
    Tensor::Datty,
    Tensor::Dqkv,
    Tensor::Dfch,
    Tensor::AttScratch,
];
