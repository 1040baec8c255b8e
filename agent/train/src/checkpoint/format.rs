//! File format of checkpoints. Writing and reading take one pass each; reading verifies checksums.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use headroom_kernels::{
    layout::Layout,
    weights::{
        CHECKSUMS, Header, HeaderWriter, PREFIX_BYTES, READ_BYTES, Section, TensorInfo, WeightsError, header_range,
        keys, write_f32,
    },
};
use headroom_planner::gpt::{GptConfig, GptShape};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{Checkpoint, CheckpointError, FILE, Meta, Part, State, Tensors, find, of_nanogpt, pytorch};

/// Version of the file's keys.
const VERSION: &str = "1";

/// Size of the checksums: one little-endian u32 for the header and each section.
const CHECKSUMS_BYTES: usize = 4 * 4;

/// nanoGPT's `model_args`.
#[derive(Serialize, Deserialize)]
struct ModelArgs {
    n_layer: u64,
    n_head: u64,
    n_embd: u64,
    block_size: u64,
    bias: bool,
    vocab_size: u64,
    dropout: f64,
}

impl From<&GptConfig> for ModelArgs {
    fn from(config: &GptConfig) -> Self {
        let GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout, bias } = config.shape();
        Self { n_layer, n_head, n_embd, block_size, bias, vocab_size, dropout }
    }
}

impl From<ModelArgs> for GptShape {
    fn from(args: ModelArgs) -> Self {
        let ModelArgs { n_layer, n_head, n_embd, block_size, bias, vocab_size, dropout } = args;
        Self { n_layer, n_head, n_embd, block_size, vocab_size, dropout, bias }
    }
}

/// First bytes of a checkpoint's file, and the length of the whole.
pub(super) struct FileHeader {
    bytes: Vec<u8>,
    pub(super) file_bytes: u64,
}

impl FileHeader {
    pub(super) fn of(meta: &Meta, layout: &Layout) -> Result<Self, serde_json::Error> {
        let mut texts = BTreeMap::from([
            (keys::HEADROOM.to_owned(), VERSION.to_owned()),
            (keys::FORMAT.to_owned(), "pt".to_owned()),
            (keys::MODEL_ARGS.to_owned(), serde_json::to_string(&ModelArgs::from(&meta.gpt))?),
            (keys::CONFIG.to_owned(), serde_json::to_string(&meta.config)?),
            (keys::STATE.to_owned(), serde_json::to_string(&meta.state)?),
        ]);
        if let Some(tokenizer) = &meta.tokenizer {
            texts.insert(keys::TOKENIZER.to_owned(), serde_json::to_string(tokenizer)?);
        }
        let mut header = HeaderWriter::new(&texts);
        for section in Section::ALL {
            for entry in layout.entries() {
                let shape: Vec<u64> = entry.shape.iter().map(|&axis| axis as u64).collect();
                header.f32(&section.tensor_name(&entry.name), &shape);
            }
        }
        header.bytes(CHECKSUMS, CHECKSUMS_BYTES as u64);
        let data_bytes = header.data_bytes();
        let bytes = header.finish();
        Ok(Self { file_bytes: bytes.len() as u64 + data_bytes, bytes })
    }
}

/// Writes a checkpoint. The tensors must have the length of the layout.
pub(super) fn write(out: &mut impl Write, beginning: &FileHeader, tensors: Tensors<'_>) -> io::Result<()> {
    out.write_all(&beginning.bytes)?;
    let mut checksums = crc32fast::hash(&beginning.bytes).to_le_bytes().to_vec();
    for section in [tensors.params, tensors.exp_avg, tensors.exp_avg_sq] {
        let mut summed = ChecksumWriter { out: &mut *out, sum: crc32fast::Hasher::new() };
        write_f32(&mut summed, section)?;
        checksums.extend(summed.sum.finalize().to_le_bytes());
    }
    out.write_all(&checksums)
}

/// Writer that computes a checksum.
struct ChecksumWriter<W> {
    out: W,
    sum: crc32fast::Hasher,
}

impl<W: Write> Write for ChecksumWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.sum.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Reads the checkpoint of a directory, or a checkpoint file, and verifies all checksums.
///
/// # Errors
/// The checkpoint is missing, not this trainer's or corrupt, or has a NaN or an infinity.
pub fn load(path: &Path) -> Result<Checkpoint, CheckpointError> {
    if let Some(archive) = archive(path) {
        return pytorch::load(&archive).map_err(|error| of_pytorch(error, archive));
    }
    let mut file = OpenCheckpoint::new(path)?;
    let mut section = |section| file.section(section);
    let [params, exp_avg, exp_avg_sq] =
        [section(Section::Params)?, section(Section::ExpAvg)?, section(Section::ExpAvgSq)?];
    Ok(Checkpoint { meta: file.meta, params, exp_avg, exp_avg_sq })
}

/// Reads only the state and the weights.
///
/// # Errors
/// As [`load`], except for the moments.
pub fn load_weights(path: &Path) -> Result<(Meta, Vec<f32>), CheckpointError> {
    let mut file = OpenCheckpoint::new(path)?;
    let params = file.section(Section::Params)?;
    Ok((file.meta, params))
}

/// Reads only the state without tensors.
///
/// # Errors
/// As [`load`], except for the tensors.
pub fn load_meta(path: &Path) -> Result<Meta, CheckpointError> {
    if let Some(archive) = archive(path) {
        let meta = pytorch::Archive::open(&archive).and_then(|archive| archive.meta());
        return meta.map_err(|error| of_pytorch(error, archive));
    }
    Ok(OpenCheckpoint::new(path)?.meta)
}

/// nanoGPT's checkpoint: the file itself, or that of a directory without a checkpoint of this trainer.
fn archive(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return if find(path).is_none() { of_nanogpt(path) } else { None };
    }
    Some(path.to_path_buf()).filter(|path| pytorch::is_archive(path))
}

fn of_pytorch(error: pytorch::PytorchError, path: PathBuf) -> CheckpointError {
    CheckpointError::PyTorch { error: Box::new(error), path }
}

/// An open checkpoint with a verified header.
struct OpenCheckpoint {
    path: PathBuf,
    file: File,
    header: Header,
    meta: Meta,
    layout: Layout,
    checksums: [u32; 4],
}

impl OpenCheckpoint {
    fn new(path: &Path) -> Result<Self, CheckpointError> {
        let path = if path.is_dir() { find(path).unwrap_or_else(|| path.join(FILE)) } else { path.to_path_buf() };
        let unread = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => CheckpointError::NotFound { path: path.clone() },
            _ => CheckpointError::Read { error, path: path.clone() },
        };
        let broken = |error: WeightsError| CheckpointError::Broken { error: Box::new(error), path: path.clone() };
        let mut file = File::open(&path).map_err(unread)?;
        let file_bytes = file.seek(SeekFrom::End(0)).map_err(unread)?;
        file.rewind().map_err(unread)?;
        let mut beginning = Vec::new();
        (&mut file).take(PREFIX_BYTES as u64).read_to_end(&mut beginning).map_err(unread)?;
        let range = header_range(&beginning, file_bytes).map_err(broken)?;
        (&mut file).take(range.end - range.start).read_to_end(&mut beginning).map_err(unread)?;
        let header = Header::parse(&beginning[PREFIX_BYTES..], file_bytes).map_err(broken)?;
        match header.metadata().get(keys::HEADROOM).map(String::as_str) {
            Some(VERSION) if header.metadata().contains_key(keys::STATE) => {}
            Some(VERSION) | None => return Err(CheckpointError::NotOurs { path }),
            Some(found) => {
                let found = found.chars().take(20).collect();
                return Err(CheckpointError::Version { found, known: VERSION, path });
            }
        }
        let trailer = tensor(&header, CHECKSUMS, "U8", &[CHECKSUMS_BYTES as u64]).map_err(broken)?;
        file.seek(SeekFrom::Start(trailer.range.start)).map_err(unread)?;
        let mut checksums = [0; CHECKSUMS_BYTES];
        file.read_exact(&mut checksums).map_err(unread)?;
        let checksums =
            std::array::from_fn(|i| u32::from_le_bytes(std::array::from_fn(|byte| checksums[4 * i + byte])));
        check(Part::Header, checksums[0], crc32fast::hash(&beginning), &path)?;
        let meta = meta(&header, &path)?;
        let layout = Layout::new(&meta.gpt).map_err(|error| broken(error.into()))?;
        Ok(Self { path, file, header, meta, layout, checksums })
    }

    /// Reads one section, in the order of the layout.
    fn section(&mut self, section: Section) -> Result<Vec<f32>, CheckpointError> {
        let start = self.place(section).map_err(|error| self.broken(error))?;
        let len = self.layout.len();
        let mut values = Vec::new();
        let memory = CheckpointError::OutOfMemory { bytes: len as u64 * 4 };
        values.try_reserve_exact(len).map_err(|_| memory)?;
        self.file.seek(SeekFrom::Start(start)).map_err(|error| self.unread(error))?;
        let mut sum = crc32fast::Hasher::new();
        let mut bytes = vec![0; READ_BYTES.min(len * 4)];
        while values.len() < len {
            let chunk = bytes.len().min((len - values.len()) * 4);
            let chunk = &mut bytes[..chunk];
            if let Err(error) = self.file.read_exact(chunk) {
                return Err(self.unread(error));
            }
            sum.update(chunk);
            let elements = chunk.chunks_exact(4);
            values.extend(elements.map(|element| f32::from_le_bytes(std::array::from_fn(|i| element[i]))));
        }
        let (part, place) = match section {
            Section::Params => (Part::Params, 1),
            Section::ExpAvg => (Part::ExpAvg, 2),
            Section::ExpAvgSq => (Part::ExpAvgSq, 3),
        };
        check(part, self.checksums[place], sum.finalize(), &self.path)?;
        self.all_finite(section, &values)?;
        Ok(values)
    }

    /// Checks that all values are finite. A single NaN or infinity would make every loss one.
    fn all_finite(&self, section: Section, values: &[f32]) -> Result<(), CheckpointError> {
        let Some(at) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
        let entry = self.layout.entries().iter().find(|entry| entry.range.contains(&at));
        let (name, start) = entry.map_or(("", 0), |entry| (entry.name.as_str(), entry.range.start));
        let (tensor, index) = (section.tensor_name(name), (at - start) as u64);
        let error = WeightsError::NotFinite { tensor, index, value: values[at] };
        Err(CheckpointError::NotFinite { error: Box::new(error), path: self.path.clone() })
    }

    /// Offset of a section, whose tensors are contiguous in the order of the layout.
    fn place(&self, section: Section) -> Result<u64, WeightsError> {
        let mut start = None;
        for entry in self.layout.entries() {
            let shape: Vec<u64> = entry.shape.iter().map(|&axis| axis as u64).collect();
            let name = section.tensor_name(&entry.name);
            let info = tensor(&self.header, &name, "F32", &shape)?;
            let first = *start.get_or_insert(info.range.start);
            if info.range.start != first + entry.range.start as u64 * 4 {
                let bytes = info.range.start.saturating_sub(first);
                return Err(WeightsError::Gap { before: Some(name), bytes });
            }
        }
        Ok(start.unwrap_or(0))
    }

    fn broken(&self, error: WeightsError) -> CheckpointError {
        CheckpointError::Broken { error: Box::new(error), path: self.path.clone() }
    }

    fn unread(&self, error: io::Error) -> CheckpointError {
        CheckpointError::Read { error, path: self.path.clone() }
    }
}

fn tensor<'a>(header: &'a Header, name: &str, dtype: &str, shape: &[u64]) -> Result<&'a TensorInfo, WeightsError> {
    let Some(info) = header.tensors().get(name) else {
        return Err(WeightsError::Missing { tensor: name.to_owned(), shape: shape.to_vec() });
    };
    if info.shape != shape {
        let (expected, found) = (shape.to_vec(), info.shape.clone());
        return Err(WeightsError::Shape { tensor: name.to_owned(), expected, found });
    }
    if info.dtype != dtype {
        return Err(WeightsError::Dtype { tensor: name.to_owned(), found: info.dtype.clone() });
    }
    Ok(info)
}

fn check(part: Part, expected: u32, found: u32, path: &Path) -> Result<(), CheckpointError> {
    if expected == found {
        return Ok(());
    }
    Err(CheckpointError::Checksum { part, expected, found, path: path.to_path_buf() })
}

fn meta(header: &Header, path: &Path) -> Result<Meta, CheckpointError> {
    let meta_error = |what, why: String| CheckpointError::Meta { what, why, path: path.to_path_buf() };
    let args: ModelArgs = json(header, keys::MODEL_ARGS, path)?;
    let tokenizer = header.metadata().contains_key(keys::TOKENIZER);
    Ok(Meta {
        gpt: GptConfig::new(args.into()).map_err(|error| meta_error(keys::MODEL_ARGS, error.to_string()))?,
        config: json(header, keys::CONFIG, path)?,
        state: state(header, path)?,
        tokenizer: tokenizer.then(|| json(header, keys::TOKENIZER, path)).transpose()?,
    })
}

/// State of the run. Earlier versions wrote no `val_loss`; their checkpoint counts as the best one, so that a resumed
/// run keeps it.
fn state(header: &Header, path: &Path) -> Result<State, CheckpointError> {
    let written: Map<String, Value> = json(header, keys::STATE, path)?;
    let mut state: State = json(header, keys::STATE, path)?;
    if !written.contains_key("val_loss") {
        state.val_loss = state.best_val_loss;
    }
    Ok(state)
}

fn json<T: DeserializeOwned>(header: &Header, what: &'static str, path: &Path) -> Result<T, CheckpointError> {
    let text = header.metadata().get(what).map_or("", String::as_str);
    let meta_error =
        |error: serde_json::Error| CheckpointError::Meta { what, why: error.to_string(), path: path.to_path_buf() };
    serde_json::from_str(text).map_err(meta_error)
}
