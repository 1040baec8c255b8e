//! `PYTORCH_ALLOC_CONF`: the settings of PyTorch's caching allocator.

mod parse;

use std::str::FromStr;

use thiserror::Error;

use super::{
    settings::{Ages, Defaults, Settings},
    sizes::{self, LARGE_BUFFER, MIN_BLOCK_SIZE},
};

/// Number of size intervals of `roundup_power2_divisions`: one per power of two of MiB, from 1 MiB.
const N_INTERVALS: usize = 16;

/// Settings of PyTorch's caching allocator that change GPU memory.
///
/// Source: c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.h of PyTorch 2.11.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllocConf {
    /// `expandable_segments`.
    pub expandable_segments: bool,
    /// `max_split_size_mb` in bytes; `u64::MAX` if blocks of any size are split.
    pub max_split_bytes: u64,
    /// `max_non_split_rounding_mb` in bytes.
    pub max_non_split_rounding_bytes: u64,
    /// `large_segment_size_mb` in bytes.
    pub large_segment_bytes: u64,
    /// `garbage_collection_threshold`; 0 if nothing is collected.
    pub garbage_collection_threshold: f64,
    /// `per_process_memory_fraction`; 1 if the process may use the whole GPU.
    pub per_process_memory_fraction: f64,
    /// `roundup_power2_divisions` by interval: requests below 2 MiB, below 4 MiB, and so on. 0 and 1 round to 512 bytes.
    pub roundup_divisions: [u64; N_INTERVALS],
}

impl Default for AllocConf {
    fn default() -> Self {
        Self {
            expandable_segments: false,
            max_split_bytes: u64::MAX,
            max_non_split_rounding_bytes: LARGE_BUFFER,
            large_segment_bytes: LARGE_BUFFER,
            garbage_collection_threshold: 0.0,
            per_process_memory_fraction: 1.0,
            roundup_divisions: [0; N_INTERVALS],
        }
    }
}

/// Why settings are not used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AllocConfError {
    /// PyTorch refuses them with this message.
    #[error("PyTorch refuses it: {0}")]
    Refused(String),
    /// PyTorch refuses them with an internal error, because a value or a separator is missing.
    #[error("PyTorch refuses it: a value or a separator is missing after {after:?}")]
    Incomplete {
        /// The last part that was read.
        after: String,
    },
    /// A value is not a number, or out of range.
    #[error("PyTorch refuses it: {value:?} is not a number in range")]
    NotANumber {
        /// The value.
        value: String,
    },
    /// A value is a hexadecimal number, which only PyTorch reads.
    #[error("the hexadecimal number {value:?} is not supported")]
    Hexadecimal {
        /// The value.
        value: String,
    },
    /// `cudaMallocAsync` is another allocator.
    #[error("backend:cudaMallocAsync is another allocator, which is not simulated")]
    OtherBackend,
}

impl FromStr for AllocConf {
    type Err = AllocConfError;

    /// Parses the value of `PYTORCH_ALLOC_CONF` as PyTorch 2.11 does. Settings without an effect on GPU memory are
    /// checked and ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse::parse(text)
    }
}

impl AllocConf {
    /// Whether only `expandable_segments` may differ from the default.
    #[must_use]
    pub fn is_default_but_for_segments(&self) -> bool {
        *self == Self { expandable_segments: self.expandable_segments, ..Self::default() }
    }

    /// Whether a garbage collection threshold is set and has no effect: PyTorch applies it only together with a
    /// `per_process_memory_fraction` below 1.
    #[must_use]
    pub fn ignores_collection(&self) -> bool {
        self.garbage_collection_threshold > 0.0 && self.per_process_memory_fraction >= 1.0
    }

    /// Reserved bytes that a process may have on a GPU of `total_bytes`, if the settings limit them.
    #[must_use]
    pub fn allowed_bytes(&self, total_bytes: u64) -> Option<u64> {
        (self.per_process_memory_fraction < 1.0).then(|| fraction_of(self.per_process_memory_fraction, total_bytes))
    }

    /// The settings in force on a GPU of `total_bytes`, or on one with endless memory.
    #[must_use]
    pub fn on_gpu(self, total_bytes: Option<u64>) -> GpuSettings {
        let allowed_bytes = total_bytes.and_then(|total| self.allowed_bytes(total));
        let collects = self.garbage_collection_threshold > 0.0;
        let collection_bytes =
            allowed_bytes.filter(|_| collects).map(|bytes| fraction_of(self.garbage_collection_threshold, bytes));
        GpuSettings { conf: self, total_bytes, allowed_bytes, collection_bytes }
    }

    /// Divisions that round a request of `bytes`.
    fn divisions(&self, bytes: u64) -> u64 {
        let interval = (bytes.max(1).ilog2().saturating_sub(20) as usize).min(N_INTERVALS - 1);
        self.roundup_divisions[interval]
    }
}

/// A share of a number of bytes, as c10 computes it: in double precision, without the fraction of a byte.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "c10 converts to a double and back"
)]
fn fraction_of(share: f64, bytes: u64) -> u64 {
    (share * bytes as f64) as u64
}

/// The settings in force on one GPU.
#[derive(Clone, Copy, Debug)]
pub struct GpuSettings {
    conf: AllocConf,
    /// `None` on a GPU with endless memory.
    total_bytes: Option<u64>,
    allowed_bytes: Option<u64>,
    collection_bytes: Option<u64>,
}

impl Settings for GpuSettings {
    type Ages = Searches;

    /// Rounds up to the next division of the power of two below, or leaves the multiple of 512.
    fn round(&self, bytes: u64) -> u64 {
        let divisions = self.conf.divisions(bytes);
        if divisions <= 1 || bytes <= MIN_BLOCK_SIZE.saturating_mul(divisions) {
            return bytes;
        }
        let step = (1 << bytes.ilog2()) / divisions;
        bytes.checked_next_multiple_of(step).unwrap_or(bytes)
    }

    fn large_segment_bytes(&self) -> u64 {
        self.conf.large_segment_bytes
    }

    fn max_split_bytes(&self) -> u64 {
        self.conf.max_split_bytes
    }

    fn max_non_split_rounding_bytes(&self) -> u64 {
        self.conf.max_non_split_rounding_bytes
    }

    fn allowed_bytes(&self) -> Option<u64> {
        self.allowed_bytes
    }

    fn collection_bytes(&self) -> Option<u64> {
        self.collection_bytes
    }

    fn expandable_bytes(&self, page_bytes: u64) -> u64 {
        let Some(total) = self.total_bytes else {
            return Defaults.expandable_bytes(page_bytes) / page_bytes * page_bytes;
        };
        let bytes = total.saturating_add(total / 8);
        bytes.checked_next_multiple_of(page_bytes).unwrap_or(bytes)
    }

    fn expandable_address(&self, address: u64, page_bytes: u64) -> u64 {
        address.checked_next_multiple_of(page_bytes).unwrap_or(address)
    }

    fn releases_address_space(&self, bytes: u64, page_bytes: u64) -> bool {
        self.total_bytes.is_some() && bytes == self.expandable_bytes(page_bytes)
    }
}

/// Searches of the large pool when each block became free, by number of the block.
#[derive(Clone, Debug, Default)]
pub struct Searches {
    n: u64,
    freed_at: Vec<u64>,
}

impl Ages for Searches {
    fn note_search(&mut self) {
        self.n += 1;
    }

    fn note_free(&mut self, id: u32) {
        let id = id as usize;
        if id >= self.freed_at.len() {
            self.freed_at.resize(id + 1, 0);
        }
        self.freed_at[id] = self.n;
    }

    fn age(&self, id: u32) -> u64 {
        self.n - self.freed_at.get(id as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
