//! Why nothing is trained, in words for the person who started it.

use std::io;

use headroom_kernels::{fast::TrainerError, training::TrainingError};
use headroom_shared::{
    gpt::{GptConfigError, tensors::TensorTooLarge},
    protocol::gpu::Process,
    text,
};
use thiserror::Error;

use crate::{
    cli::plan,
    data::{dataset::DatasetError, prepare},
    train::{
        card::CardError, checkpoint::CheckpointError, model::ModelError, pretrained::PretrainedError, run::RunError,
        settings::SettingsError, shortage,
    },
};

/// Why nothing is trained.
#[derive(Debug, Error)]
pub enum Error {
    /// A config file.
    #[error(transparent)]
    Config(#[from] plan::Error),
    /// A value no run can have.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// What a checkpoint makes of the shape.
    #[error(transparent)]
    Shape(#[from] GptConfigError),
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The data.
    #[error(transparent)]
    Data(#[from] DatasetError),
    /// The built-in data.
    #[error(transparent)]
    Prepare(#[from] prepare::Error),
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Weights.
    #[error(transparent)]
    Weights(#[from] PretrainedError),
    /// A model beyond any machine.
    #[error(transparent)]
    Tensor(#[from] TensorTooLarge),
    /// A model beyond this one.
    #[error("{}", text::host_too_small(text::size(*planned_bytes), text::size(*available_bytes)))]
    DoesNotFit {
        /// What it takes.
        planned_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// A card.
    #[error(transparent)]
    Card(#[from] CardError),
    /// The card's memory ran out after the run's own was allocated.
    #[error("{}", shortage::held(text::card_ran_out(error.to_string()).to_string(), holders))]
    OutOfMemory {
        /// What failed then.
        error: Box<Self>,
        /// Who else is on the card.
        holders: Vec<Process>,
    },
    /// The model or its threads.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// What it was to be given.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// The interrupt key.
    #[error("Ctrl-C cannot be listened for: {0}")]
    Signal(io::Error),
    /// The run itself.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Settings(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Data(error) => error.hint(),
            Self::Prepare(error) => error.hint(),
            Self::Checkpoint(error) => error.hint(),
            Self::Weights(error) => error.hint(),
            Self::Card(error) => error.hint(),
            Self::Run(error) => error.hint(),
            Self::OutOfMemory { error, holders } => {
                let end = (!holders.is_empty()).then(|| text::TRY_END_HOLDERS.to_string());
                let tries: Vec<String> = end.into_iter().chain(error.hint()).collect();
                (!tries.is_empty()).then(|| tries.join("; "))
            }
            Self::DoesNotFit { .. } => Some(format!("{}; {}", text::TRY_SMALLER_BATCH, text::TRY_PLAN)),
            Self::Shape(_) | Self::Tensor(_) | Self::Trainer(_) | Self::Training(_) | Self::Signal(_) => None,
        }
    }

    /// Whether the card had no memory for what is taken besides the plan.
    pub fn is_out_of_memory(&self) -> bool {
        let of = |error: &TrainingError| matches!(error, TrainingError::Cuda(error) if error.is_out_of_memory());
        match self {
            Self::Card(CardError::Cuda { error, .. }) => error.is_out_of_memory(),
            Self::Training(error) => of(error),
            Self::Run(RunError::Training { error, .. }) => of(error),
            _ => false,
        }
    }

    /// Whether what was asked for can be meant at all.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Config(_) | Self::Settings(_) | Self::Shape(_) | Self::Model(ModelError::Shape(_)) | Self::Tensor(_)
        )
    }

    /// Whether the system refused a file or a folder, or a named one does not exist.
    pub fn is_input_output(&self) -> bool {
        match self {
            Self::Data(error) | Self::Run(RunError::Data(error)) => error.is_input_output(),
            Self::Prepare(error) => error.is_input_output(),
            Self::Checkpoint(error) | Self::Run(RunError::Checkpoint { error, .. }) => error.is_input_output(),
            Self::Weights(error) | Self::Model(ModelError::Weights(error)) => error.is_input_output(),
            Self::Model(ModelError::NoWeights { .. }) | Self::Signal(_) => true,
            _ => false,
        }
    }
}
