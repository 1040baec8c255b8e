//! Errors that end a run.

use headroom_kernels::training::TrainingError;
use headroom_text::{self as text, Key, Text};
use thiserror::Error;

use crate::{
    checkpoint::CheckpointError,
    data::dataset::DatasetError,
    divergence::{DivergenceLimit, PATIENCE},
    out_of_memory::joined,
};

/// Why a run ended early.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum RunError {
    /// The data cannot be read.
    Data(#[from] DatasetError),
    /// A required checkpoint could not be written.
    Checkpoint {
        /// Cause of the failure.
        error: CheckpointError,
        /// Completed iterations.
        iter: u64,
    },
    /// The trainer failed.
    Training {
        /// Cause, with the kernel's name if known.
        error: Box<TrainingError>,
        /// Completed iterations.
        iter: u64,
        /// Iteration of the last checkpoint.
        kept: Option<u64>,
    },
    /// A value is not finite, so training cannot continue.
    Diverged {
        /// Iteration of the value.
        iter: u64,
        /// Name of the value.
        what: Key,
        /// The value: NaN or an infinity.
        value: f64,
        /// Iteration of the last checkpoint.
        kept: Option<u64>,
    },
    /// The model lost most of its progress, although all values are finite.
    Forgot {
        /// Iteration of the detection.
        iter: u64,
        /// Best loss and limit.
        lost: DivergenceLimit,
        /// Iteration of the last checkpoint.
        kept: Option<u64>,
    },
}

impl RunError {
    /// Translatable text of the error.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Data(error) => error.text(),
            Self::Checkpoint { error, .. } => error.text(),
            Self::Training { error, iter, .. } => text::run_not_computed(*iter, error.text()),
            Self::Diverged { iter, what, value, .. } => text::run_diverged(*what, *iter, value.to_string()),
            Self::Forgot { iter, lost, .. } => {
                text::run_forgot(decimal(lost.limit), PATIENCE, decimal(lost.best), *iter)
            }
        }
    }

    /// Suggested remedy.
    #[must_use]
    pub fn hint(&self) -> Option<Text> {
        match self {
            Self::Data(error) => error.hint(),
            Self::Checkpoint { error, .. } => error.hint(),
            Self::Training { kept, .. } => kept.map(text::try_resume),
            Self::Diverged { kept, .. } | Self::Forgot { kept, .. } => {
                Some(joined([text::TRY_SLOWER.into()].into_iter().chain(kept.map(text::try_last_checkpoint))))
            }
        }
    }
}

/// A loss with two decimals.
pub fn decimal(loss: f64) -> String {
    format!("{loss:.2}")
}
