//! Reads tokenizers from files: Hugging Face's `tokenizer.json`, GPT-2's `vocab.json` with `merges.txt`, and nanoGPT's
//! `meta.pkl`.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use headroom_tokenizer::{
    CharTokenizer,
    bpe::{BpeError, ByteBpe},
    meta::{MAX_META_BYTES, Meta, MetaError, NoChars},
};
use thiserror::Error;

use super::{META, Tokenizer};

/// Name of Hugging Face's file.
const TOKENIZER: &str = "tokenizer.json";
/// Names of GPT-2's own two files.
const VOCAB: &str = "vocab.json";
const MERGES: &str = "merges.txt";
/// Maximum size of a tokenizer file in bytes. GPT-2's has 1.3 MB, those with 250,000 tokens 20 MB.
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;
/// Name of GPT-2's tokenizer, which this program includes.
const GPT2: &str = "gpt2";

/// Reason why no tokenizer was read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The directory contains none of the files.
    #[error("cannot read a tokenizer: {} has no {TOKENIZER}, no {VOCAB} with {MERGES}, no {META}, and no checkpoint with one", .0.display())]
    None(PathBuf),
    /// The file cannot be read.
    #[error("cannot read the tokenizer {}: {error}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error from the operating system.
        error: io::Error,
    },
    /// The file exceeds the maximum size.
    #[error("cannot read the tokenizer {}: it has more than {} MiB", .0.display(), MAX_TOKENIZER_BYTES >> 20)]
    TooLong(PathBuf),
    /// Invalid `tokenizer.json`, or `vocab.json` with `merges.txt`.
    #[error("cannot read the tokenizer {}: {error}", .path.display())]
    Bpe {
        /// Path of the file.
        path: PathBuf,
        error: BpeError,
    },
    /// Invalid `meta.pkl`.
    #[error("cannot read the tokenizer {}: {error}", .path.display())]
    Meta {
        /// Path of the file.
        path: PathBuf,
        error: MetaError,
    },
    /// A `meta.pkl` without a character vocabulary.
    #[error("cannot read the tokenizer {}: {error}", .path.display())]
    Chars {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        error: NoChars,
    },
}

/// Reads the tokenizer that `name` refers to: `gpt2`, a `tokenizer.json`, a `meta.pkl`, or a directory with one of
/// these.
///
/// # Errors
/// Returns an error if no tokenizer exists there, or if it cannot be read.
pub fn read(name: &Path) -> Result<Tokenizer, ReadError> {
    if name == Path::new(GPT2) && !name.exists() {
        return Ok(Tokenizer::Gpt2);
    }
    if name.is_dir() {
        return beside(name)?.ok_or_else(|| ReadError::None(name.to_path_buf()));
    }
    match name.extension() {
        Some(extension) if extension == "pkl" => meta(name),
        _ => tokenizer_json(name),
    }
}

/// Reads the tokenizer of a directory. Returns `None` if it has none.
///
/// # Errors
/// Returns an error if the directory has one that cannot be read.
pub fn beside(folder: &Path) -> Result<Option<Tokenizer>, ReadError> {
    let [json, vocab, merges, pickle] = [TOKENIZER, VOCAB, MERGES, META].map(|name| folder.join(name));
    Ok(if json.is_file() {
        Some(tokenizer_json(&json)?)
    } else if vocab.is_file() && merges.is_file() {
        let pairs = ByteBpe::from_vocab_and_merges(&bytes(&vocab)?, &bytes(&merges)?);
        Some(Tokenizer::Bpe(Box::new(pairs.map_err(|error| ReadError::Bpe { path: vocab, error })?)))
    } else if pickle.is_file() {
        Some(meta(&pickle)?)
    } else {
        None
    })
}

/// Reads a `tokenizer.json`: a character tokenizer if it has no merges, as written by `headroom export`, else byte
/// pairs.
fn tokenizer_json(path: &Path) -> Result<Tokenizer, ReadError> {
    let bytes = bytes(path)?;
    if let Some(chars) = CharTokenizer::of_tokenizer_json(&bytes) {
        return Ok(Tokenizer::Char(chars));
    }
    let pairs = ByteBpe::from_tokenizer_json(&bytes);
    let pairs = pairs.map_err(|error| ReadError::Bpe { path: path.to_path_buf(), error })?;
    Ok(Tokenizer::Bpe(Box::new(pairs)))
}

fn meta(path: &Path) -> Result<Tokenizer, ReadError> {
    let meta = Meta::parse(&limited(path, MAX_META_BYTES)?);
    let meta = meta.map_err(|error| ReadError::Meta { path: path.to_path_buf(), error })?;
    let chars = meta.chars.map_err(|error| ReadError::Chars { path: path.to_path_buf(), error })?;
    Ok(Tokenizer::Char(chars))
}

fn bytes(path: &Path) -> Result<Vec<u8>, ReadError> {
    limited(path, MAX_TOKENIZER_BYTES)
}

fn limited(path: &Path, max: u64) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    // One extra byte detects a file that is too long.
    match File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes)) {
        Err(error) => Err(ReadError::Io { path: path.to_path_buf(), error }),
        Ok(_) if bytes.len() as u64 > max => Err(ReadError::TooLong(path.to_path_buf())),
        Ok(_) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::tokenizer::{gpt2, tokenizer_json as gpt2_json};

    #[test]
    fn a_file_of_gpt2_has_the_ids_of_gpt2() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(TOKENIZER), gpt2_json().expect("GPT-2's table")).expect("space");
        let tokenizer = read(folder.path()).expect("a tokenizer");
        assert!(matches!(tokenizer, Tokenizer::Bpe(_)));
        let text = "Once upon a time, 12 naïve 🦀s said:  \n\n don't<|endoftext|>";
        assert_eq!(tokenizer.encode(text).expect("ids"), gpt2().encode_with_special_tokens(text));
        assert_eq!(tokenizer.encode_ordinary(text).expect("ids"), gpt2().encode_ordinary(text));
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).expect("ids")), text);
        assert_eq!(tokenizer.decode(&[64, 60_000, 64]), "a\u{fffd}a");
    }

    #[test]
    fn a_folder_without_a_tokenizer_says_what_it_lacks() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(beside(folder.path()).expect("nothing is broken"), None);
        let error = read(folder.path()).expect_err("none").to_string();
        assert!(error.contains("no tokenizer.json"), "{error}");
        assert_eq!(read(Path::new("gpt2")).expect("GPT-2's"), Tokenizer::Gpt2);
        fs::write(folder.path().join(TOKENIZER), "{}").expect("space");
        assert!(matches!(beside(folder.path()), Err(ReadError::Bpe { .. })));
    }
}
