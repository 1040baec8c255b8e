//! Everything that computes a GPT.
//!
//! [`cpu`] is plain loops over slices and defines what is correct; every faster path, on whatever device, is a twin of
//! it: the same names, the same argument order, compared with it in tests. Shapes and names come from the one table in
//! `headroom_shared`. Files, threads' lifetimes and the training loop are the agent's.

pub mod cpu;
#[cfg(all(feature = "cuda", not(target_arch = "wasm32")))]
pub mod cuda;
pub mod decode;
#[cfg(feature = "train")]
pub mod fast;
#[cfg(any(feature = "train", feature = "cuda"))]
mod initial;
pub mod layout;
#[cfg(not(target_arch = "wasm32"))]
pub mod measure;
pub mod rng;
pub mod sampling;
mod simd;
#[cfg(all(any(feature = "train", feature = "cuda"), not(target_arch = "wasm32")))]
pub mod training;
pub mod weights;
#[cfg(feature = "wgpu")]
pub mod wgpu;
