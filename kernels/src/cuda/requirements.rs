//! The oldest driver and GPU that the kernels support, and the environment variables of the CUDA backend.

use std::fmt;

/// Environment variable with the path of a library to load as the driver, such as another build or a test double.
pub const VARIABLE: &str = "HEADROOM_CUDA";
/// Oldest CUDA version whose driver accepts PTX 8.4, which the kernels are compiled to.
pub const NEEDED: Version = Version(12_040);
/// First driver release with that version (CUDA 12.4 release notes, table 2).
pub const NEEDED_RELEASE: &str = "550";

/// Environment variable: with the value 1 every launch is synchronized, so that an error names the faulting kernel.
/// Slow.
pub const SYNC_VARIABLE: &str = "HEADROOM_CUDA_SYNC";

/// The newest CUDA version that a driver supports, in the driver's encoding: 12040 is 12.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

/// CUDA compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capability {
    /// Major version: 8 in 8.9.
    pub major: u32,
    /// Minor version: 9 in 8.9.
    pub minor: u32,
}

impl Capability {
    /// Lowest supported capability: the first with bfloat16 and asynchronous copies, which the kernels use.
    pub const NEEDED: Self = Self { major: 8, minor: 0 };
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_cuda_prints_them() {
        assert_eq!([12_040, 13_000, 11_080].map(|version| Version(version).to_string()), ["12.4", "13.0", "11.8"]);
        assert!(Version(12_030) < NEEDED && Version(13_000) > NEEDED);
    }

    #[test]
    fn capabilities_are_ordered() {
        let of = |major, minor| Capability { major, minor };
        assert!(of(7, 5) < Capability::NEEDED && of(8, 0) >= Capability::NEEDED && of(12, 0) > of(9, 0));
        assert_eq!(of(8, 9).to_string(), "8.9");
    }
}
