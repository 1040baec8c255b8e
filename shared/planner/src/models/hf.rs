//! Hugging Face's causal language models, PEFT's LoRA and `transformers.Trainer`, line by line.
//!
//! Source: transformers 5.17, PEFT 0.21 and accelerate 1.15.

mod activation;
mod attention;
mod body;
mod causal_lm;
mod config;
mod decoder;
mod gpt2;
mod masks;
mod modules;
mod optim;
mod quantized;
mod trainer;

pub use activation::Activation;
pub use body::Checkpointing;
pub use config::{AttentionKind, Config, ConfigError, Family, LayerKind};
pub use modules::{Lora, SavedModules};
pub use optim::{Bitsandbytes, Optimizer};
pub use quantized::Quantization;
pub use trainer::{empties_cache, record, run};

use crate::dtype::Dtype;

/// A run of `Trainer.train()`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// The model.
    pub config: Config,
    /// `dtype` of the weights.
    pub weights: Dtype,
    /// `bf16` or `fp16` of `TrainingArguments`: the dtype of autocast.
    pub autocast: Option<Dtype>,
    /// `per_device_train_batch_size`.
    pub batch: u64,
    /// Tokens of each sequence.
    pub length: u64,
    /// `gradient_checkpointing`.
    pub checkpointing: Option<Checkpointing>,
    /// `quantization_config`. The model is loaded from a checkpoint in `weights` and prepared by PEFT.
    pub quantization: Option<Quantization>,
    /// PEFT's adapters.
    pub lora: Option<Lora>,
    /// `optim`.
    pub optimizer: Optimizer,
    /// `gradient_accumulation_steps`.
    pub accumulation: u64,
    /// Whether the batches have an `attention_mask`, of ones.
    pub padding_mask: bool,
    /// Batches of `evaluate()` after the training.
    pub evaluation_batches: u64,
    /// Steps.
    pub steps: u64,
}
