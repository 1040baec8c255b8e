//! A libnvidia-ml without a driver: the C symbols that the agent calls, and a scenario file that says what each answers.
//!
//! Cargo builds it with the tests of whoever names it under `[dev-dependencies]`, beside their executables: [`library`]
//! finds it. The scenario is the file `scenario.json` beside the library that was loaded, so that a test that copies
//! the library into a folder of its own steers that copy alone; where there is none, the file that `HEADROOM_FAKE_NVML`
//! names. It is read anew whenever it changed, at `nvmlInit`, when cards are counted or asked for, and when the memory of
//! the first one is read.

mod calls;
pub mod scenario;
pub mod stage;
mod state;

pub use scenario::{Card, Course, Process, Scenario};
pub use stage::{Stage, library};

/// What names the scenario.
pub const VARIABLE: &str = "HEADROOM_FAKE_NVML";
/// The scenario's file beside the library.
pub const FILE: &str = "scenario.json";

/// nvml.h's codes, as far as scenarios need them.
pub mod code {
    /// It worked.
    pub const SUCCESS: u32 = 0;
    /// `nvmlInit` was not called, or the driver is gone since.
    pub const UNINITIALIZED: u32 = 1;
    /// An argument is wrong.
    pub const INVALID_ARGUMENT: u32 = 2;
    /// The card does not have it.
    pub const NOT_SUPPORTED: u32 = 3;
    /// Only the administrator may.
    pub const NO_PERMISSION: u32 = 4;
    /// There is none.
    pub const NOT_FOUND: u32 = 6;
    /// What is to be written does not fit.
    pub const INSUFFICIENT_SIZE: u32 = 7;
    /// No driver in the kernel.
    pub const DRIVER_NOT_LOADED: u32 = 9;
    /// Nothing happened in time.
    pub const TIMEOUT: u32 = 10;
    /// The card fell off the bus.
    pub const GPU_IS_LOST: u32 = 15;
    /// Driver and library are of different versions.
    pub const LIB_RM_VERSION_MISMATCH: u32 = 18;
    /// A struct of a version that the driver does not know.
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    /// Anything.
    pub const UNKNOWN: u32 = 999;
}
