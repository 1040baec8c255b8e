//! Content of a checkpoint for one audience: the file as it is, or with the secrets of its config redacted.
//!
//! A checkpoint's header holds the run's config, whose values may be secrets. Tokens without scope `control` receive
//! another header with the matching checksum, followed by the tensors of the file. Such a copy is a valid checkpoint.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    ops::Range,
};

use axum::body::Bytes;
use headroom_kernels::weights::{CHECKSUMS, Header, PREFIX_BYTES, header_range, keys};
use serde_json::value::RawValue;

use crate::secrets;

/// Entry of a safetensors header for metadata.
const METADATA: &str = "__metadata__";
/// Alignment of the tensors in bytes, which the format requires.
const ALIGNMENT: usize = 8;
/// Size of the header's checksum, the first of the checksums, in bytes.
const CHECKSUM_BYTES: u64 = 4;

/// Consecutive segments of a content.
#[derive(Debug)]
pub struct Content(Vec<Segment>);

#[derive(Debug)]
struct Segment {
    /// Range of the segment in the content, in bytes.
    range: Range<u64>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Bytes in memory.
    Memory(Bytes),
    /// Bytes of the file, from an offset.
    File(u64),
}

impl Content {
    /// Content that is the file.
    pub fn whole(file_bytes: u64) -> Self {
        Self(vec![Segment { range: 0..file_bytes, source: Source::File(0) }])
    }

    /// Content with a redacted config. It is the file itself if the config contains no secret.
    ///
    /// # Errors
    /// The file cannot be read, or is not a checkpoint of `headroom train`.
    pub fn redacted(file: &mut File, file_bytes: u64) -> io::Result<Self> {
        let mut beginning = vec![0; PREFIX_BYTES.min(usize::try_from(file_bytes).unwrap_or(PREFIX_BYTES))];
        file.rewind()?;
        file.read_exact(&mut beginning)?;
        let range = header_range(&beginning, file_bytes).map_err(invalid)?;
        file.take(range.end - range.start).read_to_end(&mut beginning)?;
        let header = Header::parse(&beginning[PREFIX_BYTES..], file_bytes).map_err(invalid)?;
        let Some(changed) = redacted_metadata(header.metadata())? else { return Ok(Self::whole(file_bytes)) };
        let checksums = header.tensors().get(CHECKSUMS).map(|tensor| tensor.range.clone());
        let checksums = checksums.filter(|range| range.end - range.start >= CHECKSUM_BYTES);
        let checksums = checksums.ok_or_else(|| io::Error::other("it has no checksums"))?;

        let mut entries: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(&beginning[PREFIX_BYTES..])?;
        entries.insert(METADATA.to_owned(), serde_json::value::to_raw_value(&changed)?);
        let mut text = serde_json::to_vec(&entries)?;
        text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
        let mut new = (text.len() as u64).to_le_bytes().to_vec();
        new.append(&mut text);
        let checksum = crc32fast::hash(&new).to_le_bytes().to_vec();

        let mut content = Self(vec![]);
        content.add_memory(new);
        content.add_file(range.end..checksums.start);
        content.add_memory(checksum);
        content.add_file(checksums.start + CHECKSUM_BYTES..file_bytes);
        Ok(content)
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.0.last().map_or(0, |segment| segment.range.end)
    }

    /// The parts that are not those of the file, in order.
    pub fn replaced(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(|segment| match &segment.source {
            Source::Memory(bytes) => Some(&**bytes),
            Source::File(_) => None,
        })
    }

    fn add_memory(&mut self, bytes: Vec<u8>) {
        let start = self.len();
        self.0.push(Segment { range: start..start + bytes.len() as u64, source: Source::Memory(bytes.into()) });
    }

    fn add_file(&mut self, range: Range<u64>) {
        let start = self.len();
        let end = start + range.end.saturating_sub(range.start);
        self.0.push(Segment { range: start..end, source: Source::File(range.start) });
    }

    /// Reads at most `wanted` bytes at an offset within the content, and at least one.
    ///
    /// # Errors
    /// The file became shorter, or cannot be read.
    pub fn read(&self, file: &mut File, at: u64, wanted: usize) -> io::Result<Bytes> {
        let segment = self.0.iter().find(|segment| segment.range.contains(&at)).ok_or(io::ErrorKind::UnexpectedEof)?;
        let offset = at - segment.range.start;
        let n = usize::try_from(segment.range.end - at).unwrap_or(usize::MAX).min(wanted);
        match &segment.source {
            Source::Memory(bytes) => {
                let offset = usize::try_from(offset).map_err(io::Error::other)?;
                Ok(bytes.slice(offset..offset + n))
            }
            Source::File(start) => {
                file.seek(SeekFrom::Start(start + offset))?;
                let mut bytes = vec![0; n];
                file.read_exact(&mut bytes)?;
                Ok(bytes.into())
            }
        }
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Metadata with a redacted config and state; `None` if they contain no secret. The model's shape and its tokenizer are
/// needed unchanged and contain nothing of the user's command.
fn redacted_metadata(metadata: &BTreeMap<String, String>) -> io::Result<Option<BTreeMap<String, String>>> {
    let mut changed = metadata.clone();
    for (key, text) in &mut changed {
        if [keys::FORMAT, keys::HEADROOM, keys::MODEL_ARGS, keys::TOKENIZER].contains(&&**key) {
            continue;
        }
        let Ok(mut value) = serde_json::from_str::<serde_json::Value>(text) else {
            secrets::in_place(text);
            continue;
        };
        let before = value.clone();
        secrets::in_json(&mut value);
        if value != before {
            *text = serde_json::to_string(&value)?;
        }
    }
    Ok((changed != *metadata).then_some(changed))
}
