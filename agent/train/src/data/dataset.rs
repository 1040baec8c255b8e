//! Reader of a nanoGPT data directory: `train.bin` and `val.bin` with 16-bit tokens, and `meta.pkl`.
//!
//! The files are not memory-mapped: a batch is read directly from the file. So the file's size does not affect memory
//! use: 17 GB need no more than 17 KB. A failing disk causes an error instead of a signal.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use headroom_planner::nanogpt::defaults;
use headroom_text::{self as text, Part, Separator, Text};
use headroom_tokenizer::meta::{MAX_META_BYTES, Meta, MetaError, NoChars};
use thiserror::Error;

pub use super::tokenizer::META;
use super::tokenizer::Tokenizer;

/// nanoGPT's directory for data sets.
const DATA: &str = "data";
/// train.py's default vocabulary size without a meta.pkl: GPT-2's 50,257 rounded up.
#[expect(clippy::cast_possible_truncation, reason = "50,304")]
pub const DEFAULT_VOCAB_SIZE: u32 = defaults::DEFAULT_VOCAB_SIZE as u32;

/// A split of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Training data.
    Train,
    /// Validation data.
    Val,
}

impl Split {
    /// Returns the name of the split's file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Train => "train.bin",
            Self::Val => "val.bin",
        }
    }
}

/// An open data set.
#[derive(Debug)]
pub struct Dataset {
    folder: PathBuf,
    train: Tokens,
    val: Tokens,
    meta: Option<Meta>,
    vocab_size: u32,
    /// Buffer for one row of tokens in the file's format, reused between batches.
    row: Mutex<Vec<u8>>,
}

/// An open file of tokens.
#[derive(Debug)]
struct Tokens {
    path: PathBuf,
    file: File,
    n_tokens: u64,
}

/// Reason why a data set cannot be used.
#[derive(Debug, Error)]
#[error("{}", self.text())]
pub enum DatasetError {
    /// No directory with this name contains a data set.
    NotFound {
        /// Name as given.
        name: String,
        /// Paths that were searched, and what was found at each.
        places: Vec<(PathBuf, DatasetSearch)>,
    },
    /// A file of the data set cannot be read.
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error from the operating system.
        error: io::Error,
    },
    /// The file's length is not a multiple of two bytes.
    OddLength {
        /// Path of the file.
        path: PathBuf,
        /// Length of the file in bytes.
        n_bytes: u64,
    },
    /// The `meta.pkl` is invalid.
    Meta {
        /// Path of the file.
        path: PathBuf,
        error: MetaError,
    },
    /// The `meta.pkl` lists more characters than its vocabulary size.
    Vocabulary {
        /// Path of the file.
        path: PathBuf,
        /// Vocabulary size in the file.
        vocab_size: u32,
        /// Number of characters in the file.
        n_chars: usize,
    },
    /// The data set has no usable tokenizer.
    NoTokenizer {
        /// Path of the meta.pkl.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A split has fewer tokens than a row.
    TooShort {
        /// Path of the file.
        path: PathBuf,
        /// Number of tokens in the file.
        n_tokens: u64,
        /// Number of tokens in a row.
        block_size: usize,
    },
    /// A token is outside the vocabulary.
    BeyondVocab {
        /// Path of the file.
        path: PathBuf,
        /// Index of the token in the file, from 0.
        position: u64,
        /// The invalid token id.
        id: u16,
        /// Vocabulary size.
        vocab_size: u32,
    },
}

impl DatasetError {
    /// Returns the error message.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::NotFound { name, places } => text::no_data_set(format!("{name:?}"), looked(places)),
            Self::Unreadable { path, error } => text::file_unreadable(path.display().to_string(), error.to_string()),
            Self::OddLength { path, n_bytes } => text::data_odd(path.display().to_string(), *n_bytes),
            Self::Meta { path, error } => text::as_is(format!("cannot read {}: {error}", path.display())),
            Self::Vocabulary { path, vocab_size, n_chars } => {
                text::data_meta(path.display().to_string(), u64::from(*vocab_size), *n_chars as u64)
            }
            Self::NoTokenizer { path, why } => {
                text::as_is(format!("{}: {why}, so its tokens cannot be turned into text", path.display()))
            }
            Self::TooShort { path, n_tokens, block_size } => {
                text::data_too_short(path.display().to_string(), *n_tokens, *block_size)
            }
            Self::BeyondVocab { path, position, id, vocab_size } => {
                text::data_beyond(path.display().to_string(), *position, u64::from(*id), u64::from(*vocab_size))
            }
        }
    }
}

fn looked(places: &[(PathBuf, DatasetSearch)]) -> Part {
    let said = |(path, found): &(PathBuf, DatasetSearch)| {
        let path = path.display().to_string();
        match found {
            DatasetSearch::Empty => text::place_empty(path),
            DatasetSearch::NoFolder => text::place_no_folder(path),
            DatasetSearch::Nothing => text::place_none(path),
        }
    };
    text::list(Separator::Semicolon, places.iter().map(said))
}

/// Result of searching a path for a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetSearch {
    /// A directory without tokens.
    Empty,
    /// Something other than a directory.
    NoFolder,
    /// The path does not exist.
    Nothing,
}

impl DatasetError {
    /// Returns whether the cause is an I/O error or a missing file or directory.
    #[must_use]
    pub const fn is_input_output(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Unreadable { .. })
    }

    /// Returns a suggestion.
    pub fn hint(&self) -> Option<Text> {
        Some(match self {
            Self::NotFound { name, .. } => {
                // An absolute path stays as it is when joined.
                text::try_prepare(Path::new(DATA).join(name).display().to_string())
            }
            Self::OddLength { .. } => text::TRY_COPIED.into(),
            Self::TooShort { .. } => text::TRY_BLOCK_SIZE.into(),
            Self::BeyondVocab { .. } => text::TRY_SAME_PREPARE.into(),
            Self::Vocabulary { .. } => text::TRY_PREPARE_META.into(),
            _ => return None,
        })
    }
}

/// Returns the directory for `--dataset=NAME`: nanoGPT's `data/NAME` below `from`, or else NAME as a directory.
///
/// # Errors
/// Returns an error with the contents of both paths if neither contains a train.bin.
pub fn resolve(name: &str, from: &Path) -> Result<PathBuf, DatasetError> {
    let mut candidates = vec![from.join(DATA).join(name), from.join(name)];
    // The candidates are equal for an absolute path.
    candidates.dedup();
    let mut places = Vec::new();
    for folder in candidates {
        if folder.join(Split::Train.file_name()).is_file() {
            return Ok(folder);
        }
        let found = match folder.metadata() {
            Ok(metadata) if metadata.is_dir() => DatasetSearch::Empty,
            Ok(_) => DatasetSearch::NoFolder,
            Err(_) => DatasetSearch::Nothing,
        };
        places.push((folder, found));
    }
    Err(DatasetError::NotFound { name: name.to_owned(), places })
}

impl Dataset {
    /// Opens a directory created by nanoGPT or by Headroom.
    ///
    /// # Errors
    /// Returns an error if a file is missing or invalid.
    pub fn open(folder: &Path) -> Result<Self, DatasetError> {
        let train = Tokens::open(folder, Split::Train)?;
        let val = Tokens::open(folder, Split::Val)?;
        let meta = read_meta(&folder.join(META))?;
        let vocab_size = meta.as_ref().map_or(DEFAULT_VOCAB_SIZE, |meta| meta.vocab_size);
        Ok(Self { folder: folder.to_owned(), train, val, meta, vocab_size, row: Mutex::new(Vec::new()) })
    }

    /// Replaces the upper bound of the ids, for a model with another vocabulary.
    #[must_use]
    pub fn with_vocab_size(self, vocab_size: u32) -> Self {
        Self { vocab_size, ..self }
    }

    /// Returns the upper bound of the ids: the vocabulary size in meta.pkl, or else nanoGPT's 50,304.
    pub fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    /// Returns whether a meta.pkl defines the vocabulary size.
    pub fn has_meta(&self) -> bool {
        self.meta.is_some()
    }

    /// Returns the directory.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn n_tokens(&self, split: Split) -> u64 {
        self.tokens(split).n_tokens
    }

    /// Returns why the meta.pkl has characters that cannot be used. `None` without characters, or if they are valid.
    pub fn invalid_characters(&self) -> Option<&NoChars> {
        let why = self.meta.as_ref()?.chars.as_ref().err();
        why.filter(|why| **why != NoChars::Missing)
    }

    /// Returns the character tokenizer if there is a meta.pkl, else GPT-2's.
    ///
    /// # Errors
    /// Returns an error if the meta.pkl has no character vocabulary.
    pub fn tokenizer(&self) -> Result<Tokenizer, DatasetError> {
        match &self.meta {
            None => Ok(Tokenizer::Gpt2),
            Some(Meta { chars: Ok(chars), .. }) => Ok(Tokenizer::Char(chars.clone())),
            Some(Meta { chars: Err(why), .. }) => {
                Err(DatasetError::NoTokenizer { path: self.folder.join(META), why: why.to_string() })
            }
        }
    }

    /// Returns the number of possible row offsets, as drawn by nanoGPT: from 0 to below this number.
    ///
    /// # Errors
    /// Returns an error if the split is too short for a row.
    pub fn n_offsets(&self, split: Split, block_size: usize) -> Result<u64, DatasetError> {
        let Tokens { path, n_tokens, .. } = self.tokens(split);
        match n_tokens.checked_sub(block_size as u64) {
            None | Some(0) => Err(DatasetError::TooShort { path: path.clone(), n_tokens: *n_tokens, block_size }),
            Some(n) => Ok(n),
        }
    }

    /// Reads a row of `block_size` tokens at each offset into `x`, and the row one token later into `y`.
    ///
    /// Shapes: `x` and `y` (B, T) with B offsets and T = `block_size`.
    ///
    /// # Panics
    /// Panics if the length of `x` or `y` is wrong, which is a bug in the caller.
    ///
    /// # Errors
    /// Returns an error if a row exceeds the file, the file cannot be read, or a token is outside the vocabulary.
    pub fn read_batch(
        &self,
        split: Split,
        offsets: &[u64],
        block_size: usize,
        x: &mut [u32],
        y: &mut [u32],
    ) -> Result<(), DatasetError> {
        assert!(block_size > 0, "a row has tokens");
        assert_eq!((x.len(), y.len()), (offsets.len() * block_size, offsets.len() * block_size), "x and y are (B, T)");
        let n_offsets = self.n_offsets(split, block_size)?;
        let tokens = self.tokens(split);
        let mut row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        row.resize((block_size + 1) * size_of::<u16>(), 0);
        let rows = x.chunks_exact_mut(block_size).zip(y.chunks_exact_mut(block_size));
        for (offset, (x, y)) in offsets.iter().zip(rows) {
            if *offset >= n_offsets {
                return Err(tokens.unreadable(io::ErrorKind::UnexpectedEof.into()));
            }
            tokens.read_at(*offset, &mut row).map_err(|error| tokens.unreadable(error))?;
            self.take_row(tokens, *offset, &row, x, y)?;
        }
        Ok(())
    }

    fn take_row(
        &self,
        tokens: &Tokens,
        offset: u64,
        row: &[u8],
        x: &mut [u32],
        y: &mut [u32],
    ) -> Result<(), DatasetError> {
        let (pairs, _) = row.as_chunks();
        for (i, (pair, position)) in pairs.iter().zip(offset..).enumerate() {
            let id = u16::from_le_bytes(*pair);
            if u32::from(id) >= self.vocab_size {
                let path = tokens.path.clone();
                return Err(DatasetError::BeyondVocab { path, position, id, vocab_size: self.vocab_size });
            }
            if let Some(x) = x.get_mut(i) {
                *x = u32::from(id);
            }
            if i > 0 {
                y[i - 1] = u32::from(id);
            }
        }
        Ok(())
    }

    fn tokens(&self, split: Split) -> &Tokens {
        match split {
            Split::Train => &self.train,
            Split::Val => &self.val,
        }
    }
}

impl Tokens {
    fn open(folder: &Path, split: Split) -> Result<Self, DatasetError> {
        let path = folder.join(split.file_name());
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok((metadata, _)) if metadata.is_dir() => {
                return Err(DatasetError::Unreadable { path, error: io::ErrorKind::IsADirectory.into() });
            }
            Ok(opened) => opened,
            Err(error) => return Err(DatasetError::Unreadable { path, error }),
        };
        let n_bytes = metadata.len();
        if n_bytes % 2 != 0 {
            return Err(DatasetError::OddLength { path, n_bytes });
        }
        Ok(Self { path, file, n_tokens: n_bytes / 2 })
    }

    fn unreadable(&self, error: io::Error) -> DatasetError {
        DatasetError::Unreadable { path: self.path.clone(), error }
    }

    /// Fills `row` with the bytes at a token. The caller holds the row's lock, so the file's cursor is not moved
    /// concurrently.
    #[cfg(not(unix))]
    fn read_at(&self, offset: u64, row: &mut [u8]) -> io::Result<()> {
        use std::io::{Seek, SeekFrom};
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset * 2))?;
        file.read_exact(row)
    }

    /// Fills `row` with the bytes at a token.
    #[cfg(unix)]
    fn read_at(&self, offset: u64, row: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, row, offset * 2)
    }
}

fn read_meta(path: &Path) -> Result<Option<Meta>, DatasetError> {
    let mut bytes = Vec::new();
    // One extra byte detects a file that is too long.
    match File::open(path).and_then(|file| file.take(MAX_META_BYTES + 1).read_to_end(&mut bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DatasetError::Unreadable { path: path.to_owned(), error }),
        Ok(_) => {}
    }
    let meta = Meta::parse(&bytes).map_err(|error| DatasetError::Meta { path: path.to_owned(), error })?;
    if let Err(NoChars::TooMany { n_chars, vocab_size }) = meta.chars {
        return Err(DatasetError::Vocabulary { path: path.to_owned(), vocab_size, n_chars });
    }
    Ok(Some(meta))
}

#[cfg(test)]
mod tests;
