//! The oldest driver and GPU that the kernels support, and the environment variables of the CUDA backend.

use std::fmt;

use headroom_planner::hardware::ComputeCapability;

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

/// Lowest supported compute capability: the first with bfloat16 and asynchronous copies, which the kernels use.
pub const NEEDED_CAPABILITY: ComputeCapability = ComputeCapability::new(8, 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_cuda_prints_them() {
        assert_eq!([12_040, 13_000, 11_080].map(|version| Version(version).to_string()), ["12.4", "13.0", "11.8"]);
        assert!(Version(12_030) < NEEDED && Version(13_000) > NEEDED);
    }
}
