//! Text generation on WebGPU: in a browser through its API, natively through Vulkan.
//!
//! The forward pass is a list of dispatches, created once. A token takes one submission, and only requested results are
//! copied back. All buffers are allocated at the start from one list (`headroom_planner::gpt::buffers::inference`).
//! WebGPU's default limits suffice: a tensor larger than a binding's 128 MiB is split into pieces.
//!
//! Reads are async, so that the same code runs in a browser's worker. Natively their futures are ready when first
//! polled, and [`block_on`] suffices to wait for them. Stop conditions, tokenizers and files are the caller's
//! responsibility.

#[cfg(not(target_arch = "wasm32"))]
mod copy;
mod device;
mod error;
mod forward;
mod generator;
mod memory;
mod pass;
mod pipelines;
mod read;
pub mod shader;
mod weights;

#[cfg(not(target_arch = "wasm32"))]
pub use copy::copy_bytes_per_second;
pub use device::{Gpu, Request};
pub use error::GpuError;
pub use generator::{Generator, Options, Step};
pub use memory::PlannedBuffer;
#[cfg(not(target_arch = "wasm32"))]
pub use read::block_on;
