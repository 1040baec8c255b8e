//! Settings of PyTorch's allocator, and the rounding of sizes that follows from them.

use crate::gpt::tensors::round_up;

const MIB_LOG2: u32 = 20;

/// Number of intervals of `roundup_power2_divisions`: up to 2 MiB, up to 4 MiB, and so on.
pub(super) const N_DIVISIONS: usize = 16;

/// Settings of the allocator, as in `PYTORCH_CUDA_ALLOC_CONF`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AllocatorSettings {
    /// The settings as given.
    pub text: String,
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `max_split_size_mb` in bytes; `None` without a limit.
    pub max_split_bytes: Option<u64>,
    /// `garbage_collection_threshold`; 0 if it is off.
    pub garbage_collection_threshold: f64,
    /// `roundup_power2_divisions` for sizes of 1 MiB and more, 2 MiB and more, and so on; 0 is none.
    pub(super) divisions: [u64; N_DIVISIONS],
}

impl AllocatorSettings {
    /// Size of a block for a request (`round_size`).
    #[must_use]
    pub fn rounded(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(1);
        let interval = bytes.ilog2().saturating_sub(MIB_LOG2) as usize;
        let divisions = self.divisions[interval.min(N_DIVISIONS - 1)];
        if divisions > 1 && bytes > divisions.saturating_mul(512) {
            let floor = 1_u64 << bytes.ilog2();
            let step = (floor >> divisions.ilog2()).max(1);
            return bytes.checked_next_multiple_of(step).unwrap_or(bytes);
        }
        round_up(bytes)
    }

    /// Settings that the replica of the allocator does not model.
    #[must_use]
    pub fn not_modelled(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        names.extend(self.max_split_bytes.map(|_| "max_split_size_mb"));
        names.extend((self.garbage_collection_threshold > 0.0).then_some("garbage_collection_threshold"));
        names
    }
}
