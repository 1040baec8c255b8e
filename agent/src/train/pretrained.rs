//! Weights that a run, an export or a sample starts from: a checkpoint of ours, GPT-2's files, or what others wrote with
//! their names.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use headroom_kernels::{
    layout::{Layout, TooLarge},
    weights::{
        self, Catalogue, Hints, LoadError, MAX_CONFIG_JSON_BYTES, Note, WeightsError, keys, read_header, read_params,
    },
};
use headroom_shared::{
    gpt::{GptConfig, GptConfigError, GptShape, presets::GPT2_VOCAB_SIZE},
    text,
};
use thiserror::Error;

use super::checkpoint::{self, CheckpointError, Which};
use crate::data::tokenizer::{ReadError, Tokenizer, beside};

/// The weights' name in a folder of Hugging Face.
pub const MODEL_FILE: &str = "model.safetensors";
/// What lies beside them there.
pub const CONFIG_FILE: &str = "config.json";
/// The name of weights in a folder of Hugging Face that are still a pickle.
const PICKLE_FILE: &str = "pytorch_model.bin";

/// A model that can run.
#[derive(Clone, Debug)]
pub struct Pretrained {
    /// Its shape.
    pub config: GptConfig,
    /// Its weights, flat as [`Layout`] has them.
    pub params: Vec<f32>,
    /// Its tokenizer, where the file of the weights states it.
    pub stated: Option<weights::Tokenizer>,
    /// What a person should know of it.
    pub notes: Vec<Note>,
    /// The file that was read.
    pub path: PathBuf,
}

/// Why a model's tokenizer cannot be used.
#[derive(Debug, Error)]
pub enum TokenizerError {
    /// A character has two tokens.
    #[error("cannot use the tokenizer of {}: its vocabulary has {char:?} twice", .path.display())]
    Repeated {
        /// The file of the weights.
        path: PathBuf,
        /// The character.
        char: char,
    },
    /// The file beside the weights.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why there is no model.
#[derive(Debug, Error)]
pub enum PretrainedError {
    /// A folder without weights.
    #[error("{}", text::weights_neither(.dir.display().to_string(), checkpoint::FILE, MODEL_FILE))]
    NoWeights {
        /// The folder.
        dir: PathBuf,
    },
    /// The file, or the one beside it.
    #[error("{}", text::file_unreadable(.path.display().to_string(), error.to_string()))]
    Read {
        /// What the system says.
        error: io::Error,
        /// The file.
        path: PathBuf,
    },
    /// What is in it.
    #[error("{}: {error}", .path.display())]
    Load {
        /// What is wrong.
        error: Box<LoadError>,
        /// The file.
        path: PathBuf,
    },
    /// A checkpoint of ours.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A run that asks for another shape than the weights have.
    #[error(transparent)]
    Config(#[from] GptConfigError),
    /// No address fits.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl PretrainedError {
    /// Whether the system refused a file or a folder, or a named one does not exist.
    #[must_use]
    pub fn is_input_output(&self) -> bool {
        match self {
            Self::NoWeights { .. } | Self::Read { .. } => true,
            Self::Load { error, .. } => matches!(**error, LoadError::Io(_)),
            Self::Checkpoint(error) => error.is_input_output(),
            Self::Config(_) | Self::TooLarge(_) => false,
        }
    }

    /// What to try.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoWeights { .. } => Some(format!(
                "name a run's out_dir, a folder with {MODEL_FILE} and {CONFIG_FILE}, or a safetensors file"
            )),
            Self::Load { error, .. } => match &**error {
                LoadError::Weights(error) => error.hint().map(|hint| hint.to_string()),
                LoadError::Io(_) | LoadError::OutOfMemory { .. } => None,
            },
            Self::Checkpoint(error) => error.hint(),
            Self::Read { .. } | Self::Config(_) | Self::TooLarge(_) => None,
        }
    }
}

impl Pretrained {
    /// Reads a run's folder, a folder of Hugging Face, or a safetensors file with its `config.json` beside it, if any. Of
    /// a run's two checkpoints it reads the one that `which` says.
    ///
    /// # Errors
    /// There is none, it cannot be read, or it is no GPT-2.
    pub fn load(path: &Path, which: Which) -> Result<Self, PretrainedError> {
        let path = weights_file(path, which)?;
        let unread = |error: io::Error| PretrainedError::Read { error, path: path.clone() };
        let broken = |error: LoadError| PretrainedError::Load { error: Box::new(error), path: path.clone() };
        let mut file = File::open(&path).map_err(unread)?;
        let header = read_header(&mut file).map_err(broken)?;
        let metadata = header.metadata();
        if metadata.contains_key(keys::HEADROOM) && metadata.contains_key(keys::STATE) {
            // Only there are checksums to hold it against.
            let (meta, params) = checkpoint::load_weights(&path)?;
            return Ok(Self { config: meta.gpt, params, stated: meta.tokenizer, notes: Vec::new(), path });
        }
        let catalogue = Catalogue::new(&header, &hints_beside(&path)?).map_err(|error| broken(error.into()))?;
        let params = read_params(&mut file, &catalogue).map_err(broken)?;
        let config = *catalogue.config();
        let (stated, notes) = (catalogue.tokenizer().cloned(), catalogue.notes().to_vec());
        Ok(Self { config, params, stated, notes, path })
    }

    /// The model's tokenizer: as the file of the weights states it, else from a tokenizer file beside that, else GPT-2's
    /// where the vocabulary has its size; `None` where nothing of that is known.
    ///
    /// # Errors
    /// It cannot be read or used.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, TokenizerError> {
        if let Some(stated) = &self.stated {
            let repeated = |char| TokenizerError::Repeated { path: self.path.clone(), char };
            return Tokenizer::of_kept(stated).map(Some).map_err(|twice| repeated(twice.0));
        }
        let of_gpt2 = (self.config.vocab_size() == GPT2_VOCAB_SIZE).then_some(Tokenizer::Gpt2);
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match (beside(folder.unwrap_or(Path::new("."))), of_gpt2) {
            (Ok(Some(found)), _) => Ok(Some(found)),
            (_, Some(gpt2)) => Ok(Some(gpt2)),
            (found, None) => Ok(found?),
        }
    }

    /// The shape of what [`Self::load`] reads and what a person should know of it, by its header and the `config.json`
    /// beside it.
    ///
    /// # Errors
    /// As [`Self::load`], as far as no tensor is read.
    pub fn shape(path: &Path) -> Result<(GptConfig, Vec<Note>), PretrainedError> {
        let path = weights_file(path, Which::default())?;
        let unread = |error: io::Error| PretrainedError::Read { error, path: path.clone() };
        let broken = |error: LoadError| PretrainedError::Load { error: Box::new(error), path: path.clone() };
        // A pipe would hold its reader.
        if !path.metadata().map_err(unread)?.is_file() {
            return Err(PretrainedError::NoWeights { dir: path.clone() });
        }
        let header = read_header(&mut File::open(&path).map_err(unread)?).map_err(broken)?;
        let metadata = header.metadata();
        if metadata.contains_key(keys::HEADROOM) && metadata.contains_key(keys::STATE) {
            return Ok((checkpoint::load_meta(&path)?.gpt, vec![]));
        }
        let catalogue = Catalogue::new(&header, &hints_beside(&path)?).map_err(|error| broken(error.into()))?;
        Ok((*catalogue.config(), catalogue.notes().to_vec()))
    }

    /// The same model for shorter sequences, as nanoGPT's `crop_block_size` makes it, and with another dropout. One of
    /// fewer tokens a sequence than asked for keeps its own number.
    ///
    /// # Errors
    /// The dropout is none, or `block_size` is 0.
    pub fn fitted(self, block_size: u64, dropout: f64) -> Result<Self, PretrainedError> {
        let block_size = block_size.min(self.config.block_size());
        let config = GptConfig::new(GptShape { block_size, dropout, ..self.config.shape() })?;
        let (old, new) = (Layout::new(&self.config)?, Layout::new(&config)?);
        let mut params = Vec::with_capacity(new.len());
        for (old, new) in old.entries().iter().zip(new.entries()) {
            // The first positions' rows are the first elements.
            params.extend(&self.params[old.range.clone()][..new.range.len()]);
        }
        Ok(Self { config, params, ..self })
    }
}

fn weights_file(path: &Path, which: Which) -> Result<PathBuf, PretrainedError> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let named = |name: &str| Some(path.join(name)).filter(|file| file.exists());
    let found = checkpoint::chosen(path, which).or_else(|| named(MODEL_FILE));
    // A pickle is not read; its header says so, with what to do.
    let found = found.or_else(|| checkpoint::unconverted(path)).or_else(|| named(PICKLE_FILE));
    found.ok_or_else(|| PretrainedError::NoWeights { dir: path.to_path_buf() })
}

/// What a `config.json` beside the weights says; nothing where there is none.
fn hints_beside(weights: &Path) -> Result<Hints, PretrainedError> {
    let path = weights.with_file_name(CONFIG_FILE);
    let mut text = Vec::new();
    // One byte more than is read, so that the reader sees what is too long.
    match File::open(&path).and_then(|file| file.take(MAX_CONFIG_JSON_BYTES + 1).read_to_end(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Hints::default()),
        Err(error) => return Err(PretrainedError::Read { error, path }),
    }
    let told = |error: WeightsError| PretrainedError::Load { error: Box::new(error.into()), path };
    Hints::from_config_json(&text).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_kernels::weights::{Naming, write_model};
    use std::{collections::BTreeMap, fs};

    fn model() -> (GptConfig, Vec<f32>) {
        let shape =
            GptShape { n_layer: 2, n_head: 1, n_embd: 64, block_size: 6, vocab_size: 10, dropout: 0.0, bias: true };
        let config = GptConfig::new(shape).expect("valid");
        let n = u16::try_from(config.n_parameters().expect("few") % 60_000).expect("few");
        let len = Layout::new(&config).expect("small").len();
        (config, (0..n).cycle().map(f32::from).take(len).collect())
    }

    fn load(path: &Path) -> Result<Pretrained, PretrainedError> {
        Pretrained::load(path, Which::default())
    }

    #[test]
    fn a_folder_of_hugging_face_is_read_with_its_config() {
        let dir = tempfile::tempdir().expect("a folder");
        let (config, params) = model();
        assert!(matches!(load(dir.path()), Err(PretrainedError::NoWeights { .. })));
        let mut file = Vec::new();
        write_model(&mut file, &config, &params, Naming::HuggingFace, &BTreeMap::new()).expect("written");
        fs::write(dir.path().join(MODEL_FILE), &file).expect("written");
        let read = load(dir.path()).expect("a model");
        assert_eq!((read.config, &read.params), (config, &params));
        assert_eq!(read.notes, [Note::HeadsAssumed { n_head: 1 }]);
        fs::write(dir.path().join(CONFIG_FILE), r#"{"n_head":4,"activation_function":"gelu"}"#).expect("written");
        let read = load(&dir.path().join(MODEL_FILE)).expect("a model");
        assert_eq!((read.config.n_head(), read.notes), (4, vec![]));
        fs::write(dir.path().join(CONFIG_FILE), r#"{"n_embd":768}"#).expect("written");
        let error = load(dir.path()).expect_err("another model's config");
        assert!(
            error
                .to_string()
                .ends_with("n_embd is 768 by config.json, and 64 by the tensors' shapes: they are not of one model"),
            "{error}"
        );
        assert!(error.hint().is_some());
    }

    #[test]
    fn shorter_sequences_keep_the_first_positions() {
        let (config, params) = model();
        let whole = Pretrained { config, params, stated: None, notes: vec![], path: PathBuf::new() };
        let cropped = whole.clone().fitted(4, 0.1).expect("valid");
        assert_eq!((cropped.config.block_size(), cropped.config.dropout()), (4, 0.1));
        let wpe = 10 * 64;
        assert_eq!(cropped.params[..wpe + 4 * 64], whole.params[..wpe + 4 * 64]);
        assert_eq!(cropped.params[wpe + 4 * 64..], whole.params[wpe + 6 * 64..]);
        assert_eq!(whole.clone().fitted(1024, 0.0).expect("valid").params, whole.params);
    }
}
