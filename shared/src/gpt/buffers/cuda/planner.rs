//! What to compute again, so that a run fits what is free: as little as does.

use thiserror::Error;

use super::{CudaTraining, Libraries, Packed, Recompute, Run, sizes};
use crate::{
    gpt::{GptConfig, tensors::TensorTooLarge},
    units::human_size,
};

/// What a run leaves of the memory that is free as it is planned. Code of kernels and room of their threads come out of
/// it as they are loaded and launched first, some 100 MiB with cuBLASLt's, and a desktop takes and gives back as much.
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

/// An arena by its size alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sized {
    /// What it takes, to the byte: what [`CudaTraining::new`] comes to.
    pub bytes: u64,
    /// What is computed again, by blocks.
    pub recompute: Vec<Recompute>,
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
    plan_with(config, batch_size, free_bytes, Libraries::NONE)
}

/// The same where others than our kernels may multiply matrices and compute attention.
///
/// # Errors
/// As [`plan`].
pub fn plan_with(
    config: &GptConfig,
    batch_size: u64,
    free_bytes: u64,
    libraries: Libraries,
) -> Result<Result<CudaTraining, DoesNotFit>, TensorTooLarge> {
    let Sized { bytes, recompute } = size_with(config, batch_size, free_bytes, libraries)?;
    if bytes > free_bytes {
        return Ok(Err(DoesNotFit { needed_bytes: bytes, free_bytes }));
    }
    CudaTraining::with_libraries(config, batch_size, recompute, libraries).map(Ok)
}

/// The size of the arena that [`plan`] chooses; where none fits, of the least there is.
///
/// # Errors
/// A tensor is larger than any machine's memory.
pub fn size(config: &GptConfig, batch_size: u64, free_bytes: u64) -> Result<Sized, TensorTooLarge> {
    size_with(config, batch_size, free_bytes, Libraries::NONE)
}

/// The same where others than our kernels may multiply matrices and compute attention.
///
/// # Errors
/// As [`size`].
pub fn size_with(
    config: &GptConfig,
    batch_size: u64,
    free_bytes: u64,
    libraries: Libraries,
) -> Result<Sized, TensorTooLarge> {
    let run = Run::of(config, batch_size, libraries);
    let (whole_bytes, _) = sizes(&run.whole(config)?.wanted());
    // What blocks keep adds up; what they share depends on which levels there are, and not on how many blocks have them.
    let of_blocks = |levels: &[Recompute]| -> Result<(u64, u64), TensorTooLarge> {
        let (kept_bytes, Packed { bytes, .. }) = sizes(&run.with_passing(run.list(), levels)?.wanted());
        Ok((kept_bytes, bytes))
    };
    let n_layer = config.n_layer();
    let mut least = Steps { n_layer, free_bytes, bytes: u64::MAX, levels: [Recompute::None; 2], n_raised: 0 };
    for (index, &level) in Recompute::ALL.iter().enumerate() {
        let (kept_bytes, shared_bytes) = of_blocks(&[level])?;
        let others = whole_bytes.saturating_add(shared_bytes);
        if least.fits(others.saturating_add(n_layer * kept_bytes), [level; 2], 0) {
            break;
        }
        let Some(&above) = Recompute::ALL.get(index + 1) else { break };
        // More raised blocks take less. Where the first is raised it can be more, by a buffer that is shared from there on:
        // that is why steps are tried in their order.
        let (raised_bytes, _) = of_blocks(&[above])?;
        let (_, shared_bytes) = of_blocks(&[above, level])?;
        let others = whole_bytes.saturating_add(shared_bytes);
        let bytes = |n| others.saturating_add(n * raised_bytes).saturating_add((n_layer - n) * kept_bytes);
        if (1..n_layer).any(|n_raised| least.fits(bytes(n_raised), [above, level], n_raised)) {
            break;
        }
    }
    Ok(least.sized())
}

/// The smallest step that was tried.
struct Steps {
    n_layer: u64,
    free_bytes: u64,
    bytes: u64,
    /// Of the blocks that are raised, and of the others.
    levels: [Recompute; 2],
    n_raised: u64,
}

impl Steps {
    /// Whether a step fits; then it is the smallest so far.
    fn fits(&mut self, bytes: u64, levels: [Recompute; 2], n_raised: u64) -> bool {
        if bytes < self.bytes {
            *self = Self { bytes, levels, n_raised, ..*self };
        }
        bytes <= self.free_bytes
    }

    fn sized(&self) -> Sized {
        let level = |layer| self.levels[usize::from(layer >= self.n_raised)];
        Sized { bytes: self.bytes, recompute: (0..self.n_layer).map(level).collect() }
    }
}
