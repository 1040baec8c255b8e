//! A trainer's command line: keys with types and defaults, as Python's argparse reads them.

use std::fmt;

use headroom_text::Text;
use thiserror::Error;

/// Type and range of a key's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// An integer within these bounds, both included.
    Integer(i64, i64),
    /// A number.
    Float,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// True or False; without a value, True.
    Switch,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(min, max) => write!(f, "an integer of {min} to {max}"),
            Self::Float => f.write_str("a number"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Text => f.write_str("a text"),
            Self::Switch => f.write_str("True or False"),
        }
    }
}

/// A key of a trainer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Name without the dashes.
    pub name: &'static str,
    /// Default value, as the trainer writes it.
    pub default: &'static str,
    /// Type of the value.
    pub kind: Kind,
    /// Whether the key changes the memory of a run.
    pub affects_memory: bool,
}

/// A key that changes the memory of a run.
pub(super) const fn memory(name: &'static str, default: &'static str, kind: Kind) -> Key {
    Key { name, default, kind, affects_memory: true }
}

/// A key that does not change the memory of a run.
pub(super) const fn other(name: &'static str, default: &'static str, kind: Kind) -> Key {
    Key { name, default, kind, affects_memory: false }
}

/// Why a command line cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArgumentError {
    /// The trainer does not have the key.
    #[error("cannot read {word}: it is not an option of {trainer}{}", meant(near.as_deref()))]
    Unknown {
        /// The word as given.
        word: String,
        /// Name of the trainer.
        trainer: &'static str,
        /// A similar key.
        near: Option<&'static str>,
    },
    /// The key has no value.
    #[error("cannot read --{key}: a value is missing; it is {expected}")]
    MissingValue {
        /// The key.
        key: &'static str,
        /// What the value is.
        expected: String,
    },
    /// The value is not of the key's type.
    #[error("cannot read --{key}={value}: expected {expected}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// The value as given.
        value: String,
        /// What the value is.
        expected: String,
    },
    /// The trainer runs differently on the GPU.
    #[error("cannot plan {trainer} on {gpu}: {}", Text::from(*.cause))]
    Gpu {
        /// Name of the trainer.
        trainer: &'static str,
        /// Name of the GPU.
        gpu: String,
        /// Why not.
        cause: headroom_text::Key,
    },
    /// The run is not one that Headroom plans.
    #[error("cannot plan --{key}={value}: {cause}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// Why not, and what to do.
        cause: String,
    },
}

impl ArgumentError {
    /// The error for a key's value that is not as expected.
    #[must_use]
    pub fn invalid(key: &'static str, value: &str, expected: impl Into<String>) -> Self {
        Self::Invalid { key, value: value.chars().take(40).collect(), expected: expected.into() }
    }
}

fn meant(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("\nhint: did you mean --{near}?"))
}

/// The values of a command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    keys: &'static [Key],
    /// Keys that were given, with their values, in order.
    given: Vec<(&'static str, String)>,
}

impl Values {
    /// Reads the words of a command line: `--key=value`, `--key value`, or `--switch`. Dashes and underscores within a
    /// key are the same.
    ///
    /// # Errors
    /// A key is unknown, or its value has another type.
    pub fn read(trainer: &'static str, keys: &'static [Key], words: &[String]) -> Result<Self, ArgumentError> {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let key = key_named(keys, name).ok_or_else(|| ArgumentError::Unknown {
                word: word.clone(),
                trainer,
                near: nearest(keys, name),
            })?;
            let next = value.or_else(|| words.next_if(|next| is_value(key, next)).cloned());
            let value = match (next, key.kind) {
                (Some(value), _) => value,
                (None, Kind::Switch) => "True".to_owned(),
                (None, kind) => {
                    return Err(ArgumentError::MissingValue { key: key.name, expected: kind.to_string() });
                }
            };
            check(key, &value)?;
            given.retain(|(name, _)| *name != key.name);
            given.push((key.name, value));
        }
        Ok(Self { keys, given })
    }

    /// The same values with other ones of some keys.
    #[must_use]
    pub(super) fn with(&self, options: &[(&'static str, String)]) -> Self {
        let mut values = self.clone();
        values.given.retain(|(name, _)| options.iter().all(|(changed, _)| changed != name));
        values.given.extend_from_slice(options);
        values
    }

    /// The error for a run that Headroom does not plan because of a key's value.
    #[must_use]
    pub fn unsupported(&self, key: &'static str, cause: impl Into<String>) -> ArgumentError {
        ArgumentError::Unsupported { key, value: self.text(key).to_owned(), cause: cause.into() }
    }

    /// Keys that were given and do not change the memory of a run.
    pub fn without_effect(&self) -> impl Iterator<Item = &'static str> {
        let affects = |name: &str| self.keys.iter().any(|key| key.name == name && key.affects_memory);
        self.given.iter().map(|(name, _)| *name).filter(move |name| !affects(name))
    }

    /// Whether the key was given.
    #[must_use]
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// The value of a key, or its default.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        match self.given.iter().find(|(given, _)| *given == name) {
            Some((_, value)) => value,
            None => key_named(self.keys, name).map_or("", |key| key.default),
        }
    }

    /// The value of an integer, or 0.
    #[must_use]
    pub fn integer(&self, name: &str) -> i64 {
        self.text(name).replace('_', "").parse().unwrap_or(0)
    }

    /// The value of an integer that is not negative, or 0.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        u64::try_from(self.integer(name)).unwrap_or(0)
    }

    /// The value of a number, or 0.
    #[must_use]
    pub fn float(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(0.0)
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        as_bool(self.text(name)) == Some(true)
    }
}

fn is_value(key: &Key, word: &str) -> bool {
    match key.kind {
        Kind::Switch => as_bool(word).is_some(),
        _ => !word.starts_with("--"),
    }
}

/// Whether a word is the value of the key that precedes it. After a switch, only a truth value is.
#[must_use]
pub fn takes(keys: &'static [Key], name: &str, word: &str) -> bool {
    key_named(keys, name).is_some_and(|key| is_value(key, word))
}

/// The key that a word names, with or without its dashes.
pub(super) fn key_named(keys: &'static [Key], word: &str) -> Option<&'static Key> {
    let is_dash = |c: char| c == '-' || c == '_';
    let name = word.strip_prefix("--").unwrap_or(word);
    keys.iter().find(|key| key.name.split(is_dash).eq(name.split(is_dash)))
}

fn nearest(keys: &'static [Key], word: &str) -> Option<&'static str> {
    let name: String = word.trim_start_matches('-').replace('_', "-").chars().take(60).collect();
    let distance = |key: &Key| strsim::damerau_levenshtein(&key.name.replace('_', "-"), &name);
    let near = keys.iter().min_by_key(|key| distance(key))?;
    (distance(near) <= 2 + name.len() / 6).then_some(near.name)
}

/// The spellings of a bool that argparse-based trainers accept.
#[must_use]
pub fn as_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" | "on" => Some(true),
        "false" | "no" | "0" | "off" => Some(false),
        _ => None,
    }
}

fn check(key: &'static Key, value: &str) -> Result<(), ArgumentError> {
    let is_valid = match key.kind {
        Kind::Integer(min, max) => {
            value.replace('_', "").parse::<i64>().is_ok_and(|number| (min..=max).contains(&number))
        }
        Kind::Float => value.parse::<f64>().is_ok_and(f64::is_finite),
        Kind::Choice(words) => words.contains(&value),
        Kind::Text => true,
        Kind::Switch => as_bool(value).is_some(),
    };
    if is_valid { Ok(()) } else { Err(ArgumentError::invalid(key.name, value, key.kind.to_string())) }
}
