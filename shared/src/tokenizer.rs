//! Text as tokens, one character each: the tokenizer of nanoGPT's `shakespeare_char`; in [`bpe`] GPT-2's.
//!
//! The first is a value that a page can carry beside a model's weights; as JSON it is its characters in one string. GPT-2's
//! has a vocabulary of half a megabyte: here it is read from the files that lie beside a model, and the agent has its own.

pub mod bpe;

use serde::{Deserialize, Serialize};

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
        let mut ids: Vec<(char, u32)> = vocab.iter().copied().zip(0..).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(RepeatedChar(pair[0].0)),
            None => Ok(Self { vocab, ids }),
        }
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

    proptest! {
        #[test]
        fn what_is_encoded_decodes(text: String) {
            let tokenizer = CharTokenizer::of_text(&text);
            let ids = tokenizer.encode(&text).expect("its own characters");
            prop_assert_eq!(tokenizer.decode(&ids), text);
        }
    }
}
