//! Run status as in `runs list --status`.

use headroom_protocol::run::{Cause, RunStatus};

/// A status without details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWord {
    /// The run is in the agent's queue.
    Queued,
    /// The run is active.
    Running,
    /// The run is active without progress.
    Stalled,
    /// The run ended with status 0.
    Done,
    /// The run was stopped, or removed from the queue.
    Stopped,
    /// The run ended with an error or by a signal.
    Failed,
    /// The watcher died before the run's end was recorded.
    Lost,
}

impl StatusWord {
    /// Names on the command line, in the order of `ALL`.
    pub const NAMES: [&'static str; 7] = ["queued", "running", "stalled", "done", "stopped", "failed", "lost"];
    const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Stalled, Self::Done, Self::Stopped, Self::Failed, Self::Lost];

    /// Parses a name.
    pub fn named(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        Self::ALL.get(at).copied()
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        let at = Self::ALL.iter().position(|known| *known == self);
        at.map_or("", |at| Self::NAMES[at])
    }

    /// Converts the status of a run.
    pub const fn of(status: RunStatus) -> Self {
        match status {
            RunStatus::Queued => Self::Queued,
            RunStatus::Running => Self::Running,
            RunStatus::Stalled { .. } => Self::Stalled,
            RunStatus::Exited { cause: Some(Cause::Stopped | Cause::Unqueued), .. }
            | RunStatus::Killed { cause: Some(Cause::Stopped | Cause::Unqueued), .. } => Self::Stopped,
            RunStatus::Exited { code: 0, .. } => Self::Done,
            RunStatus::Exited { .. } | RunStatus::Killed { .. } => Self::Failed,
            RunStatus::Lost => Self::Lost,
        }
    }
}
