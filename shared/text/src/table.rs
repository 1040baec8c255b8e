//! The texts of one language.

use super::{DECIMAL_MARK, END, Key, LIST, LIST_MARK, NESTED, NUMBER, SIZE, Separator, THOUSANDS_MARK, Text, is_mark};
use crate::units::human_size;

/// The semicolon of languages with full-width marks.
const FULL_WIDTH_SEMICOLON: &str = "；";
/// Placeholder for a text that was not fetched.
pub const NOT_FETCHED: &str = "\u{fffd}";

/// The texts of one language, indexed by key.
#[derive(Clone, Debug, Default)]
pub struct Table {
    lines: Vec<String>,
}

impl Table {
    /// Creates an empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Decodes the table of a fetched file.
    #[must_use]
    pub fn unpacked(packed: &str) -> Self {
        Self { lines: packed.split('\n').map(str::to_owned).collect() }
    }

    /// Returns a text without arguments.
    #[must_use]
    pub fn word(&self, key: Key) -> &str {
        self.line(usize::from(key.0))
    }

    fn line(&self, index: usize) -> &str {
        match self.lines.get(index) {
            Some(line) if !line.is_empty() => line,
            // The page did not fetch the text. The placeholder makes the omission visible in a test.
            _ => NOT_FETCHED,
        }
    }

    /// Renders a text with its arguments.
    #[must_use]
    pub fn say(&self, text: &Text) -> String {
        self.fill(self.word(text.key), &mut text.arguments.as_str())
    }

    /// Returns whether the rendered text begins with an argument, such as a name, and not with words of this language.
    #[must_use]
    pub fn begins_with_argument(&self, text: &Text) -> bool {
        // The first argument may be a text, whose own words begin the line.
        self.word(text.key).starts_with('{') && !text.arguments.starts_with(NESTED)
    }

    /// Decodes the arguments up to their end and inserts them into a line.
    fn fill(&self, line: &str, arguments: &mut &str) -> String {
        let mut said = Vec::new();
        while let Some(argument) = self.take(arguments) {
            said.push(argument);
        }
        let mut out = String::new();
        let mut rest = line;
        while let Some((before, behind)) = rest.split_once('{') {
            out.push_str(before);
            let (inside, after) = behind.split_once('}').unwrap_or((behind, ""));
            let (number, forms) = inside.split_once(':').unwrap_or((inside, ""));
            if let Some(argument) = number.parse().ok().and_then(|number: usize| said.get(number)) {
                match forms.split_once('|') {
                    Some((one, _)) if argument == "1" => out.push_str(one),
                    Some((_, many)) => many.chars().for_each(|char| match char {
                        '#' => out.push_str(argument),
                        char => out.push(char),
                    }),
                    None => out.push_str(argument),
                }
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// Decodes and renders the next argument; `None` at the end.
    fn take(&self, arguments: &mut &str) -> Option<String> {
        let mut chars = arguments.chars();
        let kind = chars.next()?;
        let behind = chars.as_str();
        if kind == END {
            *arguments = behind;
            return None;
        }
        let length = behind.find(is_mark).unwrap_or(behind.len());
        let (words, rest) = behind.split_at(length);
        *arguments = rest;
        Some(match kind {
            NUMBER => self.number(words),
            SIZE => self.number(&human_size(words.parse().unwrap_or(u64::MAX))),
            NESTED => self.fill(self.line(words.parse().unwrap_or(usize::MAX)), arguments),
            LIST => {
                let between = self.separator(Separator::of_code(words));
                let Some(mut all) = self.take(arguments) else { return Some(String::new()) };
                while let Some(item) = self.take(arguments) {
                    all.push_str(&between);
                    all.push_str(&item);
                }
                all
            }
            _ => words.to_owned(),
        })
    }

    /// Returns a separator in this language. A full-width mark includes its space.
    fn separator(&self, separator: Separator) -> String {
        let mark = self.word(LIST_MARK);
        match separator {
            Separator::Comma if mark.is_ascii() => format!("{mark} "),
            Separator::Comma => mark.to_owned(),
            Separator::Semicolon if !mark.is_ascii() => FULL_WIDTH_SEMICOLON.to_owned(),
            other => other.english().to_owned(),
        }
    }

    /// Formats a number with the language's decimal mark. A number of digits only is grouped by three.
    #[must_use]
    pub fn number(&self, number: &str) -> String {
        let is_whole = number.bytes().all(|byte| byte.is_ascii_digit());
        let mut out = String::new();
        for (index, char) in number.char_indices() {
            if is_whole && index > 0 && (number.len() - index).is_multiple_of(3) {
                out.push_str(self.word(THOUSANDS_MARK));
            }
            match char {
                '.' => out.push_str(self.word(DECIMAL_MARK)),
                char => out.push(char),
            }
        }
        out
    }

    /// Formats a whole number in groups of three digits.
    #[must_use]
    pub fn grouped(&self, number: u64) -> String {
        self.number(&number.to_string())
    }
}
