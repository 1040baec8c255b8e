//! What a GPT training run takes in GPU memory, computed from its config.
//!
//! Pure values: no I/O, no clock, no threads, no async, no browser and no GPU API. Bytes are `u64`. Builds for wasm32
//! and natively, and imports no other crate of the workspace.

pub mod advice;
pub mod compute;
pub mod decimal;
pub mod demo;
pub mod dtype;
pub mod gpt;
pub mod hardware;
pub mod link;
pub mod memory;
pub mod nanogpt;
pub mod oom;
pub mod order;
pub mod plan;
pub mod protocol;
pub mod session;
pub mod text;
pub mod tokenizer;
pub mod train_config;
pub mod units;
