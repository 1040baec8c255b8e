//! Planner of activation recomputation: finds the least recomputation with which a run fits in free memory.

use thiserror::Error;

use super::{Backends, CudaTraining, PackedBuffers, Recompute, Run, sizes};
use crate::gpt::{GptConfig, tensors::TensorTooLarge};
use headroom_text::units::human_size;

/// Free memory that a plan leaves unused, in bytes. Kernel code and thread stacks use it when kernels are first loaded
/// and launched, about 100 MiB with cuBLASLt's; a desktop's usage varies by as much.
pub const RESERVE_BYTES: u64 = 256 << 20;

/// Error: even the smallest arena does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "with everything recomputed, the run needs {}; {} of the GPU's memory are available",
    human_size(*needed_bytes),
    human_size(*free_bytes)
)]
pub struct DoesNotFit {
    /// Size of the smallest arena in bytes.
    pub needed_bytes: u64,
    /// Available memory in bytes.
    pub free_bytes: u64,
}

/// Size of an arena, without its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaSize {
    /// Exact size in bytes, equal to the arena of [`CudaTraining::new`].
    pub bytes: u64,
    /// Activation recomputation of each block.
    pub recompute: Vec<Recompute>,
}

/// Plans the arena with the least recomputation that fits in `free_bytes`, the free memory less the reserve. Levels
/// rise block by block from the first; no block gets a level before all blocks have the one below.
///
/// # Errors
/// [`TensorTooLarge`] if a tensor exceeds the maximum size; the inner result is [`DoesNotFit`] if no level fits.
pub fn plan(
    config: &GptConfig,
    batch_size: u64,
    free_bytes: u64,
) -> Result<Result<CudaTraining, DoesNotFit>, TensorTooLarge> {
    plan_with(config, batch_size, free_bytes, Backends::NONE)
}

/// The same as [`plan`], with a choice of GEMM and attention backend.
///
/// # Errors
/// As [`plan`].
pub fn plan_with(
    config: &GptConfig,
    batch_size: u64,
    free_bytes: u64,
    libraries: Backends,
) -> Result<Result<CudaTraining, DoesNotFit>, TensorTooLarge> {
    let ArenaSize { bytes, recompute } = size_with(config, batch_size, free_bytes, libraries)?;
    if bytes > free_bytes {
        return Ok(Err(DoesNotFit { needed_bytes: bytes, free_bytes }));
    }
    CudaTraining::with_libraries(config, batch_size, recompute, libraries).map(Ok)
}

/// Size of the arena that [`plan`] chooses; if none fits, size of the smallest arena.
///
/// # Errors
/// [`TensorTooLarge`] if a tensor exceeds the maximum size.
pub fn size(config: &GptConfig, batch_size: u64, free_bytes: u64) -> Result<ArenaSize, TensorTooLarge> {
    size_with(config, batch_size, free_bytes, Backends::NONE)
}

/// The same as [`size`], with a choice of GEMM and attention backend.
///
/// # Errors
/// As [`size`].
pub fn size_with(
    config: &GptConfig,
    batch_size: u64,
    free_bytes: u64,
    libraries: Backends,
) -> Result<ArenaSize, TensorTooLarge> {
    let run = Run::of(config, batch_size, libraries);
    let (whole_bytes, _) = sizes(&run.whole(config)?.wanted());
    // Saved tensors add up over blocks. Shared tensors depend on which levels occur, not on how many blocks have them.
    let of_blocks = |levels: &[Recompute]| -> Result<(u64, u64), TensorTooLarge> {
        let (kept_bytes, PackedBuffers { bytes, .. }) = sizes(&run.with_passing(run.list(), levels)?.wanted());
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
        // More raised blocks need less memory. Raising the first block can need more, because of a newly shared buffer;
        // the steps are therefore tried in order.
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

/// The smallest step tried so far.
struct Steps {
    n_layer: u64,
    free_bytes: u64,
    bytes: u64,
    /// Level of the raised blocks, and of the others.
    levels: [Recompute; 2],
    n_raised: u64,
}

impl Steps {
    /// Records a step if it is the smallest so far; returns whether it fits.
    fn fits(&mut self, bytes: u64, levels: [Recompute; 2], n_raised: u64) -> bool {
        if bytes < self.bytes {
            *self = Self { bytes, levels, n_raised, ..*self };
        }
        bytes <= self.free_bytes
    }

    fn sized(&self) -> ArenaSize {
        let level = |layer| self.levels[usize::from(layer >= self.n_raised)];
        ArenaSize { bytes: self.bytes, recompute: (0..self.n_layer).map(level).collect() }
    }
}
