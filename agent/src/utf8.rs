//! Files that should be text: where one stops being UTF-8.

use std::fmt;

use thiserror::Error;

/// A byte that is no part of UTF-8 text, and where it stands.
#[derive(Debug, Error)]
#[error("{name}:{place}: this is not UTF-8 text (byte 0x{byte:02X})")]
pub struct NotText {
    /// The file, as given.
    pub name: String,
    /// Where the byte stands.
    pub place: Place,
    /// The byte.
    pub byte: u8,
    /// Whether the file starts as UTF-16 does.
    pub is_utf16: bool,
}

impl NotText {
    /// The first byte of a whole file that is none; `at` bytes before it are text.
    pub fn in_file(name: String, at: usize, bytes: &[u8]) -> Self {
        let mut place = Place::default();
        place.pass(&String::from_utf8_lossy(&bytes[..at]));
        Self { name, place, byte: bytes.get(at).copied().unwrap_or_default(), is_utf16: starts_as_utf16(bytes) }
    }

    /// What to try instead.
    pub fn hint(&self) -> String {
        if self.is_utf16 {
            "it looks like UTF-16, as PowerShell's `>` writes it; save it as UTF-8".to_owned()
        } else {
            "save the file as UTF-8, or write that character anew".to_owned()
        }
    }
}

/// Whether a file begins with the mark of UTF-16.
pub fn starts_as_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF])
}

/// A place in a text; a line ends as in Python, with `\n`, `\r\n` or `\r`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 1.
    line: u64,
    /// In characters, from 1.
    column: u64,
    after_return: bool,
}

impl Default for Place {
    fn default() -> Self {
        Self { line: 1, column: 1, after_return: false }
    }
}

impl Place {
    /// Goes past a piece of the text.
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

impl fmt::Display for Place {
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
            let at = std::str::from_utf8(bytes).expect_err("it is none").valid_up_to();
            let said = NotText::in_file("c.py".to_owned(), at, bytes).to_string();
            assert!(said.starts_with(&format!("c.py:{place}: this is not UTF-8 text")), "{said}");
        }
    }

    #[test]
    fn a_line_may_end_between_two_pieces() {
        let mut place = Place::default();
        for piece in ["a\r", "\nb\r", "c\n", "\nde"] {
            place.pass(piece);
        }
        assert_eq!(place.to_string(), "5:3");
    }
}
