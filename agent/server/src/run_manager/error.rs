//! Errors of requests to the run manager.

use std::{io, path::PathBuf};

use headroom_protocol::message::Message;
use headroom_text::{self as text, Part, Separator, Text};
use thiserror::Error;

use headroom_agent_core::store;

/// Limit of names listed in a message.
const LISTED_MAX: usize = 12;
/// Limit of a rejected name in a message, in characters.
const SHOWN_CHARS: usize = 80;

/// Kind of a name in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedName {
    /// A config.
    Config,
    /// A data set.
    Dataset,
    /// A device.
    Device,
}

impl RequestedName {
    fn not_allowed(self, name: &str, allowed: Part) -> Text {
        let name = format!("{name:?}");
        match self {
            Self::Config => text::not_allowed_config(name, allowed),
            Self::Dataset => text::not_allowed_dataset(name, allowed),
            Self::Device => text::not_allowed_device(name, allowed),
        }
    }
}

/// Why a request failed, worded for the user.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum Error {
    /// No run can be started, for this reason.
    Unavailable(Text),
    /// A name is not on the allow-list.
    NotAllowed {
        /// Kind of the name.
        what: RequestedName,
        /// Name as given, shortened.
        name: String,
        /// Allowed names.
        allowed: Part,
    },
    /// The device exists and cannot train.
    Device {
        /// Name of the device.
        device: String,
        /// Cause.
        why: Message,
    },
    /// The name of the run is invalid.
    Name {
        /// Limit of a name in characters.
        chars_max: usize,
    },
    /// The trainer would reject the config.
    Config {
        /// Name of the config.
        config: String,
        /// Each cause with its position.
        why: Vec<Message>,
    },
    /// A run's directory cannot be used.
    Folder {
        /// Path of the directory.
        folder: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
    /// The run belongs to another training directory than the configured one.
    Elsewhere {
        /// Directory of the run.
        folder: PathBuf,
    },
    /// The run's checkpoint cannot be read, or it has neither a checkpoint nor its config.
    NothingSaved(String),
    /// The run has no checkpoint.
    NoCheckpoint(String),
    /// The path of this executable is unknown.
    Program(String),
    /// The history cannot be used, or rejects the request.
    Store(#[from] store::Error),
}

impl Error {
    /// Translatable text of the error.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Unavailable(why) => why.clone(),
            Self::NotAllowed { what, name, allowed } => what.not_allowed(name, allowed.clone()),
            Self::Device { device, why } => text::device_unusable(device.as_str(), why.text()),
            Self::Name { chars_max } => text::run_name_refused(*chars_max),
            Self::Config { config, why } => {
                let reasons = why.iter().map(Message::text);
                let lines = [text::order_stops(config.as_str())].into_iter().chain(reasons);
                text::as_is(text::list(Separator::Line, lines))
            }
            Self::Folder { folder, error } => {
                text::run_folder_unusable(folder.display().to_string(), error.to_string())
            }
            Self::Elsewhere { folder } => text::run_elsewhere(folder.parent().unwrap_or(folder).display().to_string()),
            Self::NothingSaved(run) => text::run_nothing_saved(run.as_str()),
            Self::NoCheckpoint(run) => text::run_no_checkpoint(run.as_str()),
            Self::Program(why) => text::program_unknown(why.as_str()),
            Self::Store(error) => error.text(),
        }
    }

    /// Error for a name that is not in a list.
    pub fn not_allowed(what: RequestedName, name: &str, allowed: &[String]) -> Self {
        let listed = text::names(allowed.iter().take(LISTED_MAX));
        let allowed = match allowed.len().saturating_sub(LISTED_MAX) {
            0 => listed,
            further => Part::of(&text::not_allowed_more(listed, further)),
        };
        Self::NotAllowed { what, name: name.chars().take(SHOWN_CHARS).collect(), allowed }
    }
}
