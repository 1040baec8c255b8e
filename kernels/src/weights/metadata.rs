//! What a file says of itself beside its tensors: the keys of `__metadata__`, whose values are texts.

use serde::{Deserialize, Serialize};

/// Keys of a file of ours; also nanoGPT's names where people wrote them into their own.
pub mod keys {
    /// In every file of ours: the version of what the other keys hold.
    pub const HEADROOM: &str = "headroom";
    /// What the libraries of Hugging Face ask for.
    pub const FORMAT: &str = "format";
    /// nanoGPT's `model_args` as JSON: the model's shape, heads and dropout included.
    pub const MODEL_ARGS: &str = "model_args";
    /// Heads alone, as a number.
    pub const N_HEAD: &str = "n_head";
    /// The tokenizer, as JSON of [`super::Tokenizer`].
    pub const TOKENIZER: &str = "tokenizer";
    /// nanoGPT's configuration as JSON.
    pub const CONFIG: &str = "config";
    /// Where a training run stands, as JSON.
    pub const STATE: &str = "state";
}

/// How a model's tokens are made of text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tokenizer {
    /// GPT-2's, which every tool has.
    Gpt2,
    /// A character each: the characters, by their tokens.
    Char(String),
}

/// nanoGPT's `model_args`; what is missing is in the tensors' shapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ModelArgs {
    pub(super) n_layer: Option<u64>,
    pub(super) n_head: Option<u64>,
    pub(super) n_embd: Option<u64>,
    pub(super) block_size: Option<u64>,
    pub(super) vocab_size: Option<u64>,
    pub(super) dropout: Option<f64>,
    pub(super) bias: Option<bool>,
}
