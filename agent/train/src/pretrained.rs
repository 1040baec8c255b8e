//! Initial weights of a run, an export or a sample: a Headroom checkpoint, GPT-2's files, or other files with their
//! names.

use std::{
    fs::File,
    io::{self, Read, Seek},
    path::{Path, PathBuf},
};

use headroom_kernels::{
    layout::{Layout, TooLarge},
    weights::{
        self, Catalogue, Header, Hints, LoadError, MAX_CONFIG_JSON_BYTES, Note, WeightsError, keys, read_header,
        read_params,
    },
};
use headroom_planner::gpt::{GptConfig, GptConfigError, GptShape, presets::GPT2_VOCAB_SIZE};
use headroom_text::{self as text, Text};
use thiserror::Error;

use super::{
    checkpoint::{
        self, CheckpointChoice, CheckpointError,
        pytorch::{self, Archive, PytorchError},
    },
    shards::{INDEX_FILE, Shards, ShardsError, is_index},
};
use crate::data::{
    dataset::META,
    tokenizer::{self, ReadError, Tokenizer, beside},
};

/// The name of the weights in a directory of Hugging Face.
pub const MODEL_FILE: &str = "model.safetensors";
/// The name of the config beside them.
pub const CONFIG_FILE: &str = "config.json";
/// The name of weights in a directory of Hugging Face that are still a pickle.
const PICKLE_FILE: &str = "pytorch_model.bin";

/// A loaded model.
#[derive(Clone, Debug)]
pub struct Pretrained {
    /// The model's shape.
    pub config: GptConfig,
    /// Its weights, flat in the order of [`Layout`].
    pub params: Vec<f32>,
    /// Its tokenizer, if the file of the weights states one.
    pub stated: Option<weights::Tokenizer>,
    /// Remarks for the user.
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
    /// The tokenizer file beside the weights cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a model cannot be loaded.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum PretrainedError {
    /// The directory has no weights.
    NoWeights { dir: PathBuf },
    /// The file of the weights, or the config beside it, cannot be read.
    Read {
        /// The system's error.
        error: io::Error,
        /// The path of that file.
        path: PathBuf,
    },
    /// The content of the file is invalid.
    Load {
        /// The cause.
        error: Box<LoadError>,
        /// The path of the file.
        path: PathBuf,
    },
    /// Sharded weights cannot be read.
    Shards(#[from] ShardsError),
    /// A Headroom checkpoint cannot be read.
    Checkpoint(#[from] CheckpointError),
    /// The run's shape does not match the weights.
    Config(#[from] GptConfigError),
    /// The model exceeds the address space.
    TooLarge(#[from] TooLarge),
}

impl PretrainedError {
    /// Returns the error as a text.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::NoWeights { dir } => text::weights_neither(dir.display().to_string(), checkpoint::FILE, MODEL_FILE),
            Self::Read { error, path } => text::file_unreadable(path.display().to_string(), error.to_string()),
            Self::Load { error, path } => match &**error {
                LoadError::Io(error) => text::file_unreadable(path.display().to_string(), error.to_string()),
                error => text::as_is(format!("cannot load {}: {error}", path.display())),
            },
            Self::Shards(error) => text::as_is(error.to_string()),
            Self::Checkpoint(error) => error.text(),
            Self::Config(error) => error.text(),
            Self::TooLarge(error) => text::as_is(error.to_string()),
        }
    }

    /// Returns whether the system refused a file or a directory, or a named one does not exist.
    #[must_use]
    pub fn is_input_output(&self) -> bool {
        match self {
            Self::NoWeights { .. } | Self::Read { .. } => true,
            Self::Load { error, .. } => matches!(**error, LoadError::Io(_)),
            Self::Shards(error) => error.is_input_output(),
            Self::Checkpoint(error) => error.is_input_output(),
            Self::Config(_) | Self::TooLarge(_) => false,
        }
    }

    /// Returns a suggestion for the user.
    #[must_use]
    pub fn hint(&self) -> Option<Text> {
        match self {
            Self::NoWeights { .. } => Some(text::as_is(format!(
                "name a run's out_dir, a folder with {MODEL_FILE} and {CONFIG_FILE}, or a safetensors file"
            ))),
            Self::Load { error, .. } => match &**error {
                LoadError::Weights(error) => error.hint().map(Text::from),
                LoadError::Io(_) | LoadError::OutOfMemory { .. } => None,
            },
            Self::Shards(error) => error.hint().map(text::as_is),
            Self::Checkpoint(error) => error.hint(),
            Self::Read { .. } | Self::Config(_) | Self::TooLarge(_) => None,
        }
    }
}

impl Pretrained {
    /// Reads a run's directory, a directory of Hugging Face, or a safetensors file or an index of shards with an
    /// optional `config.json` beside it. `which` selects between a run's two checkpoints.
    ///
    /// # Errors
    /// There are no weights, they cannot be read, or they are not a GPT-2.
    pub fn load(path: &Path, which: CheckpointChoice) -> Result<Self, PretrainedError> {
        let path = weights_file(path, which)?;
        let broken = |error: LoadError| PretrainedError::Load { error: Box::new(error), path: path.clone() };
        if pytorch::is_archive(&path) {
            return Self::of_archive(path);
        }
        let (header, mut file) = opened(&path)?;
        let metadata = header.metadata();
        if metadata.contains_key(keys::HEADROOM) && metadata.contains_key(keys::STATE) {
            // Only Headroom's checkpoints have checksums to verify.
            let (meta, params) = checkpoint::load_weights(&path)?;
            return Ok(Self { config: meta.gpt, params, stated: meta.tokenizer, notes: Vec::new(), path });
        }
        let catalogue = Catalogue::new(&header, &hints_beside(&path)?).map_err(|error| broken(error.into()))?;
        let params = read_params(&mut file, &catalogue).map_err(broken)?;
        let config = *catalogue.config();
        let (stated, notes) = (catalogue.tokenizer().cloned(), catalogue.notes().to_vec());
        Ok(Self { config, params, stated, notes, path })
    }

    fn of_archive(path: PathBuf) -> Result<Self, PretrainedError> {
        let failed = |error| of_pytorch(error, &path);
        let archive = Archive::open(&path).map_err(failed)?;
        let catalogue = catalogue_of(&archive, &path)?;
        let params = archive.params(&catalogue).map_err(failed)?;
        let (config, notes) = (*catalogue.config(), catalogue.notes().to_vec());
        let stated = archive_tokenizer(&archive, &path, config.vocab_size());
        Ok(Self { config, params, stated, notes, path })
    }

    /// Returns the model's tokenizer: the one stated with the weights, or one from a tokenizer file beside them, or
    /// GPT-2's if the vocabulary has its size. Otherwise `None`.
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

    /// Returns the tokenizer that a checkpoint or a file of weights states in its header, or `None`.
    ///
    /// # Errors
    /// Those of [`Self::load`] that do not concern tensors.
    pub fn stated_tokenizer(path: &Path) -> Result<Option<weights::Tokenizer>, PretrainedError> {
        let path = weights_file(path, CheckpointChoice::default())?;
        let broken = |error: LoadError| PretrainedError::Load { error: Box::new(error), path: path.clone() };
        if pytorch::is_archive(&path) {
            let archive = Archive::open(&path).map_err(|error| of_pytorch(error, &path))?;
            let vocab_size = catalogue_of(&archive, &path)?.config().vocab_size();
            return Ok(archive_tokenizer(&archive, &path, vocab_size));
        }
        let (header, _) = opened(&path)?;
        if header.metadata().contains_key(keys::STATE) {
            return Ok(checkpoint::load_meta(&path)?.tokenizer);
        }
        let catalogue = Catalogue::new(&header, &hints_beside(&path)?).map_err(|error| broken(error.into()))?;
        Ok(catalogue.tokenizer().cloned())
    }

    /// Returns the shape that [`Self::load`] would read, and remarks for the user, from the header and the
    /// `config.json` beside it.
    ///
    /// # Errors
    /// Those of [`Self::load`] that do not concern tensors.
    pub fn shape(path: &Path) -> Result<(GptConfig, Vec<Note>), PretrainedError> {
        let path = weights_file(path, CheckpointChoice::default())?;
        let unread = |error: io::Error| PretrainedError::Read { error, path: path.clone() };
        let broken = |error: LoadError| PretrainedError::Load { error: Box::new(error), path: path.clone() };
        // Opening a pipe would block.
        if !path.metadata().map_err(unread)?.is_file() {
            return Err(PretrainedError::NoWeights { dir: path.clone() });
        }
        if pytorch::is_archive(&path) {
            let archive = Archive::open(&path).map_err(|error| of_pytorch(error, &path))?;
            let catalogue = catalogue_of(&archive, &path)?;
            return Ok((*catalogue.config(), catalogue.notes().to_vec()));
        }
        let (header, _) = opened(&path)?;
        let metadata = header.metadata();
        if metadata.contains_key(keys::HEADROOM) && metadata.contains_key(keys::STATE) {
            return Ok((checkpoint::load_meta(&path)?.gpt, vec![]));
        }
        let catalogue = Catalogue::new(&header, &hints_beside(&path)?).map_err(|error| broken(error.into()))?;
        Ok((*catalogue.config(), catalogue.notes().to_vec()))
    }

    /// Crops the model to `block_size`, as nanoGPT's `crop_block_size` does, and sets its dropout. A model with a
    /// smaller `block_size` keeps its own.
    ///
    /// # Errors
    /// The dropout is invalid, or `block_size` is 0.
    pub fn fitted(self, block_size: u64, dropout: f64) -> Result<Self, PretrainedError> {
        let block_size = block_size.min(self.config.block_size());
        let config = GptConfig::new(GptShape { block_size, dropout, ..self.config.shape() })?;
        let (old, new) = (Layout::new(&self.config)?, Layout::new(&config)?);
        let mut params = Vec::with_capacity(new.len());
        for (old, new) in old.entries().iter().zip(new.entries()) {
            // The rows of the first positions are the first elements.
            params.extend(&self.params[old.range.clone()][..new.range.len()]);
        }
        Ok(Self { config, params, ..self })
    }
}

/// A file of weights, or the shards of a model.
trait Source: Read + Seek {}

impl<T: Read + Seek> Source for T {}

/// Opens a safetensors file, or the shards that an index names, and reads the header.
fn opened(path: &Path) -> Result<(Header, Box<dyn Source>), PretrainedError> {
    if is_index(path) {
        let (header, shards) = Shards::open(path)?;
        return Ok((header, Box::new(shards)));
    }
    let mut file = File::open(path).map_err(|error| PretrainedError::Read { error, path: path.to_path_buf() })?;
    let header = read_header(&mut file)
        .map_err(|error| PretrainedError::Load { error: Box::new(error), path: path.to_path_buf() })?;
    Ok((header, Box::new(file)))
}

fn of_pytorch(error: PytorchError, path: &Path) -> PretrainedError {
    CheckpointError::PyTorch { error: Box::new(error), path: path.to_path_buf() }.into()
}

fn catalogue_of(archive: &Archive, path: &Path) -> Result<Catalogue, PretrainedError> {
    let hints = hints_beside(path)?;
    let catalogue = archive.header().and_then(|header| Ok(Catalogue::new(&header, &hints)?));
    catalogue.map_err(|error| of_pytorch(error, path))
}

/// Returns the tokenizer of a nanoGPT checkpoint, as sample.py finds it: that of the data set's `meta.pkl`, otherwise
/// GPT-2's. The data set is searched below the current directory and below the parent of `out_dir`.
fn archive_tokenizer(archive: &Archive, path: &Path, vocab_size: u64) -> Option<weights::Tokenizer> {
    let dataset = archive.dataset()?;
    let beside = path.parent().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    let folders = [Some(Path::new(".")), beside].into_iter().flatten();
    let mut metas = folders.map(|folder| folder.join("data").join(&dataset).join(META));
    if let Some(meta) = metas.find(|meta| meta.is_file()) {
        return tokenizer::read(&meta).ok()?.kept();
    }
    GPT2_VOCAB_SIZES.contains(&vocab_size).then_some(weights::Tokenizer::Gpt2)
}

/// GPT-2's vocabulary size, and its value after nanoGPT's padding.
const GPT2_VOCAB_SIZES: [u64; 2] = [GPT2_VOCAB_SIZE, 50_304];

fn weights_file(path: &Path, which: CheckpointChoice) -> Result<PathBuf, PretrainedError> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let named = |name: &str| Some(path.join(name)).filter(|file| file.exists());
    let found = checkpoint::chosen(path, which).or_else(|| named(MODEL_FILE)).or_else(|| named(INDEX_FILE));
    let found = found.or_else(|| checkpoint::of_nanogpt(path)).or_else(|| named(PICKLE_FILE));
    found.ok_or_else(|| PretrainedError::NoWeights { dir: path.to_path_buf() })
}

/// Reads the `config.json` beside the weights. Returns empty hints if the file does not exist.
fn hints_beside(weights: &Path) -> Result<Hints, PretrainedError> {
    let path = weights.with_file_name(CONFIG_FILE);
    let mut text = Vec::new();
    // One byte more than the limit, so that the parser can reject a longer file.
    match File::open(&path).and_then(|file| file.take(MAX_CONFIG_JSON_BYTES + 1).read_to_end(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Hints::default()),
        Err(error) => return Err(PretrainedError::Read { error, path }),
    }
    let load_error = |error: WeightsError| PretrainedError::Load { error: Box::new(error.into()), path };
    Hints::from_config_json(&text).map_err(load_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_kernels::weights::{NamingScheme, write_model};
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
        Pretrained::load(path, CheckpointChoice::default())
    }

    #[test]
    fn a_folder_of_hugging_face_is_read_with_its_config() {
        let dir = tempfile::tempdir().expect("a folder");
        let (config, params) = model();
        assert!(matches!(load(dir.path()), Err(PretrainedError::NoWeights { .. })));
        let mut file = Vec::new();
        write_model(&mut file, &config, &params, NamingScheme::HuggingFace, &BTreeMap::new()).expect("written");
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
                .ends_with("n_embd is 768 in config.json but 64 in the tensors: they are from different models"),
            "{error}"
        );
        assert!(error.hint().is_some());
    }

    #[test]
    fn sharded_model_is_read_as_one_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let (config, params) = model();
        let mut whole = Vec::new();
        write_model(&mut whole, &config, &params, NamingScheme::HuggingFace, &BTreeMap::new()).expect("written");
        let header = read_header(&mut io::Cursor::new(&whole)).expect("a header");
        let shard = |i: usize| format!("model-0000{}-of-00003.safetensors", i + 1);
        let mut weight_map = BTreeMap::new();
        // Every third tensor is in the same shard, so that each layer spans all of them.
        for i in 0..3 {
            let (mut entries, mut data) = (serde_json::Map::new(), vec![]);
            for (name, info) in header.tensors().iter().skip(i).step_by(3) {
                let [from, to] = [info.range.start, info.range.end].map(|at| usize::try_from(at).expect("small"));
                let start = data.len();
                data.extend_from_slice(&whole[from..to]);
                let entry = serde_json::json!({
                    "dtype": info.dtype, "shape": info.shape, "data_offsets": [start, data.len()]
                });
                entries.insert(name.clone(), entry);
                weight_map.insert(name.clone(), shard(i));
            }
            let text = serde_json::to_vec(&entries).expect("JSON");
            let bytes = [&(text.len() as u64).to_le_bytes()[..], &text, &data].concat();
            fs::write(dir.path().join(shard(i)), bytes).expect("written");
        }
        let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": weight_map });
        fs::write(dir.path().join(INDEX_FILE), index.to_string()).expect("written");
        fs::write(dir.path().join(CONFIG_FILE), r#"{"n_head":1}"#).expect("written");
        for path in [dir.path().to_path_buf(), dir.path().join(INDEX_FILE)] {
            let read = load(&path).expect("a model");
            assert_eq!((read.config, &read.params), (config, &params));
            assert_eq!(Pretrained::shape(&path).expect("a shape").0, config);
        }
        // A tensor that the index places in another shard, and then a missing shard.
        let other = index.to_string().replacen(&shard(0), &shard(1), 1);
        fs::write(dir.path().join(INDEX_FILE), other).expect("written");
        let error = load(dir.path()).expect_err("not in that shard");
        assert!(error.to_string().contains(&format!("its shard {} lacks the tensor", shard(1))), "{error}");
        fs::write(dir.path().join(INDEX_FILE), index.to_string()).expect("written");
        fs::remove_file(dir.path().join(shard(1))).expect("removed");
        let error = load(dir.path()).expect_err("a shard is missing");
        assert!(error.to_string().ends_with(&format!("its shard {} is missing", shard(1))), "{error}");
        assert!(error.is_input_output() && error.hint().is_some());
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
