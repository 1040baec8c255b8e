//! A training run of `headroom watch` or `headroom train`.

mod cause;
mod order;
mod status;

pub use cause::Cause;
pub use order::{AllowedConfig, Checkpoint, Device, RunRequest, Training};
use serde::{Deserialize, Serialize};
pub use status::RunStatus;

use super::message::{self, Message};

/// Time in milliseconds for a stopping run to finish its iteration and save. A repeated request after that time ends the
/// run at once.
pub const STOP_MS: u64 = 30_000;

/// The known state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique ID, in hexadecimal digits.
    pub id: String,
    /// The owner's name for the run, or a name derived from its config.
    pub name: String,
    /// Time at which the run started.
    pub started_ms: u64,
    /// Time at which the run ended.
    pub ended_ms: Option<u64>,
    /// Status of the run.
    pub status: RunStatus,
    /// The command's arguments, for `headroom watch`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The printed config, or the config itself, as text that the calculator parses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Messages about config lines that the trainer ignores, one per line, with their positions.
    #[serde(flatten, with = "message::config_notes")]
    pub config_notes: Vec<Message>,
    /// Process ID of the command. Its child processes count as well.
    pub pid: Option<u32>,
    /// UUIDs of the GPUs that the run has used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// Parameter count that nanoGPT prints, in millions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_millions: Option<f64>,
    /// `max_iters` of the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iters: Option<u64>,
    /// The newest printed iteration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Iteration>,
    /// The newest evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_evaluation: Option<Evaluation>,
    /// The current evaluation, if it takes long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluating: Option<Batches>,
    /// Peak memory of the run's processes on one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_peak_bytes: Option<u64>,
    /// Time at which the run's processes first appeared on a GPU. Memory use before that time is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_since_ms: Option<u64>,
    /// Energy of the run's GPUs over all measured parts, including other programs' share, in joules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_joules: Option<f64>,
    /// Earlier parts of the run, if it was resumed after an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierParts>,
    /// Summary of the plan for exactly this config, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// Why there is no plan, if the run's output contradicts its config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<Contradiction>,
    /// The out-of-memory message that ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom: Option<String>,
    /// Diagnosis of that message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Diagnosis>,
    /// Why the run ended, if known, or that its newest checkpoint could not be saved.
    #[serde(flatten, with = "message::explanation")]
    pub explanation: Option<Message>,
    /// The request that started the run, if the agent started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<RunRequest>,
    /// The checkpoint that the agent can send and resume, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

impl Run {
    /// Returns start and end of the newest part; the end is `now_ms` if the part has not ended. Returns `None` for a
    /// run that is queued or was removed from the queue.
    #[must_use]
    pub fn part(&self, now_ms: u64) -> Option<(u64, u64)> {
        let waits = self.status == RunStatus::Queued || self.status.cause() == Some(Cause::Unqueued);
        (!waits).then(|| (self.since_ms(), self.ended_ms.unwrap_or(now_ms)))
    }

    /// Returns the time at which the newest part, or the wait for it, began.
    #[must_use]
    pub fn since_ms(&self) -> u64 {
        self.earlier.map_or(self.started_ms, |earlier| earlier.since_ms)
    }

    /// Returns the total duration of all parts in milliseconds, without the time between them; `None` if the run never
    /// started.
    #[must_use]
    pub fn took_ms(&self, now_ms: u64) -> Option<u64> {
        let earlier_ms = self.earlier.map(|earlier| earlier.took_ms);
        let part_ms = self.part(now_ms).map(|(from_ms, to_ms)| to_ms.saturating_sub(from_ms));
        earlier_ms.or(part_ms)?;
        Some(earlier_ms.unwrap_or(0).saturating_add(part_ms.unwrap_or(0)))
    }
}

/// The earlier parts of a run that ended and was then resumed from its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EarlierParts {
    /// Total duration of these parts, in milliseconds.
    pub took_ms: u64,
    /// Energy of the GPUs during these parts, in joules; `None` if no part was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_joules: Option<f64>,
    /// Start of what follows these parts: the wait for the next part, and then that part.
    pub since_ms: u64,
}

/// A figure of the run's output that contradicts its config. The run then uses another model or training loop than the
/// plan assumes, so the plan is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contradiction {
    /// The contradicting figure.
    pub figure: Figure,
    /// The printed value.
    pub printed: f64,
    /// The planned value.
    pub planned: f64,
}

/// A printed figure that is compared with the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// `number of parameters`, in millions, without the position embeddings.
    ParametersMillions,
    /// `tokens per iteration will be`.
    TokensPerIteration,
}

/// Diagnosis of an out-of-memory message, in English as on the command line and in the page's other languages. The
/// program that diagnosed the message had the run's GPU and full config. A page has neither these nor the simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What happened: which tensor, when, and which memory was already in use.
    pub sentence: String,
    /// Effect of the best fix, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// That fix: the command with the fix, or its config keys if the command accepts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The diagnosis in the other languages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Wording>,
}

/// A diagnosis in one language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wording {
    /// The language code, as in [`headroom_text::Language::code`].
    pub language: String,
    /// As in [`Diagnosis::sentence`].
    pub sentence: String,
    /// As in [`Diagnosis::change`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl Diagnosis {
    /// Returns the diagnosis in a language, or in English if that language is missing.
    #[must_use]
    pub fn worded(&self, language: &str) -> Wording {
        let english =
            || Wording { language: "en".to_owned(), sentence: self.sentence.clone(), change: self.change.clone() };
        self.others.iter().find(|wording| wording.language == language).cloned().unwrap_or_else(english)
    }
}

/// Printed figures of an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// Number of the iteration.
    pub iter: u64,
    /// Loss of the last micro-batch times the accumulation steps; `None` if it is not finite.
    pub loss: Option<f64>,
    /// Duration of the iteration.
    pub time_ms: f64,
    /// Tokens per second, if the config is known.
    pub tokens_per_second: Option<f64>,
    /// Printed model FLOPs utilisation, in percent of an A100 on every GPU.
    pub mfu_printed_percent: Option<f64>,
    /// Model FLOPs utilisation of the run's own GPU, in percent.
    pub mfu_percent: Option<f64>,
    /// Learning rate, if it is printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Norm of the gradients before clipping, if it is printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
}

/// Progress of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batches {
    /// Number of evaluated batches.
    pub done: u64,
    /// Total number of batches.
    pub of: u64,
}

/// Printed figures of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The iteration that follows the evaluation.
    pub iter: u64,
    /// Mean loss over `eval_iters` batches of the training data.
    pub train_loss: Option<f64>,
    /// Mean loss over `eval_iters` batches of the validation data.
    pub val_loss: Option<f64>,
}

/// The predicted memory of a run on its GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Name of the GPU that was planned for.
    #[serde(rename = "card")]
    pub gpu: String,
    /// Whether the run fits.
    pub fits: bool,
    /// Peak memory of the process on the device, including the CUDA context.
    pub peak_bytes: u64,
    /// PyTorch's `max_memory_allocated`.
    pub max_memory_allocated: u64,
    /// PyTorch's `max_memory_reserved`.
    pub max_memory_reserved: u64,
    /// Name of each phase, as in `headroom plan --json`, and its peak memory on the device.
    pub phases: Vec<(String, u64)>,
    /// Whether the plan is for the built-in trainer, which allocates everything at its start.
    /// [`Self::max_memory_allocated`] and [`Self::max_memory_reserved`] are then the size of that allocation.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_builtin: bool,
    /// What the built-in trainer recomputes; `None` if it keeps all activations.
    #[serde(flatten, with = "message::recompute")]
    pub recompute: Option<Message>,
}
