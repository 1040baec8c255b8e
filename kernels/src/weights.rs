//! Weights in safetensors files: GPT-2 under nanoGPT's or Hugging Face's names, and Headroom's checkpoints.
//!
//! Reading takes several steps, so that both a page with a dropped file and a program with an open file can do it:
//! 1. [`header_range`] of the first eight bytes;
//! 2. [`Header::parse`] of the bytes in that range;
//! 3. [`Catalogue::new`], which makes every check that needs no weights;
//! 4. [`Catalogue::take`] of the bytes of each of [`Catalogue::reads`].
//!
//! [`load`] performs all steps on a seekable file. Files are untrusted: sizes in a header are compared with the file's
//! length before any allocation.
//!
//! Choosing and replacing files is the agent's responsibility.

mod catalogue;
mod convert;
mod error;
mod header;
mod hints;
mod metadata;
mod names;
mod write;

use std::io::{self, Read as _, Seek, SeekFrom};

use headroom_text::{self as text, Text};
use thiserror::Error;

pub use catalogue::{ByteRange, Catalogue, HeadsFrom, Note, Origin};
pub use error::WeightsError;
pub use header::{Header, MAX_HEADER_BYTES, MAX_TENSORS, PREFIX_BYTES, TensorInfo, header_range};
pub use hints::{Hints, MAX_CONFIG_JSON_BYTES};
pub use metadata::{Tokenizer, keys};
pub use names::{CHECKSUMS, NamingScheme, Section};
pub use write::{FileFormat, HALF_MAX, HeaderWriter, model_header, write_f32, write_model};

/// The maximum number of a tensor's axes.
const MAX_AXES: usize = 8;

/// The default size of a read of weights, in bytes.
pub const READ_BYTES: usize = 4 << 20;

/// An error while reading weights.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum LoadError {
    /// The file cannot be read.
    Io(#[from] io::Error),
    /// The file's contents are invalid.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The machine is out of memory.
    OutOfMemory {
        /// The size of the weights as f32, in bytes.
        bytes: u64,
    },
}

impl LoadError {
    /// The error message.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Io(error) => text::weights_io(error.to_string()),
            Self::Weights(error) => error.text(),
            Self::OutOfMemory { bytes } => text::weights_out_of_memory(text::size(*bytes)),
        }
    }
}

/// Reads a file's header.
///
/// # Errors
/// The file cannot be read, or is not a safetensors file.
pub fn read_header(file: &mut (impl io::Read + Seek)) -> Result<Header, LoadError> {
    let file_bytes = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut prefix = Vec::with_capacity(PREFIX_BYTES);
    file.take(PREFIX_BYTES as u64).read_to_end(&mut prefix)?;
    let range = header_range(&prefix, file_bytes)?;
    let mut header = Vec::new();
    file.take(range.end - range.start).read_to_end(&mut header)?;
    Ok(Header::parse(&header, file_bytes)?)
}

/// Reads a model's weights, flat in the order of [`crate::layout::Layout`], and its catalogue.
///
/// # Errors
/// The file cannot be read, contains no supported model, or exceeds the machine's memory.
pub fn load(file: &mut (impl io::Read + Seek), hints: &Hints) -> Result<(Catalogue, Vec<f32>), LoadError> {
    let catalogue = Catalogue::new(&read_header(file)?, hints)?;
    let params = read_params(file, &catalogue)?;
    Ok((catalogue, params))
}

/// Reads the weights of a catalogue, flat in the order of [`crate::layout::Layout`].
///
/// # Errors
/// The file cannot be read, does not match its header, or exceeds the machine's memory.
pub fn read_params(file: &mut (impl io::Read + Seek), catalogue: &Catalogue) -> Result<Vec<f32>, LoadError> {
    let mut params = zeros(catalogue.layout().len())?;
    let mut bytes = Vec::new();
    for read in catalogue.reads(READ_BYTES) {
        file.seek(SeekFrom::Start(read.range.start))?;
        bytes.clear();
        file.take(read.range.end - read.range.start).read_to_end(&mut bytes)?;
        catalogue.take(&read, &bytes, &mut params)?;
    }
    Ok(params)
}

/// Allocates zeros. Unlike `vec!`, it returns an error if the machine is out of memory.
///
/// # Errors
/// The machine is out of memory.
pub fn zeros(len: usize) -> Result<Vec<f32>, LoadError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(len).map_err(|_| LoadError::OutOfMemory { bytes: len as u64 * 4 })?;
    zeros.resize(len, 0.0);
    Ok(zeros)
}

#[cfg(test)]
mod tests;
