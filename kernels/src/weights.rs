//! Weights in safetensors files: GPT-2's under nanoGPT's names or Hugging Face's, and checkpoints of ours.
//!
//! Reading takes steps, so that a page can do it with a dropped file as well as a program with an open one:
//! [`header_range`] of the first eight bytes, [`Header::parse`] of those it names, [`Catalogue::new`] of that, which is
//! where every check that needs no weights is made; then [`Catalogue::take`] of the bytes of each of
//! [`Catalogue::reads`]. [`load`] does all of it where there is a file to seek in. Nothing is believed: what a header
//! claims is held against the file's length before anything is allocated for it.
//!
//! Which files there are, and how one replaces another, is the agent's.

mod catalogue;
mod convert;
mod error;
mod header;
mod hints;
mod metadata;
mod names;
mod write;

use std::io::{self, Read as _, Seek, SeekFrom};

use headroom_shared::text::{self, Text};
use thiserror::Error;

pub use catalogue::{Catalogue, HeadsFrom, Note, Origin, Read};
pub use error::WeightsError;
pub use header::{Header, MAX_HEADER_BYTES, MAX_TENSORS, PREFIX_BYTES, TensorInfo, header_range};
pub use hints::{Hints, MAX_CONFIG_JSON_BYTES};
pub use metadata::{Tokenizer, keys};
pub use names::{CHECKSUMS, Naming, Section};
pub use write::{Form, HALF_MAX, HeaderWriter, model_header, write_f32, write_model};

/// How many bytes of weights are read at once where nobody has a reason for another number.
pub const READ_BYTES: usize = 4 << 20;

/// Weights could not be read.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum LoadError {
    /// The file itself.
    Io(#[from] io::Error),
    /// What is in it.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The machine.
    OutOfMemory {
        /// As f32.
        bytes: u64,
    },
}

impl LoadError {
    /// What is wrong.
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
/// The file cannot be read, or is no safetensors file.
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

/// Reads a model's weights, flat as [`crate::layout::Layout`] has them, and what is known of the model.
///
/// # Errors
/// The file cannot be read, is no model that this program can run, or is larger than the memory.
pub fn load(file: &mut (impl io::Read + Seek), hints: &Hints) -> Result<(Catalogue, Vec<f32>), LoadError> {
    let catalogue = Catalogue::new(&read_header(file)?, hints)?;
    let params = read_params(file, &catalogue)?;
    Ok((catalogue, params))
}

/// Reads the weights that a catalogue names, flat as [`crate::layout::Layout`] has them.
///
/// # Errors
/// The file cannot be read, has other bytes than its header says, or is larger than the memory.
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

/// As many zeros, or an error where `vec!` would end the program.
///
/// # Errors
/// The memory is not there.
pub fn zeros(len: usize) -> Result<Vec<f32>, LoadError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(len).map_err(|_| LoadError::OutOfMemory { bytes: len as u64 * 4 })?;
    zeros.resize(len, 0.0);
    Ok(zeros)
}

#[cfg(test)]
mod tests;
