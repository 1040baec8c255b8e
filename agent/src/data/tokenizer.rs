//! The two tokenizers of a nanoGPT data set: characters, and GPT-2's byte pairs from `tiktoken-rs`, which carries them.

#[cfg(test)]
mod byte_bpe;
mod file;
mod read;

use std::{collections::HashSet, sync::LazyLock};

use fancy_regex::Regex;
use headroom_kernels::weights;
use headroom_shared::{
    gpt::presets,
    tokenizer::{
        CharTokenizer, RepeatedChar,
        bpe::{ByteBpe, Part, SPLIT_PATTERN},
    },
};
use thiserror::Error;
use tiktoken_rs::{CoreBPE, r50k_base_singleton};

pub use file::tokenizer_json;
pub use read::{ReadError, beside, read};

/// GPT-2's token that ends a document, as a prompt may spell it.
pub const END_OF_TEXT: &str = "<|endoftext|>";
const END_OF_TEXT_ID: u32 = 50_256;
/// From here on a run of blanks is cut.
const LONG_RUN: usize = 1000;
/// GPT-2's tokens, that one included.
#[expect(clippy::cast_possible_truncation, reason = "50,257")]
pub const GPT2_VOCAB_SIZE: u32 = presets::GPT2_VOCAB_SIZE as u32;

/// Text to token ids and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// One token a character.
    Char(CharTokenizer),
    /// GPT-2's byte pairs.
    Gpt2,
    /// Byte pairs of another vocabulary, cut as GPT-2 cuts.
    Bpe(Box<ByteBpe>),
}

/// GPT-2's pattern; none where the crate did not take it, which a test rules out.
static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(SPLIT_PATTERN).ok());

/// Why a text has no tokens.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The text has a character that the data set had not.
    #[error("character {} of the text, {char:?} (U+{:04X}), is none of the {vocab_size} that the data set knows", char_idx + 1, u32::from(*char))]
    UnknownChar {
        /// The character.
        char: char,
        /// How many stand before it.
        char_idx: usize,
        /// How many are known.
        vocab_size: usize,
    },
    /// GPT-2's pattern gave up, which no text is known to bring about.
    #[error("GPT-2's tokenizer does not get through the text: {0}")]
    Pattern(String),
}

impl Tokenizer {
    /// As a checkpoint keeps it; `None` for byte pairs of another vocabulary, which no data set here has.
    pub fn kept(&self) -> Option<weights::Tokenizer> {
        match self {
            Self::Char(tokenizer) => Some(weights::Tokenizer::Char(tokenizer.vocab().iter().collect())),
            Self::Gpt2 => Some(weights::Tokenizer::Gpt2),
            Self::Bpe(_) => None,
        }
    }

    /// What a checkpoint keeps.
    ///
    /// # Errors
    /// It has a character twice.
    pub fn of_kept(kept: &weights::Tokenizer) -> Result<Self, RepeatedChar> {
        Ok(match kept {
            weights::Tokenizer::Char(vocab) => Self::Char(CharTokenizer::with_vocab(vocab.chars().collect())?),
            weights::Tokenizer::Gpt2 => Self::Gpt2,
        })
    }

    /// How many tokens there are.
    pub fn vocab_size(&self) -> u32 {
        match self {
            Self::Char(tokenizer) => u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX),
            Self::Gpt2 => GPT2_VOCAB_SIZE,
            Self::Bpe(tokenizer) => tokenizer.vocab_size(),
        }
    }

    /// What a text begins with where nobody says it.
    pub fn beginning(&self) -> char {
        match self {
            Self::Char(tokenizer) => tokenizer.beginning(),
            Self::Gpt2 | Self::Bpe(_) => '\n',
        }
    }

    /// The ids of a prompt. With GPT-2, `<|endoftext|>` is the token of that name, as in nanoGPT's sample.py.
    ///
    /// # Errors
    /// A character is not in the vocabulary.
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

    /// The ids of training text, where `<|endoftext|>` is spelt out like any other word.
    ///
    /// # Errors
    /// A character is not in the vocabulary.
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

    /// The text of ids. U+FFFD stands for an id that is none, and for bytes that are no text.
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

    /// Decodes token by token.
    pub fn decoder(&self) -> Decoder<'_> {
        Decoder { tokenizer: self, pending: Vec::new() }
    }
}

/// Adds the ids of a text. The pattern's engine gives up on a million blanks, so that a long run of them is cut where the
/// pattern itself cuts it: before its last one, which belongs to the word that follows.
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
    // The crate's encode_ordinary panics where this is an error.
    let (new, _) = gpt2().encode(text, &HashSet::new()).map_err(|error| EncodeError::Pattern(error.message))?;
    ids.extend(new);
    Ok(())
}

/// Adds the ids of a text by another vocabulary than GPT-2's.
fn encode_bpe(tokenizer: &ByteBpe, text: &str, ids: &mut Vec<u32>) -> Result<(), EncodeError> {
    let pattern = PATTERN.as_ref().ok_or_else(|| EncodeError::Pattern("it is not a pattern".to_owned()))?;
    for piece in pattern.find_iter(text) {
        let piece = piece.map_err(|error| EncodeError::Pattern(error.to_string()))?;
        tokenizer.encode_piece(piece.as_str(), ids);
    }
    Ok(())
}

/// Where the first long run of blanks begins that a word follows, and where its last blank does.
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

/// About 100 ms of work at first use.
fn gpt2() -> &'static CoreBPE {
    r50k_base_singleton()
}

/// Text from tokens as they come. A character of several bytes may be split over tokens; it is given once it is whole.
#[derive(Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// The beginning of a character: at most three bytes between two tokens.
    pending: Vec<u8>,
}

impl Decoder<'_> {
    /// Adds to `text` what this token completes.
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

    /// Adds what is left: half a character is U+FFFD.
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
                    // Without a length the bytes may still become a character.
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

    /// Texts with their ids as an independent implementation of GPT-2's tokenizer gives them.
    const GOLDEN: &str = include_str!("../../tests/tokens/gpt2.json");

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
    fn what_is_no_text_is_marked() {
        let crab = Tokenizer::Gpt2.encode("🦀").expect("ids");
        assert_eq!(Tokenizer::Gpt2.decode(&crab[..crab.len() - 1]), "\u{fffd}");
        // Half a crab, then an "a": the half is given up at once.
        assert_eq!(Tokenizer::Gpt2.decode(&[crab[0], 64]), "\u{fffd}a");
        assert_eq!(Tokenizer::Gpt2.decode(&[64, 60_000, 64]), "a\u{fffd}a");
        let chars = Tokenizer::Char(CharTokenizer::of_text("ab"));
        assert_eq!(chars.decode(&[1, 2, 0]), "b\u{fffd}a");
    }

    #[test]
    fn a_long_run_of_blanks_is_no_trouble() {
        for text in [" ".repeat(1_100_000) + "a", "a".repeat(1_100_000)] {
            let ids = Tokenizer::Gpt2.encode_ordinary(&text).expect("ids");
            assert!(Tokenizer::Gpt2.decode(&ids) == text, "{} ids", ids.len());
        }
    }

    /// The crate alone copes with these lengths, and is what the cut has to agree with.
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
