//! Events: numbered, stored in history, and delivered to every viewer without loss.

use serde::{Deserialize, Serialize};

use super::{
    alert_rule::Alert,
    message::{self, Message},
    run::{Checkpoint, Contradiction, Diagnosis, Evaluation, Iteration, PlanSummary, Run, RunStatus},
};

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Event number, ascending. Numbers are unique but may have gaps.
    pub id: u64,
    /// Time of the event.
    pub time_ms: u64,
    /// ID of the run that the event belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Kind of the event and its data.
    pub what: EventKind,
}

/// Kind of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// A run started.
    RunStarted {
        /// The run at its start.
        run: Box<Run>,
    },
    /// The run printed its config.
    RunConfig {
        /// As in [`Run::config`].
        config: String,
        /// As in [`Run::max_iters`].
        max_iters: Option<u64>,
    },
    /// The run printed its parameter count.
    RunParameters {
        /// As in [`Run::parameters_millions`].
        parameters_millions: f64,
    },
    /// The run's config was planned for its GPU.
    RunPlanned {
        /// The result.
        plan: PlanSummary,
    },
    /// The run's output contradicts the plan, so the plan is withdrawn.
    RunUnplanned {
        /// The contradiction.
        contradiction: Contradiction,
        /// As in [`Run::max_iters`]; `None` if only the config sets it and the run's output does not.
        max_iters: Option<u64>,
    },
    /// The run printed an iteration.
    RunIteration(Iteration),
    /// The run printed an evaluation.
    RunEvaluation(Evaluation),
    /// Progress of a long evaluation, sent occasionally.
    RunEvaluating {
        /// Number of evaluated batches.
        done: u64,
        /// Total number of batches.
        of: u64,
    },
    /// The run is saving a checkpoint.
    RunCheckpoint {
        /// Output directory, as printed.
        folder: String,
    },
    /// The agent has a checkpoint of the run, which can be downloaded and resumed.
    RunSaved {
        /// The checkpoint.
        checkpoint: Checkpoint,
    },
    /// A checkpoint could not be saved. The run continues unless a stop was requested.
    RunNotSaved {
        /// Number of completed iterations.
        iter: u64,
        /// The system's error, and which checkpoint remains.
        #[serde(flatten, with = "message::message")]
        message: Message,
    },
    /// The run is queued to resume with a new command.
    RunCommand {
        /// The command's arguments.
        command: Vec<String>,
    },
    /// The agent resumes the run from its checkpoint, or starts it from the queue.
    RunResumed {
        /// Process ID of the command.
        pid: Option<u32>,
        /// The command's arguments, which differ from those at the start. Empty if an earlier version resumed the run.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        command: Vec<String>,
    },
    /// A user requested a stop. The run finishes its iteration and saves a checkpoint.
    RunStopping,
    /// The run's processes use a GPU, with more memory than before.
    RunMemory {
        /// The GPU's UUID.
        gpu: String,
        /// Memory of all of the run's processes on that GPU.
        bytes: u64,
    },
    /// The run printed an out-of-memory message.
    RunOom {
        /// The message, as printed.
        message: String,
    },
    /// The diagnosis of the run's out-of-memory message.
    RunDiagnosed {
        /// The diagnosis.
        diagnosis: Diagnosis,
    },
    /// Why the run ended, if known: the trainer's last output, or the error that the driver reported for its GPU.
    RunExplained {
        /// The reasons.
        #[serde(flatten, with = "message::message")]
        message: Message,
        /// The driver's error for the GPU, as NVIDIA's Xid number.
        xid: Option<u64>,
    },
    /// The run is started again with changes.
    RunRetried {
        /// ID of the next run.
        next: String,
        /// The changes: nanoGPT keys and their new values.
        changes: Vec<(String, String)>,
    },
    /// The run's status changed: it ended, stalled, or continued after a stall.
    RunStatus {
        /// The new status.
        status: RunStatus,
        /// Energy of the run's GPUs since its start or its latest resume, in joules.
        energy_joules: Option<f64>,
    },
    /// The run was deleted.
    RunDeleted {
        /// The run's name, which is stored nowhere else now. Older agents omit it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// An alert fired.
    Alert {
        /// The alert's rule.
        alert: Alert,
        /// The GPU's UUID, for an alert about a GPU.
        gpu: Option<String>,
        /// The value that exceeded the limit.
        value: Option<f64>,
        /// How the run ended, for a failed run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<RunStatus>,
    },
    /// An alert is over.
    AlertOver {
        /// The alert's rule.
        alert: Alert,
        /// The GPU's UUID, for an alert about a GPU.
        gpu: Option<String>,
    },
    /// A user dismissed an alert, so it is no longer shown. An alert about a value or a GPU cannot fire again until it
    /// is over.
    AlertDismissed {
        /// The alert's rule.
        alert: Alert,
        /// The GPU's UUID, for an alert about a GPU.
        gpu: Option<String>,
    },
    /// The owner's settings changed.
    SettingsChanged,
    /// A GPU stopped responding.
    #[serde(rename = "card_lost")]
    GpuLost {
        /// The GPU's UUID.
        gpu: String,
    },
    /// A lost GPU responds again.
    #[serde(rename = "card_back")]
    GpuRecovered {
        /// The GPU's UUID.
        gpu: String,
    },
    /// The driver reported an error of a GPU (Xid). Repeated errors are reported at most once per minute.
    #[serde(rename = "card_fault")]
    GpuXid {
        /// The GPU's UUID.
        gpu: String,
        /// NVIDIA's Xid number; 0 if the driver does not report it.
        xid: u64,
    },
    /// History is paused since the time of this event.
    HistoryPaused {
        /// The system's error.
        #[serde(flatten, with = "message::reason")]
        reason: Message,
    },
    /// History is recorded again.
    HistoryResumed,
    /// The history file was damaged. It was renamed, and a new file contains the data that could be read. Samples are
    /// not recovered.
    HistorySetAside {
        /// The damaged file's new name in the data directory.
        file: String,
        /// Number of recovered runs.
        runs: u64,
        /// Whether the owner's settings were recovered.
        settings: bool,
    },
    /// The agent's system clock was set forward or back. Later times use the new clock.
    ClockSet {
        /// The time that the old clock would show.
        from_ms: u64,
        /// The time that the new clock shows.
        to_ms: u64,
    },
    /// The agent started.
    AgentStarted {
        /// The agent's version.
        version: String,
    },
    /// A kind that a later version defines.
    #[serde(other)]
    Unknown,
}

impl EventKind {
    /// Whether the event is progress of a run, which resets the stall timer.
    #[must_use]
    pub fn is_progress(&self) -> bool {
        match self {
            // A queued run makes no progress and needs none.
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

    /// Whether the event appears in the event list. Events of each printed line appear only in their run.
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
