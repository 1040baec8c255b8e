//! Training kernels for NVIDIA GPUs, launched through the CUDA driver API; a machine needs only the driver.
//!
//! [`Device`] is an open GPU with its context and its single stream, and [`Slice`] is a range of its memory. [`ops`]
//! has one function for each kernel of `kernels/cuda`. Each function mirrors the one in [`crate::reference`]: same
//! name, same argument order, outputs first. The sources are compiled ahead of time to PTX (`kernels/ptx`), which the
//! driver compiles for the GPU. [`Gemm`] is the GEMM backend: built-in kernels, or cuBLASLt if the host has it.
//! [`Attention`] is the attention backend: built-in kernels, or cuDNN if the user selects it.
//!
//! A missing driver or GPU does not panic; it is a [`CudaError`] with a readable message. The result of every call is
//! checked, and errors carry the file and line of the call. A kernel's fault surfaces only at the next synchronization.
//! With `HEADROOM_CUDA_SYNC=1` every launch is synchronized, and the error names the faulting kernel.

pub mod arena;
pub mod attention;
mod calls;
pub mod cublaslt;
pub mod cudnn;
mod device;
pub mod driver;
mod element;
mod error;
mod gemm;
mod gpu;
mod interface;
mod launch;
pub mod libraries;
mod library;
mod memory;
mod model;
pub mod ops;
mod requirements;
pub mod shape;
mod status;
mod tensors;
mod trainer;

pub use arena::Arena;
pub use attention::Attention;
pub use cublaslt::CublasLt;
pub use cudnn::Cudnn;
pub use device::{Device, Memory};
pub use element::{Bf16, Element};
pub use error::{Code, CudaError};
pub use gemm::{BuiltinKernels, Gemm};
pub use gpu::{Gpu, gpus};
pub use launch::{Argument, Grid};
pub use library::{Kernel, Module};
pub use memory::{Allocation, Slice};
pub use trainer::Trainer;
