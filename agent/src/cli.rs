//! The command line: which command is meant, its help, and what an error says and exits with.
//!
//! Each command is a file below, with its options as one table that makes the parser and the help alike. What a person
//! reads is put together in memory and leaves by [`print`] alone.

mod args;
mod bench;
mod data;
mod diagnose;
mod doctor;
mod export;
mod fixes;
mod gpus;
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

use std::{ffi::OsString, process::ExitCode};

use thiserror::Error;

use crate::{foreman::driver, watch::relay};
use args::UsageError;

/// How a command ended; the numbers are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, and for `plan`: it fits.
    Success,
    /// 1: done, and the answer is no; or the work itself failed.
    Failure,
    /// 2: the command line or the config cannot be used.
    Usage,
    /// 3: a file or a folder could not be read or written.
    InputOutput,
    /// As a watched program ended.
    Of(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Success => Self::SUCCESS,
            Exit::Failure => Self::from(1),
            Exit::Usage => Self::from(2),
            Exit::InputOutput => Self::from(3),
            Exit::Of(status) => Self::from(status),
        }
    }
}

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
    /// The way out.
    #[error(transparent)]
    Print(#[from] print::Error),
}

impl Error {
    fn exit(&self) -> Exit {
        match self {
            // Who reads the other end has seen enough, as with `head`.
            Self::Print(error) if error.is_closed_pipe() => Exit::Success,
            Self::Train(error) if error.is_usage() => Exit::Usage,
            Self::Sample(sample::Error::Prompt(_)) => Exit::Usage,
            Self::Train(error) if error.is_input_output() => Exit::InputOutput,
            Self::Export(export::Error::Write { .. }) => Exit::InputOutput,
            Self::Export(export::Error::Pretrained(error)) | Self::Sample(sample::Error::Weights(error))
                if error.is_input_output() =>
            {
                Exit::InputOutput
            }
            Self::Data(error) if error.is_input_output() => Exit::InputOutput,
            Self::Watch(error) => error.exit(),
            // Not 1, which would say that the run does not fit.
            Self::Usage(_) | Self::Plan(_) | Self::Print(_) => Exit::Usage,
            Self::Data(_)
            | Self::Doctor(_)
            | Self::Serve(_)
            | Self::Token(_)
            | Self::Export(_)
            | Self::Sample(_)
            | Self::Train(_)
            | Self::Runs(_) => Exit::Failure,
        }
    }

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
            Self::Doctor(_) | Self::Print(_) => None,
        }
    }
}

/// Says on standard error what went wrong, unless nobody is there to read, and gives the exit status.
pub fn explain(error: &Error) -> Exit {
    let exit = error.exit();
    if exit != Exit::Success {
        let hint = error.hint().map_or_else(String::new, |hint| format!("\nhint: {hint}\n"));
        print::note(&format!("headroom: {error}\n{hint}"));
    }
    exit
}

/// Runs the command that the arguments, without the program's name, ask for.
///
/// # Errors
/// The command line cannot be used, or the command could not do its work.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, Error> {
    let mut args = args.into_iter();
    let Some(command) = args.next() else {
        print::note(&overview());
        return Ok(Exit::Usage);
    };
    match command.to_str() {
        Some("plan") => plan::run(args),
        Some("diagnose") => diagnose::run(args),
        Some("data") => data::run(args),
        Some("serve") => serve::run(args),
        Some("token") => token::run(args),
        Some("export") => export::run(args),
        Some("gpus") => gpus::run(args),
        Some("train") => train::run(args),
        Some("watch") => watch::run(args),
        Some("sample") => sample::run(args),
        Some("bench") => bench::run(args),
        Some("doctor") => doctor::run(args),
        Some("runs") => runs::run(args),
        // Nobody reads what it would say: its standard error is its watcher's.
        Some(relay::COMMAND) => Ok(if relay::run(args).is_ok() { Exit::Success } else { Exit::Failure }),
        Some(driver::COMMAND) => print_and_succeed(&serde_json::json!(driver::answer()).to_string()),
        Some("help" | "--help" | "-h") => help(args.next()),
        Some("--version" | "-V") => print_and_succeed(concat!("headroom ", env!("CARGO_PKG_VERSION"), "\n")),
        _ => Err(unknown_command(&command)),
    }
}

fn help(topic: Option<OsString>) -> Result<Exit, Error> {
    let Some(topic) = topic else { return print_and_succeed(&overview()) };
    match topic.to_str() {
        Some("plan") => print_and_succeed(&plan::help()),
        Some("diagnose") => print_and_succeed(&diagnose::help()),
        Some("data") => print_and_succeed(&data::help()),
        Some("serve") => print_and_succeed(&serve::help()),
        Some("token") => print_and_succeed(&token::help()),
        Some("export") => print_and_succeed(&export::help()),
        Some("gpus") => print_and_succeed(&gpus::help()),
        Some("train") => print_and_succeed(&train::help()),
        Some("watch") => print_and_succeed(&watch::help()),
        Some("sample") => print_and_succeed(&sample::help()),
        Some("bench") => print_and_succeed(&bench::help()),
        Some("doctor") => print_and_succeed(&doctor::help()),
        Some("runs") => print_and_succeed(&runs::help()),
        _ => Err(unknown_command(&topic)),
    }
}

fn unknown_command(command: &OsString) -> Error {
    UsageError::UnknownCommand { command: command.to_string_lossy().chars().take(80).collect() }.into()
}

fn print_and_succeed(text: &str) -> Result<Exit, Error> {
    print::data(text)?;
    Ok(Exit::Success)
}

fn overview() -> String {
    format!(
        "\
Headroom {}: what a nanoGPT run takes of a card's memory. Know before you OOM.

Usage: headroom COMMAND [ARGUMENTS]

Commands:
  plan      Say whether a run fits a card, where it would fail, and what it needs
  diagnose  Say what an out-of-memory message means, and what to change
  gpus      List the cards that are known
  train     Train a GPT on this machine's card or CPU, as nanoGPT would
  sample    Let a model write
  export    Write a checkpoint as files that other programs load
  data      Make training data of a text, as nanoGPT reads it
  bench     Measure how fast this machine trains and writes
  serve     Watch this machine's cards, and serve the page on it
  watch     Run a training of yours, and keep what it prints for the page
  runs      List, show, export and delete what is kept of runs; copy history
  token     Say who may watch this machine
  doctor    Say what of this machine can be read, and why the rest cannot

  help COMMAND, or COMMAND --help   Say more of a command
  --version                         Print the version

Start with what you give to train.py:
  headroom plan config/train_gpt2.py --batch_size=64 --gpu \"RTX 4070\"
",
        env!("CARGO_PKG_VERSION")
    )
}
