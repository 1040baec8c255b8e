//! An emulated libcuda: the part of the driver's C interface that the host uses, over the emulator that runs kernels on
//! the CPU. The host's code is unchanged; it opens this library as the driver through `HEADROOM_CUDA`.
//!
//! [`Scenario`] describes the machine: its GPUs, their memory, the driver's version, and which calls fail. It is read
//! from the file in `HEADROOM_FAKE_CUDA`; without it the machine has one default GPU. A kernel runs when it is
//! launched. Its failure is reported as a GPU reports it, by all later calls with the same code. The failing line of
//! the kernel goes to standard error.
//!
//! Kernel tests run in one process, each in its own thread. Settings made with [`LaunchSettingsGuard`] apply to the launches of one
//! thread: the order of threads, a mutated kernel, and a fault. Such a fault ends neither the process's GPU nor another
//! test.
//!
//! The same file under another name is a libcublasLt, which multiplies in the emulated GPU's memory. It is also a
//! libcudnn with the graph API. Any graph is executed operation by operation, so that a test checks what the host's
//! graph computes.
//!
//! With [`LaunchSettingsGuard::compiled`] a test runs the PTX that the host loads instead of the kernels' C++, by the interpreter of
//! `tests/ptx`. It thereby tests the code that ships.
//!
//! Not emulated: registers, speed, and concurrency of streams.

mod bfloat16;
mod calls;
pub mod code;
mod compiled;
mod cublaslt;
mod cudnn;
mod guard;
mod launch_settings;
mod ptx;
mod scenario;
mod state;

use std::{io, path::PathBuf};

use headroom_built_library::built_library;

pub use guard::LaunchSettingsGuard;
pub use scenario::{Algorithm, CublasLt, Cudnn, Determinism, Engine, FakeGpu, FaultAt, Scenario};

/// The environment variable with the path of the scenario's file.
pub const VARIABLE: &str = "HEADROOM_FAKE_CUDA";

/// Returns the path of the built library. Cargo places it beside the executable of a test of this package, or of a
/// package that has it in `[dev-dependencies]`.
///
/// # Errors
/// The library is not there, for example because the executable was moved.
pub fn library() -> io::Result<PathBuf> {
    built_library("headroom_fake_cuda")
}
