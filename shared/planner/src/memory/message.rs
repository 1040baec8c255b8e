//! PyTorch's out-of-memory message.
//!
//! Source: the format in c10/cuda/CUDACachingAllocator.cpp of each version, compared with published messages.

use super::simulate::Failure;
use headroom_text::{self as text, Text, units::pytorch_size};

/// A PyTorch version; selects message texts and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct TorchVersion {
    /// 2 in 2.11.
    pub major: u32,
    /// 11 in 2.11.
    pub minor: u32,
}

impl TorchVersion {
    /// The version with which the model was recorded.
    pub const RECORDED: Self = Self { major: 2, minor: 11 };

    /// The oldest version whose message is known.
    pub const OLDEST: Self = Self { major: 1, minor: 0 };

    /// The version `major.minor`.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// Environment variable that configures the allocator.
    ///
    /// 2.9 recognises the new name but ignores it for expandable segments (pytorch/pytorch#183387).
    #[must_use]
    pub fn allocator_variable(self) -> &'static str {
        if self >= Self::new(2, 10) { "PYTORCH_ALLOC_CONF" } else { "PYTORCH_CUDA_ALLOC_CONF" }
    }
}

impl std::fmt::Display for TorchVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Error: a text is not a PyTorch version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct ParseTorchVersionError {
    /// The invalid text.
    pub text: String,
}

impl ParseTorchVersionError {
    /// Error message.
    #[must_use]
    pub fn text(&self) -> Text {
        text::not_a_version(self.text.as_str())
    }
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

/// Figures of the GPU in the message, besides the failure itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuState {
    /// The GPU's memory as CUDA reports it, in bytes.
    pub total_bytes: u64,
    /// Memory of other processes in bytes.
    pub other_processes_bytes: u64,
    /// Size of this process's CUDA context in bytes.
    pub context_bytes: u64,
}

/// PyTorch's message for a failed allocation on GPU 0.
#[must_use]
pub fn out_of_memory(failure: &Failure, gpu: GpuState, torch: TorchVersion) -> String {
    let process = gpu.context_bytes.saturating_add(failure.reserved_bytes);
    let used = process.saturating_add(gpu.other_processes_bytes);
    let figures = Figures {
        requested: failure.request.segment_bytes,
        total: gpu.total_bytes,
        free: gpu.total_bytes.saturating_sub(used),
        process,
        allocated: failure.allocated_bytes,
        reserved: failure.reserved_bytes,
    };
    figures.in_words_of(torch)
}

/// Figures of a message, in bytes.
#[derive(Clone, Copy, Debug)]
struct Figures {
    requested: u64,
    total: u64,
    free: u64,
    /// Memory of the process with its context; messages before 2.1 omit it.
    process: u64,
    allocated: u64,
    reserved: u64,
}

impl Figures {
    fn in_words_of(self, torch: TorchVersion) -> String {
        let requested = pytorch_size(self.requested);
        let body = if torch < TorchVersion::new(2, 1) { self.before_2_1(torch) } else { self.since_2_1(torch) };
        format!("CUDA out of memory. Tried to allocate {requested}{body}{}", advice(torch))
    }

    fn before_2_1(self, torch: TorchVersion) -> String {
        // Until 1.3 the last figure is cached memory that is not allocated; later it is all reserved memory.
        let held = if torch < TorchVersion::new(1, 4) {
            format!("{} cached", pytorch_size(self.reserved.saturating_sub(self.allocated)))
        } else {
            format!("{} reserved in total by PyTorch", pytorch_size(self.reserved))
        };
        format!(
            " (GPU 0; {} total capacity; {} already allocated; {} free; {held})",
            pytorch_size(self.total),
            pytorch_size(self.allocated),
            pytorch_size(self.free),
        )
    }

    fn since_2_1(self, torch: TorchVersion) -> String {
        let capacity = if torch < TorchVersion::new(2, 2) { "capacty" } else { "capacity" };
        format!(
            ". GPU 0 has a total {capacity} of {} of which {} is free. Including non-PyTorch memory, this process has {} \
             memory in use. Of the allocated memory {} is allocated by PyTorch, and {} is reserved by PyTorch but \
             unallocated.",
            pytorch_size(self.total),
            pytorch_size(self.free),
            pytorch_size(self.process),
            pytorch_size(self.allocated),
            pytorch_size(self.reserved.saturating_sub(self.allocated)),
        )
    }
}

/// End of the message. Its URL changed with PyTorch's documentation between 2.9 and 2.11.
fn advice(torch: TorchVersion) -> &'static str {
    if torch < TorchVersion::new(1, 10) {
        ""
    } else if torch < TorchVersion::new(2, 1) {
        " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See \
         documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
    } else if torch < TorchVersion::new(2, 2) {
        " If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See \
         documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
    } else if torch < TorchVersion::new(2, 10) {
        " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to \
         avoid fragmentation.  See documentation for Memory Management  \
         (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    } else {
        " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to \
         avoid fragmentation.  See documentation for Memory Management  \
         (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_text::units::parse_size;

    /// Checks that a version's figures reproduce a published message, for all versions with that format.
    #[track_caller]
    fn check(versions: &[&str], figures: Figures, posted: &str) {
        for version in versions {
            let torch = version.parse().expect("a version");
            assert_eq!(figures.in_words_of(torch), posted, "{version}");
        }
    }

    fn size(text: &str) -> u64 {
        parse_size(text).expect("a size")
    }

    /// huggingface/transformers#1819.
    #[test]
    fn message_names_cached_memory_until_torch_1_3() {
        let figures = Figures {
            requested: size("384.00 MiB"),
            total: size("10.73 GiB"),
            free: size("290.56 MiB"),
            process: 0,
            allocated: size("9.59 GiB"),
            reserved: size("9.59 GiB") + size("25.84 MiB"),
        };
        check(
            &["1.0", "1.3", "1.3.1"],
            figures,
            "CUDA out of memory. Tried to allocate 384.00 MiB (GPU 0; 10.73 GiB total capacity; 9.59 GiB already allocated; \
             290.56 MiB free; 25.84 MiB cached)",
        );
    }

    /// huggingface/transformers#3360.
    #[test]
    fn message_names_reserved_memory_from_torch_1_4() {
        let figures = Figures {
            requested: size("786.00 MiB"),
            total: size("14.73 GiB"),
            free: size("575.88 MiB"),
            process: 0,
            allocated: size("13.33 GiB"),
            reserved: size("13.38 GiB"),
        };
        check(
            &["1.4", "1.8.1", "1.9"],
            figures,
            "CUDA out of memory. Tried to allocate 786.00 MiB (GPU 0; 14.73 GiB total capacity; 13.33 GiB already \
             allocated; 575.88 MiB free; 13.38 GiB reserved in total by PyTorch)",
        );
    }

    /// karpathy/nanoGPT#88.
    #[test]
    fn max_split_size_mb_from_1_10() {
        let figures = Figures {
            requested: size("394.00 MiB"),
            total: size("15.78 GiB"),
            free: size("8.68 GiB"),
            process: 0,
            allocated: size("5.17 GiB"),
            reserved: size("5.25 GiB"),
        };
        check(
            &["1.10", "1.12.1", "1.13", "2.0", "2.0.1+cu117"],
            figures,
            "CUDA out of memory. Tried to allocate 394.00 MiB (GPU 0; 15.78 GiB total capacity; 5.17 GiB already allocated; \
             8.68 GiB free; 5.25 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting \
             max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and \
             PYTORCH_CUDA_ALLOC_CONF",
        );
    }

    /// jingyaogong/minimind#48.
    #[test]
    fn the_misspelt_one_of_2_1() {
        let figures = Figures {
            requested: size("88.00 MiB"),
            total: size("7.75 GiB"),
            free: size("49.56 MiB"),
            process: size("7.43 GiB"),
            allocated: size("7.16 GiB"),
            reserved: size("7.16 GiB") + size("4.62 MiB"),
        };
        check(
            &["2.1", "2.1.2"],
            figures,
            "CUDA out of memory. Tried to allocate 88.00 MiB. GPU 0 has a total capacty of 7.75 GiB of which 49.56 MiB is \
             free. Including non-PyTorch memory, this process has 7.43 GiB memory in use. Of the allocated memory 7.16 GiB \
             is allocated by PyTorch, and 4.62 MiB is reserved by PyTorch but unallocated. If reserved but unallocated \
             memory is large try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management \
             and PYTORCH_CUDA_ALLOC_CONF",
        );
    }

    /// murong-xu/CADS#4; 2.9 by the log in ROCm/TheRock#2118.
    #[test]
    fn expandable_segments_from_2_2() {
        let figures = Figures {
            requested: size("22.78 GiB"),
            total: size("31.47 GiB"),
            free: size("12.73 GiB"),
            process: size("18.73 GiB"),
            allocated: size("9.08 GiB"),
            reserved: size("9.08 GiB") + size("9.35 GiB"),
        };
        let start = "CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 \
                     GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated \
                     memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated. If \
                     reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
                     to avoid fragmentation.  See documentation for Memory Management  ";
        check(
            &["2.2", "2.3.1", "2.5", "2.9"],
            figures,
            &format!("{start}(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"),
        );
        // As in the strings of 2.11's library.
        let address =
            "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf";
        check(&["2.11", "2.11.0+cu130"], figures, &format!("{start}({address})"));
    }

    #[test]
    fn the_variable_that_works() {
        for (version, name) in
            [("1.13", "PYTORCH_CUDA_ALLOC_CONF"), ("2.9", "PYTORCH_CUDA_ALLOC_CONF"), ("2.11", "PYTORCH_ALLOC_CONF")]
        {
            assert_eq!(version.parse().map(TorchVersion::allocator_variable), Ok(name));
        }
    }
}
