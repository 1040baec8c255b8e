//! A run's model: its shape by its keys, its data and what it starts from, found without reading a weight.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use headroom_shared::{
    gpt::{GptConfig, GptConfigError, GptShape},
    text,
};
use thiserror::Error;

use super::{
    checkpoint::Meta,
    pretrained::{MODEL_FILE, Pretrained, PretrainedError},
    settings::{InitFrom, RunSettings},
};
use crate::data::dataset::Dataset;

/// Names of OpenAI's models, which Hugging Face's tools download.
const GPT2: [&str; 4] = ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"];

/// Why a run has no model.
#[derive(Debug, Error)]
pub enum ModelError {
    /// What a checkpoint's or the data's vocabulary makes of the shape.
    #[error(transparent)]
    Shape(#[from] GptConfigError),
    /// A vocabulary that the data leave.
    #[error("{}", text::other_vocabulary(*model, dataset.as_str(), *data))]
    Vocabulary {
        /// The model's.
        model: u64,
        /// The data's.
        data: u64,
        /// Its name.
        dataset: String,
    },
    /// Weights.
    #[error(transparent)]
    Weights(#[from] PretrainedError),
    /// Weights that are named and not here.
    #[error("{}", text::weights_none(format!("{name:?}")))]
    NoWeights {
        /// As given.
        name: String,
    },
}

impl ModelError {
    /// What to try instead.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Shape(_) => None,
            Self::Weights(error) => error.hint(),
            Self::Vocabulary { .. } => Some(text::TRY_OTHER_VOCABULARY.to_string()),
            Self::NoWeights { .. } => Some(text::TRY_INIT_FROM.to_string()),
        }
    }
}

/// The token ids of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// All are below this.
    pub count: u64,
    /// Whether the data say so; else one beyond the model is found as it is read.
    pub is_known: bool,
}

impl Ids {
    /// Those of a data set: without a meta.pkl nothing says how many there are.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        Self { count: u64::from(dataset.vocab_size()), is_known: dataset.has_meta() }
    }
}

/// A fresh model's shape: its vocabulary is the data's where no key says it.
///
/// # Errors
/// There is none such, or it has fewer tokens than the data.
pub fn fresh(run: &RunSettings, ids: Ids) -> Result<GptConfig, ModelError> {
    let vocab_size = if run.names_vocab_size { run.shape.vocab_size } else { ids.count };
    enough(GptConfig::new(GptShape { vocab_size, ..run.shape })?, run, ids)
}

/// A model that has a row for every token of the data.
///
/// # Errors
/// It has fewer.
pub fn enough(gpt: GptConfig, run: &RunSettings, ids: Ids) -> Result<GptConfig, ModelError> {
    let needed = if ids.is_known { ids.count } else { 0 };
    match gpt.vocab_size() {
        model if model < needed => Err(ModelError::Vocabulary { model, data: needed, dataset: run.dataset.clone() }),
        _ => Ok(gpt),
    }
}

/// The shape of the model that a run begins with, as far as headers say it; a path counts from `here`.
///
/// # Errors
/// What the run would end with before its first iteration for want of a model.
pub fn check(run: &RunSettings, ids: Ids, here: &Path) -> Result<GptConfig, ModelError> {
    match &run.init_from {
        InitFrom::Weights(name) => of_weights(run, ids, Pretrained::shape(&weights(name, here)?)?.0),
        InitFrom::Scratch | InitFrom::Resume => fresh(run, ids),
    }
}

/// The shape of a model that begins with weights of a shape: for shorter sequences where the keys ask for those, as
/// [`Pretrained::fitted`] makes it.
///
/// # Errors
/// There is none such, or it has fewer tokens than the data.
pub fn of_weights(run: &RunSettings, ids: Ids, weights: GptConfig) -> Result<GptConfig, ModelError> {
    let block_size = run.shape.block_size.min(weights.block_size());
    enough(GptConfig::new(GptShape { block_size, dropout: run.shape.dropout, ..weights.shape() })?, run, ids)
}

/// The shape of a model that goes on from a checkpoint: it is the checkpoint's, and what it drops is the run's.
///
/// # Errors
/// There is none such, or it has fewer tokens than the data.
pub fn of_checkpoint(run: &RunSettings, ids: Ids, meta: &Meta) -> Result<GptConfig, ModelError> {
    enough(GptConfig::new(GptShape { dropout: run.shape.dropout, ..meta.gpt.shape() })?, run, ids)
}

/// Where weights of that name are: the path itself, from `here`, or what Hugging Face's tools have downloaded.
///
/// # Errors
/// They are not on this machine.
pub fn weights(name: &str, here: &Path) -> Result<PathBuf, ModelError> {
    let path = here.join(name);
    // Without a name it would be the folder itself.
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
    snapshots.flatten().flatten().map(|snapshot| snapshot.path()).find(|path| path.join(MODEL_FILE).exists())
}
