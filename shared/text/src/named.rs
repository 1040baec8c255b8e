//! Texts with a stable name. An agent sends them to pages and programs of other builds, and stores them in history.
//!
//! Only texts in a section with the word `agent` have such names.

use serde::{Deserialize, Serialize};

use super::{Argument as _, END, Key, NUMBER, SIZE, Separator, Text, append, list_of};
#[cfg(not(target_arch = "wasm32"))]
use super::{DIGITS, LIST, NESTED, in_english, is_mark};

/// Name, number and argument count of each named text, sorted by name.
const SENT: &[(&str, u16, usize)] = include!(concat!(env!("OUT_DIR"), "/sent.rs"));

/// A named text and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedText {
    /// The name in `shared/text/keys.txt`. A text gets a new name when its arguments change.
    pub key: String,
    /// The arguments, in the order of that file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Arg>,
}

/// An argument. In JSON, an object with the variant's fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, from = "Fields")]
pub enum Arg {
    /// Words that are the same in every language, such as a name or a path.
    Text {
        /// The words.
        text: String,
    },
    /// A number without grouping, such as a process ID.
    Number {
        /// The number.
        number: u64,
    },
    /// A number with grouped digits.
    Count {
        /// The number.
        count: u64,
    },
    /// A number with a decimal point and an optional unit.
    Decimal {
        /// The digits, the point and the unit.
        decimal: String,
    },
    /// A size in bytes.
    Bytes {
        /// The number of bytes.
        bytes: u64,
    },
    /// A list of arguments.
    List {
        /// The items.
        list: Vec<Self>,
        /// The separator in English.
        separator: String,
    },
    /// A nested text.
    Named(NamedText),
    /// A variant that a later version defines.
    Unknown,
}

/// The fields of all variants, so that variants of later versions do not cause an error.
#[derive(Deserialize)]
struct Fields {
    text: Option<String>,
    number: Option<u64>,
    count: Option<u64>,
    decimal: Option<String>,
    bytes: Option<u64>,
    list: Option<Vec<Arg>>,
    separator: Option<String>,
    key: Option<String>,
    #[serde(default)]
    args: Vec<Arg>,
}

impl From<Fields> for Arg {
    fn from(fields: Fields) -> Self {
        match fields {
            Fields { text: Some(text), .. } => Self::Text { text },
            Fields { number: Some(number), .. } => Self::Number { number },
            Fields { count: Some(count), .. } => Self::Count { count },
            Fields { decimal: Some(decimal), .. } => Self::Decimal { decimal },
            Fields { bytes: Some(bytes), .. } => Self::Bytes { bytes },
            Fields { list: Some(list), separator: Some(separator), .. } => Self::List { list, separator },
            Fields { key: Some(key), args, .. } => Self::Named(NamedText { key, args }),
            _ => Self::Unknown,
        }
    }
}

impl NamedText {
    /// Returns the text in this build; `None` if a later version wrote it with an unknown name or other arguments.
    #[must_use]
    pub fn text(&self) -> Option<Text> {
        let (key, n_args) = find(&self.key)?;
        let mut text = Text::from(key);
        (self.args.len() == n_args).then_some(())?;
        self.args.iter().try_for_each(|arg| arg.append_to(&mut text.arguments))?;
        Some(text)
    }
}

fn find(name: &str) -> Option<(Key, usize)> {
    let at = SENT.binary_search_by_key(&name, |(name, ..)| name).ok()?;
    SENT.get(at).map(|(_, number, n_args)| (Key(*number), *n_args))
}

impl Arg {
    /// Appends the argument to a text's arguments; `None` if this build does not know the argument.
    fn append_to(&self, arguments: &mut String) -> Option<()> {
        match self {
            Self::Text { text } => text.append_to(arguments),
            Self::Number { number } => number.append_to(arguments),
            Self::Count { count } => append(NUMBER, &count.to_string(), arguments),
            Self::Decimal { decimal } => append(NUMBER, decimal, arguments),
            Self::Bytes { bytes } => append(SIZE, &bytes.to_string(), arguments),
            Self::Named(named) => named.text()?.append_to(arguments),
            Self::List { list, separator } => {
                arguments.push_str(&list_of(Separator::of_english(separator)?));
                list.iter().try_for_each(|item| item.append_to(arguments))?;
                arguments.push(END);
            }
            Self::Unknown => return None,
        }
        Some(())
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl NamedText {
    /// Returns the named form of a text; `None` for a text without a name and for words that are the same in every
    /// language.
    #[must_use]
    pub fn of(text: &Text) -> Option<Self> {
        let key = name(text.key)?;
        let args = args(&mut text.arguments.as_str());
        let is_plain = text.is(&super::as_is("")) && matches!(args[..], [Arg::Text { .. }]);
        (!is_plain).then(|| Self { key: key.to_owned(), args })
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn name(key: Key) -> Option<&'static str> {
    SENT.iter().find(|(_, number, _)| *number == key.0).map(|(name, ..)| *name)
}

/// Decodes arguments up to their end.
#[cfg(not(target_arch = "wasm32"))]
fn args(arguments: &mut &str) -> Vec<Arg> {
    let mut args = vec![];
    while let Some(mark) = arguments.chars().next() {
        let behind = &arguments[mark.len_utf8()..];
        let (words, rest) = behind.split_at(behind.find(is_mark).unwrap_or(behind.len()));
        *arguments = rest;
        args.push(match mark {
            END => break,
            NUMBER => match words.parse() {
                Ok(count) => Arg::Count { count },
                Err(_) => Arg::Decimal { decimal: words.to_owned() },
            },
            DIGITS => Arg::Number { number: words.parse().unwrap_or(u64::MAX) },
            SIZE => Arg::Bytes { bytes: words.parse().unwrap_or(u64::MAX) },
            LIST => {
                Arg::List { separator: Separator::of_code(words).english().to_owned(), list: self::args(arguments) }
            }
            NESTED => nested(Key(words.parse().unwrap_or(u16::MAX)), arguments),
            _ => Arg::Text { text: words.to_owned() },
        });
    }
    args
}

/// Decodes a nested text. A text without a name becomes its English wording.
#[cfg(not(target_arch = "wasm32"))]
fn nested(key: Key, arguments: &mut &str) -> Arg {
    let all = *arguments;
    let mut args = args(arguments);
    let is_as_is = Text::from(key).is(&super::as_is(""));
    match name(key) {
        Some(_) if is_as_is && args.len() == 1 => args.swap_remove(0),
        Some(name) => Arg::Named(NamedText { key: name.to_owned(), args }),
        None => {
            let own = &all[..all.len() - arguments.len()];
            let own = own.strip_suffix(END).unwrap_or(own);
            Arg::Text { text: in_english(&Text { key, arguments: own.to_owned() }) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sent_text_is_found_by_its_name() {
        assert!(SENT.len() > 150 && SENT.is_sorted());
        for (name, number, _) in SENT {
            assert_eq!(super::name(Key(*number)), Some(*name));
        }
    }
}
