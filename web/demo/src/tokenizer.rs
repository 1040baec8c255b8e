//! Text to tokens and back, whichever tokenizer the model has.

use headroom_shared::{
    text::{self, Text},
    tokenizer::{
        CharTokenizer,
        bpe::{ByteBpe, Part, SPLIT_PATTERN},
    },
};

use crate::host;

/// What is to be said of a tokenizer with so many tokens beside a model of another number; nothing where the model's is
/// rounded up, as nanoGPT has 50,304 for GPT-2's 50,257.
pub fn note(found: u64, vocab_size: u64) -> Option<Text> {
    /// What a number of rows is rounded up to, for speed.
    const ROUND: u64 = 64;
    let is_rounded = vocab_size.is_multiple_of(ROUND) && found <= vocab_size && vocab_size - found < ROUND;
    let is_usual = found == vocab_size || is_rounded;
    (!is_usual).then(|| text::demo_other_tokenizer(text::count(found), text::count(vocab_size)))
}

/// A model's tokenizer.
#[derive(Debug)]
pub enum Tokenizer {
    /// A character each.
    Char(CharTokenizer),
    /// GPT-2's byte pairs.
    Bpe(Box<ByteBpe>),
}

impl Tokenizer {
    /// Tokens that it has names for.
    pub fn vocab_size(&self) -> u64 {
        match self {
            Self::Char(tokenizer) => tokenizer.vocab_size() as u64,
            Self::Bpe(tokenizer) => tokenizer.vocab_size().into(),
        }
    }

    /// What a text begins with where nobody says it.
    pub fn beginning(&self) -> char {
        match self {
            Self::Char(tokenizer) => tokenizer.beginning(),
            Self::Bpe(_) => '\n',
        }
    }

    /// A text's tokens.
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

    /// A token's bytes; none where it has no name, as the rows that pad an embedding.
    fn bytes(&self, token: u32) -> Option<Vec<u8>> {
        match self {
            Self::Char(tokenizer) => Some(tokenizer.char(token)?.to_string().into_bytes()),
            Self::Bpe(tokenizer) => Some(tokenizer.token_bytes(token)?.to_vec()),
        }
    }

    /// A token for a person who looks at it alone.
    pub fn name(&self, token: u32) -> String {
        match self.bytes(token).map(String::from_utf8) {
            Some(Ok(name)) => name,
            // A piece of a character.
            Some(Err(error)) => error.as_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect(),
            None => format!("[{token}]"),
        }
    }
}

/// The characters of a text that a vocabulary lacks, each once, as far as a person wants to read.
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
        // In quotes, as it may be a blank.
        said.push_str(if unknown.is_empty() { "" } else { " " });
        said.push_str(&format!("{char:?}"));
        unknown.push(char);
    }
    said
}

/// The characters that a vocabulary has, as far as a line goes.
fn known(tokenizer: &CharTokenizer) -> String {
    const SHOWN_CHARS: usize = 100;
    let seen = tokenizer.vocab().iter().filter(|char| !char.is_control());
    let mut known: String = seen.clone().take(SHOWN_CHARS).collect();
    if seen.count() > SHOWN_CHARS {
        known.push('…');
    }
    known
}

/// Puts tokens together to a text, where a character may take several.
#[derive(Debug, Default)]
pub struct Speller {
    pending: Vec<u8>,
}

impl Speller {
    /// What a token adds to the text: nothing while a character is not whole.
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
            // Bytes that no character begins with; they are shown, as whoever looks wants to know.
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
            assert!(said.contains(" tokens and the model "), "{found} of {vocab_size}: {said}");
        }
    }

    #[test]
    fn characters_are_spelled_one_by_one() {
        let tokenizer = bytes_each();
        let tokens = tokenizer.encode("bé a").expect("known");
        let mut speller = Speller::default();
        let said: Vec<String> = tokens.iter().map(|&token| speller.add(&tokenizer, token)).collect();
        assert_eq!(said, ["b", "é", " ", "a"]);
        assert_eq!(tokenizer.name(99), "[99]");
        assert_eq!(speller.add(&tokenizer, 99), "[99]");
    }

    #[test]
    fn a_character_that_is_not_known_is_named_with_those_that_are() {
        let error = bytes_each().encode("a\tb§中§").expect_err("no tab").to_string();
        assert!(error.contains("not know '\\t' '§' '中'. ") && error.contains("abé"), "{error}");
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
