//! Converts text to a data set in nanoGPT's layout, like its `data/*/prepare.py`.
//!
//! The text is read twice in chunks: first to count its characters, then to write their tokens. The first nine tenths
//! of the characters are for training, the rest for validation.

mod output;
mod source;

use std::{
    io,
    path::{Path, PathBuf},
};

use headroom_tokenizer::{CharTokenizer, meta::Meta};
use thiserror::Error;

use super::{
    dataset::{META, Split},
    tokenizer::{EncodeError, GPT2_VOCAB_SIZE, Tokenizer},
};
use headroom_agent_core::utf8::NotText;
use output::{Output, Part};
use source::MAX_PIPE_BYTES;
pub use source::Source;

/// Number of ids that fit in 16 bits.
const MAX_VOCAB_SIZE: usize = 1 << 16;
/// Minimum number of tokens in a split: a token and its successor.
const MIN_TOKENS: u64 = 2;

/// Kind of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Characters of the text.
    #[default]
    Char,
    /// GPT-2's byte pair encoding.
    Gpt2,
}

impl Kind {
    /// Returns the name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Char => "char",
            Self::Gpt2 => "gpt2",
        }
    }
}

/// Result of preparing a data set.
#[derive(Debug, PartialEq, Eq)]
pub struct PreparedDataset {
    /// Vocabulary size.
    pub vocab_size: u32,
    /// Number of tokens in train.bin.
    pub n_train_tokens: u64,
    /// Number of tokens in val.bin.
    pub n_val_tokens: u64,
    /// Whether a meta.pkl was written.
    pub has_meta: bool,
    /// Effect on the directory.
    pub outcome: Outcome,
}

/// Effect on the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A new data set was written.
    Written,
    /// The directory already contained the same data set and was not changed.
    Unchanged,
    /// A different data set was replaced.
    Replaced,
}

/// Reason why no data set was written.
#[derive(Debug, Error)]
pub enum Error {
    /// The text, or an existing file to compare with, cannot be read.
    #[error("cannot read {name}: {error}")]
    Unreadable {
        /// Name as given.
        name: String,
        /// Error from the operating system.
        error: io::Error,
    },
    /// The path is a directory instead of a file.
    #[error("{name} is a folder; a data set is made of one text file")]
    Folder {
        /// Name as given.
        name: String,
    },
    /// A pipe or a device provides more data than is kept in memory.
    #[error("cannot read {name}: a pipe or a device may give {} GiB at most", MAX_PIPE_BYTES >> 30)]
    Endless {
        /// Name as given.
        name: String,
    },
    /// The text is not valid UTF-8.
    #[error(transparent)]
    NotText(NotText),
    /// The text is empty.
    #[error("{name} is empty")]
    Empty {
        /// Name as given.
        name: String,
    },
    /// The text is too short.
    #[error(
        "{name} is too short: {n_train} tokens for train.bin and {n_val} for val.bin, where each needs {MIN_TOKENS} or more"
    )]
    TooShort {
        /// Name as given.
        name: String,
        /// Number of training tokens.
        n_train: u64,
        /// Number of validation tokens.
        n_val: u64,
    },
    /// The text has more distinct characters than there are ids.
    #[error("{name} has {n_chars} different characters; tokens are 16 bits wide, enough for {MAX_VOCAB_SIZE}")]
    TooManyChars {
        /// Name as given.
        name: String,
        /// Number of distinct characters.
        n_chars: usize,
    },
    /// The text changed between the two passes.
    #[error("{name} changed while it was read")]
    Changed {
        /// Name as given.
        name: String,
    },
    /// The text cannot be tokenized.
    #[error(transparent)]
    Encode(EncodeError),
    /// The directory or a file in it cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Unwritable {
        /// The file or directory.
        path: PathBuf,
        /// Error from the operating system.
        error: io::Error,
    },
    /// The directory contains a different data set.
    #[error("{} is of another data set, which is left as it is", path.display())]
    Exists {
        /// The first file that differs.
        path: PathBuf,
    },
    /// Another `headroom data prepare` is using the directory.
    #[error("{} is being written by another headroom", folder.display())]
    Busy {
        /// The directory.
        folder: PathBuf,
    },
}

impl Error {
    /// Returns whether the cause is an I/O error or a missing file or directory.
    pub const fn is_input_output(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Unwritable { .. } | Self::Folder { .. })
    }

    /// Returns a suggestion.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Unreadable { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "paths start from the folder you are in; `builtin` is the corpus that comes with headroom".to_owned()
            }
            Self::Folder { .. } => "`cat FOLDER/*.txt > all.txt` makes one of many".to_owned(),
            Self::Endless { .. } => "write it to a file first; a file may have any size".to_owned(),
            Self::NotText(error) => error.hint(),
            Self::Empty { .. } | Self::TooShort { .. } => {
                "nanoGPT reads block_size + 1 tokens at a time, 1,025 with its defaults; a small model wants a million characters".to_owned()
            }
            Self::TooManyChars { .. } => "--tokenizer gpt2 takes any text".to_owned(),
            Self::Unwritable { error, .. } => match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    "--out takes a folder that you may write to".to_owned()
                }
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "no incomplete file remains; a token takes 2 bytes, and --out takes a folder on another disk".to_owned()
                }
                io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => "--out takes a folder, not a file".to_owned(),
                _ => return None,
            },
            Self::Exists { .. } => "--force puts the new one in its place; --out takes another folder".to_owned(),
            Self::Changed { .. } | Self::Encode(_) | Self::Unreadable { .. } | Self::Busy { .. } => return None,
        })
    }
}

/// Writes the data set of `source` to the directory `out`. An existing data set is replaced only with `force`.
///
/// # Errors
/// Returns an error if the text is invalid or the directory cannot be written. A directory without a data set then
/// still has none.
pub fn prepare(source: &Source, kind: Kind, out: &Path, force: bool) -> Result<PreparedDataset, Error> {
    let survey = TextSurvey::of(source)?;
    let tokenizer = match kind {
        Kind::Gpt2 => Tokenizer::Gpt2,
        Kind::Char if survey.chars.vocab_size() > MAX_VOCAB_SIZE => {
            return Err(Error::TooManyChars { name: source.name(), n_chars: survey.chars.vocab_size() });
        }
        Kind::Char => Tokenizer::Char(survey.chars.clone()),
    };
    let _lock = output::lock(out)?;
    let folder = Folder::look(out, kind == Kind::Char);
    let keep = folder.has_any && !force;
    let (n_tokens, parts) = folder.write(source, &survey, &tokenizer, keep)?;
    if !keep {
        folder.put_in_place(parts)?;
    }
    Ok(PreparedDataset {
        vocab_size: tokenizer.vocab_size(),
        n_train_tokens: n_tokens[0],
        n_val_tokens: n_tokens[1],
        has_meta: folder.has_meta,
        outcome: match (folder.has_any, force) {
            (false, _) => Outcome::Written,
            (true, false) => Outcome::Unchanged,
            (true, true) => Outcome::Replaced,
        },
    })
}

/// Result of the first pass.
#[derive(Debug)]
struct TextSurvey {
    /// Number of characters, counted as in Python.
    n_chars: u64,
    chars: CharTokenizer,
}

impl TextSurvey {
    fn of(source: &Source) -> Result<Self, Error> {
        let mut seen = vec![false; char::MAX as usize + 1];
        let mut n_chars = 0;
        let mut pieces = source.pieces()?;
        while let Some(piece) = pieces.next()? {
            for char in piece.chars() {
                seen[char as usize] = true;
                n_chars += 1;
            }
        }
        if n_chars == 0 {
            return Err(Error::Empty { name: source.name() });
        }
        let chars = ('\0'..=char::MAX).filter(|char| seen[*char as usize]);
        Ok(Self { n_chars, chars: CharTokenizer::of_chars(chars) })
    }

    /// Returns the number of training characters: nanoGPT's `int(n * 0.9)` in integer arithmetic.
    fn n_train_chars(&self) -> u64 {
        self.n_chars / 10 * 9 + self.n_chars % 10 * 9 / 10
    }
}

/// Directory of the data set.
#[derive(Debug)]
struct Folder {
    train: PathBuf,
    val: PathBuf,
    meta: PathBuf,
    /// Whether the new data set has a meta.pkl.
    has_meta: bool,
    /// Whether any of the three files exists.
    has_any: bool,
}

impl Folder {
    fn look(out: &Path, has_meta: bool) -> Self {
        let [train, val] = [Split::Train, Split::Val].map(|split| out.join(split.file_name()));
        let meta = out.join(META);
        let has_any = [&train, &val, &meta].iter().any(|path| path.symlink_metadata().is_ok());
        Self { train, val, meta, has_meta, has_any }
    }

    /// Writes the new files next to the existing ones. With `keep`, only compares them with the existing files.
    fn write(
        &self,
        source: &Source,
        survey: &TextSurvey,
        tokenizer: &Tokenizer,
        keep: bool,
    ) -> Result<([u64; 2], Vec<Part>), Error> {
        if let Some(odd) = [&self.train, &self.val].into_iter().find(|path| keep && !path.exists()) {
            // An incomplete data set counts as a different one. The error names an existing file.
            let there = [&self.val, &self.train, &self.meta].into_iter().find(|path| path.exists() && *path != odd);
            return Err(Error::Exists { path: there.unwrap_or(odd).clone() });
        }
        if keep && self.meta.exists() != self.has_meta {
            return Err(Error::Exists { path: if self.has_meta { self.train.clone() } else { self.meta.clone() } });
        }
        let open = |path: &Path| if keep { Output::compare(path.to_owned()) } else { Output::write(path.to_owned()) };
        let mut halves =
            [TokenizedSplit::new(open(&self.train)?, tokenizer), TokenizedSplit::new(open(&self.val)?, tokenizer)];
        split(source, survey, &mut halves)?;
        let [train, val] = halves.map(TokenizedSplit::finish);
        let ((n_train, train), (n_val, val)) = (train?, val?);
        if n_train < MIN_TOKENS || n_val < MIN_TOKENS {
            return Err(Error::TooShort { name: source.name(), n_train, n_val });
        }
        let mut parts: Vec<Part> = val.into_iter().collect();
        if self.has_meta {
            let mut meta = open(&self.meta)?;
            meta.put(&Meta::of_chars(&survey.chars))?;
            parts.extend(meta.finish()?);
        }
        parts.extend(train);
        Ok(([n_train, n_val], parts))
    }

    /// Renames the new files, train.bin last. A directory without train.bin is not a data set, so an interrupted run
    /// leaves none instead of a mixed one.
    fn put_in_place(&self, parts: Vec<Part>) -> Result<(), Error> {
        output::remove(&self.train)?;
        if !self.has_meta {
            output::remove(&self.meta)?;
        }
        parts.into_iter().try_for_each(Part::rename)
    }
}

/// Reads the text again and passes each split its characters.
fn split(source: &Source, survey: &TextSurvey, halves: &mut [TokenizedSplit; 2]) -> Result<(), Error> {
    let changed = |error| match error {
        // The first pass found every character of the text.
        Error::Encode(EncodeError::UnknownChar { .. }) => Error::Changed { name: source.name() },
        error => error,
    };
    let mut n_left = survey.n_train_chars();
    let mut n_chars = 0;
    let mut pieces = source.pieces()?;
    while let Some(piece) = pieces.next()? {
        let n_piece = piece.chars().count() as u64;
        let n_train = n_left.min(n_piece);
        let at = match usize::try_from(n_train) {
            Ok(n_train) if n_train as u64 != n_piece => {
                piece.char_indices().nth(n_train).map_or(piece.len(), |(at, _)| at)
            }
            _ => piece.len(),
        };
        let (train, val) = piece.split_at(at);
        halves[0].put(train).map_err(changed)?;
        halves[1].put(val).map_err(changed)?;
        n_left -= n_train;
        n_chars += n_piece;
    }
    if n_chars == survey.n_chars { Ok(()) } else { Err(Error::Changed { name: source.name() }) }
}

/// One split of the text during tokenization.
struct TokenizedSplit<'a> {
    tokenizer: &'a Tokenizer,
    output: Output,
    n_tokens: u64,
    /// Text whose tokens depend on the text after it; used only for GPT-2.
    pending: String,
    bytes: Vec<u8>,
}

impl<'a> TokenizedSplit<'a> {
    fn new(output: Output, tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, output, n_tokens: 0, pending: String::new(), bytes: Vec::new() }
    }

    fn put(&mut self, text: &str) -> Result<(), Error> {
        if !matches!(self.tokenizer, Tokenizer::Gpt2) {
            return self.encode(text);
        }
        self.pending.push_str(text);
        let text = std::mem::take(&mut self.pending);
        let (whole, rest) = text.split_at(gpt2_boundary(&text));
        rest.clone_into(&mut self.pending);
        self.encode(whole)
    }

    fn encode(&mut self, text: &str) -> Result<(), Error> {
        let ids = self.tokenizer.encode_ordinary(text).map_err(Error::Encode)?;
        self.bytes.clear();
        for id in &ids {
            let id = u16::try_from(*id).expect("token IDs of both vocabularies fit 16 bits");
            self.bytes.extend_from_slice(&id.to_le_bytes());
        }
        self.n_tokens += ids.len() as u64;
        self.output.put(&self.bytes)
    }

    fn finish(mut self) -> Result<(u64, Option<Part>), Error> {
        let rest = std::mem::take(&mut self.pending);
        self.encode(&rest)?;
        Ok((self.n_tokens, self.output.finish()?))
    }
}

/// Returns the last position where GPT-2's pattern begins a new word regardless of the following text: at a blank after
/// a non-blank.
///
/// No word of the pattern continues from a non-blank into a blank, and the pattern has no look-behind.
fn gpt2_boundary(text: &str) -> usize {
    let mut after_blank = None;
    for (at, char) in text.char_indices().rev() {
        match after_blank {
            Some(boundary) if !char.is_whitespace() => return boundary,
            _ => after_blank = char.is_whitespace().then_some(at),
        }
    }
    0
}

const _: () = assert!(GPT2_VOCAB_SIZE as usize <= MAX_VOCAB_SIZE);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_are_pythons() {
        // Python: int(n * 0.9)
        for (n_chars, n_train) in
            [(1, 0), (9, 8), (10, 9), (11, 9), (19, 17), (1_115_394, 1_003_854), (10_000_000_007, 9_000_000_006)]
        {
            let survey = TextSurvey { n_chars, chars: CharTokenizer::of_text("") };
            assert_eq!(survey.n_train_chars(), n_train, "{n_chars}");
        }
    }

    #[test]
    fn words_are_cut_where_gpt2_cuts_them() {
        for (text, at) in
            [("", 0), ("word", 0), ("two words", 3), ("a b c", 3), ("a  ", 1), ("   a", 0), ("x\u{a0}y", 1)]
        {
            assert_eq!(gpt2_boundary(text), at, "{text:?}");
        }
    }

    #[test]
    fn pieces_have_the_tokens_of_the_whole() {
        let text = "  I'll say:  \n\n 'tis  1234 naïve\u{a0}\u{2003}世界 \t end\n\n\n  ".repeat(3);
        let whole = Tokenizer::Gpt2.encode_ordinary(&text).expect("ids");
        let chars: Vec<char> = text.chars().collect();
        for length in 1..=chars.len() {
            let mut ids = Vec::new();
            let mut pending = String::new();
            for piece in chars.chunks(length) {
                pending.extend(piece);
                let rest = pending.split_off(gpt2_boundary(&pending));
                ids.extend(Tokenizer::Gpt2.encode_ordinary(&pending).expect("ids"));
                pending = rest;
            }
            ids.extend(Tokenizer::Gpt2.encode_ordinary(&pending).expect("ids"));
            assert_eq!(ids, whole, "{length} characters at once");
        }
    }
}
