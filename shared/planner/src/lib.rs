//! What a GPT training run takes in GPU memory, computed from its config.
//!
//! Pure values: no I/O, no clock, no threads, no async, no browser and no GPU API. Bytes are `u64`. Builds for wasm32
//! and natively. Texts are keys of `headroom-text`; their wording is not part of this crate.

#![warn(missing_docs)]

pub mod advice;
pub mod compute;
pub mod diff;
pub mod dtype;
pub mod fit;
pub mod gpt;
pub mod hardware;
pub mod link;
pub mod memory;
pub mod models;
pub mod nanogpt;
pub mod oom;
pub mod optimizer_spec;
pub mod plan;
pub mod recording;
pub mod report;
pub mod request;
pub mod session;
pub mod snapshot;
pub mod survey;
pub mod torch;
pub mod train_config;
pub mod trainers;

// Tests read the English wording of texts.
#[cfg(test)]
use headroom_languages as _;
