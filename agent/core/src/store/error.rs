//! The error of a history file.

use std::io;

use headroom_text::{self as text, Text};
use rusqlite::ErrorCode;

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
    /// Returns a conversion from an error of `what`.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}
