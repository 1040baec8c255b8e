//! A training run that is watched, or that `headroom train` makes.

mod cause;
mod fold;
mod order;
mod status;

pub use cause::Cause;
pub use order::{AllowedConfig, Checkpoint, Device, Order, Training};
use serde::{Deserialize, Serialize};
pub use status::RunStatus;

/// A run, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Unique, in hexadecimal digits.
    pub id: String,
    /// As its owner calls it, else made of its config.
    pub name: String,
    /// When it began.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// How it stands.
    pub status: RunStatus,
    /// The command's words, of `headroom watch`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// What it printed of its config, or the config itself: a text that the calculator reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Lines of that config that its trainer does without, with their places: a sentence each, in English.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_notes: Vec<String>,
    /// Process of the command; its children count too.
    pub pid: Option<u32>,
    /// Cards that it was seen on: their UUIDs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// What nanoGPT prints of its parameters, in millions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_millions: Option<f64>,
    /// `max_iters` of its config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iters: Option<u64>,
    /// The newest iteration that was printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Iteration>,
    /// The newest evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_evaluation: Option<Evaluation>,
    /// The evaluation that is under way, where it takes its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluating: Option<Batches>,
    /// Most that its processes were seen to have on one card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_peak_bytes: Option<u64>,
    /// When its processes were first seen on a card: of its memory before that nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_since_ms: Option<u64>,
    /// What its cards took while it ran, in all its parts that were counted, shares of other programs included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_joules: Option<f64>,
    /// Its parts that are over, where it was gone on with after an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Earlier>,
    /// What the plan of this very config says, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// Why it has none, where what it prints is not what its config comes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contradiction: Option<Contradiction>,
    /// The out-of-memory message that it died of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom: Option<String>,
    /// What that message means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Diagnosis>,
    /// Why it ended, as far as somebody knows, or that its newest checkpoint could not be saved: a sentence or several, in
    /// English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// What the agent started it with, where it is the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// It has a checkpoint that the agent can give out and go on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
}

impl Run {
    /// From when to when its newest part went on, which without an end is now: nothing of a run that waits, or that was
    /// taken out of the queue.
    #[must_use]
    pub fn part(&self, now_ms: u64) -> Option<(u64, u64)> {
        let waits = self.status == RunStatus::Queued || self.status.cause() == Some(Cause::Unqueued);
        (!waits).then(|| (self.since_ms(), self.ended_ms.unwrap_or(now_ms)))
    }

    /// When its newest part began, or the wait for it.
    #[must_use]
    pub fn since_ms(&self) -> u64 {
        self.earlier.map_or(self.started_ms, |earlier| earlier.since_ms)
    }

    /// How long it went on in all its parts, in milliseconds, without the time between them; none where it never did.
    #[must_use]
    pub fn took_ms(&self, now_ms: u64) -> Option<u64> {
        let earlier_ms = self.earlier.map(|earlier| earlier.took_ms);
        let part_ms = self.part(now_ms).map(|(from_ms, to_ms)| to_ms.saturating_sub(from_ms));
        earlier_ms.or(part_ms)?;
        Some(earlier_ms.unwrap_or(0).saturating_add(part_ms.unwrap_or(0)))
    }
}

/// The parts of a run that are over: it ended, and was gone on with from its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Earlier {
    /// How long they went on, in milliseconds.
    pub took_ms: u64,
    /// What its cards took meanwhile; none where that was counted in none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_joules: Option<f64>,
    /// When what follows them began: the wait for the next part, and then that part.
    pub since_ms: u64,
}

/// A figure that a run prints and that its config, as it is planned, does not come to: the run is of another model or
/// loop than the plan's, and nothing is believed of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contradiction {
    /// Which.
    pub figure: Figure,
    /// As printed.
    pub printed: f64,
    /// As planned.
    pub planned: f64,
}

/// What is held against the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// `number of parameters`, which leaves the position embeddings out, in millions.
    ParametersMillions,
    /// `tokens per iteration will be`.
    TokensPerIteration,
}

/// What an out-of-memory message means: in the words of the command line, which are English, and in those of the page's
/// other languages. Who diagnosed it has the run's card and whole config, and a page has neither them nor the simulation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What happened: which tensor, when, and what was in its way.
    pub sentence: String,
    /// What the best change does, where one helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// That change: the command with it, or its keys where the command takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The same in the other languages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Wording>,
}

/// A diagnosis in a language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wording {
    /// Its code, as in [`crate::text::Language::code`].
    pub language: String,
    /// As in [`Diagnosis::sentence`].
    pub sentence: String,
    /// As in [`Diagnosis::change`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl Diagnosis {
    /// It in a language where it has that, else in English.
    #[must_use]
    pub fn worded(&self, language: &str) -> Wording {
        let english =
            || Wording { language: "en".to_owned(), sentence: self.sentence.clone(), change: self.change.clone() };
        self.others.iter().find(|wording| wording.language == language).cloned().unwrap_or_else(english)
    }
}

/// What is printed of an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iteration {
    /// Its number.
    pub iter: u64,
    /// The loss of its last micro-batch, times the accumulation; a run that diverges prints none.
    pub loss: Option<f64>,
    /// What it took.
    pub time_ms: f64,
    /// Tokens a second, where the config is known.
    pub tokens_per_second: Option<f64>,
    /// Model FLOPs utilisation as printed, in percent: of an A100, whatever the card is.
    pub mfu_printed_percent: Option<f64>,
    /// And of the card that it runs on.
    pub mfu_percent: Option<f64>,
    /// What it learnt with, where it is printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// The gradients' norm before clipping, where it is printed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
}

/// How far an evaluation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batches {
    /// Batches that are evaluated.
    pub done: u64,
    /// Of so many.
    pub of: u64,
}

/// What is printed of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The iteration before which it was made.
    pub iter: u64,
    /// Mean over `eval_iters` batches of the training data.
    pub train_loss: Option<f64>,
    /// And of the data held back.
    pub val_loss: Option<f64>,
}

/// The prediction for a run's config on the card it runs on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// The card's name that was planned for.
    pub card: String,
    /// Whether it fits.
    pub fits: bool,
    /// Highest use of the process on the device, context included.
    pub peak_bytes: u64,
    /// PyTorch's `max_memory_allocated`.
    pub max_memory_allocated: u64,
    /// PyTorch's `max_memory_reserved`.
    pub max_memory_reserved: u64,
    /// Each phase's name as `headroom plan --json` has it, and its highest use on the device.
    pub phases: Vec<(String, u64)>,
    /// It is the built-in trainer's, which allocates everything at its start: [`Self::max_memory_allocated`] and
    /// [`Self::max_memory_reserved`] are that one allocation.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_builtin: bool,
    /// What the built-in trainer computes again, in its words; none where it keeps everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recompute: Option<String>,
}
