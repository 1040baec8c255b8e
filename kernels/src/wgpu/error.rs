//! What can go wrong, in words for the person in front of it.

use headroom_shared::{
    gpt::tensors::TensorTooLarge,
    text::{self, Key, Part, Text},
};
use thiserror::Error;

use crate::layout::TooLarge;

/// Why the engine cannot start or go on.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum GpuError {
    /// There is no WebGPU here, or nothing that it runs on.
    NoAdapter {
        /// What was looked for, and what was found.
        reason: String,
    },
    /// An adapter is there and gives no device.
    DeviceRefused {
        /// Its name; empty where the browser does not tell it.
        adapter: String,
        /// What it said.
        reason: String,
    },
    /// The adapter has less than every WebGPU device, or a tensor needs more than that.
    LimitTooSmall {
        /// What needs it: the engine, a head, or a tensor.
        what: Text,
        /// The limit, in WebGPU's word.
        limit: String,
        /// What is needed.
        needed: u64,
        /// What there is.
        available: u64,
    },
    /// The GPU's memory is full.
    OutOfMemory {
        /// The tensor that found no room.
        tensor: String,
        /// Its bytes.
        requested_bytes: u64,
        /// Bytes of the engine's buffers before it.
        allocated_bytes: u64,
    },
    /// The GPU's memory is full, and the device does not say of what.
    MemoryFull,
    /// The device is gone: the driver restarted, another program took it, the browser ended it.
    DeviceLost {
        /// What it said.
        reason: String,
    },
    /// The device refused what it was told: a fault of ours.
    Refused {
        /// What it said.
        reason: String,
    },
    /// A tensor is larger than any machine's memory.
    #[error(transparent)]
    TensorTooLarge(#[from] TensorTooLarge),
    /// The model is larger than this machine can address.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// A parameter that the model does not have.
    NoSuchParameter {
        /// Its name.
        name: String,
    },
    /// A parameter's values are not as many as its elements.
    WrongLength {
        /// Its name; none for all of them in one buffer.
        name: Option<String>,
        /// Its elements.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// No row of the embedding.
    NoSuchToken {
        /// The token.
        token: u32,
        /// Rows of the embedding.
        vocab_size: u64,
    },
    /// There is nothing to go on from.
    NoTokens,
    /// The text is as long as the model's positions reach.
    ContextFull {
        /// The model's positions.
        block_size: u64,
        /// Tokens of the text.
        tokens: u64,
    },
    /// Attention weights are asked of an engine that keeps no queries, or of a layer, head or token that is not there.
    NoAttention {
        /// What is missing.
        reason: Key,
    },
}

impl GpuError {
    /// What happened, and what can be done.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::NoAdapter { reason } => text::gpu_not_found(&**reason),
            Self::DeviceRefused { adapter, reason } => {
                let adapter = if adapter.is_empty() { Part::of(&text::GPU_UNNAMED) } else { Part::of(&&**adapter) };
                text::gpu_not_opened(adapter, &**reason)
            }
            Self::LimitTooSmall { what, limit, needed, available } => {
                text::gpu_limit(what.clone(), &**limit, text::count(*needed), text::count(*available))
            }
            Self::OutOfMemory { tensor, requested_bytes, allocated_bytes } => {
                text::gpu_memory_for(&**tensor, text::size(*requested_bytes), text::size(*allocated_bytes))
            }
            Self::MemoryFull => text::GPU_MEMORY_FULL.into(),
            Self::DeviceLost { reason } => text::gpu_lost(&**reason),
            Self::Refused { reason } => text::gpu_refused(&**reason),
            Self::TensorTooLarge(error) => error.text(),
            Self::TooLarge(error) => error.text(),
            Self::NoSuchParameter { name } => text::decode_no_such_tensor(&**name),
            Self::WrongLength { name: Some(name), expected, given } => {
                text::decode_wrong_length(&**name, text::count(*given as u64), text::count(*expected as u64))
            }
            Self::WrongLength { name: None, expected, given } => {
                text::decode_wrong_total(text::count(*given as u64), text::count(*expected as u64))
            }
            Self::NoSuchToken { token, vocab_size } => {
                text::decode_no_such_token(u64::from(*token), text::count(*vocab_size))
            }
            Self::NoTokens => text::DECODE_NO_TOKENS.into(),
            Self::ContextFull { block_size, tokens } => text::gpu_context_full(*block_size, *tokens),
            Self::NoAttention { reason } => text::gpu_no_attention(*reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_shared::text::{LANGUAGES, Table};

    #[test]
    fn what_is_quoted_stands_last_in_every_language() {
        let reason = || "adapter is gone {0}".to_owned();
        let errors = [
            GpuError::NoAdapter { reason: reason() },
            GpuError::DeviceRefused { adapter: String::new(), reason: reason() },
            GpuError::DeviceRefused { adapter: "Arc A770".to_owned(), reason: reason() },
            GpuError::DeviceLost { reason: reason() },
            GpuError::Refused { reason: reason() },
        ];
        for language in &LANGUAGES {
            let said = errors.clone().map(|error| Table::of(language).say(&error.text()));
            assert!(said.iter().all(|said| said.ends_with(&reason())), "{said:?}");
            assert!(said[1].contains("GPU") && said[2].contains("Arc A770"), "{said:?}");
        }
    }
}
