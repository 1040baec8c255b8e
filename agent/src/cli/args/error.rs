//! Command lines that cannot be used: what is wrong with them, and what to write instead.

use std::ffi::OsString;

use thiserror::Error;

use crate::cli::meant;

/// A command line that cannot be used.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum UsageError {
    /// No such command.
    #[error("{} \"{command}\"", none_of(group))]
    UnknownCommand {
        /// The command whose subcommand it would be; empty for `headroom` itself.
        group: &'static str,
        /// As given.
        command: String,
    },
    /// No such option.
    #[error("{command} has no option {option}")]
    UnknownOption {
        /// The command.
        command: &'static str,
        /// As given, with its dashes and without a value.
        option: String,
        /// The value that was given with it.
        value: Option<String>,
        /// An option of the same command that may have been meant.
        near: Option<String>,
    },
    /// A word where none belongs.
    #[error("{command} takes no {word:?}")]
    UnexpectedWord {
        /// The command.
        command: &'static str,
        /// As given.
        word: String,
    },
    /// A word or an option that has to be there.
    #[error("{command} needs {what}")]
    Missing {
        /// The command.
        command: &'static str,
        /// What it needs, as it is written.
        what: &'static str,
    },
    /// An option without its value.
    #[error("--{name} needs a value")]
    MissingValue {
        /// The option.
        name: &'static str,
        /// What stands for its value in the help.
        value: &'static str,
    },
    /// A switch with a value.
    #[error("--{name} is a switch and takes no value")]
    UnexpectedValue {
        /// The switch.
        name: &'static str,
    },
    /// A value that is not understood.
    #[error("--{name}: {why}")]
    BadValue {
        /// The option.
        name: &'static str,
        /// What is wrong with it.
        why: String,
        /// A value that may have been meant.
        meant: Option<String>,
    },
    /// Two options that exclude each other.
    #[error("--{0} and --{1} exclude each other")]
    Exclusive(&'static str, &'static str),
    /// Not a text.
    #[error("an argument is not UTF-8: {0:?}")]
    NotUnicode(OsString),
    /// Words that do not make a command line at all.
    #[error("{0}")]
    Words(String),
}

fn none_of(group: &str) -> String {
    if group.is_empty() { "there is no command".to_owned() } else { format!("{group} has no command") }
}

impl UsageError {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownCommand { group, command } => Some(meant::command(group, command)),
            Self::UnknownOption { command, option, value, near } => {
                Some(meant::option(command, option, value.as_deref(), near.as_deref()))
            }
            Self::UnexpectedWord { command, .. } | Self::Missing { command, .. } => Some(meant::help(command)),
            Self::MissingValue { name, value } => Some(format!("--{name} {value}")),
            Self::UnexpectedValue { name } => Some(format!("write --{name}, or leave it out")),
            Self::BadValue { name, meant: Some(meant), .. } => Some(format!("did you mean --{name} {meant}?")),
            Self::BadValue { .. } | Self::Exclusive(..) | Self::NotUnicode(_) | Self::Words(_) => None,
        }
    }
}
