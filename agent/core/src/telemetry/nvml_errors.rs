//! Conversion of NVML's answers into readings: its errors and implausible values become reasons here and nowhere else.

use headroom_protocol::{
    message::Message,
    reading::{MissingReason, Reading},
};
use headroom_text as text;
use nvml_wrapper::error::NvmlError;

/// nvml.h's codes that the wrapper does not name.
mod code {
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    pub const DEPRECATED: u32 = 26;
    pub const NOT_READY: u32 = 27;
    pub const GPU_NOT_FOUND: u32 = 28;
}

/// Upper bounds of plausible values, with room for the next ten years of GPUs. A larger value is a driver error.
pub mod most {
    /// Memory in bytes: 16 TiB. The largest GPU has 0.3 TiB.
    pub const MEMORY_BYTES: u64 = 16 << 40;
    /// Utilisation in percent.
    pub const PERCENT: u32 = 100;
    /// A fan's speed in percent, which NVML allows above 100.
    pub const FAN_PERCENT: u32 = 200;
    /// Power in milliwatts: 20 kW. The largest GPU draws 1.4 kW.
    pub const MILLIWATTS: u32 = 20_000_000;
    /// Temperature in degrees Celsius. GPUs shut down at about 100.
    pub const CELSIUS: u32 = 250;
    /// Clock rate in megahertz. Memory has up to 15,000.
    pub const MHZ: u32 = 100_000;
    /// PCIe throughput in kilobytes per second: 1 TB/s. Generation 7 has a quarter of it.
    pub const PCIE_KILOBYTES_PER_SECOND: u32 = 1_000_000_000;
    /// PCIe generation.
    pub const PCIE_GENERATION: u32 = 16;
    /// PCIe lanes.
    pub const PCIE_LANES: u32 = 64;
    /// Energy since the driver was loaded, in millijoules: 20 kW for 150 years.
    pub const MILLIJOULES: u64 = 100_000_000_000_000_000;
    /// ECC errors: a thousand per second for 30,000 years.
    pub const ECC_ERRORS: u64 = 1_000_000_000_000_000;
    /// The major or minor number of a compute capability.
    pub const COMPUTE_CAPABILITY: u32 = 99;
}

/// Returns a value as a reading, or [`MissingReason::Implausible`] if it exceeds `most`.
pub fn plausible<T: Copy + PartialOrd>(value: T, most: T) -> Reading<T> {
    if value <= most { Reading::Is(value) } else { Reading::missing(MissingReason::Implausible) }
}

/// Returns a GPU's total memory in bytes as a reading, or [`MissingReason::Implausible`] for none and for too much.
pub fn plausible_memory(bytes: u64) -> Reading<u64> {
    if bytes == 0 { Reading::missing(MissingReason::Implausible) } else { plausible(bytes, most::MEMORY_BYTES) }
}

/// Returns the upper bound of a plausible clock rate in megahertz. Overclocking exceeds the GPU's stated maximum by less
/// than a quarter.
pub fn clock_bound(stated_max: &Reading<u64>) -> u32 {
    let bound = stated_max.get().filter(|max| **max > 0).map(|max| max.saturating_add(max / 4));
    bound.and_then(|bound| u32::try_from(bound).ok()).map_or(most::MHZ, |bound| bound.min(most::MHZ))
}

/// A failure that concerns more than one reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NvmlFailure {
    /// The GPU does not respond.
    Gpu,
    /// No GPU responds; the driver's reason.
    Driver(Message),
}

/// Converts the answers of one GPU, and records whether an error concerned more than its reading.
#[derive(Debug, Default)]
pub struct NvmlErrors {
    trouble: Option<NvmlFailure>,
}

impl NvmlErrors {
    /// Returns an answer as a reading.
    pub fn reading<T>(&mut self, answer: Result<T, NvmlError>) -> Reading<T> {
        answer.map_err(|error| self.why(&error)).into()
    }

    /// Returns an answer as a reading, or [`MissingReason::Implausible`] if it exceeds `most`.
    pub fn bounded<T: Copy + PartialOrd>(&mut self, answer: Result<T, NvmlError>, most: T) -> Reading<T> {
        match self.reading(answer) {
            Reading::Is(value) => plausible(value, most),
            missing => missing,
        }
    }

    /// Returns the reason for an error, and records a failure of the GPU or the driver.
    pub fn why(&mut self, error: &NvmlError) -> MissingReason {
        let why = why(error);
        if is_drivers(error) {
            self.trouble = Some(NvmlFailure::Driver(reason(error)));
        } else if why == MissingReason::GpuLost && self.trouble.is_none() {
            self.trouble = Some(NvmlFailure::Gpu);
        }
        why
    }

    /// Returns whether no failure was recorded.
    pub const fn is_well(&self) -> bool {
        self.trouble.is_none()
    }

    /// Returns the recorded failure.
    pub fn trouble(self) -> Option<NvmlFailure> {
        self.trouble
    }
}

/// Classifies the error of a refused handle: a failure of the GPU, unless the driver is gone.
pub fn refused(error: &NvmlError) -> NvmlFailure {
    if is_drivers(error) { NvmlFailure::Driver(reason(error)) } else { NvmlFailure::Gpu }
}

fn is_drivers(error: &NvmlError) -> bool {
    matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
}

/// Returns an error as a message that helps the user to fix it.
pub fn reason(error: &NvmlError) -> Message {
    match error {
        NvmlError::LibRmVersionMismatch => text::DRIVER_VERSIONS_DIFFER.into(),
        NvmlError::DriverNotLoaded => text::DRIVER_NOT_LOADED.into(),
        NvmlError::Uninitialized => text::DRIVER_UNLOADED.into(),
        _ => Message::plain(error.to_string()),
    }
}

/// The calls are the same for every GPU, so "invalid argument" means that this GPU lacks the feature.
fn why(error: &NvmlError) -> MissingReason {
    match error {
        NvmlError::NotSupported
        | NvmlError::VgpuEccNotSupported
        | NvmlError::InvalidArg
        | NvmlError::NotFound
        | NvmlError::UnexpectedVariant(code::DEPRECATED) => MissingReason::NotSupported,
        NvmlError::NoPermission | NvmlError::OperatingSystem => MissingReason::NoPermission,
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::UnexpectedVariant(code::GPU_NOT_FOUND) => {
            MissingReason::GpuLost
        }
        NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound
        | NvmlError::UnexpectedVariant(code::ARGUMENT_VERSION_MISMATCH) => MissingReason::OldDriver,
        NvmlError::NoData | NvmlError::UnexpectedVariant(code::NOT_READY) => MissingReason::NotYet,
        _ => MissingReason::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_nvml_is_a_reason() {
        let whys = |codes: &[u32], expected: MissingReason| {
            for &code in codes {
                assert_eq!(why(&NvmlError::from(code)), expected, "{code}");
            }
        };
        whys(&[2, 3, 6, 22, 26], MissingReason::NotSupported);
        whys(&[4, 17], MissingReason::NoPermission);
        whys(&[13, 25], MissingReason::OldDriver);
        whys(&[15, 16, 28], MissingReason::GpuLost);
        whys(&[21, 27], MissingReason::NotYet);
        whys(&[1, 7, 8, 9, 10, 11, 12, 14, 18, 19, 20, 23, 29, 999, 12_345], MissingReason::Failed);
        assert_eq!(why(&NvmlError::FailedToLoadSymbol(String::new())), MissingReason::OldDriver);
    }

    #[test]
    fn trouble_of_the_driver_is_worse_than_a_gpus() {
        let heard = |codes: &[u32]| {
            let mut answers = NvmlErrors::default();
            for &code in codes {
                answers.why(&NvmlError::from(code));
            }
            answers.trouble()
        };
        assert_eq!(heard(&[3, 4, 999]), None);
        assert_eq!(heard(&[3, 15]), Some(NvmlFailure::Gpu));
        assert!(matches!(heard(&[15, 9]), Some(NvmlFailure::Driver(_))));
        assert!(matches!(heard(&[1, 15]), Some(NvmlFailure::Driver(_))));
    }
}
