//! An emulated libnvidia-ml: the C symbols that the agent calls, with results from a scenario file.
//!
//! Cargo builds it for packages that have it in `[dev-dependencies]`, beside their executables; [`library`] finds it.
//! The scenario is the file `scenario.json` beside the loaded library. A test that copies the library to a directory of
//! its own therefore controls only that copy. Without that file it is the file in `HEADROOM_FAKE_NVML`. A changed file
//! is read again at `nvmlInit`, when GPUs are counted or looked up, and when the first GPU's memory is read.

mod calls;
pub mod scenario;
pub mod stage;
mod state;

pub use scenario::{Course, FakeGpu, Process, Scenario};
pub use stage::{Stage, device_symbols, library};

/// The environment variable with the path of the scenario.
pub const VARIABLE: &str = "HEADROOM_FAKE_NVML";
/// The name of the scenario's file beside the library.
pub const FILE: &str = "scenario.json";

/// nvml.h's codes that scenarios use.
pub mod code {
    pub const SUCCESS: u32 = 0;
    /// `nvmlInit` was not called, or the driver has gone since.
    pub const UNINITIALIZED: u32 = 1;
    pub const INVALID_ARGUMENT: u32 = 2;
    /// The GPU does not support it.
    pub const NOT_SUPPORTED: u32 = 3;
    /// Only the administrator has permission.
    pub const NO_PERMISSION: u32 = 4;
    /// The object does not exist.
    pub const NOT_FOUND: u32 = 6;
    /// The caller's buffer is too small.
    pub const INSUFFICIENT_SIZE: u32 = 7;
    /// The kernel has no driver loaded.
    pub const DRIVER_NOT_LOADED: u32 = 9;
    /// No event within the time limit.
    pub const TIMEOUT: u32 = 10;
    /// The GPU has fallen off the bus.
    pub const GPU_IS_LOST: u32 = 15;
    /// Driver and library have different versions.
    pub const LIB_RM_VERSION_MISMATCH: u32 = 18;
    /// A struct's version is unknown to the driver.
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    /// An unknown error.
    pub const UNKNOWN: u32 = 999;
}
