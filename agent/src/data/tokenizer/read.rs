//! Tokenizers that lie in files: Hugging Face's `tokenizer.json`, GPT-2's `vocab.json` with `merges.txt`, and nanoGPT's
//! `meta.pkl`.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use headroom_shared::tokenizer::{
    CharTokenizer,
    bpe::{BpeError, ByteBpe},
    meta::{MAX_META_BYTES, Meta, MetaError, NoChars},
};
use thiserror::Error;

use super::Tokenizer;
use crate::data::dataset::META;

/// The name of Hugging Face's file.
const TOKENIZER: &str = "tokenizer.json";
/// The two files of GPT-2's own form.
const VOCAB: &str = "vocab.json";
const MERGES: &str = "merges.txt";
/// The longest tokenizer file that is read, in bytes. GPT-2's has 1.3 MB, those of 250,000 tokens 20 MB.
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;
/// The name that stands for GPT-2's tokenizer, which this program carries.
const GPT2: &str = "gpt2";

/// Why a tokenizer was not read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The folder has none of the files.
    #[error("cannot read a tokenizer: {} has no {TOKENIZER}, no {VOCAB} with {MERGES}, and no {META}", .0.display())]
    None(PathBuf),
    /// The file or the disk.
    #[error("cannot read the tokenizer {}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
    /// The file has more bytes than a tokenizer.
    #[error("cannot read the tokenizer {}: it has more than {} MiB", .0.display(), MAX_TOKENIZER_BYTES >> 20)]
    TooLong(PathBuf),
    /// A `tokenizer.json`, or `vocab.json` with `merges.txt`.
    #[error("cannot read the tokenizer {}: {error}", .path.display())]
    Bpe {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: BpeError,
    },
    /// A `meta.pkl`.
    #[error("cannot read the tokenizer {}: {error}", .path.display())]
    Meta {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: MetaError,
    },
    /// A `meta.pkl` without characters.
    #[error("cannot read the tokenizer {}: {error}", .path.display())]
    Chars {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: NoChars,
    },
}

/// Reads the tokenizer that `name` stands for: `gpt2`, a `tokenizer.json`, a `meta.pkl`, or a folder with one of these.
///
/// # Errors
/// There is none, or it cannot be read.
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

/// Reads the tokenizer of a folder; `None` where it has none.
///
/// # Errors
/// The folder has one that cannot be read.
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

/// Characters where the file has no pairs, as `headroom export` writes it; else byte pairs.
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
    // One byte more than is taken, so that a longer file is known as one.
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
