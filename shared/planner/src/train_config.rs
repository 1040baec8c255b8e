//! Validated training settings: nanoGPT's keys, and options for common patches.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{dtype::Dtype, optimizer_spec::Optimizer};
use headroom_text::{self as text, Text};

/// Maximum value of a count (iterations, micro-steps, processes, sequences) in a plan.
pub const MAX_COUNT: u64 = 1 << 40;

/// Attention backend that PyTorch may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// `scaled_dot_product_attention`: PyTorch selects the kernel by dtype and GPU.
    #[default]
    Flash,
    /// nanoGPT's slow attention, which stores a tensor of shape (B, H, T, T).
    Math,
}

/// Implementation of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrossEntropy {
    /// `F.cross_entropy` over all tokens at once, as in nanoGPT.
    #[default]
    Whole,
    /// Logits and loss in chunks of tokens, recomputed in backward.
    Chunked,
    /// A fused linear and cross-entropy kernel, such as Liger's, that never stores all logits.
    Fused,
}

/// Training settings of a run. Counts are at least 1 unless zero is meaningful.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainConfig {
    /// Sequences per micro-batch, B.
    pub batch_size: u64,
    /// Micro-steps per iteration on this process: nanoGPT's value divided by the number of processes.
    pub gradient_accumulation_steps: u64,
    /// Element type of training.
    pub dtype: Dtype,
    /// Whether `torch.compile` is used.
    pub compile: bool,
    /// Batches per split in `estimate_loss`.
    pub eval_iters: u64,
    /// Iterations between two calls of `estimate_loss`.
    pub eval_interval: u64,
    /// Whether the run ends after the first `estimate_loss`.
    pub eval_only: bool,
    /// Last iteration of the run.
    pub max_iters: u64,
    /// Whether gradients are clipped (`grad_clip != 0`).
    pub clips_gradients: bool,
    /// Whether the run resumes from nanoGPT's own checkpoint, which then stays on the GPU.
    pub resumes: bool,
    /// Attention backend.
    pub attention: Attention,
    /// Optimizer implementation.
    pub optimizer: Optimizer,
    /// Implementation of the loss.
    pub cross_entropy: CrossEntropy,
    /// Whether each block's activations are recomputed in backward.
    pub activation_checkpointing: bool,
    /// Number of data-parallel processes; 1 without data parallelism.
    pub world_size: u64,
    /// Batch size of `estimate_loss`, if it differs from `batch_size`. A patch of nanoGPT.
    pub eval_batch_size: Option<u64>,
    /// Whether logits are deleted after each batch of `estimate_loss`. A patch of nanoGPT.
    pub del_eval_logits: bool,
    /// Whether logits are deleted after each backward. A patch of nanoGPT.
    pub del_train_logits: bool,
}

/// Reason why a training config is invalid.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum TrainConfigError {
    /// A count is outside the range of plans.
    OutOfRange {
        /// nanoGPT's key.
        name: &'static str,
        /// The given value.
        value: u64,
        /// Minimum value.
        min: u64,
        /// Maximum value.
        max: u64,
    },
    /// nanoGPT does not train with this dtype.
    Dtype(Dtype),
}

impl TrainConfigError {
    /// Returns the message.
    #[must_use]
    pub fn text(&self) -> Text {
        match *self {
            Self::OutOfRange { name, value, min, max } => text::out_of_range(name, value, min, max),
            Self::Dtype(dtype) => text::not_a_training_dtype(dtype.name()),
        }
    }

    /// Returns the nanoGPT key that is invalid.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::OutOfRange { name, .. } => name,
            Self::Dtype(_) => "dtype",
        }
    }
}

impl Default for TrainConfig {
    /// Returns nanoGPT's defaults on one GPU: batch_size 12, gradient_accumulation_steps 5 * 8, bfloat16, compile.
    fn default() -> Self {
        Self {
            batch_size: 12,
            gradient_accumulation_steps: 40,
            dtype: Dtype::Bfloat16,
            compile: true,
            eval_iters: 200,
            eval_interval: 2000,
            eval_only: false,
            max_iters: 600_000,
            clips_gradients: true,
            resumes: false,
            attention: Attention::Flash,
            optimizer: Optimizer::AdamwFused,
            cross_entropy: CrossEntropy::Whole,
            activation_checkpointing: false,
            world_size: 1,
            eval_batch_size: None,
            del_eval_logits: false,
            del_train_logits: false,
        }
    }
}

impl TrainConfig {
    /// Returns every error: a count out of range, and a dtype with which nanoGPT does not train.
    #[must_use]
    pub fn errors(&self) -> Vec<TrainConfigError> {
        let counts = [
            ("batch_size", self.batch_size, 1),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps, 1),
            ("eval_iters", self.eval_iters, 0),
            ("eval_interval", self.eval_interval, 1),
            ("max_iters", self.max_iters, 0),
            ("world_size", self.world_size, 1),
            ("eval_batch_size", self.eval_batch_size.unwrap_or(1), 1),
        ];
        let out_of_range = counts.iter().filter(|(_, value, min)| !(*min..=MAX_COUNT).contains(value));
        let out_of_range =
            out_of_range.map(|&(name, value, min)| TrainConfigError::OutOfRange { name, value, min, max: MAX_COUNT });
        let trains = matches!(self.dtype, Dtype::Float32 | Dtype::Bfloat16 | Dtype::Float16);
        out_of_range.chain((!trains).then_some(TrainConfigError::Dtype(self.dtype))).collect()
    }

    /// Returns the config if it is valid.
    ///
    /// # Errors
    /// The first of [`TrainConfig::errors`].
    pub fn check(self) -> Result<Self, TrainConfigError> {
        self.errors().into_iter().next().map_or(Ok(self), Err)
    }

    /// Returns whether matrix products run in half precision under autocast.
    #[must_use]
    pub fn is_half(&self) -> bool {
        self.dtype != Dtype::Float32
    }

    /// Returns the batch size of `estimate_loss`.
    #[must_use]
    pub fn eval_batch(&self) -> u64 {
        self.eval_batch_size.unwrap_or(self.batch_size)
    }

    /// Returns the tokens per iteration over all processes, or `None` if they exceed `u64`.
    #[must_use]
    pub fn tokens_per_iteration(&self, block_size: u64) -> Option<u64> {
        self.batch_size
            .checked_mul(self.gradient_accumulation_steps)?
            .checked_mul(self.world_size)?
            .checked_mul(block_size)
    }
}
