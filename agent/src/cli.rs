//! The command line: which command is meant, its help, and what an error says and exits with.
//!
//! Each command is a file below, with its options as one table that makes the parser and the help alike. What a person
//! reads is put together in memory and leaves by [`print`] alone.

mod args;
mod bench;
mod command;
mod completions;
mod data;
mod diagnose;
mod doctor;
mod exit;
mod export;
mod fixes;
mod gpus;
mod man;
mod meant;
mod pairing;
mod plan;
mod print;
mod runs;
mod sample;
mod serve;
mod set_aside;
mod style;
mod token;
mod train;
mod watch;

use std::ffi::{OsStr, OsString};

use thiserror::Error;

use crate::{foreman::driver, train::stop, watch::relay};
use args::{Before, UsageError};
use command::{Command, Words};
pub use exit::Exit;

/// Why a command gave no answer.
#[derive(Debug, Error)]
pub enum Error {
    /// The command line.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// `plan`.
    #[error(transparent)]
    Plan(#[from] plan::Error),
    /// `data`.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// `doctor`.
    #[error(transparent)]
    Doctor(#[from] doctor::Error),
    /// `serve`.
    #[error(transparent)]
    Serve(#[from] serve::Error),
    /// `token`.
    #[error(transparent)]
    Token(#[from] token::Error),
    /// `export`.
    #[error(transparent)]
    Export(#[from] export::Error),
    /// `sample`.
    #[error(transparent)]
    Sample(#[from] sample::Error),
    /// `train`.
    #[error(transparent)]
    Train(#[from] train::Error),
    /// `watch`.
    #[error(transparent)]
    Watch(#[from] watch::Error),
    /// `runs`.
    #[error(transparent)]
    Runs(#[from] runs::Error),
    /// `man`.
    #[error(transparent)]
    Man(#[from] man::Error),
    /// The way out.
    #[error(transparent)]
    Print(#[from] print::Error),
}

impl Error {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Usage(error) => error.hint(),
            Self::Plan(error) => error.hint(),
            Self::Data(error) => error.hint(),
            Self::Serve(error) => error.hint(),
            Self::Token(error) => error.hint(),
            Self::Export(error) => error.hint(),
            Self::Sample(error) => error.hint(),
            Self::Train(error) => error.hint(),
            Self::Watch(error) => error.hint(),
            Self::Runs(error) => error.hint(),
            Self::Doctor(_) | Self::Man(_) | Self::Print(_) => None,
        }
    }
}

/// Says on standard error what went wrong, unless nobody is there to read, and gives the exit status.
pub fn explain(error: &Error) -> Exit {
    let exit = error.exit();
    if exit != Exit::Success {
        let hint = error.hint().map_or_else(String::new, |hint| format!("\nhint: {hint}\n"));
        print::error(&format!("headroom: {error}\n{hint}"));
    }
    exit
}

/// The program itself: all of its commands.
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
        &diagnose::COMMAND,
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
        (0, "success; for `plan`, the run fits"),
        (1, "the answer is no, nothing matches, or the work failed"),
        (stop::EXIT_STATUS, "`train` was stopped, as by Ctrl-C; `watch` ends as the command that it runs"),
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
        // `headroom help --help` is this command's own.
        let Before::Command(first, rest) = args::before_command(args.clone())? else {
            return if args.is_empty() { ROOT.print_help() } else { HELP.print_help() };
        };
        help([first].into_iter().chain(rest))
    },
    ..Command::EMPTY
};

/// Runs the command that the arguments, without the program's name, ask for.
///
/// # Errors
/// The command line cannot be used, or the command could not do its work.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    match args::before_command(args)? {
        Before::Command(command, args) => match command.to_str() {
            // Nobody reads what it would say: its standard error is its watcher's.
            Some(relay::COMMAND) => Ok(if relay::run(args).is_ok() { Exit::Success } else { Exit::Failure }),
            Some(driver::COMMAND) => print_and_succeed(&serde_json::json!(driver::answer()).to_string()),
            name => match ROOT.subcommand(name.unwrap_or_default()) {
                Some(command) => (command.run)(args),
                None => Err(unknown_command(&ROOT, &command)),
            },
        },
        Before::Help(words) => help(words),
        Before::Version => print_and_succeed(concat!("headroom ", env!("CARGO_PKG_VERSION"), "\n")),
        Before::Nothing => {
            print::error(&ROOT.help());
            Ok(Exit::Usage)
        }
    }
}

/// The help of the command that the words name.
fn help(words: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    find(words).and_then(Command::print_help)
}

/// The command that the words name, of all commands; options among them count for nothing.
fn find(words: impl IntoIterator<Item = OsString>) -> Result<&'static Command, Error> {
    let mut command: &'static Command = &ROOT;
    for word in words {
        if !word.to_string_lossy().starts_with('-') {
            let below = word.to_str().and_then(|word| command.subcommand(word));
            command = below.ok_or_else(|| unknown_command(command, &word))?;
        }
    }
    Ok(command)
}

fn unknown_command(group: &Command, word: &OsStr) -> Error {
    let command = word.to_string_lossy().chars().take(80).collect();
    if group.subcommands.is_empty() {
        return UsageError::UnexpectedWord { command: group.name, word: command }.into();
    }
    UsageError::UnknownCommand { group: group.name, command }.into()
}

fn print_and_succeed(text: &str) -> Result<Exit, Error> {
    print::data(text)?;
    Ok(Exit::Success)
}
