//! A nanoGPT data folder, opened to be read: `train.bin` and `val.bin` of 16-bit tokens, and what `meta.pkl` says.
//!
//! Nothing is mapped into memory: a batch is read where it lies, so that a file of 17 GB takes no more than one of 17 KB,
//! and a disk that fails is an error, not a signal.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use headroom_shared::{
    nanogpt::defaults,
    text,
    tokenizer::meta::{MAX_META_BYTES, Meta, MetaError, NoChars},
};
use thiserror::Error;

use super::tokenizer::Tokenizer;

/// nanoGPT's own folder of data sets.
const DATA: &str = "data";
/// The vocabulary beside the tokens.
pub const META: &str = "meta.pkl";
/// What train.py takes where no meta.pkl says better: GPT-2's 50,257 rounded up.
#[expect(clippy::cast_possible_truncation, reason = "50,304")]
pub const DEFAULT_VOCAB_SIZE: u32 = defaults::DEFAULT_VOCAB_SIZE as u32;

/// One half of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// To learn from.
    Train,
    /// To be judged by.
    Val,
}

impl Split {
    /// The name of its file.
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
    /// One row of tokens as they lie in the file; kept from batch to batch.
    row: Mutex<Vec<u8>>,
}

/// One file of tokens.
#[derive(Debug)]
struct Tokens {
    path: PathBuf,
    file: File,
    n_tokens: u64,
}

/// Why a data set cannot be used.
#[derive(Debug, Error)]
pub enum DatasetError {
    /// No folder of that name has a data set.
    #[error("{}", text::no_data_set(format!("{name:?}"), looked(places)))]
    NotFound {
        /// As given.
        name: String,
        /// Where it was looked for, and what was there.
        places: Vec<(PathBuf, Found)>,
    },
    /// A file of it cannot be read.
    #[error("{}", text::file_unreadable(path.display().to_string(), error.to_string()))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Half a token.
    #[error("{}", text::data_odd(path.display().to_string(), *n_bytes))]
    OddLength {
        /// The file.
        path: PathBuf,
        /// Its length.
        n_bytes: u64,
    },
    /// A `meta.pkl` that is none.
    #[error("{}: {error}", path.display())]
    Meta {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: MetaError,
    },
    /// A `meta.pkl` whose model would have no token for some of its characters.
    #[error("{}", text::data_meta(path.display().to_string(), u64::from(*vocab_size), *n_chars as u64))]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// The tokens that it states.
        vocab_size: u32,
        /// The characters that it lists.
        n_chars: usize,
    },
    /// No tokenizer can be made of it.
    #[error("{}: {why}, so its tokens cannot be turned into text", path.display())]
    NoTokenizer {
        /// The meta.pkl.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Fewer tokens than a row has.
    #[error("{}", text::data_too_short(path.display().to_string(), *n_tokens, *block_size))]
    TooShort {
        /// The file.
        path: PathBuf,
        /// How many it has.
        n_tokens: u64,
        /// How many a row has.
        block_size: usize,
    },
    /// A token that the model has no row for.
    #[error(
        "{}", text::data_beyond(path.display().to_string(), *position, u64::from(*id), u64::from(*vocab_size))
    )]
    BeyondVocab {
        /// The file.
        path: PathBuf,
        /// Its place in the file, from 0.
        position: u64,
        /// The token.
        id: u16,
        /// How many ids there are.
        vocab_size: u32,
    },
}

fn looked(places: &[(PathBuf, Found)]) -> String {
    let said = |(path, found): &(PathBuf, Found)| {
        let path = path.display().to_string();
        match found {
            Found::Empty => text::place_empty(path),
            Found::NoFolder => text::place_no_folder(path),
            Found::Nothing => text::place_none(path),
        }
    };
    places.iter().map(|place| said(place).to_string()).collect::<Vec<_>>().join("; ")
}

/// What is where a data set could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A folder without tokens.
    Empty,
    /// Something else.
    NoFolder,
    /// Nothing.
    Nothing,
}

impl DatasetError {
    /// Whether the system refused a file or a folder, or a named one does not exist.
    #[must_use]
    pub const fn is_input_output(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Unreadable { .. })
    }

    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotFound { name, .. } => {
                // A folder that is named whole is below no other.
                text::try_prepare(Path::new(DATA).join(name).display().to_string()).to_string()
            }
            Self::OddLength { .. } => text::TRY_COPIED.to_string(),
            Self::TooShort { .. } => text::TRY_BLOCK_SIZE.to_string(),
            Self::BeyondVocab { .. } => text::TRY_SAME_PREPARE.to_string(),
            Self::Vocabulary { .. } => text::TRY_PREPARE_META.to_string(),
            _ => return None,
        })
    }
}

/// The folder that `--dataset=NAME` means: nanoGPT's `data/NAME` below `from`, else NAME as a folder itself.
///
/// # Errors
/// Neither has a train.bin; the error says what is there.
pub fn resolve(name: &str, from: &Path) -> Result<PathBuf, DatasetError> {
    let mut candidates = vec![from.join(DATA).join(name), from.join(name)];
    // Of an absolute path both are the same.
    candidates.dedup();
    let mut places = Vec::new();
    for folder in candidates {
        if folder.join(Split::Train.file_name()).is_file() {
            return Ok(folder);
        }
        let found = match folder.metadata() {
            Ok(metadata) if metadata.is_dir() => Found::Empty,
            Ok(_) => Found::NoFolder,
            Err(_) => Found::Nothing,
        };
        places.push((folder, found));
    }
    Err(DatasetError::NotFound { name: name.to_owned(), places })
}

impl Dataset {
    /// Opens a folder, nanoGPT's or ours.
    ///
    /// # Errors
    /// A file of it is missing or broken.
    pub fn open(folder: &Path) -> Result<Self, DatasetError> {
        let train = Tokens::open(folder, Split::Train)?;
        let val = Tokens::open(folder, Split::Val)?;
        let meta = read_meta(&folder.join(META))?;
        let vocab_size = meta.as_ref().map_or(DEFAULT_VOCAB_SIZE, |meta| meta.vocab_size);
        Ok(Self { folder: folder.to_owned(), train, val, meta, vocab_size, row: Mutex::new(Vec::new()) })
    }

    /// Takes another bound for ids than the folder's own, where a model has another vocabulary.
    #[must_use]
    pub fn with_vocab_size(self, vocab_size: u32) -> Self {
        Self { vocab_size, ..self }
    }

    /// Ids are below this: what meta.pkl says, else nanoGPT's 50,304.
    pub fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    /// Whether a meta.pkl says how many ids there are.
    pub fn has_meta(&self) -> bool {
        self.meta.is_some()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many tokens a half has.
    pub fn n_tokens(&self, split: Split) -> u64 {
        self.tokens(split).n_tokens
    }

    /// Characters where there is a meta.pkl, else GPT-2's.
    ///
    /// # Errors
    /// The meta.pkl has no vocabulary of characters.
    pub fn tokenizer(&self) -> Result<Tokenizer, DatasetError> {
        match &self.meta {
            None => Ok(Tokenizer::Gpt2),
            Some(Meta { chars: Ok(chars), .. }) => Ok(Tokenizer::Char(chars.clone())),
            Some(Meta { chars: Err(why), .. }) => {
                Err(DatasetError::NoTokenizer { path: self.folder.join(META), why: why.to_string() })
            }
        }
    }

    /// How many offsets a row may begin at, as nanoGPT draws them: from 0 to below this.
    ///
    /// # Errors
    /// There are none.
    pub fn n_offsets(&self, split: Split, block_size: usize) -> Result<u64, DatasetError> {
        let Tokens { path, n_tokens, .. } = self.tokens(split);
        match n_tokens.checked_sub(block_size as u64) {
            None | Some(0) => Err(DatasetError::TooShort { path: path.clone(), n_tokens: *n_tokens, block_size }),
            Some(n) => Ok(n),
        }
    }

    /// Reads a row of `block_size` tokens at each offset into `x`, and the same one token later into `y`.
    ///
    /// Shapes: `x` and `y` (B, T) with B offsets and T = `block_size`.
    ///
    /// # Panics
    /// `x` or `y` has another length: a caller's bug.
    ///
    /// # Errors
    /// A row leaves the file, the file cannot be read, or a token is beyond the vocabulary.
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

    /// Fills `row` with the bytes at a token. The caller holds the row's lock, so no one else moves the file's cursor.
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
    // One byte more than is taken, so that a longer file is known as one.
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
