//! The engine that generates text on WebGPU: in a browser through its own API, natively through Vulkan.
//!
//! A forward is a list of dispatches, made once; a token is one submission, and only what was asked for comes back.
//! Every buffer is allocated at the start from one list (`headroom_shared::gpt::buffers::inference`). WebGPU's default
//! limits are enough: a tensor beyond a binding's 128 MiB is in pieces. Reads are async, so that the same code runs in a
//! browser's worker; natively they are ready when they are awaited, and [`block_on`] is all they take.
//! The text's ends, tokenizers and files are the caller's.

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
pub use memory::Allocated;
#[cfg(not(target_arch = "wasm32"))]
pub use read::block_on;
