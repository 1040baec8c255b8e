//! `meta.pkl`: the size of the vocabulary and, for characters, the vocabulary itself, as nanoGPT pickles them.
//!
//! What is wrong is a value: the command line says it in full, a page in less.

mod pickle;

use thiserror::Error;

use super::CharTokenizer;
use pickle::{Pickle, Value};

pub use pickle::Wrong;

/// The largest file that is read. The whole of 65,536 characters in the wordiest protocol is under four.
pub const MAX_META_BYTES: u64 = 8 << 20;

/// What a `meta.pkl` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// train.py reads this alone.
    pub vocab_size: u32,
    /// sample.py's `itos` and `stoi`; or why they are no vocabulary of characters.
    pub chars: Result<CharTokenizer, NoChars>,
}

/// Why a file is no `meta.pkl`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetaError {
    /// Not a pickle, or not one of values alone.
    #[error("byte {at}: {why}")]
    Pickle {
        /// Where, from 0.
        at: usize,
        /// What is wrong there.
        why: Wrong,
    },
    /// A pickle of something else.
    #[error("it holds no dict")]
    NoDict,
    /// A dict of something else.
    #[error("it has no vocab_size")]
    NoVocabSize,
    /// A size that is none.
    #[error("its vocab_size is no integer")]
    NoInteger,
    /// No vocabulary has that size.
    #[error("its vocab_size is out of range")]
    OutOfRange,
    /// More than [`MAX_META_BYTES`].
    #[error("it has more than {} MiB", MAX_META_BYTES >> 20)]
    TooLong,
}

/// Why a `meta.pkl` has no vocabulary of characters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoChars {
    /// As data sets of other tokenizers.
    #[error("it has no itos and stoi")]
    Missing,
    /// Keys or values of other kinds.
    #[error("its itos is no dict of integers to text")]
    OtherKinds,
    /// A token that is no character.
    #[error("its itos[{id}] is {text:?}, not one character")]
    NotOne {
        /// The token.
        id: i64,
        /// What it is instead, shortened.
        text: String,
    },
    /// A token beyond the others.
    #[error("its itos leaves out an id below {below}")]
    LeftOut {
        /// The token.
        below: i64,
    },
    /// Fewer tokens than entries.
    #[error("its itos names an id twice")]
    IdTwice,
    /// One character for two tokens.
    #[error("its itos has {char:?} twice")]
    CharTwice {
        /// The character.
        char: char,
    },
    /// They are not the two sides of one.
    #[error("its itos and stoi disagree")]
    Disagree,
    /// More characters than the vocabulary.
    #[error("its itos has {n_chars} characters, more than its vocab_size {vocab_size}")]
    TooMany {
        /// Characters.
        n_chars: usize,
        /// As the file says.
        vocab_size: u32,
    },
}

impl Meta {
    /// Reads a pickle of protocol 0 to 5. Nothing in it is run.
    ///
    /// # Errors
    /// It is none, it is longer than any, or it has no `vocab_size`.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetaError> {
        if bytes.len() as u64 > MAX_META_BYTES {
            return Err(MetaError::TooLong);
        }
        let pickle = Pickle::load(bytes)?;
        if !matches!(pickle.root(), Value::Dict(_)) {
            return Err(MetaError::NoDict);
        }
        let root = pickle.root();
        let vocab_size = match pickle.get(root, "vocab_size") {
            Some(Value::Int(size)) => u32::try_from(*size).ok().filter(|size| *size > 0),
            Some(_) => return Err(MetaError::NoInteger),
            None => return Err(MetaError::NoVocabSize),
        };
        let vocab_size = vocab_size.ok_or(MetaError::OutOfRange)?;
        Ok(Self { vocab_size, chars: chars(&pickle, vocab_size) })
    }

    /// The pickle of a vocabulary, as nanoGPT's prepare.py makes it: `{'vocab_size', 'itos', 'stoi'}`.
    ///
    /// # Panics
    /// It has as many characters as an id has bits for, which Unicode has not.
    #[must_use]
    pub fn of_chars(tokenizer: &CharTokenizer) -> Vec<u8> {
        let mut writer = pickle::Writer::new();
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

/// The vocabulary, where `itos` and `stoi` are the two sides of one.
fn chars(pickle: &Pickle, vocab_size: u32) -> Result<CharTokenizer, NoChars> {
    let root = pickle.root();
    let (Some(Value::Dict(itos)), Some(Value::Dict(stoi))) = (pickle.get(root, "itos"), pickle.get(root, "stoi"))
    else {
        return Err(NoChars::Missing);
    };
    let mut vocab: Vec<Option<char>> = vec![None; itos.len()];
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
    let agrees = stoi.len() == tokenizer.vocab_size()
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

    /// `shared/tests/meta/make.py` wrote these.
    const GOLDEN: [&[u8]; 6] = [
        include_bytes!("../../tests/meta/protocol_0.pkl"),
        include_bytes!("../../tests/meta/protocol_1.pkl"),
        include_bytes!("../../tests/meta/protocol_2.pkl"),
        include_bytes!("../../tests/meta/protocol_3.pkl"),
        include_bytes!("../../tests/meta/protocol_4.pkl"),
        include_bytes!("../../tests/meta/protocol_5.pkl"),
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
    fn what_is_written_reads_back() {
        let written = Meta::of_chars(&CharTokenizer::of_text(TEXT));
        assert_eq!(Meta::parse(&written), Ok(meta()));
        assert_eq!(written, include_bytes!("../../tests/meta/ours.pkl"), "make.py has Python read this file");
        let all: CharTokenizer = CharTokenizer::of_chars(('\0'..=char::MAX).take(65_536));
        let written = Meta::of_chars(&all);
        assert!(written.len() as u64 <= MAX_META_BYTES);
        assert_eq!(Meta::parse(&written).expect("it reads back").chars, Ok(all));
    }

    /// A broken file is an error, whatever is broken about it.
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
    fn what_the_file_lacks_is_said() {
        for (bytes, said) in [
            (&b""[..], "byte 0: it ends before the pickle does"),
            (b"\x80\x04}.", "it has no vocab_size"),
            (b"\x80\x04K\x07.", "it holds no dict"),
            (b"\x80\x04}X\x0a\0\0\0vocab_sizeX\x01\0\0\0as.", "its vocab_size is no integer"),
            (b"\x80\x04}X\x0a\0\0\0vocab_sizeK\0s.", "its vocab_size is out of range"),
            (b"\x80\x09.", "byte 0: it is pickled with protocol 9; 0 to 5 are read"),
            (b"Hello world", "byte 0: 0x48 is no opcode that a meta.pkl has"),
            (b"\x80\x04X\xff\xff\xff\xffab.", "byte 2: it ends before the pickle does"),
            (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "byte 2: it ends before the pickle does"),
            (b"\x80\x04h\x07.", "byte 2: nothing is kept under number 7"),
            (b"\x80\x04Nr\xff\xff\xff\xff.", "byte 3: number 4294967295 is beyond what such a file keeps"),
            (b"\x80\x04u.", "byte 2: it takes more than there is"),
        ] {
            assert_eq!(Meta::parse(bytes).expect_err("it is refused").to_string(), said);
        }
    }

    /// Each of these takes minutes, gigabytes or the stack of a reader that copies or nests what it reads.
    #[test]
    fn a_bomb_is_no_trouble() {
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
    fn a_vocabulary_that_is_none_is_told_from_a_broken_file() {
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
