//! The message PyTorch prints when the card is full.
//!
//! Source: the format in c10/cuda/CUDACachingAllocator.cpp (2.1 to 2.11), as kept in public messages.

use super::simulate::Failure;
use crate::units::pytorch_size;

/// A PyTorch version, as far as texts and defaults depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct TorchVersion {
    /// 2 in 2.11.
    pub major: u32,
    /// 11 in 2.11.
    pub minor: u32,
}

impl TorchVersion {
    /// The version the model was recorded with.
    pub const RECORDED: Self = Self { major: 2, minor: 11 };

    /// The environment variable that configures the allocator.
    #[must_use]
    pub fn allocator_variable(self) -> &'static str {
        if self >= (Self { major: 2, minor: 9 }) { "PYTORCH_ALLOC_CONF" } else { "PYTORCH_CUDA_ALLOC_CONF" }
    }
}

impl std::fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A version that was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no PyTorch version; write it as 2.11")]
pub struct ParseTorchVersionError {
    /// What was given.
    pub text: String,
}

impl std::str::FromStr for TorchVersion {
    type Err = ParseTorchVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseTorchVersionError { text: text.chars().take(40).collect() };
        let mut parts = text.trim().split('.');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let (Some(major), Some(minor)) = (number(), number()) else { return Err(error()) };
        Ok(Self { major, minor })
    }
}

/// What the message says of the card besides the failure itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardState {
    /// The card's memory as CUDA reports it.
    pub total_bytes: u64,
    /// What other processes hold.
    pub other_processes_bytes: u64,
    /// The CUDA context of this process.
    pub context_bytes: u64,
}

/// PyTorch's message for a failed allocation on card 0.
#[must_use]
pub fn out_of_memory(failure: &Failure, card: CardState, torch: TorchVersion) -> String {
    let process = card.context_bytes.saturating_add(failure.reserved_bytes);
    let used = process.saturating_add(card.other_processes_bytes);
    let advice = if torch >= (TorchVersion { major: 2, minor: 2 }) {
        format!("{}=expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF")
    } else {
        "max_split_size_mb".to_owned()
    };
    let reference = if torch >= (TorchVersion { major: 2, minor: 9 }) {
        " (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    } else if torch >= (TorchVersion { major: 2, minor: 2 }) {
        " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    } else {
        " and PYTORCH_CUDA_ALLOC_CONF"
    };
    format!(
        "CUDA out of memory. Tried to allocate {}. GPU 0 has a total capacity of {} of which {} is free. Including \
         non-PyTorch memory, this process has {} memory in use. Of the allocated memory {} is allocated by PyTorch, \
         and {} is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting \
         {advice} to avoid fragmentation.  See documentation for Memory Management {reference}",
        pytorch_size(failure.request.segment_bytes),
        pytorch_size(card.total_bytes),
        pytorch_size(card.total_bytes.saturating_sub(used)),
        pytorch_size(process),
        pytorch_size(failure.allocated_bytes),
        pytorch_size(failure.reserved_bytes - failure.allocated_bytes),
    )
}
