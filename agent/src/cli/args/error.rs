//! Errors of the command line.

use std::ffi::OsString;

use thiserror::Error;

/// A command line is invalid.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum UsageError {
    /// The command does not exist.
    #[error("{} \"{command}\"", none_of(group))]
    UnknownCommand {
        /// Parent command. Empty for `headroom` itself.
        group: &'static str,
        /// Word as given.
        command: String,
        /// Words after it.
        rest: Vec<OsString>,
    },
    /// The option does not exist.
    #[error("{command} has no option {option}")]
    UnknownOption {
        /// Name of the command.
        command: &'static str,
        /// Option as given, with dashes and without a value.
        option: String,
        /// Value given with the option.
        value: Option<String>,
        /// Closest option of the same command.
        near: Option<String>,
    },
    /// The command does not accept this word.
    #[error("{command} takes no {word:?}")]
    UnexpectedWord {
        /// Name of the command.
        command: &'static str,
        /// Word as given.
        word: String,
    },
    /// The command accepts other words.
    #[error("{command} takes no {word:?}")]
    UnknownWord {
        /// Name of the command.
        command: &'static str,
        /// Word as given.
        word: String,
        /// Closest accepted word.
        meant: Option<String>,
    },
    /// A required argument or option is missing.
    #[error("{command} needs {what}")]
    Missing {
        /// Name of the command.
        command: &'static str,
        /// Syntax of the missing argument.
        what: &'static str,
    },
    /// The value of an option is missing.
    #[error("--{name} needs a value")]
    MissingValue {
        /// Name of the option.
        name: &'static str,
        /// Placeholder of the value in the help.
        value: &'static str,
    },
    /// A switch was given a value.
    #[error("--{name} is a switch and takes no value")]
    UnexpectedValue {
        /// Name of the switch.
        name: &'static str,
    },
    /// The value of an option is invalid.
    #[error("--{name}: {why}")]
    BadValue {
        /// Name of the option.
        name: &'static str,
        /// Description of the problem.
        why: String,
        /// Suggested value.
        meant: Option<String>,
    },
    /// The value of an environment variable is invalid.
    #[error("{name}: {why}")]
    BadVariable {
        /// Name of the variable.
        name: &'static str,
        /// Description of the problem.
        why: String,
        /// Suggested value.
        meant: Option<String>,
    },
    /// Two options that exclude each other.
    #[error("--{0} and --{1} exclude each other")]
    Exclusive(&'static str, &'static str),
    /// The argument is not UTF-8.
    #[error("an argument is not UTF-8: {0:?}")]
    NotUnicode(OsString),
    /// The arguments cannot be parsed.
    #[error("{0}")]
    Words(String),
}

fn none_of(group: &str) -> String {
    if group.is_empty() { "there is no command".to_owned() } else { format!("{group} has no command") }
}
