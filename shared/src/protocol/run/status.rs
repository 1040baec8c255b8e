//! How a run stands, and where it failed, why.

use serde::{Deserialize, Serialize};

use super::Cause;
use crate::protocol::flat::FlatStatus;

/// How a run stands.
///
/// Why it failed stands beside how, and is no state of its own: a page of an earlier version, which knows no other state,
/// shows the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", try_from = "FlatStatus")]
pub enum RunStatus {
    /// It has not ended.
    #[default]
    Running,
    /// The agent starts it when its card is free.
    Queued,
    /// It runs, and printed nothing new for the time that its owner set.
    Stalled {
        /// When it last made progress.
        since_ms: u64,
    },
    /// It ended by itself.
    Exited {
        /// Its status; 0 is success.
        code: i32,
        /// What it died of, or who ended it; none where nobody knows, or it ended by itself.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
    /// A signal ended it.
    Killed {
        /// Which.
        signal: i32,
        /// What it died of; none where nobody knows.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
    /// Its watcher is gone: how it ended is not known.
    Lost,
}

impl RunStatus {
    /// It ended by itself, and nobody knows more.
    #[must_use]
    pub const fn exited(code: i32) -> Self {
        Self::Exited { code, cause: None }
    }

    /// A signal ended it, and nobody knows more.
    #[must_use]
    pub const fn killed(signal: i32) -> Self {
        Self::Killed { signal, cause: None }
    }

    /// It was asked to end, and saved.
    #[must_use]
    pub const fn stopped() -> Self {
        Self::Exited { code: 0, cause: Some(Cause::Stopped) }
    }

    /// It was stopped in the queue, and never started.
    #[must_use]
    pub const fn unqueued() -> Self {
        Self::Exited { code: 0, cause: Some(Cause::Unqueued) }
    }

    /// Whether it has ended.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Running | Self::Queued | Self::Stalled { .. })
    }

    /// What it died of, or who ended it, where somebody knows.
    #[must_use]
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Exited { cause, .. } | Self::Killed { cause, .. } => cause,
            Self::Running | Self::Queued | Self::Stalled { .. } | Self::Lost => None,
        }
    }

    /// It with what it died of: of a run that failed, where it says nothing of that itself.
    #[must_use]
    pub fn because(self, why: Option<Cause>) -> Self {
        match self {
            Self::Exited { code, cause } if code != 0 => Self::Exited { code, cause: cause.or(why) },
            Self::Killed { signal, cause } => Self::Killed { signal, cause: cause.or(why) },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_it_failed_stands_beside_how() {
        for (status, json) in [
            (RunStatus::exited(1), r#"{"state":"exited","code":1}"#),
            (
                RunStatus::exited(1).because(Some(Cause::OutOfGpuMemory)),
                r#"{"state":"exited","code":1,"cause":"out_of_gpu_memory"}"#,
            ),
            (
                RunStatus::killed(9).because(Some(Cause::OutOfHostMemory)),
                r#"{"state":"killed","signal":9,"cause":"out_of_host_memory"}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&status).expect("it is written"), json);
            assert_eq!(serde_json::from_str::<RunStatus>(json).expect("it is read"), status);
        }
        for (status, json) in [
            (RunStatus::stopped(), r#"{"state":"exited","code":0,"cause":"stopped"}"#),
            (RunStatus::unqueued(), r#"{"state":"exited","code":0,"cause":"unqueued"}"#),
        ] {
            assert_eq!(serde_json::to_string(&status).expect("it is written"), json);
            assert_eq!(serde_json::from_str::<RunStatus>(json).expect("it is read"), status);
            assert!(status.cause().is_some_and(Cause::is_wish), "{json}");
        }
        let later = r#"{"state":"exited","code":1,"cause":"cosmic_ray"}"#;
        assert_eq!(serde_json::from_str::<RunStatus>(later).expect("it is read").cause(), Some(Cause::Other));
    }

    #[test]
    fn only_what_failed_died_of_something() {
        let why = Some(Cause::CardError);
        for status in [RunStatus::Running, RunStatus::Queued, RunStatus::exited(0), RunStatus::Lost] {
            assert_eq!(status.because(why), status);
        }
        let known = RunStatus::exited(1).because(Some(Cause::OutOfGpuMemory));
        assert_eq!(known.because(why), known, "what is known stays");
    }
}
