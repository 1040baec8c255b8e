//! What NVML answers, as readings: the one place where its errors become reasons, and so do values that no card has.

use headroom_shared::{
    protocol::reading::{Reading, Why},
    text,
};
use nvml_wrapper::error::NvmlError;

/// nvml.h's codes that the wrapper has no names for.
mod code {
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    pub const DEPRECATED: u32 = 26;
    pub const NOT_READY: u32 = 27;
    pub const GPU_NOT_FOUND: u32 = 28;
}

/// The most that a card of today or of the next ten years can answer; more is a driver's error, and no reading.
pub mod most {
    /// Bytes of memory: 16 TiB. The largest card has 0.3.
    pub const MEMORY_BYTES: u64 = 16 << 40;
    /// Percent of a time.
    pub const PERCENT: u32 = 100;
    /// Percent of a fan's speed, which NVML allows above 100.
    pub const FAN_PERCENT: u32 = 200;
    /// Milliwatts: 20 kW. The largest card takes 1.4.
    pub const MILLIWATTS: u32 = 20_000_000;
    /// Degrees Celsius. Cards shut down at about 100.
    pub const CELSIUS: u32 = 250;
    /// Megahertz of a clock. Memory has up to 15,000.
    pub const MHZ: u32 = 100_000;
    /// Kilobytes a second over PCIe: 1 TB/s. Generation 7 has a quarter of it.
    pub const PCIE_KILOBYTES_PER_SECOND: u32 = 1_000_000_000;
    /// Generation of PCIe.
    pub const PCIE_GENERATION: u32 = 16;
    /// Lanes of PCIe.
    pub const PCIE_LANES: u32 = 64;
    /// Millijoules since the driver was loaded: 20 kW for 150 years.
    pub const MILLIJOULES: u64 = 100_000_000_000_000_000;
    /// Errors of memory: a thousand a second for 30,000 years.
    pub const ECC_ERRORS: u64 = 1_000_000_000_000_000;
    /// Each number of a compute capability.
    pub const COMPUTE_CAPABILITY: u32 = 99;
}

/// A value as a reading, where a card can have it.
pub fn plausible<T: Copy + PartialOrd>(value: T, most: T) -> Reading<T> {
    if value <= most { Reading::Is(value) } else { Reading::missing(Why::Implausible) }
}

/// More than one reading that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The card does not answer.
    Card,
    /// No card does: what the driver says.
    Driver(String),
}

/// Hears every answer of one card, and remembers whether one told of more than itself.
#[derive(Debug, Default)]
pub struct Answers {
    trouble: Option<Trouble>,
}

impl Answers {
    /// An answer as a reading.
    pub fn reading<T>(&mut self, answer: Result<T, NvmlError>) -> Reading<T> {
        answer.map_err(|error| self.why(&error)).into()
    }

    /// An answer as a reading, where a card can have so much.
    pub fn bounded<T: Copy + PartialOrd>(&mut self, answer: Result<T, NvmlError>, most: T) -> Reading<T> {
        match self.reading(answer) {
            Reading::Is(value) => plausible(value, most),
            missing => missing,
        }
    }

    /// Why there is no answer.
    pub fn why(&mut self, error: &NvmlError) -> Why {
        let why = why(error);
        if is_drivers(error) {
            self.trouble = Some(Trouble::Driver(reason(error)));
        } else if why == Why::CardLost && self.trouble.is_none() {
            self.trouble = Some(Trouble::Card);
        }
        why
    }

    /// Whether nothing but readings was heard.
    pub const fn is_well(&self) -> bool {
        self.trouble.is_none()
    }

    /// What was heard besides readings.
    pub fn trouble(self) -> Option<Trouble> {
        self.trouble
    }
}

/// What kind of trouble a refused handle is: of the card, unless the driver is gone.
pub fn refused(error: &NvmlError) -> Trouble {
    if is_drivers(error) { Trouble::Driver(reason(error)) } else { Trouble::Card }
}

fn is_drivers(error: &NvmlError) -> bool {
    matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
}

/// An error for the person who can mend it.
pub fn reason(error: &NvmlError) -> String {
    match error {
        NvmlError::LibRmVersionMismatch => text::DRIVER_VERSIONS_DIFFER.to_string(),
        NvmlError::DriverNotLoaded => text::DRIVER_NOT_LOADED.to_string(),
        NvmlError::Uninitialized => text::DRIVER_UNLOADED.to_string(),
        _ => error.to_string(),
    }
}

/// What is asked is the same for every card: an argument that one finds invalid is something that it does not have.
fn why(error: &NvmlError) -> Why {
    match error {
        NvmlError::NotSupported
        | NvmlError::VgpuEccNotSupported
        | NvmlError::InvalidArg
        | NvmlError::NotFound
        | NvmlError::UnexpectedVariant(code::DEPRECATED) => Why::NotSupported,
        NvmlError::NoPermission | NvmlError::OperatingSystem => Why::NoPermission,
        NvmlError::GpuLost | NvmlError::ResetRequired | NvmlError::UnexpectedVariant(code::GPU_NOT_FOUND) => {
            Why::CardLost
        }
        NvmlError::FailedToLoadSymbol(_)
        | NvmlError::FunctionNotFound
        | NvmlError::UnexpectedVariant(code::ARGUMENT_VERSION_MISMATCH) => Why::OldDriver,
        NvmlError::NoData | NvmlError::UnexpectedVariant(code::NOT_READY) => Why::NotYet,
        _ => Why::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_nvml_is_a_reason() {
        let whys = |codes: &[u32], expected: Why| {
            for &code in codes {
                assert_eq!(why(&NvmlError::from(code)), expected, "{code}");
            }
        };
        whys(&[2, 3, 6, 22, 26], Why::NotSupported);
        whys(&[4, 17], Why::NoPermission);
        whys(&[13, 25], Why::OldDriver);
        whys(&[15, 16, 28], Why::CardLost);
        whys(&[21, 27], Why::NotYet);
        whys(&[1, 7, 8, 9, 10, 11, 12, 14, 18, 19, 20, 23, 29, 999, 12_345], Why::Failed);
        assert_eq!(why(&NvmlError::FailedToLoadSymbol(String::new())), Why::OldDriver);
    }

    #[test]
    fn trouble_of_the_driver_is_worse_than_a_cards() {
        let heard = |codes: &[u32]| {
            let mut answers = Answers::default();
            for &code in codes {
                answers.why(&NvmlError::from(code));
            }
            answers.trouble()
        };
        assert_eq!(heard(&[3, 4, 999]), None);
        assert_eq!(heard(&[3, 15]), Some(Trouble::Card));
        assert!(matches!(heard(&[15, 9]), Some(Trouble::Driver(_))));
        assert!(matches!(heard(&[1, 15]), Some(Trouble::Driver(_))));
    }
}
