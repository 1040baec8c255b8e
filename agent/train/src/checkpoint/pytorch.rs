//! Archives of `torch.save`: nanoGPT's `ckpt.pt`, and bare state dicts such as Hugging Face's `pytorch_model.bin`.
//!
//! An archive is an uncompressed zip file with a pickle and the elements of each tensor. [`Pickle`] parses the
//! pickle without executing anything. The tensors become a [`Header`] for the safetensors reader.

mod tensor;
mod write;

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Read as _, Seek, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
};

use headroom_kernels::{
    layout::Layout,
    weights::{Catalogue, Header, Hints, LoadError, TensorInfo, WeightsError, keys, read_params, zeros},
};
use headroom_tokenizer::pickle::{Pickle, PickleError, Value};
use serde_json::{Map, Value as Json, json};
use thiserror::Error;
use zip::{CompressionMethod, ZipArchive, result::ZipError};

use super::{Checkpoint, Meta, State};
use tensor::Tensor;
pub use write::{FILE, write};

/// The first bytes of a zip file.
const MAGIC: [u8; 4] = *b"PK\x03\x04";
/// The first bytes of PyTorch's format before version 1.6: a pickled number.
const LEGACY_MAGIC: [u8; 4] = *b"\x80\x02\x8a\x0a";
/// Classes that a checkpoint has in place of a dict.
const DICTS: &[&str] = &["collections OrderedDict"];
/// The size limit of a pickle, in bytes. That of GPT-2 XL with its optimizer has 0.3 MB.
const PICKLE_BYTES_MAX: u64 = 64 << 20;

/// Why an archive cannot be read.
#[derive(Debug, Error)]
pub enum PytorchError {
    /// The system refused an operation on the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a zip file, or it is truncated.
    #[error("it is not a whole archive of torch.save ({0})")]
    Zip(#[from] ZipError),
    /// The file has PyTorch's format before version 1.6.
    #[error("it was saved with _use_new_zipfile_serialization=False or by PyTorch before 1.6")]
    Legacy,
    /// The zip file has other contents.
    #[error("it is an archive without {0}")]
    NoEntry(String),
    /// A file in the archive is compressed or encrypted.
    #[error("{0} in it is compressed")]
    Compressed(String),
    /// The pickle exceeds the size limit.
    #[error("its data.pkl has more than {} MiB", PICKLE_BYTES_MAX >> 20)]
    TooLong,
    /// The pickle is invalid.
    #[error("its data.pkl: {0}")]
    Pickle(#[from] PickleError),
    /// A tensor has no storage or no shape.
    #[error("its data.pkl: a tensor has no storage or no shape")]
    Tensor,
    /// A value that every checkpoint has is missing.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// A tensor whose elements are not contiguous in its storage.
    #[error("its tensor {0} is not contiguous, or lies beyond its storage")]
    Strided(String),
    /// A tensor with an element type that weights and moments never have.
    #[error("its tensor {name} has the type {class}")]
    Class {
        /// The tensor's name.
        name: String,
        /// PyTorch's class of its storage.
        class: String,
    },
    /// The optimizer state belongs to another model or another kind of optimizer.
    #[error("its optimizer has no {what} of {parameter} in its shape")]
    Optimizer {
        /// `exp_avg`, `exp_avg_sq` or `step`.
        what: &'static str,
        /// The parameter's name.
        parameter: String,
    },
    /// A tensor has an infinite value or a NaN.
    #[error("its tensor {0} has a value that is not finite")]
    NotFinite(String),
    /// The weights are invalid, or there is not enough memory for them.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl From<WeightsError> for PytorchError {
    fn from(error: WeightsError) -> Self {
        Self::Load(error.into())
    }
}

impl PytorchError {
    /// Returns whether the system refused the file.
    #[must_use]
    pub fn is_input_output(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Load(LoadError::Io(_)) | Self::Zip(ZipError::Io(_)))
    }
}

/// Returns whether a file has the first bytes of an archive, or of the format before it. A file that is too short for
/// these is one if it has PyTorch's extension.
#[must_use]
pub fn is_archive(path: &Path) -> bool {
    match first_bytes(path) {
        Ok(start) => matches!(start, MAGIC | LEGACY_MAGIC),
        Err(error) => {
            let is_short = error.kind() == io::ErrorKind::UnexpectedEof;
            is_short && path.extension().is_some_and(|extension| extension == "pt" || extension == "pth")
        }
    }
}

fn first_bytes(path: &Path) -> io::Result<[u8; 4]> {
    let mut start = [0; 4];
    // Opening a pipe would block.
    if path.is_file() {
        File::open(path)?.read_exact(&mut start)?;
    }
    Ok(start)
}

/// An archive with its pickle parsed.
pub struct Archive {
    path: PathBuf,
    pickle: Pickle,
    /// The byte range of each storage in the file, by its key.
    storages: HashMap<String, Range<u64>>,
    file_bytes: u64,
}

impl Archive {
    /// Opens an archive and parses its pickle.
    ///
    /// # Errors
    /// It is not an archive of `torch.save`, or its pickle or its entries are invalid.
    pub fn open(path: &Path) -> Result<Self, PytorchError> {
        if first_bytes(path).is_ok_and(|start| start == LEGACY_MAGIC) {
            return Err(PytorchError::Legacy);
        }
        let mut zip = ZipArchive::new(File::open(path)?)?;
        let file_bytes = path.metadata()?.len();
        let mut storages = HashMap::new();
        let mut pickle = None;
        for at in 0..zip.len() {
            let mut entry = zip.by_index_raw(at)?;
            let name = entry.name()?.into_owned();
            // Strips the archive's own directory.
            let Some((_, inner)) = name.split_once('/') else { continue };
            let is_stored = entry.compression() == CompressionMethod::Stored && !entry.encrypted();
            if inner == "data.pkl" {
                if !is_stored {
                    return Err(PytorchError::Compressed(name));
                }
                let mut bytes = Vec::new();
                (&mut entry).take(PICKLE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
                if bytes.len() as u64 > PICKLE_BYTES_MAX {
                    return Err(PytorchError::TooLong);
                }
                pickle = Some(bytes);
            } else if let Some(key) = inner.strip_prefix("data/") {
                let start = entry.data_start().filter(|_| is_stored);
                let start = start.ok_or_else(|| PytorchError::Compressed(name.clone()))?;
                let end = start.checked_add(entry.size()).filter(|end| *end <= file_bytes);
                let end = end.ok_or_else(|| PytorchError::NoEntry(name.clone()))?;
                storages.insert(key.to_owned(), start..end);
            }
        }
        let pickle = pickle.ok_or_else(|| PytorchError::NoEntry("data.pkl".to_owned()))?;
        let pickle = Pickle::read(&pickle, DICTS)?;
        Ok(Self { path: path.to_path_buf(), pickle, storages, file_bytes })
    }

    /// Returns the byte range of a tensor, its shape, and its element type's name in safetensors.
    fn place(&self, name: &str, tensor: &Tensor) -> Result<TensorInfo, PytorchError> {
        let (dtype, element) = match &*tensor.storage.class {
            "FloatStorage" => ("F32", 4),
            "HalfStorage" => ("F16", 2),
            "BFloat16Storage" => ("BF16", 2),
            "DoubleStorage" => ("F64", 8),
            "LongStorage" => ("I64", 8),
            "BoolStorage" => ("BOOL", 1),
            "ByteStorage" => ("U8", 1),
            class => return Err(PytorchError::Class { name: name.to_owned(), class: class.to_owned() }),
        };
        let strided = || PytorchError::Strided(name.to_owned());
        let mut elements = 1_u64;
        for (axis, stride) in tensor.shape.iter().zip(&tensor.stride).rev() {
            if *axis != 1 && *stride != elements {
                return Err(strided());
            }
            elements = elements.checked_mul(*axis).ok_or_else(strided)?;
        }
        let storage = self.storages.get(&tensor.storage.key).ok_or_else(strided)?;
        let start = tensor.offset.checked_mul(element).and_then(|offset| storage.start.checked_add(offset));
        let end = start.and_then(|start| start.checked_add(elements.checked_mul(element)?));
        let (Some(start), Some(end)) = (start, end) else { return Err(strided()) };
        if end > storage.end || tensor.shape.len() != tensor.stride.len() {
            return Err(strided());
        }
        Ok(TensorInfo { dtype: dtype.to_owned(), shape: tensor.shape.clone(), range: start..end })
    }

    fn root(&self, name: &str) -> Option<&Value> {
        self.pickle.get(self.pickle.root(), name)
    }

    /// Returns the model's tensors as a header for the safetensors reader.
    ///
    /// # Errors
    /// The checkpoint has no tensors, or one cannot be read.
    pub fn header(&self) -> Result<Header, PytorchError> {
        let model = self.root("model").unwrap_or(self.pickle.root());
        let mut tensors = BTreeMap::new();
        for (key, value) in self.pickle.pairs(model) {
            if let (Value::Text(name), Some(tensor)) = (key, Tensor::read(&self.pickle, value)?) {
                tensors.insert(name.clone(), self.place(name, &tensor)?);
            }
        }
        let args = self.root("model_args").map(|args| (keys::MODEL_ARGS.to_owned(), self.json(args).to_string()));
        Ok(Header::of_tensors(tensors, args.into_iter().collect(), self.file_bytes))
    }

    /// Verifies the checksum of every byte, then reads the weights of a model whose header is in a catalogue.
    ///
    /// # Errors
    /// A checksum does not match, or the file cannot be read.
    pub fn params(&self, catalogue: &Catalogue) -> Result<Vec<f32>, PytorchError> {
        self.check()?;
        Ok(read_params(&mut File::open(&self.path)?, catalogue)?)
    }

    /// Reads the whole archive, which verifies the zip checksum of each file.
    fn check(&self) -> Result<(), PytorchError> {
        let mut zip = ZipArchive::new(File::open(&self.path)?)?;
        for at in 0..zip.len() {
            io::copy(&mut zip.by_index(at)?, &mut io::sink())?;
        }
        Ok(())
    }

    /// Returns the data set named in nanoGPT's config.
    pub fn dataset(&self) -> Option<String> {
        Some(self.config().get("dataset")?.as_str()?.to_owned())
    }

    fn config(&self) -> Map<String, Json> {
        match self.root("config").map(|config| self.json(config)) {
            Some(Json::Object(config)) => config,
            _ => Map::new(),
        }
    }

    /// Converts the plain values of a dict to JSON and omits all others.
    fn json(&self, dict: &Value) -> Json {
        let plain = |value: &Value| match value {
            Value::Bool(value) => Some(json!(value)),
            Value::Int(value) => Some(json!(value)),
            Value::Float(value) => Some(json!(value)),
            Value::Text(value) => Some(json!(value)),
            _ => None,
        };
        let pairs = self.pickle.pairs(dict).filter_map(|(key, value)| match key {
            Value::Text(key) => Some((key.clone(), plain(value)?)),
            _ => None,
        });
        Json::Object(pairs.collect())
    }

    /// Reads a number, or a tensor with one element.
    fn number(&self, value: &Value) -> Option<f64> {
        match value {
            Value::Int(value) => Some(*value as f64),
            Value::Float(value) => Some(*value),
            value => {
                let tensor = Tensor::read(&self.pickle, value).ok()??;
                let info = self.place("", &tensor).ok().filter(|info| info.dtype == "F32")?;
                let mut bytes = [0; 4];
                let mut file = File::open(&self.path).ok()?;
                file.seek(SeekFrom::Start(info.range.start)).ok()?;
                file.read_exact(&mut bytes).ok()?;
                (info.range.end - info.range.start == 4).then(|| f64::from(f32::from_le_bytes(bytes)))
            }
        }
    }

    /// Returns everything of nanoGPT's run except its tensors.
    ///
    /// # Errors
    /// It is not a checkpoint of nanoGPT's train.py.
    pub fn meta(&self) -> Result<Meta, PytorchError> {
        for key in ["model", "model_args", "optimizer"] {
            self.root(key).ok_or(PytorchError::Missing(key))?;
        }
        let catalogue = Catalogue::new(&self.header()?, &Hints::default())?;
        let iter_num = match self.root("iter_num") {
            Some(Value::Int(iter_num)) => u64::try_from(*iter_num).ok(),
            _ => None,
        };
        let steps = self.states().first().and_then(|state| self.number(self.pickle.get(state.as_ref()?, "step")?));
        let iter_num = iter_num.ok_or(PytorchError::Missing("iter_num"))?;
        // nanoGPT initialises it to 1e9, which is not an evaluation's result.
        let best = self.root("best_val_loss").and_then(|best| self.number(best)).filter(|best| *best < 1e9);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count, which `as` keeps in range"
        )]
        let optimizer_step = steps.map_or(0, |steps| steps as u64);
        let state = State { iter_num, optimizer_step, best_val_loss: best, ..State::default() };
        Ok(Meta { gpt: *catalogue.config(), config: self.config(), state, tokenizer: None })
    }

    /// Returns the optimizer's state of each parameter, in the optimizer's order: parameters with weight decay, then
    /// the rest.
    fn states(&self) -> Vec<Option<&Value>> {
        let optimizer = self.root("optimizer");
        let part = |name| optimizer.and_then(|optimizer| self.pickle.get(optimizer, name));
        let (Some(states), Some(groups)) = (part("state"), part("param_groups")) else { return vec![] };
        let params = self.pickle.items(groups).filter_map(|group| self.pickle.get(group, "params"));
        let ids = params.flat_map(|params| self.pickle.items(params));
        ids.map(|id| if let Value::Int(id) = id { self.pickle.get_int(states, *id) } else { None }).collect()
    }

    /// Reads one of AdamW's moments, flat in the order of the layout. Zeros if the optimizer has made no step.
    fn moments(&self, layout: &Layout, what: &'static str) -> Result<Vec<f32>, PytorchError> {
        let mut moments = zeros(layout.len())?;
        let states = self.states();
        if states.iter().all(Option::is_none) {
            return Ok(moments);
        }
        let (decays, rest): (Vec<_>, Vec<_>) = layout.entries().iter().partition(|entry| entry.shape.len() >= 2);
        let mut file = File::open(&self.path)?;
        let mut bytes = Vec::new();
        for (at, entry) in decays.into_iter().chain(rest).enumerate() {
            let wrong = || PytorchError::Optimizer { what, parameter: entry.name.clone() };
            let value = states.get(at).copied().flatten().and_then(|state| self.pickle.get(state, what));
            let tensor = Tensor::read(&self.pickle, value.ok_or_else(wrong)?)?.ok_or_else(wrong)?;
            let info = self.place(&entry.name, &tensor)?;
            let is_shape = info.shape.iter().copied().eq(entry.shape.iter().map(|&axis| axis as u64));
            if !is_shape || info.dtype != "F32" {
                return Err(wrong());
            }
            file.seek(SeekFrom::Start(info.range.start))?;
            bytes.clear();
            (&mut file).take(info.range.end - info.range.start).read_to_end(&mut bytes)?;
            let target = &mut moments[entry.range.clone()];
            for (value, bytes) in target.iter_mut().zip(bytes.chunks_exact(4)) {
                *value = f32::from_le_bytes(std::array::from_fn(|i| bytes[i]));
            }
            if bytes.len() != target.len() * 4 {
                return Err(wrong());
            }
            if target.iter().any(|value| !value.is_finite()) {
                return Err(PytorchError::NotFinite(format!("{what} of {}", entry.name)));
            }
        }
        Ok(moments)
    }
}

/// Reads nanoGPT's checkpoint with its optimizer, for a resumed run.
///
/// # Errors
/// It is not a checkpoint of nanoGPT's train.py, it is damaged, or a value in it is not finite.
pub fn load(path: &Path) -> Result<Checkpoint, PytorchError> {
    let archive = Archive::open(path)?;
    let meta = archive.meta()?;
    let catalogue = Catalogue::new(&archive.header()?, &Hints::default())?;
    let params = archive.params(&catalogue)?;
    let [exp_avg, exp_avg_sq] =
        [archive.moments(catalogue.layout(), "exp_avg")?, archive.moments(catalogue.layout(), "exp_avg_sq")?];
    Ok(Checkpoint { meta, params, exp_avg, exp_avg_sq })
}

#[cfg(test)]
mod tests;
