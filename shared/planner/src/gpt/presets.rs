//! Named models: OpenAI's GPT-2 family, whose weights nanoGPT's `init_from` loads.

use super::GptShape;

/// A named model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// nanoGPT's `init_from` value.
    pub name: &'static str,
    /// Transformer blocks.
    pub n_layer: u64,
    /// Attention heads.
    pub n_head: u64,
    /// Channels.
    pub n_embd: u64,
}

/// OpenAI's models that nanoGPT's `GPT.from_pretrained` accepts.
pub const GPT2_FAMILY: [Preset; 4] = [
    Preset { name: "gpt2", n_layer: 12, n_head: 12, n_embd: 768 },
    Preset { name: "gpt2-medium", n_layer: 24, n_head: 16, n_embd: 1024 },
    Preset { name: "gpt2-large", n_layer: 36, n_head: 20, n_embd: 1280 },
    Preset { name: "gpt2-xl", n_layer: 48, n_head: 25, n_embd: 1600 },
];

/// Vocabulary size of GPT-2.
pub const GPT2_VOCAB_SIZE: u64 = 50_257;

/// Tokens per sequence of all GPT-2 models.
pub const GPT2_BLOCK_SIZE: u64 = 1024;

impl Preset {
    /// The model with that `init_from` value.
    #[must_use]
    pub fn named(init_from: &str) -> Option<Self> {
        GPT2_FAMILY.into_iter().find(|preset| preset.name == init_from)
    }

    /// Shape that `from_pretrained` creates: vocabulary 50257, bias, and `block_size` cropped but never extended.
    #[must_use]
    pub fn shape(self, block_size: u64, dropout: f64) -> GptShape {
        GptShape {
            n_layer: self.n_layer,
            n_head: self.n_head,
            n_embd: self.n_embd,
            block_size: block_size.min(GPT2_BLOCK_SIZE),
            vocab_size: GPT2_VOCAB_SIZE,
            dropout,
            bias: true,
        }
    }
}
