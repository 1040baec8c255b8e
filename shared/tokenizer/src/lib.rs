//! Character tokenizer of nanoGPT's `shakespeare_char`; GPT-2's tokenizer is in [`bpe`].
//!
//! A character tokenizer is small enough to be stored with a model's weights; in JSON it is one string of its
//! characters. GPT-2's vocabulary has half a megabyte. This crate reads it from the files of a model; the agent
//! includes a copy.

#![warn(missing_docs)]

pub mod bpe;
pub mod meta;
pub mod order;
pub mod pickle;

// Tests read the English wording of texts.
#[cfg(test)]
use headroom_languages as _;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::order::sorted;

/// Replacement for an id without a character.
const UNKNOWN: char = char::REPLACEMENT_CHARACTER;

/// Characters and their ids, which are their indices in the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CharTokenizer {
    /// Characters by id.
    vocab: Vec<char>,
    /// Ids sorted by character, for binary search.
    ids: Vec<(char, u32)>,
}

/// The parts of a file that [`CharTokenizer::of_tokenizer_json`] reads.
#[derive(Deserialize)]
struct CharsFile {
    pre_tokenizer: Option<IgnoredAny>,
    model: CharsModel,
}

#[derive(Deserialize)]
struct CharsModel {
    vocab: BTreeMap<String, u32>,
    merges: Vec<IgnoredAny>,
}

/// A character that is not in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChar {
    /// The unknown character.
    pub char: char,
    /// Number of characters before it in the text.
    pub char_idx: usize,
}

/// A character with two ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedChar(pub char);

impl std::fmt::Display for RepeatedChar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is in the vocabulary twice", self.0)
    }
}

impl CharTokenizer {
    /// Creates a tokenizer of a text's distinct characters, sorted by code point as in Python.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self::of_chars(text.chars())
    }

    /// Creates a tokenizer of the distinct characters of an iterator, in any order.
    #[must_use]
    pub fn of_chars(chars: impl IntoIterator<Item = char>) -> Self {
        let mut vocab: Vec<char> = chars.into_iter().collect();
        vocab.sort_unstable();
        vocab.dedup();
        let ids = vocab.iter().copied().zip(0..).collect();
        Self { vocab, ids }
    }

    /// Creates a tokenizer from a vocabulary in the order of its ids, which need not be sorted.
    ///
    /// # Errors
    /// Returns an error if a character is repeated.
    pub fn with_vocab(vocab: Vec<char>) -> Result<Self, RepeatedChar> {
        let ids: Vec<(char, u32)> = vocab.iter().copied().zip(0..).collect();
        let ids = sorted(&ids, Ord::cmp);
        match ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(RepeatedChar(pair[0].0)),
            None => Ok(Self { vocab, ids }),
        }
    }

    /// Reads the characters of a `tokenizer.json` written by `headroom export`: byte pair encoding without merges.
    /// Returns `None` for any other file.
    #[must_use]
    pub fn of_tokenizer_json(json: &[u8]) -> Option<Self> {
        let file: CharsFile = serde_json::from_slice(json).ok()?;
        let CharsModel { vocab, merges } = file.model;
        if file.pre_tokenizer.is_some() || !merges.is_empty() {
            return None;
        }
        let mut chars = vec![None; vocab.len()];
        for (word, id) in &vocab {
            let mut letters = word.chars();
            let (Some(char), None) = (letters.next(), letters.next()) else { return None };
            *chars.get_mut(usize::try_from(*id).ok()?)? = Some(char);
        }
        Self::with_vocab(chars.into_iter().collect::<Option<_>>()?).ok()
    }

    /// Returns the characters by id.
    #[must_use]
    pub fn vocab(&self) -> &[char] {
        &self.vocab
    }

    /// Returns the number of characters.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// Returns the id of a character.
    #[must_use]
    pub fn id(&self, char: char) -> Option<u32> {
        self.ids.binary_search_by_key(&char, |(char, _)| *char).ok().map(|at| self.ids[at].1)
    }

    /// Returns the character of an id.
    #[must_use]
    pub fn char(&self, id: u32) -> Option<char> {
        self.vocab.get(usize::try_from(id).ok()?).copied()
    }

    /// Returns the default prompt, because a model needs at least one token. It is a newline, as in nanoGPT's
    /// sample.py. If the vocabulary has none, it is a capital letter, a blank or the first character.
    #[must_use]
    pub fn beginning(&self) -> char {
        let capital = || self.vocab.iter().copied().find(char::is_ascii_uppercase);
        let known = |char: char| self.id(char).map(|_| char);
        let first = || self.vocab.first().copied();
        known('\n').or_else(capital).or_else(|| known(' ')).or_else(first).unwrap_or('\n')
    }

    /// Encodes a text as ids.
    ///
    /// # Errors
    /// Returns the first character that is not in the vocabulary.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, UnknownChar> {
        let id = |(char_idx, char)| self.id(char).ok_or(UnknownChar { char, char_idx });
        text.chars().enumerate().map(id).collect()
    }

    /// Decodes ids to a text, with U+FFFD for an id without a character.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        ids.iter().map(|id| self.char(*id).unwrap_or(UNKNOWN)).collect()
    }
}

impl TryFrom<String> for CharTokenizer {
    type Error = RepeatedChar;

    fn try_from(vocab: String) -> Result<Self, RepeatedChar> {
        Self::with_vocab(vocab.chars().collect())
    }
}

impl From<CharTokenizer> for String {
    fn from(tokenizer: CharTokenizer) -> Self {
        tokenizer.vocab.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn ids_follow_the_code_points() {
        let tokenizer = CharTokenizer::of_text("hello, Wörld\n");
        assert_eq!(tokenizer.vocab(), ['\n', ' ', ',', 'W', 'd', 'e', 'h', 'l', 'o', 'r', 'ö']);
        assert_eq!(tokenizer.vocab_size(), 11);
        assert_eq!(tokenizer.encode("old"), Ok(vec![8, 7, 4]));
        assert_eq!(tokenizer.decode(&[8, 7, 4]), "old");
    }

    #[test]
    fn a_character_that_is_not_known_has_a_place() {
        let tokenizer = CharTokenizer::of_text("abc");
        assert_eq!(tokenizer.encode("aböcd"), Err(UnknownChar { char: 'ö', char_idx: 2 }));
        assert_eq!(tokenizer.decode(&[0, 3, u32::MAX]), "a\u{fffd}\u{fffd}");
        assert_eq!(CharTokenizer::of_text("").encode("x"), Err(UnknownChar { char: 'x', char_idx: 0 }));
    }

    #[test]
    fn a_vocabulary_keeps_its_order() {
        let tokenizer = CharTokenizer::with_vocab(vec!['b', 'a']).expect("two characters");
        assert_eq!(tokenizer.encode("ab"), Ok(vec![1, 0]));
        assert_eq!(CharTokenizer::with_vocab(vec!['b', 'a', 'b']), Err(RepeatedChar('b')));
    }

    #[test]
    fn json_is_the_characters() {
        let tokenizer = CharTokenizer::of_text("b\"a");
        let json = serde_json::to_string(&tokenizer).expect("JSON");
        assert_eq!(json, r#""\"ab""#);
        assert_eq!(serde_json::from_str::<CharTokenizer>(&json).expect("it reads back"), tokenizer);
        let twice = serde_json::from_str::<CharTokenizer>(r#""aa""#).expect_err("it is refused");
        assert!(twice.to_string().starts_with("'a' is in the vocabulary twice"), "{twice}");
    }

    #[test]
    fn characters_are_read_back_from_what_is_exported() {
        let json = |vocab: &str, merges: &str| {
            let file = format!(
                r#"{{"pre_tokenizer": null, "model": {{"type": "BPE", "vocab": {vocab}, "merges": {merges}}}}}"#
            );
            CharTokenizer::of_tokenizer_json(file.as_bytes())
        };
        assert_eq!(json(r#"{"b": 1, "a": 0, "\n": 2}"#, "[]").expect("three characters").vocab(), ['a', 'b', '\n']);
        assert_eq!(json(r#"{"b": 1, "a": 0}"#, r#"["a b"]"#), None, "pairs");
        assert_eq!(json(r#"{"b": 2, "a": 0}"#, "[]"), None, "a gap");
        assert_eq!(json(r#"{"b": 0, "a": 0}"#, "[]"), None, "an id twice");
        assert_eq!(json(r#"{"ab": 0}"#, "[]"), None, "no character");
        assert_eq!(CharTokenizer::of_tokenizer_json(b"[]"), None);
    }

    proptest! {
        #[test]
        fn encoded_text_decodes(text: String) {
            let tokenizer = CharTokenizer::of_text(&text);
            let ids = tokenizer.encode(&text).expect("its own characters");
            prop_assert_eq!(tokenizer.decode(&ids), text);
        }
    }
}
