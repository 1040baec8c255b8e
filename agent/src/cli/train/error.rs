//! Errors of `headroom train`, worded for the user.

use std::{io, path::PathBuf};

use headroom_kernels::{cpu_train::TrainerError, cuda::CudaError, training::TrainingError};
use headroom_planner::gpt::{GptConfigError, tensors::TensorTooLarge};
use headroom_protocol::gpu::Process;
use headroom_text::{self as text, Separator, Text};
use thiserror::Error;

use crate::cli::plan;
use headroom_train::{
    checkpoint::CheckpointError,
    data::{dataset::DatasetError, prepare},
    gpu::GpuError,
    model::ModelError,
    out_of_memory,
    pretrained::PretrainedError,
    run::RunError,
    settings::SettingsError,
    status::{End, ProgramEnd},
};

/// The tokenizers of a resumed run's data and of its checkpoint, which differ.
#[derive(Debug)]
pub struct OtherTokens {
    /// Directory of the checkpoint.
    pub out_dir: PathBuf,
    /// Data set of the run.
    pub dataset: String,
    /// Description of its tokenizer.
    pub data: String,
    /// Data set of the checkpoint, if it is known.
    pub of_checkpoint: Option<String>,
    /// Description of the checkpoint's tokenizer.
    pub checkpoint: String,
}

/// Why a run cannot start, or ended early.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum Error {
    /// A config file is invalid.
    Config(#[from] plan::Error),
    /// A setting is invalid.
    Settings(#[from] SettingsError),
    /// The shape of the model is invalid.
    Shape(#[from] GptConfigError),
    /// The model cannot be set up.
    Model(#[from] ModelError),
    /// The data cannot be used.
    Data(#[from] DatasetError),
    /// The built-in data cannot be created.
    Prepare(#[from] prepare::Error),
    /// A checkpoint cannot be used.
    Checkpoint(#[from] CheckpointError),
    /// Several runs could be resumed, and the command line names none.
    SeveralRuns {
        /// The named data set, if no run here uses it.
        of_other: Option<String>,
        /// Commands that resume a run.
        commands: Vec<String>,
    },
    /// A resumed run has data of another tokenizer than its checkpoint.
    OtherTokens(Box<OtherTokens>),
    /// The disk is too small for the checkpoints of a planned run.
    PlannedDisk(CheckpointError),
    /// Pretrained weights cannot be used.
    Weights(#[from] PretrainedError),
    /// A tensor is larger than any machine's memory.
    Tensor(#[from] TensorTooLarge),
    /// The model does not fit this machine's memory.
    DoesNotFit {
        /// Planned memory.
        planned_bytes: u64,
        /// Available memory.
        available_bytes: u64,
    },
    /// The GPU cannot be used.
    Gpu(#[from] GpuError),
    /// The GPU ran out of memory after the run's own allocation.
    OutOfMemory {
        /// The operation that failed.
        error: Box<Self>,
        /// Other processes on the GPU.
        holders: Vec<Process>,
    },
    /// The trainer or its threads cannot be started.
    Trainer(#[from] TrainerError),
    /// The trainer's initial weights or moments cannot be set.
    Training(#[from] TrainingError),
    /// The signal handler cannot be installed.
    Signal(io::Error),
    /// The run failed.
    Run(#[from] RunError),
}

fn several(of_other: Option<&str>) -> String {
    match of_other {
        Some(dataset) => format!("no run here was trained on {dataset}"),
        None => "the runs here were trained on several data sets".to_owned(),
    }
}

impl Error {
    /// Translatable text of the error.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Config(error) => text::as_is(error.to_string()),
            Self::Settings(error) => error.text(),
            Self::Shape(error) => error.text(),
            Self::Model(error) => error.text(),
            Self::Data(error) => error.text(),
            Self::Prepare(error) => text::as_is(error.to_string()),
            Self::Checkpoint(error) => error.text(),
            Self::SeveralRuns { of_other, .. } => {
                text::as_is(format!("cannot choose the run to resume: {}", several(of_other.as_deref())))
            }
            Self::OtherTokens(other) => text::as_is(format!(
                "cannot resume the run in {} with the data set {}: it has {}, and the checkpoint was trained with {}",
                other.out_dir.display(),
                other.dataset,
                other.data,
                other.checkpoint
            )),
            Self::PlannedDisk(error) => error.text(),
            Self::Weights(error) => error.text(),
            Self::Tensor(error) => error.text(),
            Self::DoesNotFit { planned_bytes, available_bytes } => {
                text::host_too_small(text::size(*planned_bytes), text::size(*available_bytes))
            }
            Self::Gpu(error) => error.text(),
            Self::OutOfMemory { error, holders } => out_of_memory::held(text::card_ran_out(error.text()), holders),
            Self::Trainer(error) => text::as_is(error.to_string()),
            Self::Training(error) => error.text(),
            Self::Signal(error) => text::as_is(format!("Ctrl-C cannot be listened for: {error}")),
            Self::Run(error) => error.text(),
        }
    }

    /// Suggested remedy.
    pub fn hint(&self) -> Option<Text> {
        match self {
            Self::Config(error) => error.hint().map(text::as_is),
            Self::Settings(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Data(error) => error.hint(),
            // The built-in data is written to the folder where the run starts.
            Self::Prepare(prepare::Error::Unwritable { error, .. })
                if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                Some(text::as_is("start it in a folder that you may write to, or name prepared data with --dataset="))
            }
            Self::Prepare(error) => error.hint().map(text::as_is),
            Self::Checkpoint(error) | Self::PlannedDisk(error) => error.hint(),
            Self::SeveralRuns { commands, .. } => {
                Some(text::as_is(format!("resume one of them:\n  {}", commands.join("\n  "))))
            }
            Self::OtherTokens(other) => {
                let own = other
                    .of_checkpoint
                    .as_ref()
                    .map(|name| format!("--dataset={name} resumes it; "))
                    .unwrap_or_default();
                Some(text::as_is(format!(
                    "{own}a new run on this data takes --init_from=scratch and another --out_dir="
                )))
            }
            Self::Weights(error) => error.hint(),
            Self::Gpu(error) => error.hint(),
            Self::Run(error) => error.hint(),
            Self::OutOfMemory { error, holders } => {
                let end = (!holders.is_empty()).then(|| text::TRY_END_HOLDERS.into());
                let tries: Vec<Text> = end.into_iter().chain(error.hint()).collect();
                (!tries.is_empty()).then(|| out_of_memory::joined(tries))
            }
            Self::DoesNotFit { .. } => {
                Some(out_of_memory::joined([text::TRY_SMALLER_BATCH, text::TRY_PLAN].map(Text::from)))
            }
            Self::Shape(_) | Self::Tensor(_) | Self::Trainer(_) | Self::Training(_) | Self::Signal(_) => None,
        }
    }

    /// Whether the GPU ran out of memory for an allocation beyond the plan.
    pub fn is_out_of_memory(&self) -> bool {
        let of = |error: &TrainingError| matches!(error, TrainingError::Cuda(error) if error.is_out_of_memory());
        match self {
            Self::Gpu(GpuError::Cuda { error, .. }) => error.is_out_of_memory(),
            Self::Training(error) => of(error),
            Self::Run(RunError::Training { error, .. }) => of(error),
            _ => false,
        }
    }

    /// Status entry for the end of a run by this error.
    pub fn ended(&self) -> ProgramEnd {
        let paragraphs = [self.text()].into_iter().chain(self.hint().map(text::tries));
        let reason = text::as_is(text::list(Separator::Paragraph, paragraphs)).into();
        let (iteration, checkpoint) = self.progress();
        ProgramEnd { iteration, checkpoint, reason: Some(reason), ..ProgramEnd::new(self.end()) }
    }

    fn end(&self) -> End {
        let lacks_memory = match self {
            Self::OutOfMemory { .. } | Self::Gpu(GpuError::Memory(_)) => true,
            Self::Gpu(GpuError::Cuda { error, .. })
                if matches!(**error, CudaError::NoRoomForContext { .. } | CudaError::OutOfDeviceMemory { .. }) =>
            {
                true
            }
            other => other.is_out_of_memory(),
        };
        match self {
            Self::Run(RunError::Diverged { .. } | RunError::Forgot { .. }) => End::Diverged,
            _ if lacks_memory => End::OutOfMemory,
            _ => End::Failed,
        }
    }

    /// Iteration at which the run ended, and iteration of its last checkpoint.
    fn progress(&self) -> (Option<u64>, Option<u64>) {
        match self {
            Self::Run(RunError::Checkpoint { iter, .. }) => (Some(*iter), None),
            Self::Run(
                RunError::Training { iter, kept, .. }
                | RunError::Diverged { iter, kept, .. }
                | RunError::Forgot { iter, kept, .. },
            ) => (Some(*iter), *kept),
            Self::OutOfMemory { error, .. } => error.progress(),
            _ => (None, None),
        }
    }

    /// Whether the request itself is invalid.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Config(_) | Self::Settings(_) | Self::Shape(_) | Self::Model(ModelError::Shape(_)) | Self::Tensor(_)
        )
    }

    /// Whether the cause is I/O: the system refused a file or directory, or a named one does not exist.
    pub fn is_input_output(&self) -> bool {
        match self {
            Self::Data(error) | Self::Run(RunError::Data(error)) => error.is_input_output(),
            Self::Prepare(error) => error.is_input_output(),
            Self::Checkpoint(error) | Self::Run(RunError::Checkpoint { error, .. }) => error.is_input_output(),
            Self::Weights(error) | Self::Model(ModelError::Weights(error)) => error.is_input_output(),
            Self::Model(ModelError::NoWeights { .. }) | Self::SeveralRuns { .. } | Self::Signal(_) => true,
            _ => false,
        }
    }
}
