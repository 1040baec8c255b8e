//! Separator and value after the name of a secret: in shell commands, Python, YAML and JSON, also in escaped JSON.

use std::{ops::Range, sync::LazyLock};

use regex::Regex;

/// Limit of the text before a name that is searched for a call, in bytes.
const CALL_BYTES_MAX: usize = 200;

/// Separators. A space separates an option from its value, and a comma the arguments of a call.
static SEPARATOR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"^(?:\\*["']?[ \t]*\]?[ \t]*(?::[ \t]*(?:str|bytes|int|SecretStr|Optional\[\w+\]|Final(?:\[\w+\])?)"#,
        r"(?:[ \t]*\|[ \t]*None)?[ \t]*=|=>|:=|==?|:)[ \t]*",
        r#"|(?P<comma>\\*["'][ \t]*,[ \t]*)|(?P<space>[ \t]+))"#,
        r"(?i-u:(?:bearer|basic|token)[ \t]+)?",
    ))
    .ok()
});
/// What is between two parts that Python concatenates: an operator, or the end of a continued line.
static CONCATENATION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^[ \t]*(?:\+[ \t]*(?:\\?\n[ \t]*)?|\\\n[ \t]*)").ok());
/// A value without quotes: calls and brackets with one level of brackets in them, or a word.
static BARE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"^(?:[^\s"';&()\[\]{}]*[(\[{](?:[^()\[\]{}]|[(\[{][^()\[\]{}]*[)\]}])*[)\]}]"#,
        // The rest of a word with replacement fields, as in an f-string.
        r#"(?:[^\s"';&()\[\]{},]*[(\[{][^()\[\]{}]*[)\]}])*[^\s"';&()\[\]{},]*"#,
        r#"|[^\s"';&)\]}]+)"#,
    ))
    .ok()
});

/// Kind of a separator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// A colon, which is punctuation too.
    Colon,
    /// A comma.
    Comma,
    /// Spaces.
    Space,
    /// An equals sign or another operator.
    Operator,
}

/// The value that follows a name.
#[derive(Debug)]
pub struct Value {
    /// What separates it from the name.
    pub separator: Separator,
    /// Range of the value without its quotes, from the end of the name. Not empty.
    pub range: Range<usize>,
}

/// Finds the value in the text that follows a name. `None` without a value. The outer `None` means that a pattern does
/// not compile.
pub fn find(rest: &str) -> Option<Option<Value>> {
    let Some(found) = SEPARATOR.as_ref()?.captures(rest) else { return Some(None) };
    let start = found.get(0).map_or(0, |whole| whole.end());
    let separator = match (found.name("comma"), found.name("space")) {
        (Some(_), _) => Separator::Comma,
        (None, Some(_)) => Separator::Space,
        (None, None) if rest[..start].contains('=') => Separator::Operator,
        (None, None) => Separator::Colon,
    };
    let value = &rest[start..];
    let range = match quoted(value) {
        Some(range) => Some(range),
        None if separator == Separator::Comma => None,
        None => BARE.as_ref()?.find(value).map(|bare| bare.range()),
    };
    let mut range = range;
    if separator == Separator::Operator
        && let Some(range) = &mut range
    {
        range.end = end_of_concatenation(value, range)?;
    }
    let range = range.filter(|range| !range.is_empty());
    Some(range.map(|range| Value { separator, range: start + range.start..start + range.end }))
}

/// Returns the end of the last part of a value that Python concatenates, as in `"a" + "b"`. The first part is at `first`.
fn end_of_concatenation(text: &str, first: &Range<usize>) -> Option<usize> {
    let mut end = first.end;
    loop {
        let after = &text[end..];
        // The quotes of a literal are outside of its range.
        let quotes = after.bytes().take(3).take_while(|byte| b"\"'".contains(byte)).count();
        let closed = end + quotes;
        let Some(between) = CONCATENATION.as_ref()?.find(&text[closed..]) else { return Some(end) };
        let next = closed + between.end();
        let part = match quoted(&text[next..]) {
            Some(part) => part,
            None if between.as_str().contains('+') => match BARE.as_ref()?.find(&text[next..]) {
                Some(part) => part.range(),
                None => return Some(end),
            },
            _ => return Some(end),
        };
        end = next + part.end;
    }
}

/// Returns the range of a string literal's content. A literal that does not close ends with its line.
fn quoted(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let prefix = bytes.iter().take(2).take_while(|byte| b"rbfuRBFU".contains(byte)).count();
    let level = bytes[prefix..].iter().take_while(|byte| **byte == b'\\').count();
    let open = prefix + level;
    let quote = *bytes.get(open).filter(|byte| b"\"'".contains(byte))?;
    let triple = [quote; 3];
    if level == 0 && bytes[open..].starts_with(&triple) {
        let start = open + 3;
        let end = bytes[start..].windows(3).position(|three| three == triple);
        return Some(start..end.map_or(bytes.len(), |end| start + end));
    }
    let start = open + 1;
    // Inside of an escaped literal, a quote with more backslashes is content.
    let mut n_backslashes = 0;
    for (i, byte) in bytes.iter().enumerate().skip(start) {
        let closes = if level == 0 { n_backslashes % 2 == 0 } else { n_backslashes <= level };
        match *byte {
            b'\\' => n_backslashes += 1,
            b'\n' => return Some(start..i),
            byte if byte == quote && closes => return Some(start..i - n_backslashes.min(level)),
            _ => n_backslashes = 0,
        }
    }
    Some(start..bytes.len())
}

/// Whether a name is the first argument of a call, or the second one of `setattr`, by the text before it.
pub fn is_argument(before: &str) -> bool {
    let Some(before) = before.strip_suffix(['"', '\'']) else { return false };
    let before = before.trim_end_matches('\\').trim_end();
    if before.ends_with('(') {
        return true;
    }
    let from = before.floor_char_boundary(before.len().saturating_sub(CALL_BYTES_MAX));
    let call = before[from..].rfind("setattr(").map(|at| &before[from + at..]);
    call.is_some_and(|call| call.ends_with(',') && !call.contains([')', '\n']))
}
