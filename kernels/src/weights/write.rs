//! Writing weight files: a header, then the slices, without a second copy in memory.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use headroom_planner::gpt::{
    GptConfig, GptShape,
    tensors::{Dims, parameters},
};
use serde_json::{Map, Value, json};

use super::{
    header::PREFIX_BYTES,
    metadata::keys,
    names::{NamingScheme, is_conv1d},
};
use crate::{
    layout::{Layout, TooLarge},
    reference::pack::half_bits,
};

/// The largest half-precision number.
pub const HALF_MAX: f32 = 65504.0;

/// The format of a model's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFormat {
    /// The naming scheme and layout.
    pub naming: NamingScheme,
    /// Whether weights are stored in half precision, rounded to nearest; those beyond [`HALF_MAX`] become infinite.
    pub half: bool,
}

impl From<NamingScheme> for FileFormat {
    fn from(naming: NamingScheme) -> Self {
        Self { naming, half: false }
    }
}

/// Elements converted to bytes at once: 64 KiB.
const CHUNK_ELEMENTS: usize = 16 << 10;

/// The alignment of tensors in bytes, so that a memory-mapped file can be used directly.
const ALIGNMENT: usize = 8;

/// A header under construction, with tensors in the order of their data.
#[derive(Clone, Debug)]
pub struct HeaderWriter {
    entries: Map<String, Value>,
    end: u64,
}

impl HeaderWriter {
    /// A header with metadata and no tensors.
    #[must_use]
    pub fn new(metadata: &BTreeMap<String, String>) -> Self {
        let mut entries = Map::new();
        entries.insert("__metadata__".to_owned(), json!(metadata));
        Self { entries, end: 0 }
    }

    /// Adds an f32 tensor.
    pub fn f32(&mut self, name: &str, shape: &[u64]) {
        self.add(name, "F32", shape, 4);
    }

    /// Adds a half-precision tensor.
    pub fn f16(&mut self, name: &str, shape: &[u64]) {
        self.add(name, "F16", shape, 2);
    }

    /// Adds a tensor of bytes.
    pub fn bytes(&mut self, name: &str, len: u64) {
        self.add(name, "U8", &[len], 1);
    }

    fn add(&mut self, name: &str, dtype: &str, shape: &[u64], element_bytes: u64) {
        let start = self.end;
        self.end = start + shape.iter().product::<u64>() * element_bytes;
        self.entries
            .insert(name.to_owned(), json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, self.end] }));
    }

    /// Bytes of all tensors added so far.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.end
    }

    /// The start of the file: the header's length and the header, padded with spaces as the format requires.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let mut text = Value::Object(self.entries).to_string();
        text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(ALIGNMENT) - text.len()));
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + text.len());
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.into_bytes());
        bytes
    }
}

/// Writes numbers as little-endian f32.
///
/// # Errors
/// Writing to `out` failed.
pub fn write_f32(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    let mut bytes = vec![0; values.len().min(CHUNK_ELEMENTS) * 4];
    for chunk in values.chunks(CHUNK_ELEMENTS) {
        let bytes = &mut bytes[..chunk.len() * 4];
        to_bytes(chunk, bytes);
        out.write_all(bytes)?;
    }
    Ok(())
}

/// Writes numbers as little-endian half precision, rounded to nearest.
fn write_f16(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    for chunk in values.chunks(CHUNK_ELEMENTS) {
        let bytes: Vec<u8> = chunk.iter().flat_map(|&value| half_bits(value).to_le_bytes()).collect();
        out.write_all(&bytes)?;
    }
    Ok(())
}

fn write_values(out: &mut impl Write, values: &[f32], half: bool) -> io::Result<()> {
    if half { write_f16(out, values) } else { write_f32(out, values) }
}

/// Not generic over the writer, so that it is compiled in this crate, with its optimisation.
fn to_bytes(values: &[f32], bytes: &mut [u8]) {
    for (bytes, value) in bytes.chunks_exact_mut(4).zip(values) {
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// A tensor of a model's file, and its range in the layout; `None` for a bias that the model lacks.
struct FileTensor {
    name: String,
    /// The shape in the file.
    shape: Vec<u64>,
    source: Option<std::ops::Range<usize>>,
    is_turned: bool,
}

fn tensors(config: &GptConfig, layout: &Layout, naming: NamingScheme) -> Result<Vec<FileTensor>, TooLarge> {
    // Hugging Face models always have biases; missing ones are zero.
    let written = match naming {
        NamingScheme::NanoGpt => *config,
        NamingScheme::HuggingFace => GptConfig::new(GptShape { bias: true, ..config.shape() }).map_err(|_| TooLarge)?,
    };
    let dims = Dims::without_gpu(&written, 1);
    let places: BTreeMap<_, _> = layout.entries().iter().map(|entry| (entry.name.as_str(), &entry.range)).collect();
    let written = parameters(&written).into_iter().map(|parameter| {
        let name = parameter.tensor.full_name(parameter.layer);
        let mut shape = parameter.tensor.shape(&dims).as_slice().to_vec();
        let is_turned = naming == NamingScheme::HuggingFace && is_conv1d(parameter.tensor);
        if is_turned {
            shape.reverse();
        }
        let source = places.get(name.as_str()).map(|range| (*range).clone());
        FileTensor { name, shape, source, is_turned }
    });
    Ok(written.collect())
}

/// The start of a model's file: the header and its length.
///
/// # Errors
/// The model exceeds the address space.
pub fn model_header(
    config: &GptConfig,
    form: impl Into<FileFormat>,
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, TooLarge> {
    let form = form.into();
    Ok(header_of(&tensors(config, &Layout::new(config)?, form.naming)?, form.half, metadata).finish())
}

fn header_of(tensors: &[FileTensor], half: bool, metadata: &BTreeMap<String, String>) -> HeaderWriter {
    let mut metadata = metadata.clone();
    metadata.insert(keys::FORMAT.to_owned(), "pt".to_owned());
    let mut header = HeaderWriter::new(&metadata);
    for tensor in tensors {
        match half {
            true => header.f16(&tensor.name, &tensor.shape),
            false => header.f32(&tensor.name, &tensor.shape),
        }
    }
    header
}

/// Writes a model's weights, flat in [`Layout`]'s order, as a file for nanoGPT's or Hugging Face's code.
///
/// The output layer equals the embedding and is written once.
///
/// # Errors
/// Writing to `out` failed, or the model exceeds the address space.
///
/// # Panics
/// If the length of `params` differs from the config's layout.
pub fn write_model(
    out: &mut impl Write,
    config: &GptConfig,
    params: &[f32],
    form: impl Into<FileFormat>,
    metadata: &BTreeMap<String, String>,
) -> io::Result<()> {
    let FileFormat { naming, half } = form.into();
    let layout = Layout::new(config).map_err(io::Error::other)?;
    assert_eq!(params.len(), layout.len(), "the weights are the config's");
    let tensors = tensors(config, &layout, naming).map_err(io::Error::other)?;
    out.write_all(&header_of(&tensors, half, metadata).finish())?;
    for tensor in &tensors {
        match &tensor.source {
            Some(range) if tensor.is_turned => write_turned(out, &params[range.clone()], &tensor.shape, half)?,
            Some(range) => write_values(out, &params[range.clone()], half)?,
            None => write_values(out, &vec![0.0; usize::try_from(tensor.shape[0]).map_err(io::Error::other)?], half)?,
        }
    }
    Ok(())
}

/// Writes the transpose of a matrix; `shape` is the file's.
fn write_turned(out: &mut impl Write, values: &[f32], shape: &[u64], half: bool) -> io::Result<()> {
    let columns = usize::try_from(shape[0]).map_err(io::Error::other)?;
    let mut row = Vec::with_capacity(values.len() / columns);
    for column in 0..columns {
        take_column(values, columns, column, &mut row);
        write_values(out, &row, half)?;
    }
    Ok(())
}

fn take_column(values: &[f32], columns: usize, column: usize, into: &mut Vec<f32>) {
    into.clear();
    into.extend(values[column..].iter().step_by(columns));
}
