//! Exit statuses: the one place that says which error ends with which. README and every help list them.
//!
//! The rule for an error of a command: 3 if the system refused a file, a folder, a port or the network, or if a named
//! file does not exist; 2 if the command line or the config cannot be used; 1 for everything else.

use std::process::ExitCode;

use super::{Error, doctor, export, plan, runs, sample, serve, token, train};
use crate::{
    data::tokenizer::ReadError,
    folders::{self, lock::LockError},
    server::access::file::FileError,
    store::{self, BackupError},
    train::pretrained::TokenizerError,
    webhook,
};

/// How a command ended; the numbers are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done; for `plan`, the run fits.
    Success,
    /// 1: the answer is no, nothing matches, or the work failed.
    Failure,
    /// 2: the command line or the config cannot be used.
    Usage,
    /// 3: a file, a folder, a port, the network or standard output could not be read, written or opened.
    InputOutput,
    /// The status of a watched program, or 128 plus the number of the signal that ended the work.
    Of(u8),
}

/// Status 2 in every help.
pub const USAGE: (u8, &str) = (2, "the command line or the config cannot be used");
/// Status 3 in every help.
pub const INPUT_OUTPUT: (u8, &str) = (3, "a file, a folder, a port or the output cannot be read, written or opened");
impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => USAGE.0,
            Self::InputOutput => INPUT_OUTPUT.0,
            Self::Of(status) => status,
        }
    }

    const fn input_output_if(is_input_output: bool) -> Self {
        if is_input_output { Self::InputOutput } else { Self::Failure }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl Error {
    /// The status that a command ends with after this error.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            // The reader has seen enough, as with `head`.
            Self::Print(error) if error.is_closed_pipe() => Exit::Success,
            Self::Print(_) => Exit::InputOutput,
            Self::Plan(error) => of_plan(error),
            Self::Data(error) => Exit::input_output_if(error.is_input_output()),
            Self::Doctor(error) => Exit::input_output_if(matches!(error, doctor::Error::Start(_))),
            Self::Serve(error) => of_serve(error),
            Self::Token(token::Error::Folder(error)) => of_folder(error),
            Self::Token(token::Error::File(error)) => of_access(error),
            Self::Export(error) => of_export(error),
            Self::Sample(error) => of_sample(error),
            Self::Train(error) => of_train(error),
            Self::Watch(error) => error.exit(),
            Self::Runs(error) => of_runs(error),
            Self::Man(_) => Exit::InputOutput,
        }
    }
}

fn of_plan(error: &plan::Error) -> Exit {
    match error {
        plan::Error::Unreadable { .. } => Exit::InputOutput,
        plan::Error::Json(_) => Exit::Failure,
        // Not 1, which would say that the run does not fit.
        _ => Exit::Usage,
    }
}

fn of_export(error: &export::Error) -> Exit {
    match error {
        export::Error::Pretrained(error) => Exit::input_output_if(error.is_input_output()),
        export::Error::Tokenizer(error) => of_tokenizer(error),
        export::Error::Write { .. } => Exit::InputOutput,
        _ => Exit::Failure,
    }
}

fn of_sample(error: &sample::Error) -> Exit {
    match error {
        sample::Error::Weights(error) => Exit::input_output_if(error.is_input_output()),
        sample::Error::Tokenizer(error) => of_tokenizer(error),
        sample::Error::Named(error) => of_read(error),
        sample::Error::Prompt(_) => Exit::Usage,
        sample::Error::Input(_) => Exit::InputOutput,
        _ => Exit::Failure,
    }
}

fn of_tokenizer(error: &TokenizerError) -> Exit {
    match error {
        TokenizerError::Read(error) => of_read(error),
        TokenizerError::Repeated { .. } => Exit::Failure,
    }
}

fn of_read(error: &ReadError) -> Exit {
    Exit::input_output_if(matches!(error, ReadError::None(_) | ReadError::Io { .. }))
}

fn of_train(error: &train::Error) -> Exit {
    match error {
        train::Error::Config(error) => of_plan(error),
        error if error.is_usage() => Exit::Usage,
        error => Exit::input_output_if(error.is_input_output()),
    }
}

fn of_folder(error: &folders::Error) -> Exit {
    match error {
        // --data-dir names one.
        folders::Error::NoHome => Exit::Usage,
        _ => Exit::InputOutput,
    }
}

fn of_access(error: &FileError) -> Exit {
    Exit::input_output_if(matches!(error, FileError::Io { .. } | FileError::Random(_)))
}

fn of_serve(error: &serve::Error) -> Exit {
    match error {
        serve::Error::Bind { .. } | serve::Error::Start(_) | serve::Error::Webhook(webhook::Error::Start(_)) => {
            Exit::InputOutput
        }
        serve::Error::Folder(error) => of_folder(error),
        serve::Error::Access(error) => of_access(error),
        serve::Error::Tls(error) if error.is_unreadable() => Exit::InputOutput,
        serve::Error::Tls(_) | serve::Error::Webhook(_) => Exit::Usage,
        serve::Error::Lock(error) => Exit::input_output_if(matches!(error, LockError::System { .. })),
    }
}

fn of_runs(error: &runs::Error) -> Exit {
    match error {
        runs::Error::Folder(error) => of_folder(error),
        runs::Error::NoHistory(_)
        | runs::Error::Write { .. }
        | runs::Error::History(store::Error::Unusable(_))
        | runs::Error::Backup(BackupError::Write { .. } | BackupError::History(store::Error::Unusable(_))) => {
            Exit::InputOutput
        }
        _ => Exit::Failure,
    }
}
