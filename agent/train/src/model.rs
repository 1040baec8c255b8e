//! A run's model: its shape from the settings, the data and the initial weights, found without reading a weight.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use headroom_planner::gpt::{GptConfig, GptConfigError, GptShape};
use headroom_text::{self as text, Text};
use thiserror::Error;

use super::{
    checkpoint::Meta,
    pretrained::{MODEL_FILE, Pretrained, PretrainedError},
    settings::{InitFrom, RunSettings},
    shards::INDEX_FILE,
};
use crate::data::dataset::Dataset;

/// Names of OpenAI's models that Hugging Face's tools download.
const GPT2: [&str; 4] = ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"];

/// Why a run has no model.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum ModelError {
    /// A vocabulary size that makes the shape invalid, from a checkpoint or from the data.
    Shape(#[from] GptConfigError),
    /// The model's vocabulary is smaller than the data's.
    Vocabulary {
        /// The model's vocabulary size.
        model: u64,
        /// The data's vocabulary size.
        data: u64,
        /// The data set's name.
        dataset: String,
    },
    /// The weights cannot be loaded.
    Weights(#[from] PretrainedError),
    /// The named weights are not on this machine.
    NoWeights {
        /// The name as given.
        name: String,
    },
}

impl ModelError {
    /// Returns the error as a text.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Shape(error) => error.text(),
            Self::Vocabulary { model, data, dataset } => text::other_vocabulary(*model, dataset.as_str(), *data),
            Self::Weights(error) => error.text(),
            Self::NoWeights { name } => text::weights_none(format!("{name:?}")),
        }
    }

    /// Returns a suggestion for the user.
    #[must_use]
    pub fn hint(&self) -> Option<Text> {
        match self {
            Self::Shape(_) => None,
            Self::Weights(error) => error.hint(),
            Self::Vocabulary { .. } => Some(text::TRY_OTHER_VOCABULARY.into()),
            Self::NoWeights { .. } => Some(text::TRY_INIT_FROM.into()),
        }
    }
}

/// The token ids of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Upper bound of the ids, exclusive.
    pub count: u64,
    /// Whether the data set states the bound. Otherwise an id beyond the model is found only when it is read.
    pub is_known: bool,
}

impl Ids {
    /// Returns the ids of a data set. Without a meta.pkl the bound is unknown.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        Self { count: u64::from(dataset.vocab_size()), is_known: dataset.has_meta() }
    }
}

/// Returns a new model's shape. Its vocabulary size defaults to the data's.
///
/// # Errors
/// The shape is invalid, or its vocabulary is smaller than the data's.
pub fn fresh(run: &RunSettings, ids: Ids) -> Result<GptConfig, ModelError> {
    let vocab_size = if run.names_vocab_size { run.shape.vocab_size } else { ids.count };
    enough(GptConfig::new(GptShape { vocab_size, ..run.shape })?, run, ids)
}

/// Checks that a model has a row for every token of the data.
///
/// # Errors
/// Its vocabulary is smaller.
pub fn enough(gpt: GptConfig, run: &RunSettings, ids: Ids) -> Result<GptConfig, ModelError> {
    let needed = if ids.is_known { ids.count } else { 0 };
    match gpt.vocab_size() {
        model if model < needed => Err(ModelError::Vocabulary { model, data: needed, dataset: run.dataset.clone() }),
        _ => Ok(gpt),
    }
}

/// Returns the shape of a run's initial model, from headers alone. Relative paths start at `here`.
///
/// # Errors
/// The run would fail before its first iteration because its model is missing or invalid.
pub fn check(run: &RunSettings, ids: Ids, here: &Path) -> Result<GptConfig, ModelError> {
    match &run.init_from {
        InitFrom::Weights(name) => of_weights(run, ids, Pretrained::shape(&weights(name, here)?)?.0),
        InitFrom::Scratch | InitFrom::Resume => fresh(run, ids),
    }
}

/// Returns the shape of a model that starts from pretrained weights. A smaller `block_size` crops it, as
/// [`Pretrained::fitted`] does.
///
/// # Errors
/// The shape is invalid, or its vocabulary is smaller than the data's.
pub fn of_weights(run: &RunSettings, ids: Ids, weights: GptConfig) -> Result<GptConfig, ModelError> {
    let block_size = run.shape.block_size.min(weights.block_size());
    enough(GptConfig::new(GptShape { block_size, dropout: run.shape.dropout, ..weights.shape() })?, run, ids)
}

/// Returns the shape of a model that resumes from a checkpoint: the checkpoint's shape with the run's dropout.
///
/// # Errors
/// The shape is invalid, or its vocabulary is smaller than the data's.
pub fn of_checkpoint(run: &RunSettings, ids: Ids, meta: &Meta) -> Result<GptConfig, ModelError> {
    enough(GptConfig::new(GptShape { dropout: run.shape.dropout, ..meta.gpt.shape() })?, run, ids)
}

/// Returns the path of the named weights: the path itself, relative to `here`, or a download of Hugging Face's tools.
///
/// # Errors
/// They are not on this machine.
pub fn weights(name: &str, here: &Path) -> Result<PathBuf, ModelError> {
    let path = here.join(name);
    // An empty name would be the directory itself.
    if !name.is_empty() && path.exists() {
        return Ok(path);
    }
    downloaded(name).ok_or_else(|| ModelError::NoWeights { name: name.to_owned() })
}

fn downloaded(name: &str) -> Option<PathBuf> {
    if !GPT2.contains(&name) {
        return None;
    }
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").or_else(|| variable("USERPROFILE"));
    let hub = variable("HF_HUB_CACHE")
        .or_else(|| Some(variable("HF_HOME")?.join("hub")))
        .or_else(|| Some(home()?.join(".cache/huggingface/hub")))?;
    let folders = [format!("models--{name}"), format!("models--openai-community--{name}")];
    let snapshots = folders.iter().filter_map(|folder| fs::read_dir(hub.join(folder).join("snapshots")).ok());
    snapshots
        .flatten()
        .flatten()
        .map(|snapshot| snapshot.path())
        .find(|path| [MODEL_FILE, INDEX_FILE].into_iter().any(|name| path.join(name).exists()))
}
