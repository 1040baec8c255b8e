//! Conversion between text and tokens for every supported tokenizer.

use headroom_text::{self as text, Text};
use headroom_tokenizer::{
    CharTokenizer,
    bpe::{ByteBpe, Part, SPLIT_PATTERN},
};

use crate::host;

/// Returns a note if the tokenizer's size does not match the model's vocabulary. A vocabulary that was rounded up
/// matches, such as nanoGPT's 50,304 for GPT-2's 50,257.
pub fn note(found: u64, vocab_size: u64) -> Option<Text> {
    /// Vocabulary sizes are rounded up to a multiple of this, for speed.
    const ROUND: u64 = 64;
    let is_rounded = vocab_size.is_multiple_of(ROUND) && found <= vocab_size && vocab_size - found < ROUND;
    let is_usual = found == vocab_size || is_rounded;
    (!is_usual).then(|| text::demo_other_tokenizer(text::count(found), text::count(vocab_size)))
}

/// A model's tokenizer.
#[derive(Debug)]
pub enum Tokenizer {
    /// A tokenizer with one token per character.
    Char(CharTokenizer),
    /// GPT-2's byte pair encoding.
    Bpe(Box<ByteBpe>),
}

impl Tokenizer {
    /// Returns the number of tokens that have a name.
    pub fn vocab_size(&self) -> u64 {
        match self {
            Self::Char(tokenizer) => tokenizer.vocab_size() as u64,
            Self::Bpe(tokenizer) => tokenizer.vocab_size().into(),
        }
    }

    /// Returns the default prompt.
    pub fn beginning(&self) -> char {
        match self {
            Self::Char(tokenizer) => tokenizer.beginning(),
            Self::Bpe(_) => '\n',
        }
    }

    /// Encodes a text.
    ///
    /// # Errors
    ///
    /// Fails if a character is not in the vocabulary.
    pub fn encode(&self, words: &str) -> Result<Vec<u32>, Text> {
        match self {
            Self::Char(tokenizer) => tokenizer
                .encode(words)
                .map_err(|_| text::demo_unknown_char(unknown(tokenizer, words), known(tokenizer))),
            Self::Bpe(tokenizer) => {
                let mut tokens = Vec::new();
                for part in tokenizer.split_special(words) {
                    match part {
                        Part::Special(token) => tokens.push(token),
                        Part::Text(plain) => {
                            for piece in host::matches(SPLIT_PATTERN, plain) {
                                tokenizer.encode_piece(&piece, &mut tokens);
                            }
                        }
                    }
                }
                Ok(tokens)
            }
        }
    }

    /// Returns a token's bytes, or `None` for a row that only pads the embedding.
    fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        match self {
            Self::Char(tokenizer) => Some(tokenizer.char(token)?.to_string().into_bytes()),
            Self::Bpe(tokenizer) => Some(tokenizer.token_bytes(token)?.to_vec()),
        }
    }

    /// Returns a token's text for display on its own.
    pub fn name(&self, token: u32) -> String {
        match self.bytes(token).map(String::from_utf8) {
            Some(Ok(name)) => name,
            // The token is only a part of a UTF-8 character.
            Some(Err(error)) => error.as_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect(),
            None => format!("[{token}]"),
        }
    }
}

/// Lists the characters of a text that are not in the vocabulary: each once, at most 20.
fn unknown(tokenizer: &CharTokenizer, words: &str) -> String {
    const SHOWN_CHARS: usize = 20;
    let mut unknown: Vec<char> = Vec::new();
    let mut said = String::new();
    for char in words.chars() {
        if tokenizer.id(char).is_some() || unknown.contains(&char) {
            continue;
        }
        if unknown.len() == SHOWN_CHARS {
            said.push_str(" …");
            break;
        }
        // Quoted, because the character may be a blank.
        said.push_str(if unknown.is_empty() { "" } else { " " });
        said.push_str(&format!("{char:?}"));
        unknown.push(char);
    }
    said
}

/// Lists the printable characters of the vocabulary, at most 100.
fn known(tokenizer: &CharTokenizer) -> String {
    const SHOWN_CHARS: usize = 100;
    let seen = tokenizer.vocab().iter().filter(|char| !char.is_control());
    let mut known: String = seen.clone().take(SHOWN_CHARS).collect();
    if seen.count() > SHOWN_CHARS {
        known.push('…');
    }
    known
}

/// Decodes a stream of tokens in which one character may span several tokens.
#[derive(Debug, Default)]
pub struct TokenDecoder {
    pending: Vec<u8>,
}

impl TokenDecoder {
    /// Adds a token and returns the new text. It is empty while a character is incomplete.
    pub fn add(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        let Some(bytes) = tokenizer.bytes(token) else { return tokenizer.name(token) };
        self.pending.extend_from_slice(&bytes);
        let mut said = String::new();
        loop {
            let (whole, bad) = match std::str::from_utf8(&self.pending) {
                Ok(whole) => (whole.len(), None),
                Err(error) => (error.valid_up_to(), error.error_len()),
            };
            said.push_str(std::str::from_utf8(&self.pending[..whole]).unwrap_or_default());
            self.pending.drain(..whole);
            let Some(bad) = bad else { return said };
            // Invalid UTF-8 is shown as escaped bytes.
            said.extend(self.pending.drain(..bad).map(|byte| format!("\\x{byte:02x}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_each() -> Tokenizer {
        Tokenizer::Char(CharTokenizer::of_text("ab é"))
    }

    #[test]
    fn a_tokenizer_of_another_size_is_remarked_on() {
        for (found, vocab_size) in [(50_257, 50_257), (50_257, 50_304), (65, 65), (65, 128), (260, 320)] {
            assert_eq!(note(found, vocab_size), None, "{found} of {vocab_size}");
        }
        for (found, vocab_size) in [(50_304, 50_257), (65, 50_304), (50_257, 65), (65, 192), (65, 100)] {
            let said = note(found, vocab_size).map(|text| text.to_string()).unwrap_or_default();
            assert!(said.contains(" tokens but the model has "), "{found} of {vocab_size}: {said}");
        }
    }

    #[test]
    fn characters_are_spelled_one_by_one() {
        let tokenizer = bytes_each();
        let tokens = tokenizer.encode("bé a").expect("known");
        let mut speller = TokenDecoder::default();
        let said: Vec<String> = tokens.iter().map(|&token| speller.add(&tokenizer, token)).collect();
        assert_eq!(said, ["b", "é", " ", "a"]);
        assert_eq!(tokenizer.name(99), "[99]");
        assert_eq!(speller.add(&tokenizer, 99), "[99]");
    }

    #[test]
    fn a_character_that_is_not_known_is_named_with_those_that_are() {
        let error = bytes_each().encode("a\tb§中§").expect_err("no tab").to_string();
        assert!(error.contains("not contain '\\t' '§' '中'. ") && error.contains("abé"), "{error}");
        let many: String = ('0'..='Z').collect();
        let error = bytes_each().encode(&many).expect_err("none of them").to_string();
        assert!(error.contains("'A' 'B' 'C' …. ") && !error.contains("'D'"), "{error}");
    }

    #[test]
    fn a_text_begins_with_what_the_model_knows() {
        for (vocab, beginning) in [("aA \n", '\n'), ("a zBA", 'A'), ("é a", ' '), ("yé", 'y'), ("", '\n')] {
            assert_eq!(Tokenizer::Char(CharTokenizer::of_text(vocab)).beginning(), beginning, "{vocab:?}");
        }
    }
}
