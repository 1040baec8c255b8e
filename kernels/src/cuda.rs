//! The kernels on an NVIDIA card, over the driver's own interface: a driver is all that a machine needs.
//!
//! [`Device`] is a card with its context and its one stream; [`Slice`] is a stretch of its memory; [`ops`] has a
//! function for each kernel of `kernels/cuda`, a twin of the one in [`crate::cpu`]: the same names and the same order,
//! results first. Sources are compiled ahead to PTX (`kernels/ptx`), which the driver translates for the card that it
//! finds. Matrices are multiplied by [`Products`]: our own kernels, or cuBLASLt where the host has it. [`Attention`] is our
//! own, or cuDNN's where a person wants it.
//!
//! Nothing here panics for want of a driver or a card: that is a [`CudaError`] with a sentence. Every call's result is
//! checked, and told with the file and line that made it. A kernel's fault shows only when somebody waits; with
//! `HEADROOM_CUDA_SYNC=1` every launch is waited for, and the fault names its kernel.

pub mod arena;
pub mod attention;
mod calls;
mod card;
pub mod cublaslt;
pub mod cudnn;
mod device;
pub mod driver;
mod element;
mod error;
mod interface;
mod launch;
pub mod libraries;
mod memory;
mod model;
pub mod ops;
mod products;
mod room;
pub mod shape;
mod trainer;

pub use arena::Arena;
pub use attention::Attention;
pub use card::{Capability, Card, cards};
pub use cublaslt::CublasLt;
pub use cudnn::Cudnn;
pub use device::{Device, Memory};
pub use element::{Bf16, Element};
pub use error::{Code, CudaError};
pub use launch::{Argument, Grid, Kernel, Module};
pub use memory::{Allocation, Slice};
pub use products::{Own, Products};
pub use trainer::Trainer;
