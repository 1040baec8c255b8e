//! User-visible texts as values: a key and its arguments. A [`Table`] renders a text in a language.
//!
//! Each line of `keys.txt` generates a constant or a function here. The wording is in `headroom-languages`, so a changed
//! wording recompiles no crate that only names texts. A page fetches the table of its language, so the WebAssembly
//! program contains no texts.
//!
//! [`units`] and [`decimal`] format the numbers and sizes in texts.

#![warn(missing_docs)]

pub mod decimal;
mod named;
mod table;
pub mod units;

use units::pytorch_size;

pub use named::{Arg, NamedText};
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
/// All arguments are in one string, each after the mark of its kind. Each call site is then a function call, which is
/// less code than building a list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    key: Key,
    arguments: String,
}

/// Marks an argument that is the same in every language: a name, a path or a piece of the input.
const WORDS: char = '\u{1}';
/// Marks a number. Its decimal mark is localised, and a number of digits only is grouped.
const NUMBER: char = '\u{2}';
/// Marks a nested text: its key, its arguments, and then [`END`].
const NESTED: char = '\u{3}';
/// Marks a list: the code of its [`Separator`], its items, and then [`END`].
const LIST: char = '\u{4}';
/// Ends the arguments of a text and the items of a list.
const END: char = '\u{5}';
/// Marks a size in bytes.
const SIZE: char = '\u{6}';
/// Marks a whole number without grouping, such as a process ID.
const DIGITS: char = '\u{7}';

/// Whether a character starts or ends an argument.
const fn is_mark(char: char) -> bool {
    matches!(char, WORDS..=DIGITS)
}

/// The separator between the items of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// `, `, or the language's own mark.
    Comma,
    /// `; `, or `；` in languages with full-width marks.
    Semicolon,
    /// A line break.
    Line,
    /// A blank line.
    Paragraph,
}

impl Separator {
    const ALL: [Self; 4] = [Self::Comma, Self::Semicolon, Self::Line, Self::Paragraph];

    /// The separator in English.
    const fn english(self) -> &'static str {
        match self {
            Self::Comma => ", ",
            Self::Semicolon => "; ",
            Self::Line => "\n",
            Self::Paragraph => "\n\n",
        }
    }

    fn of_english(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|separator| separator.english() == text)
    }

    /// Returns the separator whose code follows [`LIST`].
    fn of_code(code: &str) -> Self {
        Self::ALL.into_iter().find(|separator| code == separator.code()).unwrap_or(Self::Comma)
    }

    const fn code(self) -> &'static str {
        match self {
            Self::Comma => "0",
            Self::Semicolon => "1",
            Self::Line => "2",
            Self::Paragraph => "3",
        }
    }
}

/// A value that can be an argument of a text.
pub trait Argument {
    /// Appends the value to the arguments.
    fn append_to(&self, arguments: &mut String);
}

/// Appends an argument and replaces marks in its words by spaces.
#[inline(never)]
fn append(kind: char, words: &str, arguments: &mut String) {
    arguments.push(kind);
    arguments.extend(words.chars().map(|c| if is_mark(c) { ' ' } else { c }));
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
        append(DIGITS, &self.to_string(), arguments);
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

/// An argument that is already encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part(String);

impl Argument for Part {
    fn append_to(&self, arguments: &mut String) {
        arguments.push_str(&self.0);
    }
}

impl Part {
    /// Encodes an argument, so that arguments of several kinds have one type.
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

    /// Encodes the text as a string for another program of the same build. Numbers of keys change with the table.
    #[must_use]
    pub fn packed(&self) -> String {
        format!("{} {}", self.key.0, self.arguments)
    }

    /// Decodes a string from [`Self::packed`]; `None` if the string does not begin with a key's number.
    #[must_use]
    pub fn unpacked(packed: &str) -> Option<Self> {
        let (number, arguments) = packed.split_once(' ')?;
        // `parse` would also accept a sign, which is never packed.
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        let key = Key(number.parse().ok().filter(|_| is_number)?);
        Some(Self { key, arguments: arguments.to_owned() })
    }

    /// Whether both texts have the same key, with any arguments.
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

/// Formats a size in bytes for people.
#[must_use]
pub fn size(bytes: u64) -> Part {
    let mut part = String::new();
    append(SIZE, &bytes.to_string(), &mut part);
    Part(part)
}

/// Formats a size as PyTorch prints it.
#[must_use]
pub fn printed_size(bytes: u64) -> Part {
    let mut part = String::new();
    append(NUMBER, &pytorch_size(bytes), &mut part);
    Part(part)
}

/// Formats a whole number with grouped digits.
#[must_use]
pub fn count(number: u64) -> Part {
    let mut part = String::new();
    append(NUMBER, &number.to_string(), &mut part);
    Part(part)
}

/// Joins names with commas.
#[must_use]
pub fn names<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> Part {
    let mut part = list_of(Separator::Comma);
    for name in names {
        append(WORDS, name.as_ref(), &mut part);
    }
    part.push(END);
    Part(part)
}

/// Joins arguments, such as texts, sizes and names, to one argument.
#[must_use]
pub fn list<T: Argument>(separator: Separator, items: impl IntoIterator<Item = T>) -> Part {
    let mut part = list_of(separator);
    for item in items {
        item.append_to(&mut part);
    }
    part.push(END);
    Part(part)
}

/// Returns the start of an encoded list.
fn list_of(separator: Separator) -> String {
    format!("{LIST}{}", separator.code())
}

/// A supported language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language {
    /// Language code, used in URLs and in `lang`.
    pub code: &'static str,
    /// The language's own name.
    pub name: &'static str,
}

/// All languages. The first is the default and the source of the translations.
pub const LANGUAGES: [Language; 4] = [
    Language { code: "en", name: "English" },
    Language { code: "zh", name: "简体中文" },
    Language { code: "ja", name: "日本語" },
    Language { code: "de", name: "Deutsch" },
];

/// The name of every key, in the order of their numbers. Not available in WebAssembly.
#[cfg(not(target_arch = "wasm32"))]
pub const NAMES: &[&str] = include!(concat!(env!("OUT_DIR"), "/names.rs"));

/// The English table, which `headroom-languages` registers in every program that links it.
#[cfg(not(target_arch = "wasm32"))]
#[linkme::distributed_slice]
pub static ENGLISH: [fn() -> &'static Table];

/// Renders a text in English; with its name and arguments if the program does not link `headroom-languages`.
#[cfg(not(target_arch = "wasm32"))]
fn in_english(text: &Text) -> String {
    match ENGLISH.first() {
        Some(english) => english().say(text),
        None => {
            let name = NAMES.get(usize::from(text.key.0)).copied().unwrap_or(NOT_FETCHED);
            format!("{name}{:?}", text.arguments)
        }
    }
}

/// Formats the text in English.
#[cfg(not(target_arch = "wasm32"))]
impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&in_english(self))
    }
}

/// Formats the text in English.
#[cfg(not(target_arch = "wasm32"))]
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&in_english(&(*self).into()))
    }
}

/// Formats only the key's number, because the page's program contains no texts.
#[cfg(target_arch = "wasm32")]
impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "text {}", self.key.0)
    }
}
