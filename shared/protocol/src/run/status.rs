//! Status of a run, and the cause of a failure.

use serde::{Deserialize, Serialize};

use super::Cause;

/// Status of a run.
///
/// The cause of a failure is a field, not a variant of its own. Pages of an earlier version, which know only these
/// variants, then show the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum RunStatus {
    /// The run has not ended.
    #[default]
    Running,
    /// The run is queued until its device is free.
    Queued,
    /// The run has made no progress for the time that its owner set.
    Stalled {
        /// Time of its last progress.
        since_ms: u64,
    },
    /// The run's process exited.
    Exited {
        /// Exit code; 0 means success.
        code: i32,
        /// Cause of the end; `None` if it is unknown or the run ended normally.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
    /// A signal ended the run.
    Killed {
        /// Number of the signal.
        signal: i32,
        /// Cause of the end; `None` if it is unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
    /// The watcher is gone, so how the run ended is unknown.
    Lost,
}

impl RunStatus {
    /// Returns the status of a process that exited for an unknown cause.
    #[must_use]
    pub const fn exited(code: i32) -> Self {
        Self::Exited { code, cause: None }
    }

    /// Returns the status of a process that a signal ended for an unknown cause.
    #[must_use]
    pub const fn killed(signal: i32) -> Self {
        Self::Killed { signal, cause: None }
    }

    /// Returns the status of a run that was stopped and saved.
    #[must_use]
    pub const fn stopped() -> Self {
        Self::Exited { code: 0, cause: Some(Cause::Stopped) }
    }

    /// Returns the status of a run that was removed from the queue and never started.
    #[must_use]
    pub const fn unqueued() -> Self {
        Self::Exited { code: 0, cause: Some(Cause::Unqueued) }
    }

    /// Whether the run has ended.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        !matches!(self, Self::Running | Self::Queued | Self::Stalled { .. })
    }

    /// Returns the cause of the end, if known.
    #[must_use]
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Exited { cause, .. } | Self::Killed { cause, .. } => cause,
            Self::Running | Self::Queued | Self::Stalled { .. } | Self::Lost => None,
        }
    }

    /// Adds a cause to the status of a failed run that has none.
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
    fn failure_cause_follows_exit_status() {
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
        let why = Some(Cause::GpuError);
        for status in [RunStatus::Running, RunStatus::Queued, RunStatus::exited(0), RunStatus::Lost] {
            assert_eq!(status.because(why), status);
        }
        let known = RunStatus::exited(1).because(Some(Cause::OutOfGpuMemory));
        assert_eq!(known.because(why), known, "what is known stays");
    }
}
