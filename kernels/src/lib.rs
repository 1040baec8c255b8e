//! Everything that computes a GPT.
//!
//! For now only the first of the CPU references that define what is correct; WGSL and CUDA follow with the engine. It
//! imports `headroom-shared` for shapes and names and nothing of ours besides.

pub mod cpu;
