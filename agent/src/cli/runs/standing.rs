//! A run's status as `runs list --status` names it.

use headroom_shared::protocol::run::{Cause, RunStatus};

/// A status, without its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The agent has not started it yet.
    Queued,
    /// It runs.
    Running,
    /// It runs, without progress.
    Stalled,
    /// It ended with status 0.
    Done,
    /// It was stopped, or taken out of the queue.
    Stopped,
    /// It ended with an error or by a signal.
    Failed,
    /// Its watcher died first.
    Lost,
}

impl Standing {
    /// The words on the command line, in the order of `ALL`.
    pub const NAMES: [&'static str; 7] = ["queued", "running", "stalled", "done", "stopped", "failed", "lost"];
    const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Stalled, Self::Done, Self::Stopped, Self::Failed, Self::Lost];

    /// The status of that name.
    pub fn named(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        Self::ALL.get(at).copied()
    }

    /// The status of a run.
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
