//! Exit statuses of errors: the only mapping from errors to statuses.
//!
//! The rule for an error of a command is as follows. The status is 3 if the system refused a file, a directory, a port
//! or the network, or if a named file does not exist. It is 2 if the command line or the config is invalid, and 1 for
//! everything else.

use std::io::ErrorKind;

use super::{Error, Exit, doctor, export, plan, runs, sample, serve, token, train};
use headroom_agent_core::{
    folders::{self, lock::LockError},
    store::{self, BackupError},
};
use headroom_server::{access::error::FileError, webhook};
use headroom_train::{data::tokenizer::ReadError, pretrained::TokenizerError};

impl Error {
    /// Exit status for this error.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            // The reader had read enough, as with `head`.
            Self::Print(error) if error.is_closed_pipe() => Exit::Success,
            Self::Print(_) => Exit::InputOutput,
            Self::Plan(error) => of_plan(error),
            Self::Record(error) => error.exit(),
            Self::Replay(error) => error.exit(),
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
            Self::Man(_) | Self::Snapshot(_) => Exit::InputOutput,
        }
    }
}

fn of_plan(error: &plan::Error) -> Exit {
    match error {
        plan::Error::Unreadable { .. } | plan::Error::UnknownModel { .. } => Exit::InputOutput,
        plan::Error::Json(_) => Exit::Failure,
        // Not 1, which would mean that the run does not fit.
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
        // Read, but too long or not text.
        sample::Error::Input(error) if matches!(error.kind(), ErrorKind::FileTooLarge | ErrorKind::InvalidData) => {
            Exit::Failure
        }
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
        // `--data-dir` provides a directory.
        folders::Error::NoHome => Exit::Usage,
        _ => Exit::InputOutput,
    }
}

fn of_access(error: &FileError) -> Exit {
    Exit::input_output_if(matches!(error, FileError::Io { .. } | FileError::Random(_)))
}

fn of_serve(error: &serve::Error) -> Exit {
    match error {
        serve::Error::Bind { .. }
        | serve::Error::TrainFolder { .. }
        | serve::Error::Start(_)
        | serve::Error::Webhook(webhook::Error::Start(_)) => Exit::InputOutput,
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
        | runs::Error::Open { .. }
        | runs::Error::History(store::Error::Unusable(_) | store::Error::Denied(_))
        | runs::Error::Backup(
            BackupError::Write { .. } | BackupError::History(store::Error::Unusable(_) | store::Error::Denied(_)),
        ) => Exit::InputOutput,
        _ => Exit::Failure,
    }
}
