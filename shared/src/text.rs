//! Every text a person reads, as a value: which text, and its arguments. A [`Table`] says it in a language.
//!
//! `text/en.txt` is the one table of them; a constant or a function here is made of each of its lines. The page fetches the
//! language it shows, so that the program itself carries none.

#[cfg(not(target_arch = "wasm32"))]
mod look_up;
#[cfg(not(target_arch = "wasm32"))]
mod source;
mod table;
#[cfg(test)]
mod tests;

#[cfg(not(target_arch = "wasm32"))]
use std::sync::OnceLock;

use crate::units::{human_size, pytorch_size};

#[cfg(not(target_arch = "wasm32"))]
pub use look_up::texts_of;
pub use table::{NOT_FETCHED, Table};

#[allow(clippy::needless_pass_by_value, reason = "so that whoever says something writes no ampersands")]
mod keys {
    use super::{Argument, Key, Text};
    include!(concat!(env!("OUT_DIR"), "/keys.rs"));
}

pub use keys::*;

/// A text without arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u16);

/// A text with its arguments.
///
/// The arguments lie in one string, each behind the mark of its kind: that is a call where a list of values would be
/// code at every place that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    key: Key,
    arguments: String,
}

/// Before an argument that is the same in every language: a name, a path, a piece of the input.
const WORDS: char = '\u{1}';
/// Before a number or a size, whose point becomes the language's own mark; one of digits alone is grouped.
const NUMBER: char = '\u{2}';
/// Before another text: its key, its arguments, and then [`END`].
const NESTED: char = '\u{3}';
/// Before each of several that commas stand between.
const ITEM: char = '\u{4}';
/// Behind a text's arguments, and behind several of one kind.
const END: char = '\u{5}';

/// Something that a text can have as an argument.
pub trait Argument {
    /// Puts itself behind the other arguments.
    fn append_to(&self, arguments: &mut String);
}

/// Marks of the form are no words.
#[inline(never)]
fn append(kind: char, words: &str, arguments: &mut String) {
    arguments.push(kind);
    arguments.extend(words.chars().map(|c| if matches!(c, WORDS..=END) { ' ' } else { c }));
}

impl Argument for &str {
    fn append_to(&self, arguments: &mut String) {
        append(WORDS, self, arguments);
    }
}

impl Argument for String {
    fn append_to(&self, arguments: &mut String) {
        append(WORDS, self, arguments);
    }
}

impl Argument for u64 {
    fn append_to(&self, arguments: &mut String) {
        append(WORDS, &self.to_string(), arguments);
    }
}

impl Argument for usize {
    fn append_to(&self, arguments: &mut String) {
        (*self as u64).append_to(arguments);
    }
}

impl Argument for Key {
    fn append_to(&self, arguments: &mut String) {
        append(NESTED, &self.0.to_string(), arguments);
        arguments.push(END);
    }
}

impl Argument for Text {
    fn append_to(&self, arguments: &mut String) {
        append(NESTED, &self.key.0.to_string(), arguments);
        arguments.push_str(&self.arguments);
        arguments.push(END);
    }
}

/// An argument that is made already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part(String);

impl Argument for Part {
    fn append_to(&self, arguments: &mut String) {
        arguments.push_str(&self.0);
    }
}

impl Part {
    /// An argument as a value of one type, where several kinds are possible.
    #[must_use]
    pub fn of(argument: &dyn Argument) -> Self {
        let mut part = String::new();
        argument.append_to(&mut part);
        Self(part)
    }
}

impl Text {
    fn new(key: Key, arguments: &[&dyn Argument]) -> Self {
        let mut text = Self::from(key);
        for argument in arguments {
            argument.append_to(&mut text.arguments);
        }
        text
    }

    /// It as a string, for another program of the same build: numbers of keys change with the table.
    #[must_use]
    pub fn packed(&self) -> String {
        format!("{} {}", self.key.0, self.arguments)
    }

    /// The text that was [`Self::packed`]; `None` for what does not begin with a key's number.
    #[must_use]
    pub fn unpacked(packed: &str) -> Option<Self> {
        let (number, arguments) = packed.split_once(' ')?;
        // `parse` would take a sign too, which nothing packs.
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let key = Key(number.parse().ok().filter(|_| is_number)?);
        Some(Self { key, arguments: arguments.to_owned() })
    }

    /// Whether it is that text, whatever its arguments are.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl From<Key> for Text {
    fn from(key: Key) -> Self {
        Self { key, arguments: String::new() }
    }
}

/// A size for a person.
#[must_use]
pub fn size(bytes: u64) -> Part {
    let mut part = String::new();
    append(NUMBER, &human_size(bytes), &mut part);
    Part(part)
}

/// A size as PyTorch prints it.
#[must_use]
pub fn printed_size(bytes: u64) -> Part {
    let mut part = String::new();
    append(NUMBER, &pytorch_size(bytes), &mut part);
    Part(part)
}

/// A whole number for a person, in groups of digits.
#[must_use]
pub fn count(number: u64) -> Part {
    let mut part = String::new();
    append(NUMBER, &number.to_string(), &mut part);
    Part(part)
}

/// Names in a row.
#[must_use]
pub fn names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Part {
    let mut part = String::new();
    for name in names {
        append(ITEM, name.as_ref(), &mut part);
    }
    part.push(END);
    Part(part)
}

/// A language of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language {
    /// Its code in addresses and in `lang`.
    pub code: &'static str,
    /// What it calls itself.
    pub name: &'static str,
    /// Its file, as it is written.
    #[cfg(not(target_arch = "wasm32"))]
    pub source: &'static str,
}

macro_rules! language {
    ($code:literal, $name:literal) => {
        Language {
            code: $code,
            name: $name,
            #[cfg(not(target_arch = "wasm32"))]
            source: include_str!(concat!("../text/", $code, ".txt")),
        }
    };
}

/// All of them; the first is where all others begin.
pub const LANGUAGES: [Language; 4] =
    [language!("en", "English"), language!("zh", "简体中文"), language!("ja", "日本語"), language!("de", "Deutsch")];

/// All texts of a language by its code, made when they are first asked for; English for a code that is none of ours. A
/// program for the page never asks for it.
#[cfg(not(target_arch = "wasm32"))]
#[must_use]
pub fn table(code: &str) -> &'static Table {
    static TABLES: [OnceLock<Table>; LANGUAGES.len()] = [const { OnceLock::new() }; LANGUAGES.len()];
    let at = LANGUAGES.iter().position(|language| language.code == code).unwrap_or(0);
    TABLES[at].get_or_init(|| Table::of(&LANGUAGES[at]))
}

/// The English table.
#[cfg(not(target_arch = "wasm32"))]
#[must_use]
pub fn english() -> &'static Table {
    table(LANGUAGES[0].code)
}

/// In English.
#[cfg(not(target_arch = "wasm32"))]
impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&english().say(self))
    }
}

/// In English.
#[cfg(not(target_arch = "wasm32"))]
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(english().word(*self))
    }
}

/// Only by its number: the page's program has no words.
#[cfg(target_arch = "wasm32")]
impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "text {}", self.key.0)
    }
}
