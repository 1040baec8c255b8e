//! Errors of history: why a request fails, and why the file is unusable.

use std::io;

use headroom_text::{self as text, Text};
use rusqlite::ErrorCode;

/// Why a request to the store failed.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub enum Error {
    /// No run has this ID.
    NoRun(String),
    /// Several runs have this name or ID prefix; the second field lists some of them.
    Ambiguous(String, String),
    /// The run has not ended, so it can be neither deleted nor restarted.
    NotEnded(String),
    /// The run has ended, so it cannot be stopped.
    HasEnded(String),
    /// The agent did not start the run.
    NotOurs(String),
    /// The queue already contains the maximum number of runs.
    QueueFull(u64),
    /// No active alert belongs to this event.
    NoAlert(u64),
    /// The settings changed in the meantime.
    Changed,
    /// The file cannot be read or written.
    Unusable(Text),
    /// The system denies access to the file or to its directory.
    Denied(Text),
}

impl Error {
    /// Returns the reason as a text.
    pub fn text(&self) -> Text {
        match self {
            Self::NoRun(run) => text::run_none(run.as_str()),
            Self::Ambiguous(name, runs) => {
                text::as_is(format!("several runs are called {name}, or their numbers begin so: {runs}"))
            }
            Self::NotEnded(run) => text::run_not_ended(run.as_str()),
            Self::HasEnded(run) => text::run_has_ended(run.as_str()),
            Self::NotOurs(run) => text::run_not_ours(run.as_str()),
            Self::QueueFull(n) => text::queue_full(*n),
            Self::NoAlert(event) => text::no_such_alert(*event),
            Self::Changed => text::as_is("the settings were changed elsewhere meanwhile"),
            Self::Unusable(why) | Self::Denied(why) => text::history_unusable(why.clone()),
        }
    }
}

/// The reason why a history file is unusable.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.text())]
pub enum FileUnusable {
    /// A later version wrote the file, which remains unchanged.
    Newer {
        /// The file's version.
        found: usize,
        /// The last supported version.
        known: usize,
    },
    /// The file is not a database, or is inconsistent.
    Damaged(String),
    /// Another program has locked the file.
    Busy,
    /// An SQLite error.
    Sqlite(rusqlite::Error),
    /// A system error.
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl FileUnusable {
    /// Returns the error as a text.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Newer { found, known } => text::history_newer(*found, *known),
            Self::Damaged(error) => text::history_damaged(error.as_str()),
            Self::Busy => text::HISTORY_BUSY.into(),
            Self::Sqlite(error) => text::as_is(error.to_string()),
            Self::System { what, error } => text::as_is(format!("{what}: {error}")),
        }
    }
}

impl From<rusqlite::Error> for FileUnusable {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged(error.to_string()),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            _ => Self::Sqlite(error),
        }
    }
}

impl FileUnusable {
    /// Whether missing permissions may be the cause.
    pub fn may_be_denied(&self) -> bool {
        match self {
            Self::System { .. } => true,
            Self::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
            ),
            Self::Newer { .. } | Self::Damaged(_) | Self::Busy => false,
        }
    }

    /// Returns a conversion from an error of `what`.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}
