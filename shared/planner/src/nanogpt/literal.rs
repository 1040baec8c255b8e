//! Values of Python's number and string literals.

use super::reason::{Reason, TOO_LARGE, skipped, stops};
use super::value::Value;
use headroom_text as text;

/// Maximum length in bytes of a string, number or collection. Settings are short; the bound keeps repeated doubling and
/// copying cheap.
pub(super) const MAX_VALUE_BYTES: usize = 1024;

/// Maximum length of a string's quotes and prefix.
const MAX_QUOTES: usize = 8;

const TOO_LONG: Reason = skipped(text::STRING_TOO_LONG);
const NOT_A_NUMBER: Reason = stops(text::NOT_A_PYTHON_NUMBER);

/// Parses a number literal.
pub(super) fn number(text: &str) -> Result<Value, Reason> {
    if text.len() > MAX_VALUE_BYTES {
        return Err(skipped(text::NUMBER_TOO_LONG));
    }
    if text.ends_with(['j', 'J']) {
        return Err(skipped(text::NO_COMPLEX));
    }
    let radix = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => 16,
        [b'0', b'o' | b'O', ..] => 8,
        [b'0', b'b' | b'B', ..] => 2,
        _ => 10,
    };
    let body = if radix == 10 { text } else { &text[2..] };
    // Python allows one underscore between digits, and one after the radix prefix.
    let padded = if radix == 10 { body } else { body.strip_prefix('_').unwrap_or(body) };
    let bytes = padded.as_bytes();
    let misplaced = |i: usize| {
        let is_digit = |b: &u8| if radix == 10 { b.is_ascii_digit() } else { b.is_ascii_hexdigit() };
        let digit = |j: Option<usize>| j.and_then(|j| bytes.get(j)).is_some_and(is_digit);
        bytes[i] == b'_' && !(digit(i.checked_sub(1)) && digit(Some(i + 1)))
    };
    if (0..bytes.len()).any(misplaced) {
        return Err(NOT_A_NUMBER);
    }
    let digits = padded.replace('_', "");
    if radix != 10 || digits.bytes().all(|b| b.is_ascii_digit()) {
        return integer(&digits, radix);
    }
    // Rust also accepts "inf" and "nan", but a number token starts with a digit or a dot.
    headroom_text::decimal::parse(&digits).map(Value::Float).ok_or(NOT_A_NUMBER)
}

fn integer(digits: &str, radix: u32) -> Result<Value, Reason> {
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(NOT_A_NUMBER);
    }
    if radix == 10 && digits.len() > 1 && digits.starts_with('0') && digits.bytes().any(|b| b != b'0') {
        return Err(stops(text::PYTHON_LEADING_ZERO));
    }
    i64::from_str_radix(digits, radix).map(Value::Int).map_err(|_| skipped(TOO_LARGE))
}

/// Parses one string literal with its prefix and quotes.
pub(super) fn string(text: &str) -> Result<Value, Reason> {
    // A written value may take four characters per byte, and must be readable again.
    if text.len() > 4 * MAX_VALUE_BYTES + MAX_QUOTES {
        return Err(TOO_LONG);
    }
    let quotes = text.find(['\'', '"']).unwrap_or(0);
    let (prefix, rest) = text.split_at(quotes);
    let has = |letter: char| prefix.chars().any(|c| c.eq_ignore_ascii_case(&letter));
    let width = if rest.len() >= 6 && (rest.starts_with("'''") || rest.starts_with("\"\"\"")) { 3 } else { 1 };
    let body = rest.get(width..rest.len().saturating_sub(width)).unwrap_or_default();
    if has('b') && text.len() <= MAX_VALUE_BYTES {
        return Ok(Value::Opaque(text.into()));
    }
    if (has('f') || has('t')) && body.contains(['{', '}']) {
        return Err(skipped(text::NO_F_STRING));
    }
    let body = if body.contains('\r') { body.replace("\r\n", "\n").replace('\r', "\n") } else { body.into() };
    let value = if has('r') { body } else { unescape(&body)? };
    if value.len() > MAX_VALUE_BYTES || has('b') { Err(TOO_LONG) } else { Ok(Value::Str(value)) }
}

fn unescape(body: &str) -> Result<String, Reason> {
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(c) = rest.chars().next() else { break };
        rest = &rest[c.len_utf8()..];
        match c {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(c),
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'v' => out.push('\u{b}'),
            '0'..='7' => {
                let more = rest.bytes().take(2).take_while(|b| matches!(b, b'0'..=b'7')).count();
                let code = format!("{c}{}", &rest[..more]);
                out.push(code_point(&code, 8)?);
                rest = &rest[more..];
            }
            'x' | 'u' | 'U' => {
                let length = [2, 4, 8]["xuU".find(c).unwrap_or(0)];
                out.push(code_point(rest.get(..length).unwrap_or("-"), 16)?);
                rest = &rest[length..];
            }
            'N' => return Err(skipped(text::NO_UNICODE_NAMES)),
            other => {
                out.push('\\');
                out.push(other);
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn code_point(digits: &str, radix: u32) -> Result<char, Reason> {
    let code =
        if digits.bytes().all(|b| b.is_ascii_hexdigit()) { u32::from_str_radix(digits, radix).ok() } else { None };
    code.and_then(char::from_u32).ok_or(stops(text::BAD_ESCAPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_number(text: &str, expected: &str) {
        assert_eq!(number(text).map_or_else(|r| r.what.to_string(), |v| v.to_string()), expected, "{text}");
    }

    #[track_caller]
    fn check_string(text: &str, expected: &str) {
        assert_eq!(
            string(text).map_or_else(|r| r.what.to_string(), |v| v.to_python_str().unwrap_or("opaque".into())),
            expected
        );
    }

    #[test]
    fn numbers() {
        for (text, expected) in [
            ("0", "0"),
            ("00", "0"),
            ("1_000_000", "1000000"),
            ("0xFF", "255"),
            ("0x_f", "15"),
            ("0o17", "15"),
            ("0b1010", "10"),
            ("1.", "1.0"),
            (".5", "0.5"),
            ("6e-4", "0.0006"),
            ("1_0.0_1E+1_0", "100100000000.0"),
            ("1e999", "float('inf')"),
            ("9223372036854775807", "9223372036854775807"),
        ] {
            check_number(text, expected);
        }
    }

    #[test]
    fn invalid_python_numbers_are_refused() {
        for text in ["1__0", "1_", "0x", "0b2", "5abc", "1.2.3", "1e", "1_e5", "0x__f"] {
            check_number(text, "this is not a number");
        }
        check_number("007", "Python rejects a whole number that starts with 0");
    }

    #[test]
    fn numbers_beyond_us() {
        check_number("9223372036854775808", "a whole number beyond 64 bits is not evaluated");
        check_number(&"9".repeat(100_000), "a number of more than 1,024 characters is not evaluated");
        check_number("3j", "complex numbers are not evaluated");
    }

    #[test]
    fn strings() {
        check_string("''", "");
        check_string("''''''", "");
        check_string(r#""it's""#, "it's");
        check_string("'''a\r\nb'''", "a\nb");
        check_string(r"'\x41\u00e9\101\n\\\q\'\U0001F600'", "AéA\n\\\\q'😀");
        check_string(r"r'\n'", r"\n");
        check_string("'a\\\nb'", "ab");
        check_string("U'é世'", "é世");
        check_string("f'plain'", "plain");
    }

    #[test]
    fn strings_beyond_us() {
        check_string("f'{x}'", "an f-string is not evaluated");
        check_string("b'x'", "opaque");
        check_string(r"'\ud800'", "this string has an invalid escape sequence");
        check_string(r"'\x4'", "this string has an invalid escape sequence");
        check_string(r"'\u+123'", "this string has an invalid escape sequence");
    }
}
