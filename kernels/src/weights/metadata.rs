//! A file's metadata: the keys of `__metadata__`, whose values are strings.

use serde::{Deserialize, Serialize};

/// Keys of Headroom's files, and nanoGPT's names where users add them to their own files.
pub mod keys {
    /// The version of the other keys' contents; in every Headroom file.
    pub const HEADROOM: &str = "headroom";
    /// The format key that Hugging Face's libraries require.
    pub const FORMAT: &str = "format";
    /// nanoGPT's `model_args` as JSON: the model's config, including heads and dropout.
    pub const MODEL_ARGS: &str = "model_args";
    /// The number of heads alone.
    pub const N_HEAD: &str = "n_head";
    /// The tokenizer, as JSON of [`super::Tokenizer`].
    pub const TOKENIZER: &str = "tokenizer";
    /// nanoGPT's configuration, as JSON.
    pub const CONFIG: &str = "config";
    /// The state of a training run, as JSON.
    pub const STATE: &str = "state";
}

/// A model's tokenizer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tokenizer {
    /// GPT-2's byte-pair encoding.
    Gpt2,
    /// A token per character: the characters in the order of their token ids.
    Char(String),
}

/// nanoGPT's `model_args`; missing values come from the tensors' shapes.
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
