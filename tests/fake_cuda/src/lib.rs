//! A libcuda without a card: the driver's C interface, as far as our host uses it, over the emulator that runs kernels
//! on the CPU. The host's code is unchanged: `HEADROOM_CUDA` names this library, and it is opened as the driver.
//!
//! [`Scenario`] says what the machine is: its cards, their memory, how old the driver is, what fails and when. It is
//! the file that `HEADROOM_FAKE_CUDA` names; without it the machine has one usual card. A kernel runs when it is
//! launched, but what it did wrong is told as a card tells it: by the calls after, which all are answered with the same
//! code. The line of the kernel that did it goes to standard error.
//!
//! Tests of kernels run in one process, each in a thread of its own. What a thread says with [`Here`] is for its own
//! launches alone: the order of threads, a kernel with a mistake instead of the right one, and a fault, which then ends
//! neither the process's card nor another test.
//!
//! It is a libcublasLt as well: the same file under that name has its symbols, and multiplies in the card's memory. And
//! it is a libcudnn, as far as its graphs go: whatever operations a graph is made of are computed one by one, so that a
//! test finds out what the host's graph computes.
//!
//! Where a test says so with [`Here::compiled`], it is not the kernels' C++ that runs but the PTX that the host loads, by
//! the interpreter of `tests/ptx`: what ships is what is tested.
//!
//! What a kernel needs of registers, how fast it is, and what several streams do at once is not here.

mod bfloat16;
mod calls;
pub mod code;
mod compiled;
mod cublaslt;
mod cudnn;
mod here;
mod ptx;
mod scenario;
mod state;

pub use here::{Here, library};
pub use scenario::{Algorithm, Card, CublasLt, Cudnn, Determinism, Engine, FaultAt, Scenario};

/// What names the scenario's file.
pub const VARIABLE: &str = "HEADROOM_FAKE_CUDA";
