//! Everything that computes a GPT: training and inference on CPU, CUDA and WebGPU.
//!
//! [`reference`] consists of plain loops over slices and defines correct results. Every faster implementation has the
//! same names and argument order, and tests compare it with the reference. Shapes and names come from the tensor table
//! in `headroom_planner`. Files, thread lifetimes and the training loop are the agent's responsibility.

#[cfg(not(target_arch = "wasm32"))]
pub mod bench;
#[cfg(feature = "train")]
pub mod cpu_train;
#[cfg(all(feature = "cuda", not(target_arch = "wasm32")))]
pub mod cuda;
pub mod decode;
#[cfg(any(feature = "train", feature = "cuda"))]
mod initial;
pub mod layout;
pub mod reference;
pub mod rng;
pub mod sampling;
mod simd;
#[cfg(all(any(feature = "train", feature = "cuda"), not(target_arch = "wasm32")))]
pub mod training;
pub mod weights;
#[cfg(feature = "wgpu")]
pub mod wgpu;

// Errors are compared in English.
#[cfg(test)]
use headroom_languages as _;
