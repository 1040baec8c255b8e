//! Why something that was asked of the agent's runs is not done.

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::store;

/// Names that a message lists.
const LISTED_MAX: usize = 12;
/// Characters of a refused name that are shown.
const SHOWN_CHARS: usize = 80;

/// Each for the person who asked.
#[derive(Debug, Error)]
pub enum Error {
    /// Nothing can be started: why.
    #[error("{0}")]
    Unavailable(String),
    /// A name that is not among those that the owner allowed.
    #[error("There is no {what} {name:?} here. It takes one of: {allowed}.")]
    NotAllowed {
        /// Of what.
        what: &'static str,
        /// As given, shortened.
        name: String,
        /// What there is.
        allowed: String,
    },
    /// A name that no run can have.
    #[error("A run's name has 1 to {chars_max} characters, and none that a terminal obeys.")]
    Name {
        /// How many.
        chars_max: usize,
    },
    /// A run's folder.
    #[error("The run's folder {} cannot be used: {error}.", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The run belongs to another folder than the one that is served.
    #[error(
        "This run lies in {}, and not in the folder that --train names now.",
        folder.parent().unwrap_or(folder).display()
    )]
    Elsewhere {
        /// The run's.
        folder: PathBuf,
    },
    /// There is nothing to go on from.
    #[error("Run {0} saved no checkpoint that it could go on from, or the file is gone.")]
    NothingSaved(String),
    /// No checkpoint.
    #[error("Run {0} has no checkpoint: it saved none, or the file is gone.")]
    NoCheckpoint(String),
    /// This program's own place is not known.
    #[error("This program cannot find itself to start a run: {0}.")]
    Program(String),
    /// History.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Error {
    /// A name that is not in a list.
    pub fn not_allowed(what: &'static str, name: &str, allowed: &[String]) -> Self {
        let mut list = allowed.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        if allowed.len() > LISTED_MAX {
            list.push_str(&format!(" and {} more, which /api/training lists", allowed.len() - LISTED_MAX));
        }
        Self::NotAllowed { what, name: name.chars().take(SHOWN_CHARS).collect(), allowed: list }
    }
}
