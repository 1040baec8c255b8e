//! Inputs of a GPU plan: the run's request, and the memory budget of a GPU.

use std::path::Path;

use headroom_kernels::cuda::{self, CudaError, Device};
use headroom_planner::gpt::{
    GptConfig,
    buffers::cuda::{AttentionBackend, RESERVE_BYTES, Recompute},
};

/// The part of a run's settings that decides its GPU and its memory.
#[derive(Clone, Copy, Debug)]
pub struct GpuRequest<'a> {
    /// The model's shape.
    pub gpt: &'a GptConfig,
    /// Sequences per micro-batch.
    pub batch_size: u64,
    /// The GPU memory to plan for, in bytes, if less than the GPU has.
    pub vram_bytes: Option<u64>,
    /// Whether the run requires float32.
    pub is_float32: bool,
    /// The recomputation level of every block. `None` leaves the choice to the planner.
    pub recompute: Option<Recompute>,
    pub attention_backend: AttentionBackend,
    /// The run's directory. The choice of libraries is saved there beside the checkpoint, so that a resumed run uses
    /// the same ones.
    pub out_dir: &'a Path,
}

/// The memory of a GPU that a plan is compared with, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// All of its memory, or the planned amount if that is smaller.
    pub total_bytes: u64,
    /// The free part of `total_bytes`.
    pub free_bytes: u64,
    /// The part of `free_bytes` that stays free as a reserve.
    pub reserve_bytes: u64,
}

impl MemoryBudget {
    /// Returns the bytes that a run may allocate.
    #[must_use]
    pub const fn usable_bytes(self) -> u64 {
        self.free_bytes.saturating_sub(self.reserve_bytes)
    }

    /// Reads the driver's current figures. If a smaller GPU is planned for, the used memory counts in full against it.
    ///
    /// # Errors
    /// The driver does not report them.
    pub fn of(device: &Device, vram_bytes: Option<u64>) -> Result<Self, CudaError> {
        let cuda::Memory { free_bytes, total_bytes } = device.memory()?;
        let used_bytes = total_bytes.saturating_sub(free_bytes);
        let total_bytes = vram_bytes.map_or(total_bytes, |vram_bytes| vram_bytes.min(total_bytes));
        let free_bytes = total_bytes.saturating_sub(used_bytes);
        Ok(Self { total_bytes, free_bytes, reserve_bytes: RESERVE_BYTES })
    }
}
