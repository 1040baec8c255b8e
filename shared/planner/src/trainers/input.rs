//! A run as a user enters it: the trainer's command, and for Hugging Face the model's `config.json`.

use std::ops::Range;

use serde_json::Value;
use thiserror::Error;

use super::{
    Run,
    arguments::{ArgumentError, Key, Kind, key_named, takes},
    hf::{self, RunError},
    nanochat::{
        self,
        launch::{self, LaunchError},
    },
};
use crate::models::hf::ConfigError;

/// Maximum length of a command or config in bytes.
pub const MAX_BYTES: usize = 256 * 1024;

/// A trainer other than nanoGPT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trainer {
    /// nanochat's `scripts.base_train`.
    #[default]
    Nanochat,
    /// Hugging Face's `Trainer`.
    Hf,
}

impl Trainer {
    /// Every trainer.
    pub const ALL: [Self; 2] = [Self::Nanochat, Self::Hf];

    /// Name in links and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanochat => "nanochat",
            Self::Hf => "hf",
        }
    }

    /// The options of the trainer.
    #[must_use]
    pub const fn keys(self) -> &'static [Key] {
        match self {
            Self::Nanochat => nanochat::KEYS,
            Self::Hf => hf::KEYS,
        }
    }
}

/// Why an entered run cannot be planned.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum InputError {
    /// A text is longer than [`MAX_BYTES`].
    #[error("cannot read the run: a text has {0} bytes, and the maximum is {MAX_BYTES}")]
    TooLong(usize),
    /// The config is not JSON.
    #[error("cannot read the model's config: {0}\nhint: paste the config.json of the model's repository")]
    NotJson(String),
    /// The model's config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An option.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// A command that starts nanochat.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

impl From<RunError> for InputError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Config(error) => Self::Config(error),
            RunError::Argument(error) => Self::Argument(error),
        }
    }
}

/// A run as entered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// The trainer.
    pub trainer: Trainer,
    /// The trainer's options, with or without the program that they belong to. A backslash continues a line.
    pub command: String,
    /// The model's `config.json`; empty for nanochat.
    pub config: String,
}

/// An option as given in a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Its place in the command, with its value.
    span: Range<usize>,
    /// Its name as written, with dashes.
    pub name: String,
    /// The key that it sets; `None` if the trainer does not have it.
    pub key: Option<&'static Key>,
    /// Its value.
    pub value: Option<String>,
}

/// A word of a command.
struct Word {
    /// Its place in the text, with its quotes.
    span: Range<usize>,
    /// The word without quotes.
    text: String,
}

/// Splits a command into words as a shell does, without expansions.
fn split(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut quote = None;
    let mut is_open = false;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let end = at + c.len_utf8();
        let is_continuation = c == '\\' && quote != Some('\'') && matches!(chars.peek(), None | Some((_, '\n' | '\r')));
        if quote.is_none() && (c.is_whitespace() || is_continuation) {
            is_open = false;
            continue;
        }
        if !is_open {
            words.push(Word { span: at..end, text: String::new() });
            is_open = true;
        }
        let Some(word) = words.last_mut() else { continue };
        word.span.end = end;
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            ('\\', open) if open != Some('\'') => {
                if let Some((at, next)) = chars.next() {
                    word.text.push(next);
                    word.span.end = at + next.len_utf8();
                }
            }
            _ => word.text.push(c),
        }
    }
    words
}

/// Whether a word names the program whose options follow.
fn is_program(word: &Word) -> bool {
    word.text.ends_with(".py") || word.text.ends_with("base_train")
}

impl Input {
    /// A run of the words of a command line. `config` is the model's `config.json`, or empty.
    #[must_use]
    pub fn of_words(trainer: Trainer, words: &[String], config: String) -> Self {
        let word = |word: &String| match word.split_once('=') {
            Some((key, value)) => format!("{key}={}", quoted(value)),
            None => quoted(word),
        };
        Self { trainer, command: words.iter().map(word).collect::<Vec<_>>().join(" "), config }
    }

    /// The words of the options.
    fn options(&self) -> Vec<Word> {
        let mut words = split(&self.command);
        if let Some(program) = words.iter().position(is_program) {
            let end = words[program + 1..].iter().take_while(|word| word.text == "--").count();
            words.drain(..=program + end);
        }
        words
    }

    /// The options without the program that they belong to.
    #[must_use]
    pub fn options_text(&self) -> String {
        let words = self.options();
        words.first().map_or_else(String::new, |first| self.command[first.span.start..].to_owned())
    }

    /// The options as given, in order. Words that are neither an option nor its value are skipped.
    #[must_use]
    pub fn given(&self) -> Vec<Given> {
        let keys = self.trainer.keys();
        let mut given = Vec::new();
        let mut words = self.options().into_iter().peekable();
        while let Some(Word { mut span, text }) = words.next() {
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text.as_str(), None),
            };
            if !name.starts_with("--") {
                continue;
            }
            let is_value = |next: &Word| takes(keys, name, &next.text);
            let next = if value.is_none() { words.next_if(is_value) } else { None };
            if let Some(next) = &next {
                span.end = next.span.end;
            }
            let value = value.or_else(|| next.map(|next| next.text));
            given.push(Given { span, name: name.to_owned(), key: key_named(keys, name), value });
        }
        given
    }

    /// The place and the value of an option, if it is given. A switch without a value has none. Of several, the last one
    /// counts.
    fn find(&self, key: &Key) -> Option<(Range<usize>, Option<String>)> {
        let is_key = |given: &Given| given.key.is_some_and(|found| found.name == key.name);
        self.given().into_iter().rfind(is_key).map(|given| (given.span, given.value))
    }

    /// The value of an option as written, or its default.
    #[must_use]
    pub fn value(&self, key: &Key) -> String {
        match self.find(key) {
            Some((_, Some(value))) => value,
            Some((_, None)) if key.kind == Kind::Switch => "True".to_owned(),
            Some((_, None)) => String::new(),
            None => key.default.to_owned(),
        }
    }

    /// Sets an option in the command. The other words stay as they are. The default removes the option.
    pub fn set(&mut self, key: &Key, value: &str) {
        let is_default = value == key.default;
        let word = match (key.kind, value) {
            _ if is_default => String::new(),
            (Kind::Switch, "True") => format!("--{}", key.name),
            _ => format!("--{}={}", key.name, quoted(value)),
        };
        match self.find(key) {
            Some((span, _)) if is_default => {
                let before = self.command[..span.start].trim_end().len();
                let after = &self.command[span.end..];
                let start = if after.trim().is_empty() { before } else { span.start };
                let end = span.end + (after.len() - after.trim_start().len());
                self.command.replace_range(start..end, "");
            }
            Some((span, _)) => self.command.replace_range(span, &word),
            None if is_default => {}
            None => {
                let end = self.command.trim_end().len();
                self.command.truncate(end);
                if end > 0 {
                    self.command.push(' ');
                }
                self.command.push_str(&word);
            }
        }
    }

    /// Reads the run.
    ///
    /// # Errors
    /// A text is too long, the config is invalid, an option is unknown or invalid, or Headroom does not plan such a run.
    pub fn read(&self) -> Result<Run, InputError> {
        if let Some(n) = [&self.command, &self.config].map(String::len).into_iter().find(|n| *n > MAX_BYTES) {
            return Err(InputError::TooLong(n));
        }
        let words: Vec<String> = self.options().into_iter().map(|word| word.text).collect();
        match self.trainer {
            Trainer::Nanochat => {
                let all: Vec<String> = split(&self.command).into_iter().map(|word| word.text).collect();
                Ok(Run::Nanochat(nanochat::Run::read(&launch::options(&all)?.unwrap_or(words))?))
            }
            Trainer::Hf => {
                let config: Value =
                    serde_json::from_str(&self.config).map_err(|error| InputError::NotJson(error.to_string()))?;
                Ok(Run::Hf(hf::Run::read(&config, &words)?))
            }
        }
    }
}

/// A value as a word of a command.
#[must_use]
pub fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./+,:".contains(c);
    if value.chars().all(is_plain) { value.to_owned() } else { format!("'{}'", value.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanochat(command: &str) -> Input {
        Input { trainer: Trainer::Nanochat, command: command.to_owned(), config: String::new() }
    }

    fn key(input: &Input, name: &str) -> &'static Key {
        key_named(input.trainer.keys(), name).expect("a key")
    }

    #[test]
    fn an_option_has_its_value_in_every_form() {
        for command in [
            "--depth=6",
            "--depth 6",
            "python -m scripts.base_train --depth=8 --depth '6'",
            "torchrun --standalone --nproc_per_node=1 -m scripts.base_train -- \\\n  --run=x \\\n  --depth=\"6\"",
        ] {
            let input = nanochat(command);
            assert_eq!(input.value(key(&input, "depth")), "6", "{command}");
            assert_eq!(input.value(key(&input, "compile")), "True", "{command}");
        }
        let input = nanochat("--fp8 --depth=6");
        assert_eq!(input.value(key(&input, "fp8")), "True");
    }

    #[test]
    fn a_set_option_leaves_the_other_words() {
        let mut input = nanochat("python -m scripts.base_train --run=x --depth 6 \\\n  --unknown");
        input.set(key(&input, "depth"), "8");
        assert_eq!(input.command, "python -m scripts.base_train --run=x --depth=8 \\\n  --unknown");
        input.set(key(&input, "fp8"), "True");
        input.set(key(&input, "model-tag"), "a b");
        assert_eq!(
            input.command,
            "python -m scripts.base_train --run=x --depth=8 \\\n  --unknown --fp8 --model-tag='a b'"
        );
        assert_eq!(input.value(key(&input, "model-tag")), "a b");
        input.set(key(&input, "fp8"), "False");
        input.set(key(&input, "depth"), "20");
        assert_eq!(input.command, "python -m scripts.base_train --run=x \\\n  --unknown --model-tag='a b'");
        input.set(key(&input, "model-tag"), "");
        assert_eq!(input.command, "python -m scripts.base_train --run=x \\\n  --unknown");
    }

    #[test]
    fn a_pasted_command_is_a_run() {
        let run = nanochat("torchrun --standalone -m scripts.base_train -- --compile=False --depth=4").read();
        assert_eq!(run.expect("a run").config()["depth"], 4);
        let several = nanochat("torchrun --nproc_per_node=8 -m scripts.base_train -- --compile=False").read();
        assert!(several.expect_err("eight processes").to_string().contains("8 processes"));
        let input = Input { trainer: Trainer::Hf, command: "--bf16".to_owned(), config: "{".to_owned() };
        assert!(matches!(input.read(), Err(InputError::NotJson(_))));
        let long = nanochat(&"-".repeat(MAX_BYTES + 1));
        assert_eq!(long.read(), Err(InputError::TooLong(MAX_BYTES + 1)));
    }

    proptest::proptest! {
        #[test]
        fn setting_an_option_never_panics_and_is_read_back(command in ".{0,60}", value in "[a-z' \"\\\\=-]{0,12}") {
            let mut input = nanochat(&command);
            let key = key(&input, "model-tag");
            // An open quote or a trailing backslash takes in what follows.
            let is_whole = !command.contains(['"', '\'', '\\']);
            input.set(key, &value);
            if is_whole {
                proptest::prop_assert_eq!(input.value(key), value);
            }
        }
    }
}
