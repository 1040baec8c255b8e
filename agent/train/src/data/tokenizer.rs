//! Tokenizers of nanoGPT data sets: characters, and GPT-2's byte pairs from `tiktoken-rs`, which includes the
//! vocabulary.

#[cfg(test)]
mod byte_bpe;
mod file;
mod read;

use std::{collections::HashSet, sync::LazyLock};

use fancy_regex::Regex;
use headroom_kernels::weights;
use headroom_planner::gpt::presets;
use headroom_tokenizer::{
    CharTokenizer, RepeatedChar,
    bpe::{ByteBpe, Part, SPLIT_PATTERN},
};
use thiserror::Error;
use tiktoken_rs::{CoreBPE, r50k_base_singleton};

pub use file::tokenizer_json;
pub use read::{ReadError, beside, read};

/// File with the vocabulary.
pub const META: &str = "meta.pkl";
/// GPT-2's token for the end of a document, as written in a prompt.
pub const END_OF_TEXT: &str = "<|endoftext|>";
const END_OF_TEXT_ID: u32 = 50_256;
/// Length in characters from which a run of blanks is split.
const LONG_RUN: usize = 1000;
/// GPT-2's vocabulary size, including that token.
#[expect(clippy::cast_possible_truncation, reason = "50,257")]
pub const GPT2_VOCAB_SIZE: u32 = presets::GPT2_VOCAB_SIZE as u32;

/// Conversion between text and token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// One token per character.
    Char(CharTokenizer),
    /// GPT-2's byte pair encoding.
    Gpt2,
    /// Byte pair encoding with another vocabulary. Text is split by GPT-2's pattern.
    Bpe(Box<ByteBpe>),
}

/// GPT-2's pattern; `None` if the crate rejects it, which a test rules out.
static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SPLIT_PATTERN).ok());

/// Reason why a text cannot be encoded.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The text has a character that is not in the vocabulary.
    #[error("character {} of the text, {char:?} (U+{:04X}), is none of the {vocab_size} that the data set knows", char_idx + 1, u32::from(*char))]
    UnknownChar {
        /// The unknown character.
        char: char,
        /// Number of characters before it.
        char_idx: usize,
        /// Vocabulary size.
        vocab_size: usize,
    },
    /// The regex engine gave up on GPT-2's pattern. No text is known to cause it.
    #[error("GPT-2's tokenizer does not get through the text: {0}")]
    Pattern(String),
}

impl Tokenizer {
    /// Returns the form stored in a checkpoint, or `None` for other byte pair vocabularies, which no data set uses.
    pub fn kept(&self) -> Option<weights::Tokenizer> {
        match self {
            Self::Char(tokenizer) => Some(weights::Tokenizer::Char(tokenizer.vocab().iter().collect())),
            Self::Gpt2 => Some(weights::Tokenizer::Gpt2),
            Self::Bpe(_) => None,
        }
    }

    /// Restores a tokenizer from a checkpoint.
    ///
    /// # Errors
    /// Returns an error if a character is repeated.
    pub fn of_kept(kept: &weights::Tokenizer) -> Result<Self, RepeatedChar> {
        Ok(match kept {
            weights::Tokenizer::Char(vocab) => Self::Char(CharTokenizer::with_vocab(vocab.chars().collect())?),
            weights::Tokenizer::Gpt2 => Self::Gpt2,
        })
    }

    /// Returns the vocabulary size.
    pub fn vocab_size(&self) -> u32 {
        match self {
            Self::Char(tokenizer) => u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX),
            Self::Gpt2 => GPT2_VOCAB_SIZE,
            Self::Bpe(tokenizer) => tokenizer.vocab_size(),
        }
    }

    /// Returns the default prompt.
    pub fn beginning(&self) -> char {
        match self {
            Self::Char(tokenizer) => tokenizer.beginning(),
            Self::Gpt2 | Self::Bpe(_) => '\n',
        }
    }

    /// Encodes a prompt as ids. With GPT-2, `<|endoftext|>` becomes the token with that name, as in nanoGPT's
    /// sample.py.
    ///
    /// # Errors
    /// Returns an error if a character is not in the vocabulary.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        let mut ids = Vec::new();
        match self {
            Self::Char(_) => return self.encode_ordinary(text),
            Self::Gpt2 => {}
            Self::Bpe(tokenizer) => {
                for part in tokenizer.split_special(text) {
                    match part {
                        Part::Special(id) => ids.push(id),
                        Part::Text(text) => encode_bpe(tokenizer, text, &mut ids)?,
                    }
                }
                return Ok(ids);
            }
        }
        for (i, part) in text.split(END_OF_TEXT).enumerate() {
            ids.extend((i > 0).then_some(END_OF_TEXT_ID));
            encode_gpt2(part, &mut ids)?;
        }
        Ok(ids)
    }

    /// Encodes training text as ids. `<|endoftext|>` is encoded like ordinary text.
    ///
    /// # Errors
    /// Returns an error if a character is not in the vocabulary.
    pub fn encode_ordinary(&self, text: &str) -> Result<Vec<u32>, EncodeError> {
        match self {
            Self::Char(tokenizer) => tokenizer.encode(text).map_err(|unknown| EncodeError::UnknownChar {
                char: unknown.char,
                char_idx: unknown.char_idx,
                vocab_size: tokenizer.vocab_size(),
            }),
            Self::Gpt2 => {
                let mut ids = Vec::new();
                encode_gpt2(text, &mut ids)?;
                Ok(ids)
            }
            Self::Bpe(tokenizer) => {
                let mut ids = Vec::new();
                encode_bpe(tokenizer, text, &mut ids)?;
                Ok(ids)
            }
        }
    }

    /// Decodes ids to a text, with U+FFFD for unknown ids and invalid UTF-8.
    #[cfg(test)]
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut text = String::new();
        let mut decoder = self.decoder();
        for id in ids {
            decoder.push(*id, &mut text);
        }
        decoder.finish(&mut text);
        text
    }

    /// Creates a decoder that processes one token at a time.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder { tokenizer: self, pending: Vec::new() }
    }
}

/// Appends the ids of a text. The regex engine gives up on a million blanks, so a long run of them is split where the
/// pattern splits it: before the last blank, which belongs to the next word.
fn encode_gpt2(text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
    let mut rest = text;
    while let Some((start, end)) = long_run(rest) {
        encode_piece(&rest[..start], ids)?;
        encode_piece(&rest[start..end], ids)?;
        rest = &rest[end..];
    }
    encode_piece(rest, ids)
}

fn encode_piece(text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
    // The crate's encode_ordinary panics on this error.
    let (new, _) = gpt2().encode(text, &HashSet::new()).map_err(|error| EncodeError::Pattern(error.message))?;
    ids.extend(new);
    Ok(())
}

/// Appends the ids of a text for a vocabulary other than GPT-2's.
fn encode_bpe(tokenizer: &ByteBpe, text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
    let pattern = PATTERN.as_ref().ok_or_else(|| EncodeError::Pattern("it is not a pattern".to_owned()))?;
    for piece in pattern.find_iter(text) {
        let piece = piece.map_err(|error| EncodeError::Pattern(error.to_string()))?;
        tokenizer.encode_piece(piece.as_str(), ids);
    }
    Ok(())
}

/// Returns the offsets of the first and the last blank of the first long run of blanks before a word.
fn long_run(text: &str) -> Option<(usize, usize)> {
    let (mut start, mut last, mut n_blanks) = (0, 0, 0);
    for (at, char) in text.char_indices() {
        if char.is_whitespace() {
            start = if n_blanks == 0 { at } else { start };
            (last, n_blanks) = (at, n_blanks + 1);
        } else if n_blanks > LONG_RUN {
            return Some((start, last));
        } else {
            n_blanks = 0;
        }
    }
    None
}

/// Returns the encoder. The first call takes about 100 ms.
fn gpt2() -> &'static CoreBPE {
    r50k_base_singleton()
}

/// Incremental decoder. A character that spans several tokens is returned once it is complete.
#[derive(Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Start of an incomplete character: at most three bytes between two tokens.
    pending: Vec<u8>,
}

impl Decoder<'_> {
    /// Appends the text that this token completes to `text`.
    pub fn push(&mut self, id: u32, text: &mut String) {
        match self.tokenizer {
            Tokenizer::Char(tokenizer) => text.push(tokenizer.char(id).unwrap_or(char::REPLACEMENT_CHARACTER)),
            Tokenizer::Bpe(tokenizer) => match tokenizer.token_bytes(id) {
                Some(bytes) => self.take(bytes, text),
                None => {
                    self.flush(text);
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            },
            Tokenizer::Gpt2 => match gpt2().decode_bytes(&[id]) {
                Ok(bytes) if self.pending.is_empty() && bytes.is_ascii() => {
                    text.extend(bytes.into_iter().map(char::from));
                }
                Ok(bytes) => self.take(&bytes, text),
                Err(_) => {
                    self.flush(text);
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            },
        }
    }

    /// Appends the rest: an incomplete character becomes U+FFFD.
    pub fn finish(mut self, text: &mut String) {
        self.flush(text);
    }

    fn flush(&mut self, text: &mut String) {
        if !self.pending.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            self.pending.clear();
        }
    }

    fn take(&mut self, bytes: &[u8], text: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut rest = &self.pending[..];
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(whole) => {
                    text.push_str(whole);
                    rest = &[];
                }
                Err(error) => {
                    let (whole, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(whole));
                    // Without an error length, the bytes may still become a character.
                    let Some(bad) = error.error_len() else {
                        rest = after;
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &after[bad..];
                }
            }
        }
        self.pending = rest.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with their ids from an independent implementation of GPT-2's tokenizer.
    const GOLDEN: &str = include_str!("../../../tests/tokens/gpt2.json");

    #[test]
    fn gpt2_is_gpt2() {
        let golden: Vec<(String, Vec<u32>)> = serde_json::from_str(GOLDEN).expect("JSON");
        assert!(golden.len() > 20);
        for (text, ids) in golden {
            assert_eq!(Tokenizer::Gpt2.encode_ordinary(&text).expect("ids"), ids, "{text:?}");
            assert_eq!(Tokenizer::Gpt2.decode(&ids), text);
        }
        assert_eq!(Tokenizer::Gpt2.encode("a<|endoftext|>").expect("ids"), [64, 50256]);
        assert!(Tokenizer::Gpt2.encode_ordinary("<|endoftext|>").expect("ids").len() > 1);
    }

    #[test]
    fn a_character_split_over_tokens_comes_whole() {
        let ids = Tokenizer::Gpt2.encode("a🦀é").expect("ids");
        let mut decoder = Tokenizer::Gpt2.decoder();
        let mut pieces = Vec::new();
        for id in &ids {
            let mut piece = String::new();
            decoder.push(*id, &mut piece);
            pieces.push(piece);
        }
        assert!(pieces.len() > 3, "the crab is more than one token: {pieces:?}");
        assert!(pieces.contains(&"🦀".to_owned()) && pieces.contains(&String::new()), "{pieces:?}");
        assert_eq!(pieces.concat(), "a🦀é");
    }

    #[test]
    fn non_text_is_marked() {
        let crab = Tokenizer::Gpt2.encode("🦀").expect("ids");
        assert_eq!(Tokenizer::Gpt2.decode(&crab[..crab.len() - 1]), "\u{fffd}");
        // The first half of a crab emoji, then an "a": the half is replaced immediately.
        assert_eq!(Tokenizer::Gpt2.decode(&[crab[0], 64]), "\u{fffd}a");
        assert_eq!(Tokenizer::Gpt2.decode(&[64, 60_000, 64]), "a\u{fffd}a");
        let chars = Tokenizer::Char(CharTokenizer::of_text("ab"));
        assert_eq!(chars.decode(&[1, 2, 0]), "b\u{fffd}a");
    }

    #[test]
    fn long_run_of_blanks_is_tokenized() {
        for text in [" ".repeat(1_100_000) + "a", "a".repeat(1_100_000)] {
            let ids = Tokenizer::Gpt2.encode_ordinary(&text).expect("ids");
            assert!(Tokenizer::Gpt2.decode(&ids) == text, "{} ids", ids.len());
        }
    }

    /// The crate alone handles these lengths, so it is the reference for the split.
    #[test]
    fn a_long_run_is_cut_where_the_pattern_cuts() {
        for blanks in [" ".repeat(1100), "\n".repeat(1100), " \n\u{a0}".repeat(400), "\t".repeat(1001) + " "] {
            for text in [format!("a{blanks}b{blanks}"), format!("{blanks}1"), format!("x{blanks}{blanks}'s{blanks}.")] {
                assert_eq!(Tokenizer::Gpt2.encode_ordinary(&text), Ok(gpt2().encode_ordinary(&text)), "{text:?}");
            }
        }
    }

    #[test]
    fn an_unknown_character_is_named() {
        let tokenizer = Tokenizer::Char(CharTokenizer::of_text("abc"));
        let error = tokenizer.encode("abé").expect_err("it is unknown");
        assert_eq!(
            error.to_string(),
            "character 3 of the text, 'é' (U+00E9), is none of the 3 that the data set knows"
        );
    }
}
