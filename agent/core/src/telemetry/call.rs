//! The calls of NVML that are repeated for each moment, one by one, for `headroom bench`.

use nvml_wrapper::{Device, error::NvmlError};

/// A call of NVML, without its result.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The ID of the first metric that it reads, or a name of its own.
    pub name: &'static str,
    /// Whether it takes milliseconds.
    pub is_slow: bool,
    /// Makes the call.
    pub make: fn(&Device<'_>) -> Result<(), NvmlError>,
}

/// Returns a call that takes microseconds.
pub const fn call(name: &'static str, make: fn(&Device<'_>) -> Result<(), NvmlError>) -> Call {
    Call { name, is_slow: false, make }
}
