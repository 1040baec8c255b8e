//! Models and their training loops, written for the engine in [`crate::torch`].

pub mod hf;
pub mod nanochat;
pub mod nanogpt;
