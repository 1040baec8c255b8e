//! `meta.pkl`: the vocabulary size and, for characters, the vocabulary itself, as pickled by nanoGPT.
//!
//! Errors are values: the command line prints them in full, a page in short.

mod writer;

use thiserror::Error;

use super::CharTokenizer;
use crate::pickle::{Pickle, PickleError, Value};
use writer::Writer;

/// Classes that a vocabulary may have in place of a dict.
const DICTS: &[&str] = &["collections OrderedDict", "collections defaultdict"];

/// Maximum size of the file in bytes. A vocabulary of 65,536 characters takes under four MiB in the most verbose
/// protocol.
pub const MAX_META_BYTES: u64 = 8 << 20;

/// Contents of a `meta.pkl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Vocabulary size, the only value that train.py reads.
    pub vocab_size: u32,
    /// The vocabulary from sample.py's `itos` and `stoi`, or the reason why they are not a character vocabulary.
    pub chars: Result<CharTokenizer, NoChars>,
}

/// Reason why a file is not a valid `meta.pkl`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetaError {
    /// Not a pickle, or a pickle with more than plain values.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// A pickle whose value is not a dict.
    #[error("it holds no dict")]
    NoDict,
    /// A dict without `vocab_size`.
    #[error("it has no vocab_size")]
    NoVocabSize,
    /// A `vocab_size` that is not an integer.
    #[error("its vocab_size is no integer")]
    NoInteger,
    /// A vocabulary size out of range.
    #[error("its vocab_size is out of range")]
    OutOfRange,
    /// The file is longer than [`MAX_META_BYTES`].
    #[error("it has more than {} MiB", MAX_META_BYTES >> 20)]
    TooLong,
}

/// Reason why a `meta.pkl` has no character vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoChars {
    /// No `itos` or `stoi`, as in data sets with other tokenizers.
    #[error("it has no itos and stoi")]
    Missing,
    /// Keys or values with other types.
    #[error("its itos is no dict of integers to text")]
    OtherKinds,
    /// A token that is not a single character.
    #[error("its itos[{id}] is {text:?}, not one character")]
    NotOne {
        /// Id of the token.
        id: i64,
        /// Its text, shortened.
        text: String,
    },
    /// A token id is missing.
    #[error("its itos leaves out an id below {below}")]
    LeftOut {
        /// An id at or above the number of entries, which implies that a lower one is missing.
        below: i64,
    },
    /// Several entries with the same token id.
    #[error("its itos names an id twice")]
    IdTwice,
    /// One character with two token ids.
    #[error("its itos has {char:?} twice")]
    CharTwice {
        /// The repeated character.
        char: char,
    },
    /// `itos` and `stoi` are not inverse to each other.
    #[error("its itos and stoi disagree")]
    Disagree,
    /// More characters than the vocabulary size.
    #[error("its itos has {n_chars} characters, more than its vocab_size {vocab_size}")]
    TooMany {
        /// Number of characters.
        n_chars: usize,
        /// Vocabulary size in the file.
        vocab_size: u32,
    },
}

impl Meta {
    /// Parses a pickle of protocol 0 to 5. Nothing in it is executed.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a pickle, exceed the maximum size, or have no `vocab_size`.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetaError> {
        if bytes.len() as u64 > MAX_META_BYTES {
            return Err(MetaError::TooLong);
        }
        let pickle = Pickle::read(bytes, DICTS)?;
        let root = pickle.root();
        if !pickle.is_dict(root) {
            return Err(MetaError::NoDict);
        }
        let vocab_size = match pickle.get(root, "vocab_size") {
            Some(Value::Int(size)) => u32::try_from(*size).ok().filter(|size| *size > 0),
            Some(_) => return Err(MetaError::NoInteger),
            None => return Err(MetaError::NoVocabSize),
        };
        let vocab_size = vocab_size.ok_or(MetaError::OutOfRange)?;
        Ok(Self { vocab_size, chars: chars(&pickle, vocab_size) })
    }

    /// Returns the pickle of a vocabulary as written by nanoGPT's prepare.py: `{'vocab_size', 'itos', 'stoi'}`.
    ///
    /// # Panics
    /// Panics if the number of characters exceeds `u32`, which Unicode rules out.
    #[must_use]
    pub fn of_chars(tokenizer: &CharTokenizer) -> Vec<u8> {
        let mut writer = Writer::new();
        let vocab_size = u32::try_from(tokenizer.vocab_size()).expect("characters are fewer");
        writer.dict(|dict| {
            dict.text("vocab_size");
            dict.int(vocab_size);
            dict.text("itos");
            dict.dict(|itos| {
                for (id, char) in (0..).zip(tokenizer.vocab()) {
                    itos.int(id);
                    itos.text(char.encode_utf8(&mut [0; 4]));
                }
            });
            dict.text("stoi");
            dict.dict(|stoi| {
                for (id, char) in (0..).zip(tokenizer.vocab()) {
                    stoi.text(char.encode_utf8(&mut [0; 4]));
                    stoi.int(id);
                }
            });
        });
        writer.finish()
    }
}

/// Returns the vocabulary if `itos` and `stoi` are inverse to each other.
fn chars(pickle: &Pickle, vocab_size: u32) -> Result<CharTokenizer, NoChars> {
    let root = pickle.root();
    let dict = |name| pickle.get(root, name).filter(|value| pickle.is_dict(value));
    let (Some(itos), Some(stoi)) = (dict("itos"), dict("stoi")) else { return Err(NoChars::Missing) };
    let mut vocab: Vec<Option<char>> = vec![None; pickle.pairs(itos).len()];
    for (key, value) in pickle.pairs(itos) {
        let (Value::Int(id), Value::Text(text)) = (key, value) else {
            return Err(NoChars::OtherKinds);
        };
        let mut chars = text.chars();
        let (Some(char), None) = (chars.next(), chars.next()) else {
            return Err(NoChars::NotOne { id: *id, text: shortened(text) });
        };
        match usize::try_from(*id).ok().and_then(|id| vocab.get_mut(id)) {
            Some(place) => *place = Some(char),
            None => return Err(NoChars::LeftOut { below: *id }),
        }
    }
    let vocab: Option<Vec<char>> = vocab.into_iter().collect();
    let tokenizer = CharTokenizer::with_vocab(vocab.ok_or(NoChars::IdTwice)?)
        .map_err(|repeated| NoChars::CharTwice { char: repeated.0 })?;
    let agrees = pickle.pairs(stoi).len() == tokenizer.vocab_size()
        && pickle.pairs(stoi).all(|(key, value)| match (key, value) {
            (Value::Text(text), Value::Int(id)) => {
                tokenizer.encode(text).is_ok_and(|ids| matches!(ids[..], [one] if i64::from(one) == *id))
            }
            _ => false,
        });
    match agrees {
        false => Err(NoChars::Disagree),
        true if tokenizer.vocab_size() as u64 > u64::from(vocab_size) => {
            Err(NoChars::TooMany { n_chars: tokenizer.vocab_size(), vocab_size })
        }
        true => Ok(tokenizer),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(20).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Hello, Wörld! 世界 🦀\n\t'\"\\\u{1a}\u{0}\r";

    /// Written by `shared/tokenizer/tests/meta/make.py`.
    const GOLDEN: [&[u8]; 6] = [
        include_bytes!("../tests/meta/protocol_0.pkl"),
        include_bytes!("../tests/meta/protocol_1.pkl"),
        include_bytes!("../tests/meta/protocol_2.pkl"),
        include_bytes!("../tests/meta/protocol_3.pkl"),
        include_bytes!("../tests/meta/protocol_4.pkl"),
        include_bytes!("../tests/meta/protocol_5.pkl"),
    ];

    fn meta() -> Meta {
        let chars = CharTokenizer::of_text(TEXT);
        Meta { vocab_size: u32::try_from(chars.vocab_size()).expect("few"), chars: Ok(chars) }
    }

    #[test]
    fn every_protocol_of_python_is_read() {
        for (protocol, bytes) in GOLDEN.iter().enumerate() {
            assert_eq!(Meta::parse(bytes).as_ref(), Ok(&meta()), "protocol {protocol}");
        }
    }

    #[test]
    fn written_data_reads_back() {
        let written = Meta::of_chars(&CharTokenizer::of_text(TEXT));
        assert_eq!(Meta::parse(&written), Ok(meta()));
        assert_eq!(written, include_bytes!("../tests/meta/ours.pkl"), "make.py has Python read this file");
        let all: CharTokenizer = CharTokenizer::of_chars(('\0'..=char::MAX).take(65_536));
        let written = Meta::of_chars(&all);
        assert!(written.len() as u64 <= MAX_META_BYTES);
        assert_eq!(Meta::parse(&written).expect("it reads back").chars, Ok(all));
    }

    /// A broken file is an error, regardless of how it is broken.
    #[test]
    fn no_bytes_panic() {
        for golden in GOLDEN {
            for end in 0..golden.len() {
                assert!(Meta::parse(&golden[..end]).is_err(), "cut at {end}");
            }
            for at in 0..golden.len() {
                for byte in [0, b'.', b'(', b'}', b'u', b'0', b'2', 0x7f, 0xff, golden[at] ^ 1] {
                    let mut bytes = golden.to_vec();
                    bytes[at] = byte;
                    let _ = Meta::parse(&bytes);
                }
            }
        }
    }

    #[test]
    fn missing_file_parts_are_reported() {
        for (bytes, said) in [
            (&b""[..], "byte 0: the pickle is truncated"),
            (b"\x80\x04}.", "it has no vocab_size"),
            (b"\x80\x04K\x07.", "it holds no dict"),
            (b"\x80\x04}X\x0a\0\0\0vocab_sizeX\x01\0\0\0as.", "its vocab_size is no integer"),
            (b"\x80\x04}X\x0a\0\0\0vocab_sizeK\0s.", "its vocab_size is out of range"),
            (b"\x80\x09.", "byte 0: unsupported pickle protocol 9; 0 to 5 are read"),
            (b"Hello world", "byte 0: unexpected opcode 0x48"),
            (b"\x80\x04X\xff\xff\xff\xffab.", "byte 2: the pickle is truncated"),
            (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "byte 2: the pickle is truncated"),
            (b"\x80\x04h\x07.", "byte 2: memo entry 7 does not exist"),
            (b"\x80\x04Nr\xff\xff\xff\xff.", "byte 3: memo index 4294967295 is too large"),
            (b"\x80\x04u.", "byte 2: a value is missing on the stack"),
        ] {
            assert_eq!(Meta::parse(bytes).expect_err("it is refused").to_string(), said);
        }
    }

    /// Each of these takes minutes, gigabytes or a deep stack in a parser that copies or recurses.
    #[test]
    fn hostile_pickles_do_not_exhaust_memory() {
        let doubled = [b"\x80\x04)".to_vec(), b"2\x86".repeat(100), b".".to_vec()].concat();
        assert!(Meta::parse(&doubled).is_err());
        let nested = [b"\x80\x04)".to_vec(), b"\x85".repeat(1_000_000), b".".to_vec()].concat();
        assert!(Meta::parse(&nested).is_err());
        let itself = b"\x80\x04}\x94h\0h\0sh\0X\x0a\0\0\0vocab_sizeK\x05s.";
        assert_eq!(Meta::parse(itself).expect("a dict in itself").vocab_size, 5);
        let marks = [b"\x80\x04".to_vec(), b"(".repeat(1_000_000), b".".to_vec()].concat();
        assert!(Meta::parse(&marks).is_err());
    }

    #[test]
    fn missing_vocabulary_is_distinguished_from_broken_file() {
        for (itos, why) in [
            (&b"K\0X\x02\0\0\0ab"[..], "its itos[0] is \"ab\", not one character"),
            (b"K\x01X\x01\0\0\0a", "its itos leaves out an id below 1"),
            (b"X\x01\0\0\0aK\0", "its itos is no dict of integers to text"),
            (b"K\0X\x01\0\0\0b", "its itos and stoi disagree"),
        ] {
            let head = b"\x80\x02}(X\x0a\0\0\0vocab_sizeK\x01X\x04\0\0\0itos}(";
            let bytes = [&head[..], itos, b"uX\x04\0\0\0stoi}(X\x01\0\0\0aK\0uu."].concat();
            let meta = Meta::parse(&bytes).expect("vocab_size is all that training needs");
            assert_eq!((meta.vocab_size, meta.chars.map_err(|error| error.to_string())), (1, Err(why.to_owned())));
        }
        let size_alone = b"\x80\x04}X\x0a\0\0\0vocab_sizeM\x80\xc4s.";
        let meta = Meta::parse(size_alone).expect("as some data sets have it");
        assert_eq!((meta.vocab_size, meta.chars), (50304, Err(NoChars::Missing)));
    }
}
