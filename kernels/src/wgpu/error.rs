//! What can go wrong, in words for the person in front of it.

use headroom_shared::gpt::tensors::TensorTooLarge;
use thiserror::Error;

use crate::layout::TooLarge;

/// Why the engine cannot start or go on.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum GpuError {
    /// There is no WebGPU here, or nothing that it runs on.
    #[error("no GPU was found: {reason}")]
    NoAdapter {
        /// What was looked for, and what was found.
        reason: String,
    },
    /// An adapter is there and gives no device.
    #[error("the GPU {adapter} was found but cannot be used: {reason}")]
    DeviceRefused {
        /// Its name.
        adapter: String,
        /// What it said.
        reason: String,
    },
    /// The adapter has less than every WebGPU device, or a tensor needs more than that.
    #[error("{what} needs {limit} of {needed}, and the GPU has {available}")]
    LimitTooSmall {
        /// What needs it: the engine, or a tensor.
        what: String,
        /// The limit, in WebGPU's word.
        limit: String,
        /// What is needed.
        needed: u64,
        /// What there is.
        available: u64,
    },
    /// The GPU's memory is full.
    #[error("the GPU has no memory left for {tensor}: {requested_bytes} bytes on top of {allocated_bytes}")]
    OutOfMemory {
        /// The tensor that found no room.
        tensor: String,
        /// Its bytes.
        requested_bytes: u64,
        /// Bytes of the engine's buffers before it.
        allocated_bytes: u64,
    },
    /// The device is gone: the driver restarted, another program took it, the browser ended it.
    #[error("the GPU was lost: {reason}")]
    DeviceLost {
        /// What it said.
        reason: String,
    },
    /// The device refused what it was told: a fault of ours.
    #[error("the GPU refused a command, which is a fault of this program: {reason}")]
    Refused {
        /// What it said.
        reason: String,
    },
    /// A tensor is larger than any machine's memory.
    #[error("{0}")]
    TensorTooLarge(TensorTooLarge),
    /// The model is larger than this machine can address.
    #[error("{0}")]
    TooLarge(TooLarge),
    /// A parameter that the model does not have.
    #[error("the model has no parameter {name}")]
    NoSuchParameter {
        /// Its name.
        name: String,
    },
    /// A parameter's values are not as many as its elements.
    #[error("{name} has {expected} elements, not {given}")]
    WrongLength {
        /// Its name.
        name: String,
        /// Its elements.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// No row of the embedding.
    #[error("token {token} is beyond the vocabulary of {vocab_size}")]
    NoSuchToken {
        /// The token.
        token: u32,
        /// Rows of the embedding.
        vocab_size: u64,
    },
    /// There is nothing to go on from.
    #[error("there is no token yet to go on from")]
    NoTokens,
    /// The text is as long as the model's positions reach.
    #[error("the model sees {block_size} tokens, and the text has {tokens}")]
    ContextFull {
        /// The model's positions.
        block_size: u64,
        /// Tokens of the text.
        tokens: u64,
    },
    /// Attention weights are asked of an engine that keeps no queries, or of a layer, head or token that is not there.
    #[error("there are no attention weights of that: {reason}")]
    NoAttention {
        /// What is missing.
        reason: String,
    },
}

impl From<TensorTooLarge> for GpuError {
    fn from(error: TensorTooLarge) -> Self {
        Self::TensorTooLarge(error)
    }
}

impl From<TooLarge> for GpuError {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error)
    }
}
