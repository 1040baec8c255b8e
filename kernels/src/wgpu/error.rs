//! Errors of the WebGPU engine, with messages for the user.

use headroom_planner::gpt::tensors::TensorTooLarge;
use headroom_text::{self as text, Key, Part, Text};
use thiserror::Error;

use crate::layout::TooLarge;

/// Why the engine cannot start or continue.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum GpuError {
    /// WebGPU is unavailable, or it has no adapter.
    NoAdapter {
        /// The requested and the available adapters.
        reason: String,
    },
    /// An adapter exists, but opening its device failed.
    DeviceRefused {
        /// Name of the adapter; empty if the browser hides it.
        adapter: String,
        /// The adapter's message.
        reason: String,
    },
    /// A limit of the adapter is below WebGPU's default, or below the needs of a head or tensor.
    LimitTooSmall {
        /// What exceeds the limit: the engine, a head, or a tensor.
        what: Text,
        /// Name of the limit in WebGPU.
        limit: String,
        /// Required value.
        needed: u64,
        /// Available value.
        available: u64,
    },
    /// The GPU is out of memory for a tensor.
    OutOfMemory {
        /// Name of the tensor.
        tensor: String,
        /// Size of the tensor in bytes.
        requested_bytes: u64,
        /// Size in bytes of the buffers allocated before.
        allocated_bytes: u64,
    },
    /// The GPU is out of memory, and the device does not report for which allocation.
    MemoryFull,
    /// The device was lost: the driver restarted, another program took the GPU, or the browser ended it.
    DeviceLost {
        /// The device's message.
        reason: String,
    },
    /// The device rejected a call: a bug in Headroom.
    Refused {
        /// The device's message.
        reason: String,
    },
    /// The size of a tensor exceeds the memory of any machine.
    #[error(transparent)]
    TensorTooLarge(#[from] TensorTooLarge),
    /// The model exceeds the address range of this machine.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The model does not have this parameter.
    NoSuchParameter {
        /// Name of the parameter.
        name: String,
    },
    /// The number of values does not match the parameter.
    WrongLength {
        /// Name of the parameter; `None` for all parameters in one buffer.
        name: Option<String>,
        /// Expected number of values.
        expected: usize,
        /// Given number of values.
        given: usize,
    },
    /// The token exceeds the vocabulary.
    NoSuchToken {
        /// Token that was given.
        token: u32,
        /// Size of the vocabulary.
        vocab_size: u64,
    },
    /// The prompt is empty.
    NoTokens,
    /// The text exceeds the model's context.
    ContextFull {
        /// Context length in tokens.
        block_size: u64,
        /// Length of the text in tokens.
        tokens: u64,
    },
    /// Attention weights are unavailable: the engine stores no queries, or the layer, head or token does not exist.
    NoAttention {
        /// The missing item.
        reason: Key,
    },
}

impl GpuError {
    /// The error as a translatable text, with a hint.
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
    use headroom_languages::table;
    use headroom_text::LANGUAGES;

    #[test]
    fn quoted_text_is_last_in_every_language() {
        let reason = || "adapter is gone {0}".to_owned();
        let errors = [
            GpuError::NoAdapter { reason: reason() },
            GpuError::DeviceRefused { adapter: String::new(), reason: reason() },
            GpuError::DeviceRefused { adapter: "Arc A770".to_owned(), reason: reason() },
            GpuError::DeviceLost { reason: reason() },
            GpuError::Refused { reason: reason() },
        ];
        for language in &LANGUAGES {
            let said = errors.clone().map(|error| table(language.code).say(&error.text()));
            assert!(said.iter().all(|said| said.ends_with(&reason())), "{said:?}");
            assert!(said[1].contains("GPU") && said[2].contains("Arc A770"), "{said:?}");
        }
    }
}
