//! Why something that was asked of the agent's runs is not done.

use std::{io, path::PathBuf};

use headroom_shared::text::{self, Text};
use thiserror::Error;

use crate::store;

/// Names that a message lists.
const LISTED_MAX: usize = 12;
/// Characters of a refused name that are shown.
const SHOWN_CHARS: usize = 80;

/// What an order names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A config.
    Config,
    /// A data set.
    Dataset,
    /// What trains.
    Device,
}

impl Named {
    fn not_allowed(self, name: &str, allowed: &str) -> Text {
        let name = format!("{name:?}");
        match self {
            Self::Config => text::not_allowed_config(name, allowed),
            Self::Dataset => text::not_allowed_dataset(name, allowed),
            Self::Device => text::not_allowed_device(name, allowed),
        }
    }
}

/// Each for the person who asked.
#[derive(Debug, Error)]
pub enum Error {
    /// Nothing can be started: why.
    #[error("{0}")]
    Unavailable(String),
    /// A name that is not among those that the owner allowed.
    #[error("{}", what.not_allowed(name, allowed))]
    NotAllowed {
        /// Of what.
        what: Named,
        /// As given, shortened.
        name: String,
        /// What there is.
        allowed: String,
    },
    /// A device that is there and cannot train.
    #[error("{}", text::device_unusable(device.as_str(), why.as_str()))]
    Device {
        /// Its name.
        device: String,
        /// Why.
        why: String,
    },
    /// A name that no run can have.
    #[error("{}", text::run_name_refused(*chars_max))]
    Name {
        /// How many.
        chars_max: usize,
    },
    /// A config that the trainer would not take.
    #[error("{}\n{why}", text::order_stops(config.as_str()))]
    Config {
        /// Its name.
        config: String,
        /// Each reason with its place, a line each.
        why: String,
    },
    /// A run's folder.
    #[error("{}", text::run_folder_unusable(folder.display().to_string(), error.to_string()))]
    Folder {
        /// Which.
        folder: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The run belongs to another folder than the one that is served.
    #[error("{}", text::run_elsewhere(folder.parent().unwrap_or(folder).display().to_string()))]
    Elsewhere {
        /// The run's.
        folder: PathBuf,
    },
    /// There is nothing to go on from.
    #[error("{}", text::run_nothing_saved(.0.as_str()))]
    NothingSaved(String),
    /// No checkpoint.
    #[error("{}", text::run_no_checkpoint(.0.as_str()))]
    NoCheckpoint(String),
    /// This program's own place is not known.
    #[error("{}", text::program_unknown(.0.as_str()))]
    Program(String),
    /// History.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Error {
    /// A name that is not in a list.
    pub fn not_allowed(what: Named, name: &str, allowed: &[String]) -> Self {
        let mut list = allowed.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        if allowed.len() > LISTED_MAX {
            list = text::not_allowed_more(list, allowed.len() - LISTED_MAX).to_string();
        }
        Self::NotAllowed { what, name: name.chars().take(SHOWN_CHARS).collect(), allowed: list }
    }
}
