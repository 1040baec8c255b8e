//! Text as tokens, one character each: the tokenizer of nanoGPT's `shakespeare_char`; in [`bpe`] GPT-2's.
//!
//! The first is a value that a page can carry beside a model's weights; as JSON it is its characters in one string. GPT-2's
//! has a vocabulary of half a megabyte: here it is read from the files that lie beside a model, and the agent has its own.

pub mod bpe;
pub mod meta;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::IgnoredAny};

use crate::order::sorted;

/// What stands for an id that no character has.
const UNKNOWN: char = char::REPLACEMENT_CHARACTER;

/// Characters and their ids, which are their places in the vocabulary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CharTokenizer {
    /// By id.
    vocab: Vec<char>,
    /// By character, to search in.
    ids: Vec<(char, u32)>,
}

/// What [`CharTokenizer::of_tokenizer_json`] looks at.
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

/// A character that the vocabulary lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownChar {
    /// The character.
    pub char: char,
    /// How many characters of the text stand before it.
    pub char_idx: usize,
}

/// A character that two ids would have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedChar(pub char);

impl std::fmt::Display for RepeatedChar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is in the vocabulary twice", self.0)
    }
}

impl CharTokenizer {
    /// The characters of a text, each once, sorted by code point as Python sorts them.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        Self::of_chars(text.chars())
    }

    /// The same from any characters, in any order and as often as they come.
    #[must_use]
    pub fn of_chars(chars: impl IntoIterator<Item = char>) -> Self {
        let mut vocab: Vec<char> = chars.into_iter().collect();
        vocab.sort_unstable();
        vocab.dedup();
        let ids = vocab.iter().copied().zip(0..).collect();
        Self { vocab, ids }
    }

    /// A vocabulary in the order of its ids, which need not be sorted.
    ///
    /// # Errors
    /// A character comes twice.
    pub fn with_vocab(vocab: Vec<char>) -> Result<Self, RepeatedChar> {
        let ids: Vec<(char, u32)> = vocab.iter().copied().zip(0..).collect();
        let ids = sorted(&ids, Ord::cmp);
        match ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(RepeatedChar(pair[0].0)),
            None => Ok(Self { vocab, ids }),
        }
    }

    /// The characters of a `tokenizer.json` as `headroom export` writes it: byte pair encoding without a pair. None where
    /// the file is anything else.
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

    /// The characters by id.
    #[must_use]
    pub fn vocab(&self) -> &[char] {
        &self.vocab
    }

    /// How many characters there are.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// A character's id.
    #[must_use]
    pub fn id(&self, char: char) -> Option<u32> {
        self.ids.binary_search_by_key(&char, |(char, _)| *char).ok().map(|at| self.ids[at].1)
    }

    /// An id's character.
    #[must_use]
    pub fn char(&self, id: u32) -> Option<char> {
        self.vocab.get(usize::try_from(id).ok()?).copied()
    }

    /// What a text begins with where nobody says it, as a model goes on from one token at least: a new line, as in nanoGPT's
    /// sample.py; where the vocabulary has none a capital letter, a blank, or its first character.
    #[must_use]
    pub fn beginning(&self) -> char {
        let capital = || self.vocab.iter().copied().find(char::is_ascii_uppercase);
        let known = |char: char| self.id(char).map(|_| char);
        let first = || self.vocab.first().copied();
        known('\n').or_else(capital).or_else(|| known(' ')).or_else(first).unwrap_or('\n')
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// The first character that the vocabulary lacks.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, UnknownChar> {
        let id = |(char_idx, char)| self.id(char).ok_or(UnknownChar { char, char_idx });
        text.chars().enumerate().map(id).collect()
    }

    /// The text of ids; U+FFFD for an id that no character has.
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
        fn what_is_encoded_decodes(text: String) {
            let tokenizer = CharTokenizer::of_text(&text);
            let ids = tokenizer.encode(&text).expect("its own characters");
            prop_assert_eq!(tokenizer.decode(&ids), text);
        }
    }
}
