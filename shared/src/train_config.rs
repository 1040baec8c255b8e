//! How a model is trained, validated once: nanoGPT's names, and the switches for what people patch into it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    dtype::Dtype,
    text::{self, Text},
};

/// The largest count (iterations, micro-steps, processes, sequences) a plan is made for.
pub const MAX_COUNT: u64 = 1 << 40;

/// How attention is computed when PyTorch may choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attention {
    /// `scaled_dot_product_attention`: PyTorch picks the kernel by dtype and card.
    #[default]
    Flash,
    /// nanoGPT's slow attention, which holds (B, H, T, T).
    Math,
}

/// The optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// `torch.optim.AdamW(fused=True)`, what nanoGPT takes on a GPU.
    #[default]
    AdamwFused,
    /// `torch.optim.AdamW(foreach=True)`, PyTorch's default where fused is off: it needs temporaries of all gradients.
    AdamwForeach,
    /// bitsandbytes' `AdamW8bit`: moments in one byte each, in blocks with a float32 scale.
    Adamw8bit,
}

/// How the loss is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrossEntropy {
    /// `F.cross_entropy` over all tokens at once, as in nanoGPT.
    #[default]
    Whole,
    /// Logits and loss in chunks of tokens, each recomputed in backward.
    Chunked,
    /// A fused linear and cross-entropy kernel (as in Liger) that never holds all logits.
    Fused,
}

/// How a run trains. Counts are at least 1 where zero makes no sense.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainConfig {
    /// Sequences a micro-batch, B.
    pub batch_size: u64,
    /// Micro-steps an iteration on this process: nanoGPT's value divided by the number of processes.
    pub gradient_accumulation_steps: u64,
    /// The training dtype.
    pub dtype: Dtype,
    /// `torch.compile`.
    pub compile: bool,
    /// Batches a split in `estimate_loss`.
    pub eval_iters: u64,
    /// Iterations between two calls of `estimate_loss`.
    pub eval_interval: u64,
    /// Whether the run ends after the first `estimate_loss`.
    pub eval_only: bool,
    /// The iteration after which the run ends.
    pub max_iters: u64,
    /// Whether gradients are clipped (`grad_clip != 0`).
    pub clips_gradients: bool,
    /// Whether the run starts from nanoGPT's own checkpoint, which then stays on the card.
    pub resumes: bool,
    /// The attention.
    pub attention: Attention,
    /// The optimizer.
    pub optimizer: Optimizer,
    /// The loss.
    pub cross_entropy: CrossEntropy,
    /// Whether each block's activations are recomputed in backward.
    pub activation_checkpointing: bool,
    /// Processes of data parallelism; 1 is none.
    pub world_size: u64,
    /// A patch: the batch of `estimate_loss`, where it is not `batch_size`.
    pub eval_batch_size: Option<u64>,
    /// A patch: `del logits` after each batch of `estimate_loss`.
    pub del_eval_logits: bool,
    /// A patch: `del logits` after each backward.
    pub del_train_logits: bool,
}

/// Why a training config was refused.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum TrainConfigError {
    /// A count is zero or beyond what a plan is made for.
    OutOfRange {
        /// nanoGPT's name.
        name: &'static str,
        /// What was given.
        value: u64,
        /// The smallest value taken.
        min: u64,
        /// The largest value taken.
        max: u64,
    },
    /// The training dtype is none nanoGPT knows.
    Dtype(Dtype),
}

impl TrainConfigError {
    /// What is wrong.
    #[must_use]
    pub fn text(&self) -> Text {
        match *self {
            Self::OutOfRange { name, value, min, max } => text::out_of_range(name, value, min, max),
            Self::Dtype(dtype) => text::not_a_training_dtype(dtype.name()),
        }
    }

    /// nanoGPT's key that is at fault.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::OutOfRange { name, .. } => name,
            Self::Dtype(_) => "dtype",
        }
    }
}

impl Default for TrainConfig {
    /// nanoGPT's defaults on one card: batch_size 12, gradient_accumulation_steps 5 * 8, bfloat16, compile.
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
    /// Checks the counts and the dtype.
    ///
    /// # Errors
    /// A count out of range, or a dtype nanoGPT does not train in.
    pub fn check(self) -> Result<Self, TrainConfigError> {
        let counts = [
            ("batch_size", self.batch_size, 1),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps, 1),
            ("eval_iters", self.eval_iters, 0),
            ("eval_interval", self.eval_interval, 1),
            ("max_iters", self.max_iters, 0),
            ("world_size", self.world_size, 1),
            ("eval_batch_size", self.eval_batch_size.unwrap_or(1), 1),
        ];
        for (name, value, min) in counts {
            if value < min || value > MAX_COUNT {
                return Err(TrainConfigError::OutOfRange { name, value, min, max: MAX_COUNT });
            }
        }
        match self.dtype {
            Dtype::Float32 | Dtype::Bfloat16 | Dtype::Float16 => Ok(self),
            other => Err(TrainConfigError::Dtype(other)),
        }
    }

    /// Whether matrix products run in half precision under autocast.
    #[must_use]
    pub fn is_half(&self) -> bool {
        self.dtype != Dtype::Float32
    }

    /// Sequences a batch of `estimate_loss`.
    #[must_use]
    pub fn eval_batch(&self) -> u64 {
        self.eval_batch_size.unwrap_or(self.batch_size)
    }

    /// Tokens an iteration over all processes; `None` where they leave `u64`.
    #[must_use]
    pub fn tokens_per_iteration(&self, block_size: u64) -> Option<u64> {
        self.batch_size
            .checked_mul(self.gradient_accumulation_steps)?
            .checked_mul(self.world_size)?
            .checked_mul(block_size)
    }
}
