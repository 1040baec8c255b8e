//! Detection of files that are not UTF-8 text.

use std::fmt;

use thiserror::Error;

/// The first invalid byte of a file, and its position.
#[derive(Debug, Error)]
#[error("{name}:{place}: this is not UTF-8 text (byte 0x{byte:02X})")]
pub struct NotText {
    /// The name of the file, as given.
    pub name: String,
    /// The position of the byte.
    pub place: TextPosition,
    /// The value of the byte.
    pub byte: u8,
    /// Whether the file starts with a UTF-16 byte order mark.
    pub is_utf16: bool,
}

impl NotText {
    /// Describes the invalid byte of a whole file at offset `at`; the bytes before it are valid.
    pub fn in_file(name: String, at: usize, bytes: &[u8]) -> Self {
        let mut place = TextPosition::default();
        place.pass(&String::from_utf8_lossy(&bytes[..at]));
        Self { name, place, byte: bytes.get(at).copied().unwrap_or_default(), is_utf16: starts_as_utf16(bytes) }
    }

    /// Returns a suggestion to resolve the error.
    pub fn hint(&self) -> String {
        if self.is_utf16 {
            "it looks like UTF-16, as PowerShell's `>` writes it; save it as UTF-8".to_owned()
        } else {
            "save the file as UTF-8, or write that character anew".to_owned()
        }
    }
}

/// Returns whether a file begins with a UTF-16 byte order mark.
pub fn starts_as_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF])
}

/// A position in a text. As in Python, lines end with `\n`, `\r\n` or `\r`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    /// The line, from 1.
    line: u64,
    /// The column in characters, from 1.
    column: u64,
    after_return: bool,
}

impl Default for TextPosition {
    fn default() -> Self {
        Self { line: 1, column: 1, after_return: false }
    }
}

impl TextPosition {
    /// Advances past a piece of the text.
    pub fn pass(&mut self, text: &str) {
        for char in text.chars() {
            match char {
                '\n' if self.after_return => {}
                '\n' | '\r' => (self.line, self.column) = (self.line + 1, 1),
                _ => self.column += 1,
            }
            self.after_return = char == '\r';
        }
    }
}

impl fmt::Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_that_is_no_text_has_a_place() {
        for (bytes, place) in [
            (&b"\xFF"[..], "1:1"),
            (b"a = 1\n# \xE9", "2:3"),
            (b"a = 1\r\nb = 2\r# caf\xC3\xA9 \xC3", "3:8"),
            (b"a\n\n\n\x80", "4:1"),
        ] {
            let at = std::str::from_utf8(bytes).expect_err("it is not UTF-8").valid_up_to();
            let said = NotText::in_file("c.py".to_owned(), at, bytes).to_string();
            assert!(said.starts_with(&format!("c.py:{place}: this is not UTF-8 text")), "{said}");
        }
    }

    #[test]
    fn a_line_may_end_between_two_pieces() {
        let mut place = TextPosition::default();
        for piece in ["a\r", "\nb\r", "c\n", "\nde"] {
            place.pass(piece);
        }
        assert_eq!(place.to_string(), "5:3");
    }
}
