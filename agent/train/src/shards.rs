//! Sharded safetensors of Hugging Face: several files, and an index of the file of each tensor.
//!
//! The files become one stream, each after the previous one, so that one header describes all tensors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Component, Path, PathBuf},
};

use headroom_kernels::weights::{Header, LoadError, MAX_HEADER_BYTES, MAX_TENSORS, read_header};
use serde::Deserialize;
use thiserror::Error;

/// Name of the index in a directory of Hugging Face.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// End of the name of an index.
const INDEX_END: &str = ".safetensors.index.json";
/// Maximum size of an index in bytes.
const INDEX_BYTES_MAX: u64 = MAX_HEADER_BYTES;
const SHARDS_MAX: usize = 1024;
/// Characters of a name in a message.
const SHOWN_CHARS: usize = 80;

/// Why sharded weights cannot be read.
#[derive(Debug, Error)]
pub enum ShardsError {
    /// The index cannot be read.
    #[error("cannot read {}: {error}", .index.display())]
    Index {
        index: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The index is not a valid index.
    #[error("cannot read {}: {why}", .index.display())]
    Invalid {
        index: PathBuf,
        /// The cause.
        why: String,
    },
    /// The index has a path instead of a file name.
    #[error("cannot read {}: the shard {name:?} is not a file name in the same folder", .index.display())]
    NotPlain {
        index: PathBuf,
        /// The name, shortened.
        name: String,
    },
    /// A shard is missing.
    #[error("cannot read {}: its shard {name} is missing", .index.display())]
    Missing {
        index: PathBuf,
        /// File name of the shard.
        name: String,
    },
    /// A shard cannot be read.
    #[error("cannot read {}: its shard {name}: {error}", .index.display())]
    Shard {
        index: PathBuf,
        /// File name of the shard.
        name: String,
        /// The cause.
        error: Box<LoadError>,
    },
    /// A shard lacks a tensor of the index.
    #[error("cannot read {}: its shard {name} lacks the tensor {tensor}", .index.display())]
    NoTensor {
        index: PathBuf,
        /// File name of the shard.
        name: String,
        /// Name of the tensor, shortened.
        tensor: String,
    },
}

impl ShardsError {
    /// Whether the system refused a file, or one is missing.
    #[must_use]
    pub fn is_input_output(&self) -> bool {
        match self {
            Self::Index { .. } | Self::Missing { .. } => true,
            Self::Shard { error, .. } => matches!(**error, LoadError::Io(_)),
            Self::Invalid { .. } | Self::NotPlain { .. } | Self::NoTensor { .. } => false,
        }
    }

    /// A suggestion for the user.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing { .. } | Self::NoTensor { .. } => Some("download all shards of one version into one folder"),
            Self::Index { .. } | Self::Invalid { .. } | Self::NotPlain { .. } | Self::Shard { .. } => None,
        }
    }
}

/// An index as Hugging Face's tools write it.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Whether a path names an index of shards.
#[must_use]
pub fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(INDEX_END))
}

/// The shards of a model as one stream of bytes. One shard is open at a time.
#[derive(Debug)]
pub struct Shards {
    shards: Vec<Shard>,
    /// The open shard, by its position in the list.
    open: Option<(usize, File)>,
    at: u64,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    /// Offset of its first byte in the stream.
    start: u64,
    bytes: u64,
}

impl Shards {
    /// Reads an index and the header of each shard.
    ///
    /// # Errors
    /// The index is invalid or has paths. A shard is missing, invalid, or lacks a tensor.
    pub fn open(index: &Path) -> Result<(Header, Self), ShardsError> {
        let weight_map = read_index(index)?;
        let names: BTreeSet<&String> = weight_map.values().collect();
        let invalid = |why: String| ShardsError::Invalid { index: index.to_path_buf(), why };
        if names.len() > SHARDS_MAX {
            return Err(invalid(format!("it has more than {SHARDS_MAX} shards")));
        }
        if let Some(name) = names.iter().find(|name| !is_plain(name)) {
            return Err(ShardsError::NotPlain { index: index.to_path_buf(), name: shown(name) });
        }
        let (mut shards, mut tensors, mut metadata) = (vec![], BTreeMap::new(), BTreeMap::new());
        let mut start = 0_u64;
        for name in names {
            let path = index.with_file_name(name);
            let header = match path.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(ShardsError::Missing { index: index.to_path_buf(), name: name.clone() });
                }
                Err(error) => Err(error.into()),
                // Opening a pipe would block.
                Ok(found) if !found.is_file() => Err(io::Error::other("it is not a file").into()),
                Ok(_) => File::open(&path).map_err(LoadError::from).and_then(|mut file| read_header(&mut file)),
            };
            let header = header.map_err(|error| ShardsError::Shard {
                index: index.to_path_buf(),
                name: name.clone(),
                error: Box::new(error),
            })?;
            for (tensor, _) in weight_map.iter().filter(|(_, shard)| *shard == name) {
                let missing =
                    || ShardsError::NoTensor { index: index.to_path_buf(), name: name.clone(), tensor: shown(tensor) };
                let mut info = header.tensors().get(tensor).ok_or_else(missing)?.clone();
                // No shard exceeds a file's size, and there are few.
                info.range = start.saturating_add(info.range.start)..start.saturating_add(info.range.end);
                tensors.insert(tensor.clone(), info);
            }
            metadata.extend(header.metadata().clone());
            let bytes = header.file_bytes();
            shards.push(Shard { path, start, bytes });
            start = start.checked_add(bytes).ok_or_else(|| invalid("its shards are too long".to_owned()))?;
        }
        Ok((Header::of_tensors(tensors, metadata, start), Self { shards, open: None, at: 0 }))
    }
}

/// Reads the file name of each tensor's shard.
fn read_index(index: &Path) -> Result<BTreeMap<String, String>, ShardsError> {
    let unread = |error| ShardsError::Index { index: index.to_path_buf(), error };
    let invalid = |why: String| ShardsError::Invalid { index: index.to_path_buf(), why };
    if !index.metadata().map_err(unread)?.is_file() {
        return Err(invalid("it is not a file".to_owned()));
    }
    let mut text = vec![];
    File::open(index).and_then(|file| file.take(INDEX_BYTES_MAX + 1).read_to_end(&mut text)).map_err(unread)?;
    if text.len() as u64 > INDEX_BYTES_MAX {
        return Err(invalid(format!("it has more than {} MiB", INDEX_BYTES_MAX >> 20)));
    }
    let parsed: Index = serde_json::from_slice(&text).map_err(|error| invalid(shown(&error.to_string())))?;
    match parsed.weight_map.len() {
        0 => Err(invalid("it names no tensor".to_owned())),
        n if n > MAX_TENSORS => Err(invalid(format!("it has more than {MAX_TENSORS} tensors"))),
        _ => Ok(parsed.weight_map),
    }
}

/// Whether a name is a file's name without a path, on every system.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let is_one = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
    is_one && !name.contains(['/', '\\', ':', '\0'])
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect()
}

impl Read for Shards {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // The shards are in order, without gaps.
        let i = self.shards.partition_point(|shard| shard.start <= self.at).saturating_sub(1);
        let Some(shard) = self.shards.get(i) else { return Ok(0) };
        let offset = self.at - shard.start;
        let left = shard.bytes.saturating_sub(offset);
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        if n == 0 {
            return Ok(0);
        }
        if self.open.as_ref().is_none_or(|(open, _)| *open != i) {
            self.open = Some((i, File::open(&shard.path)?));
        }
        let Some((_, file)) = &mut self.open else { return Ok(0) };
        file.seek(SeekFrom::Start(offset))?;
        let n = file.read(&mut bytes[..n])?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Shards {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let end = self.shards.last().map_or(0, |shard| shard.start + shard.bytes);
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => end.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = to.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn shard_names_with_paths_are_refused() {
        for name in ["", ".", "..", "/etc/passwd", "../x", "a/b", "a\\b", "C:x", "a/", "a\0"] {
            assert!(!is_plain(name), "{name:?}");
        }
        assert!(is_plain("model-00001-of-00002.safetensors"));
    }

    #[test]
    fn invalid_index_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let index = folder.path().join(INDEX_FILE);
        let refused = |text: &str| {
            fs::write(&index, text).expect("written");
            Shards::open(&index).expect_err(text).to_string()
        };
        for (text, why) in [
            ("", "EOF"),
            ("[]", "invalid"),
            ("{}", "weight_map"),
            (r#"{"weight_map": {}}"#, "it names no tensor"),
            (r#"{"weight_map": {"a": 3}}"#, "invalid type"),
            (r#"{"weight_map": {"a": "../b"}}"#, "the shard \"../b\" is not a file name in the same folder"),
            (r#"{"weight_map": {"a": "b.safetensors"}}"#, "its shard b.safetensors is missing"),
        ] {
            let error = refused(text);
            assert!(error.contains(why) && error.contains(INDEX_FILE), "{text}: {error}");
        }
        let shards: String = (0..=SHARDS_MAX).map(|i| format!("\"t{i}\": \"s{i}\",")).collect();
        let error = refused(&format!("{{\"weight_map\": {{{}}}}}", shards.trim_end_matches(',')));
        assert!(error.ends_with("it has more than 1024 shards"), "{error}");
        fs::create_dir(folder.path().join("d.safetensors")).expect("a folder");
        let not_a_file = refused(r#"{"weight_map": {"a": "d.safetensors"}}"#);
        assert!(not_a_file.contains(INDEX_FILE) && not_a_file.contains("its shard d.safetensors: "), "{not_a_file}");
    }
}
