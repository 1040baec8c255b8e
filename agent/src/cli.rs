//! The command line: selects a command, prints its help, and reports errors.
//!
//! Each command is a submodule with one table of options, from which both the parser and the help are derived. Output
//! is assembled in memory and printed by [`print`] only.

mod args;
mod bench;
mod command;
mod completions;
mod data;
mod diagnose;
mod doctor;
mod error_exit;
mod exit;
mod export;
mod fit;
mod fixes;
mod gpus;
mod man;
mod pairing;
mod plan;
mod print;
mod record;
#[cfg(test)]
mod reference;
mod replay;
mod runs;
mod sample;
mod serve;
mod set_aside;
mod style;
mod suggestions;
mod token;
mod train;
mod watch;

use std::ffi::{OsStr, OsString};

use thiserror::Error;

use args::{ArgumentsByPosition, UsageError};
use command::{Command, Words};
pub use exit::Exit;
use headroom_server::run_manager::cuda_probe;
use headroom_train::status;
use headroom_watch::relay;

/// The error of a command.
#[derive(Debug, Error)]
pub enum Error {
    /// Invalid usage.
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// A plan cannot be written as a snapshot of PyTorch.
    #[error(transparent)]
    Snapshot(#[from] plan::snapshot_file::SnapshotError),
    #[error(transparent)]
    Record(#[from] record::Error),
    #[error(transparent)]
    Replay(#[from] replay::Error),
    #[error(transparent)]
    Data(#[from] data::Error),
    #[error(transparent)]
    Doctor(#[from] doctor::Error),
    #[error(transparent)]
    Serve(#[from] serve::Error),
    #[error(transparent)]
    Token(#[from] token::Error),
    #[error(transparent)]
    Export(#[from] export::Error),
    #[error(transparent)]
    Sample(#[from] sample::Error),
    #[error(transparent)]
    Train(#[from] train::Error),
    #[error(transparent)]
    Watch(#[from] watch::Error),
    #[error(transparent)]
    Runs(#[from] runs::Error),
    #[error(transparent)]
    Man(#[from] man::Error),
    /// The output cannot be written.
    #[error(transparent)]
    Print(#[from] print::Error),
}

impl Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Usage(error) => error.hint(),
            Self::Plan(error) => error.hint(),
            Self::Record(error) => error.hint(),
            Self::Replay(error) => error.hint(),
            Self::Data(error) => error.hint(),
            Self::Serve(error) => error.hint(),
            Self::Token(error) => error.hint(),
            Self::Export(error) => error.hint(),
            Self::Sample(error) => error.hint(),
            Self::Train(error) => error.hint().map(|hint| hint.to_string()),
            Self::Watch(error) => error.hint(),
            Self::Runs(error) => error.hint(),
            Self::Snapshot(_) | Self::Doctor(_) | Self::Man(_) | Self::Print(_) => None,
        }
    }
}

/// Prints an error to standard error, unless the reader of the output is gone, and returns the exit status.
pub fn explain(error: &Error) -> Exit {
    let exit = error.exit();
    if exit != Exit::Success {
        let hint = error.hint().map_or_else(String::new, |hint| format!("\nhint: {hint}\n"));
        print::error(&format!("headroom: {error}\n{hint}"));
    }
    exit
}

/// The root command with all subcommands.
pub const ROOT: Command = Command {
    about: concat!(
        "headroom ",
        env!("CARGO_PKG_VERSION"),
        ": predicts the GPU memory of nanoGPT training runs. Know before you OOM."
    ),
    summary: "predict the GPU memory of nanoGPT training runs",
    usage: &["headroom COMMAND [ARGUMENTS]"],
    subcommands: &[
        &plan::COMMAND,
        &fit::COMMAND,
        &diagnose::COMMAND,
        &record::COMMAND,
        &replay::COMMAND,
        &gpus::COMMAND,
        &train::COMMAND,
        &sample::COMMAND,
        &export::COMMAND,
        &data::COMMAND,
        &bench::COMMAND,
        &serve::COMMAND,
        &watch::COMMAND,
        &runs::COMMAND,
        &token::COMMAND,
        &doctor::COMMAND,
        &completions::COMMAND,
        &man::COMMAND,
        &HELP,
    ],
    notes: "`headroom help COMMAND` and `headroom COMMAND --help` show the help of a command.",
    exits: &[
        (0, "success; for `plan` and `fit`, the run fits"),
        (1, "the answer is no, nothing matches, or the work failed"),
        (status::STOPPED_EXIT_STATUS, "`train` was stopped, as by Ctrl-C; `watch` ends as the command that it runs"),
    ],
    examples: &["headroom plan config/train_gpt2.py --batch_size=64 --gpu \"RTX 4070\""],
    ..Command::EMPTY
};

const HELP: Command = Command {
    name: "help",
    summary: "Show the help of a command",
    about: "Shows the help of a command, or the list of commands.",
    usage: &["headroom help [COMMAND [SUBCOMMAND]]"],
    words: Words::Command,
    exits: &[(0, "the help is printed")],
    examples: &["headroom help plan", "headroom help runs export"],
    run: |args| {
        // `headroom help --help` shows the help of `help` itself.
        let ArgumentsByPosition::Command(first, rest) = args::before_command(args.clone())? else {
            return if args.is_empty() { ROOT.print_help() } else { HELP.print_help() };
        };
        help([first].into_iter().chain(rest))
    },
    ..Command::EMPTY
};

/// Runs the command given by the arguments without the program's name.
///
/// # Errors
/// The command line is invalid, or the command failed.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    match args::before_command(args)? {
        ArgumentsByPosition::Command(command, args) => match command.to_str() {
            // The relay prints no errors: its standard error belongs to the watcher.
            Some(relay::COMMAND) => Ok(if relay::run(args).is_ok() { Exit::Success } else { Exit::Failure }),
            Some(cuda_probe::COMMAND) => print_and_succeed(&serde_json::json!(cuda_probe::answer()).to_string()),
            Some(completions::RUN_WORDS) => print_and_succeed(&completions::run_words(&args)),
            name => match ROOT.subcommand(name.unwrap_or_default()) {
                Some(command) => (command.run)(args),
                None => Err(unknown_command(&ROOT, &command, args)),
            },
        },
        ArgumentsByPosition::Help(words) => help(words),
        ArgumentsByPosition::Version => print_and_succeed(concat!("headroom ", env!("CARGO_PKG_VERSION"), "\n")),
        ArgumentsByPosition::Nothing => {
            print::error(&ROOT.help());
            Ok(Exit::Usage)
        }
    }
}

/// Prints the help of the named command.
fn help(words: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    find(words).and_then(Command::print_help)
}

/// Returns the named command, ignoring options among the words.
fn find(words: impl IntoIterator<Item = OsString>) -> Result<&'static Command, Error> {
    let mut command: &'static Command = &ROOT;
    for word in words {
        if !word.to_string_lossy().starts_with('-') {
            let below = word.to_str().and_then(|word| command.subcommand(word));
            command = below.ok_or_else(|| unknown_command(command, &word, Vec::new()))?;
        }
    }
    Ok(command)
}

fn unknown_command(group: &Command, word: &OsStr, rest: Vec<OsString>) -> Error {
    let command = word.to_string_lossy().chars().take(80).collect();
    if group.subcommands.is_empty() {
        return UsageError::UnexpectedWord { command: group.name, word: command }.into();
    }
    UsageError::UnknownCommand { group: group.name, command, rest }.into()
}

fn print_and_succeed(text: &str) -> Result<Exit, Error> {
    print::data(text)?;
    Ok(Exit::Success)
}
