//! CUDA compute capability.
//!
//! A larger number is not a superset: 12.0 (GeForce Blackwell) lacks features of 10.0 (data centre Blackwell). The
//! table of `architecture` has the features.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use headroom_text as text;

/// CUDA compute capability, displayed as "8.9".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ComputeCapability {
    /// Generation.
    pub major: u8,
    /// Variant within the generation; one decimal digit.
    pub minor: u8,
}

/// Error: a text is not a compute capability.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", text::not_a_capability(self.text.as_str()))]
pub struct ParseComputeCapabilityError {
    /// The invalid text, truncated.
    pub text: String,
}

impl ComputeCapability {
    /// The capability `major.minor`.
    #[must_use]
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for ComputeCapability {
    type Err = ParseComputeCapabilityError;

    /// Parses "8.9", "sm_89" and "compute_120".
    ///
    /// # Errors
    /// [`ParseComputeCapabilityError`] for anything else, a bare "89" included.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseComputeCapabilityError { text: text.chars().take(40).collect() };
        let trimmed = text.trim();
        let (major, minor) = match trimmed.strip_prefix("sm_").or_else(|| trimmed.strip_prefix("compute_")) {
            Some(digits) => digits.split_at_checked(digits.len().saturating_sub(1)).ok_or_else(error)?,
            None => trimmed.split_once('.').ok_or_else(error)?,
        };
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty();
        if !digits(major) || !digits(minor) || minor.len() != 1 {
            return Err(error());
        }
        let major = major.parse().map_err(|_| error())?;
        let minor = minor.parse().map_err(|_| error())?;
        Ok(Self { major, minor })
    }
}

impl From<ComputeCapability> for String {
    fn from(capability: ComputeCapability) -> Self {
        capability.to_string()
    }
}

impl TryFrom<String> for ComputeCapability {
    type Error = ParseComputeCapabilityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}
