//! The texts of one language.

use super::{DECIMAL_MARK, END, ITEM, Key, LIST_MARK, NESTED, NUMBER, THOUSANDS_MARK, Text, WORDS};
#[cfg(not(target_arch = "wasm32"))]
use super::{LANGUAGES, Language, source};

/// What stands for a text that was not fetched.
pub const NOT_FETCHED: &str = "\u{fffd}";

/// The texts of one language, by their keys.
#[derive(Clone, Debug, Default)]
pub struct Table {
    lines: Vec<String>,
}

/// Every text in the order of the keys, a line each, with numbers for arguments; empty where a page does not fetch it.
#[cfg(not(target_arch = "wasm32"))]
fn packed(language: &Language, is_fetched: impl Fn(&[&str]) -> bool) -> String {
    let read = |language: &Language| source::entries(language.source).unwrap_or_default();
    let own = read(language);
    let mut out = String::new();
    for entry in read(&LANGUAGES[0]) {
        if is_fetched(&entry.pages) {
            // A test sees to it that none is missing; a person would still rather read English than nothing.
            let text = own.iter().find(|other| other.name == entry.name).map_or(entry.text, |other| other.text);
            out.push_str(&source::numbered(text, &entry.arguments).unwrap_or_default());
        }
        out.push('\n');
    }
    // What no line follows need not be told apart from what is not there.
    out.truncate(out.trim_end_matches('\n').len());
    out
}

impl Table {
    /// A table of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// The file that a page fetches for a language. Pages are `budget`, `diagnose`, `embed`, `demo`
    /// and `rig`; `writes` is the worker that a rig's page begins.
    #[cfg(not(target_arch = "wasm32"))]
    #[must_use]
    pub fn packed(language: &Language, page: &str) -> String {
        packed(language, |pages| pages.contains(&"all") || pages.contains(&page))
    }

    /// All texts of a language.
    #[cfg(not(target_arch = "wasm32"))]
    #[must_use]
    pub fn of(language: &Language) -> Self {
        Self::unpacked(&packed(language, |_| true))
    }

    /// The table of a fetched file.
    #[must_use]
    pub fn unpacked(packed: &str) -> Self {
        Self { lines: packed.split('\n').map(str::to_owned).collect() }
    }

    /// A text without arguments.
    #[must_use]
    pub fn word(&self, key: Key) -> &str {
        self.line(usize::from(key.0))
    }

    fn line(&self, index: usize) -> &str {
        match self.lines.get(index) {
            Some(line) if !line.is_empty() => line,
            // Of a page that did not fetch it: to be seen in a test, rather than to be missing in silence.
            _ => NOT_FETCHED,
        }
    }

    /// A text with its arguments.
    #[must_use]
    pub fn say(&self, text: &Text) -> String {
        self.fill(self.word(text.key), &mut text.arguments.as_str())
    }

    /// Takes the arguments up to their end, and puts them into a line.
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
                    Some((_, many)) => out.push_str(&many.replace('#', argument)),
                    None => out.push_str(argument),
                }
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// Takes the next argument and says it; `None` at the end.
    fn take(&self, arguments: &mut &str) -> Option<String> {
        let mut chars = arguments.chars();
        let kind = chars.next()?;
        let behind = chars.as_str();
        if kind == END {
            *arguments = behind;
            return None;
        }
        let length = behind.find(|c| matches!(c, WORDS..=END)).unwrap_or(behind.len());
        let (words, rest) = behind.split_at(length);
        *arguments = rest;
        Some(match kind {
            NUMBER => self.number(words),
            NESTED => self.fill(self.line(words.parse().unwrap_or(usize::MAX)), arguments),
            ITEM => {
                let mark = self.word(LIST_MARK);
                // A full-width mark has its blank in itself.
                let blank = if mark.is_ascii() { " " } else { "" };
                let mut all = words.to_owned();
                while let Some(next) = arguments.strip_prefix(ITEM) {
                    let length = next.find(|c| matches!(c, WORDS..=END)).unwrap_or(next.len());
                    all = all + mark + blank + &next[..length];
                    *arguments = &next[length..];
                }
                *arguments = arguments.strip_prefix(END).unwrap_or(arguments);
                all
            }
            _ => words.to_owned(),
        })
    }

    /// A number with the language's own decimal mark; one of digits alone in groups of three.
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

    /// A whole number in groups of three digits.
    #[must_use]
    pub fn grouped(&self, number: u64) -> String {
        self.number(&number.to_string())
    }
}
