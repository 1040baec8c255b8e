//! What happened: numbered, kept in history, and never lost on the way to a viewer.

use serde::{Deserialize, Serialize};

use super::{
    alert::Alert,
    flat::FlatWhat,
    run::{Checkpoint, Contradiction, Diagnosis, Evaluation, Iteration, PlanSummary, Run, RunStatus},
};

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts up; a number is never given twice, but some may be missing.
    pub id: u64,
    /// When.
    pub time_ms: u64,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", try_from = "FlatWhat")]
pub enum What {
    /// A run began.
    RunStarted {
        /// As it stood then.
        run: Box<Run>,
    },
    /// Its config was printed.
    RunConfig {
        /// As in [`Run::config`].
        config: String,
        /// As in [`Run::max_iters`].
        max_iters: Option<u64>,
    },
    /// Its parameters were printed.
    RunParameters {
        /// As in [`Run::parameters_millions`].
        parameters_millions: f64,
    },
    /// Its config was planned for the card that it runs on.
    RunPlanned {
        /// What came out.
        plan: PlanSummary,
    },
    /// What it prints contradicts the plan: there is none, and what was planned before is taken back.
    RunUnplanned {
        /// What it is.
        contradiction: Contradiction,
        /// As in [`Run::max_iters`]; `None` where only the config says it, and not the run.
        max_iters: Option<u64>,
    },
    /// An iteration was printed.
    RunIteration(Iteration),
    /// An evaluation was printed.
    RunEvaluation(Evaluation),
    /// An evaluation takes its time; told now and then.
    RunEvaluating {
        /// Batches that are evaluated.
        done: u64,
        /// Of so many.
        of: u64,
    },
    /// A checkpoint is being saved.
    RunCheckpoint {
        /// Where, as printed.
        folder: String,
    },
    /// The agent has a checkpoint of it, which can be fetched and gone on from.
    RunSaved {
        /// Which.
        checkpoint: Checkpoint,
    },
    /// A checkpoint could not be saved; the run goes on, unless it was asked to stop.
    RunNotSaved {
        /// Iterations that were done.
        iter: u64,
        /// What the system says, and what is left: a sentence or several, in English.
        message: String,
    },
    /// It waits to be gone on with, by another command than before.
    RunCommand {
        /// The command's words.
        command: Vec<String>,
    },
    /// The agent goes on with it where its checkpoint is, or starts it when its turn has come.
    RunResumed {
        /// The command's process.
        pid: Option<u32>,
        /// The command's words, which are others than at the beginning; none where an earlier version started it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        command: Vec<String>,
    },
    /// Somebody asked for its end: it finishes its iteration and saves.
    RunStopping,
    /// Its processes were seen on a card, with more memory than before.
    RunMemory {
        /// The card's UUID.
        gpu: String,
        /// Of all of its processes there.
        bytes: u64,
    },
    /// It printed an out-of-memory message.
    RunOom {
        /// The message, as printed.
        message: String,
    },
    /// What the message means, for the very run that printed it.
    RunDiagnosed {
        /// What came out.
        diagnosis: Diagnosis,
    },
    /// Why it ended, as far as somebody knows: the trainer's last words, or what the driver reported of its card.
    RunExplained {
        /// A sentence or several, in English.
        message: String,
        /// The driver's error on its card, by NVIDIA's number.
        xid: Option<u64>,
    },
    /// It is started again, with changes.
    RunRetried {
        /// The run that follows.
        next: String,
        /// What was changed: nanoGPT's keys and their values.
        changes: Vec<(String, String)>,
    },
    /// It ended, or goes on after a stall, or stalls.
    RunStatus {
        /// How it stands now.
        status: RunStatus,
        /// What its cards took, since it was begun or gone on with.
        energy_joules: Option<f64>,
    },
    /// It was deleted.
    RunDeleted {
        /// What it was called: nothing else knows it now. Agents before this was told left it out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// An alert that somebody set goes off.
    Alert {
        /// Which.
        alert: Alert,
        /// The card's UUID, of an alert of cards.
        gpu: Option<String>,
        /// The value that passed its bound.
        value: Option<f64>,
        /// How the run ended, of one that failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<RunStatus>,
    },
    /// It is over.
    AlertOver {
        /// Which.
        alert: Alert,
        /// The card's UUID, of an alert of cards.
        gpu: Option<String>,
    },
    /// Somebody dismissed it: it is shown no more. One of a value or of a card is quiet until it was over.
    AlertDismissed {
        /// Which.
        alert: Alert,
        /// The card's UUID, of an alert of cards.
        gpu: Option<String>,
    },
    /// What the owner set was changed.
    SettingsChanged,
    /// A card stopped answering.
    CardLost {
        /// Its UUID.
        gpu: String,
    },
    /// It answers again.
    CardBack {
        /// Its UUID.
        gpu: String,
    },
    /// The driver reported an error of a card (Xid). One that repeats itself is told once a minute.
    CardFault {
        /// Its UUID.
        gpu: String,
        /// NVIDIA's number; 0 where the driver does not say it.
        xid: u64,
    },
    /// History was not kept since the time of the event's telling.
    HistoryPaused {
        /// What the system says.
        reason: String,
    },
    /// And is again.
    HistoryResumed,
    /// The history file was damaged: it has another name, and a new one is begun with what could be read. Samples stay
    /// behind.
    HistorySetAside {
        /// Its name in the data folder.
        file: String,
        /// Runs that came along.
        runs: u64,
        /// Whether what the owner set came along.
        settings: bool,
    },
    /// The clock of the agent's machine was set, forward or back; times after this one are by the new clock.
    ClockSet {
        /// What it would have shown.
        from_ms: u64,
        /// What it shows.
        to_ms: u64,
    },
    /// The agent started.
    AgentStarted {
        /// Its version.
        version: String,
    },
    /// Something of a later version.
    Unknown,
}

impl What {
    /// Whether a run went on, or began, by this: what ends a time without progress.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        match self {
            // One that waits makes no progress, and need not.
            Self::RunStarted { run } => run.status != RunStatus::Queued,
            Self::RunStatus { status, .. } => *status == RunStatus::Running,
            Self::RunConfig { .. }
            | Self::RunParameters { .. }
            | Self::RunIteration(_)
            | Self::RunEvaluation(_)
            | Self::RunEvaluating { .. }
            | Self::RunCheckpoint { .. }
            | Self::RunSaved { .. }
            | Self::RunResumed { .. } => true,
            _ => false,
        }
    }

    /// Whether it has a line among what happened: what comes with every printed line has none, and is in its run.
    #[must_use]
    pub const fn has_line(&self) -> bool {
        !matches!(
            self,
            Self::RunIteration(_)
                | Self::RunEvaluation(_)
                | Self::RunEvaluating { .. }
                | Self::RunConfig { .. }
                | Self::RunParameters { .. }
                | Self::RunPlanned { .. }
                | Self::RunUnplanned { .. }
                | Self::RunSaved { .. }
                | Self::RunCommand { .. }
                | Self::RunMemory { .. }
                | Self::RunDiagnosed { .. }
                | Self::RunExplained { .. }
                | Self::Unknown
        )
    }
}
