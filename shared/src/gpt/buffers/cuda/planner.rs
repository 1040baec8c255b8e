//! What to compute again, so that a run fits what is free: as little as does.

use thiserror::Error;

use super::{CudaTraining, Multiplier, Recompute};
use crate::{
    gpt::{GptConfig, tensors::TensorTooLarge},
    units::human_size,
};

/// What a run leaves of the memory that is free as it is planned. Code of kernels and room of their threads come out of
/// it when a kernel is launched first, some 100 MiB with cuBLASLt's, and a desktop takes and gives back as much.
pub const RESERVE_BYTES: u64 = 256 << 20;

/// Not even the least there is fits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "computing everything again, the run takes {}, and {} of the card's memory may be taken",
    human_size(*needed_bytes),
    human_size(*free_bytes)
)]
pub struct DoesNotFit {
    /// What it takes at least.
    pub needed_bytes: u64,
    /// What there is.
    pub free_bytes: u64,
}

/// The arena that computes least again and fits `free_bytes`, what is free less what is left alone: levels are raised
/// block by block, from the first on, and no level begins before every block has the one below.
///
/// # Errors
/// A tensor is larger than any machine's memory; inside, that no level fits.
pub fn plan(
    config: &GptConfig,
    batch_size: u64,
    free_bytes: u64,
) -> Result<Result<CudaTraining, DoesNotFit>, TensorTooLarge> {
    plan_with(config, batch_size, free_bytes, Multiplier::Own)
}

/// The same where others than our kernels may multiply matrices.
///
/// # Errors
/// As [`plan`].
pub fn plan_with(
    config: &GptConfig,
    batch_size: u64,
    free_bytes: u64,
    multiplier: Multiplier,
) -> Result<Result<CudaTraining, DoesNotFit>, TensorTooLarge> {
    let n_layer = usize::try_from(config.n_layer()).unwrap_or(usize::MAX);
    let at = |step: usize| {
        let (level, n_raised) = (step / n_layer, step % n_layer);
        let of = |level: usize| Recompute::ALL[level.min(Recompute::ALL.len() - 1)];
        let recompute = (0..n_layer).map(|layer| of(if layer < n_raised { level + 1 } else { level })).collect();
        CudaTraining::with_multiplier(config, batch_size, recompute, multiplier)
    };
    // More steps never take more than one buffer more, which is shared: between levels it can rise by that, so that the
    // steps are tried in their order.
    let last = (Recompute::ALL.len() - 1) * n_layer;
    let mut least = u64::MAX;
    for step in 0..=last {
        let arena = at(step)?;
        if arena.bytes <= free_bytes {
            return Ok(Ok(arena));
        }
        least = least.min(arena.bytes);
    }
    Ok(Err(DoesNotFit { needed_bytes: least, free_bytes }))
}
