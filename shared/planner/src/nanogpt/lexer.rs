//! Lexer that returns Python tokens with their positions, one at a time. It does not interpret them.
//!
//! Total and linear: each byte is read once, plus once more after an unclosed bracket or string.

use headroom_text::{self as text, Key};

/// A position in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Offset in bytes.
    pub offset: usize,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A name or a keyword.
    Name,
    /// Any text that starts like a number.
    Number,
    /// A string literal with its prefix and quotes.
    Str,
    /// An operator, bracket or separator.
    Op,
    /// The end of a logical line.
    Newline,
    /// The end of the source.
    End,
    /// Text that is not a token, with the reason.
    Bad(Key),
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub spot: Spot,
}

impl Token<'_> {
    /// Returns whether this is the operator `text`.
    pub fn is_op(&self, text: &str) -> bool {
        self.kind == Kind::Op && self.text == text
    }

    /// Returns whether this is the name or keyword `text`.
    pub fn is_name(&self, text: &str) -> bool {
        self.kind == Kind::Name && self.text == text
    }

    /// Returns whether the logical line ends here.
    pub fn ends_line(&self) -> bool {
        matches!(self.kind, Kind::Newline | Kind::End)
    }

    /// Returns the offset of the first byte after the token.
    pub fn end(&self) -> usize {
        self.spot.offset + self.text.len()
    }
}

/// State of the lexer. It is copied to look ahead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lexer<'a> {
    pub text: &'a str,
    at: Spot,
    /// Number of open brackets. Inside brackets a line break is white space.
    depth: u32,
    /// The outermost open bracket, if `depth` is not 0.
    opened: Spot,
    /// Indentation of the current logical line in columns; a tab advances to the next multiple of 8.
    pub indent: u32,
    /// Whether the current logical line has no token yet.
    blank: bool,
    /// Set after an unclosed bracket or string. From then on each line is read separately, so that one mistake affects
    /// one line.
    pub line_by_line: bool,
}

const OPS3: [&str; 5] = ["**=", "//=", ">>=", "<<=", "..."];
const OPS2: [&str; 19] =
    ["**", "//", ">>", "<<", "<=", ">=", "==", "!=", "->", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "@=", ":="];

impl<'a> Lexer<'a> {
    pub fn new(text: &'a str) -> Self {
        let offset = if text.starts_with('\u{feff}') { 3 } else { 0 };
        let at = Spot { offset, line: 1, column: 1 };
        Self { text, at, depth: 0, opened: at, indent: 0, blank: true, line_by_line: false }
    }

    /// Creates a lexer for the rest of a line that has already begun. Lines are counted from 1 again.
    pub fn within_line(text: &'a str) -> Self {
        Self { blank: false, ..Self::new(text) }
    }

    /// Returns the next token; at the end, always [`Kind::End`].
    pub fn next(&mut self) -> Token<'a> {
        loop {
            let Some(byte) = self.byte(0) else { return self.take(Kind::End, 0) };
            match byte {
                b' ' | b'\t' | 0x0c => self.white_space(byte),
                b'#' => self.advance(self.line_end()),
                b'\n' | b'\r' => {
                    let silent = self.blank || (self.depth > 0 && !self.line_by_line);
                    let token = self.take(Kind::Newline, self.break_length());
                    if self.depth == 0 || self.line_by_line {
                        self.depth = 0;
                        self.indent = 0;
                        self.blank = true;
                    }
                    if !silent {
                        return token;
                    }
                }
                b'\\' => {
                    self.advance(self.at.offset + 1);
                    match self.break_length() {
                        0 => {
                            self.blank = false;
                            return self.take(Kind::Bad(text::STRAY_BACKSLASH), 0);
                        }
                        n => self.advance(self.at.offset + n),
                    }
                }
                _ => {
                    self.blank = false;
                    return self.visible(byte);
                }
            }
        }
    }

    /// Returns the position of the bracket that was open at the end of the source, if any. The lexer then continues
    /// with the line after the bracket, one line at a time.
    pub fn recover_unclosed(&mut self) -> Option<Spot> {
        if self.depth == 0 || self.line_by_line {
            return None;
        }
        let opened = self.opened;
        self.at = opened;
        self.advance(self.line_end());
        self.depth = 0;
        self.line_by_line = true;
        self.blank = false;
        Some(opened)
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at.offset + ahead).copied()
    }

    /// Returns the length of the line break at the current position: 0, 1 or 2.
    fn break_length(&self) -> usize {
        match (self.byte(0), self.byte(1)) {
            (Some(b'\r'), Some(b'\n')) => 2,
            (Some(b'\n' | b'\r'), _) => 1,
            _ => 0,
        }
    }

    /// Returns the offset of the next line break or of the end.
    fn line_end(&self) -> usize {
        let rest = &self.text.as_bytes()[self.at.offset..];
        self.at.offset + rest.iter().position(|b| matches!(b, b'\n' | b'\r')).unwrap_or(rest.len())
    }

    fn white_space(&mut self, byte: u8) {
        if self.blank {
            self.indent = match byte {
                b' ' => self.indent + 1,
                b'\t' => (self.indent / 8 + 1) * 8,
                _ => 0,
            };
        }
        self.advance(self.at.offset + 1);
    }

    /// Advances to an offset, counting lines and characters.
    fn advance(&mut self, to: usize) {
        let bytes = self.text.as_bytes();
        for i in self.at.offset..to.min(bytes.len()) {
            match bytes[i] {
                b'\n' => (self.at.line, self.at.column) = (self.at.line + 1, 1),
                b'\r' if bytes.get(i + 1) != Some(&b'\n') => (self.at.line, self.at.column) = (self.at.line + 1, 1),
                0x80..=0xbf => {}
                _ => self.at.column += 1,
            }
        }
        self.at.offset = to.min(bytes.len());
    }

    fn take(&mut self, kind: Kind, length: usize) -> Token<'a> {
        let spot = self.at;
        self.advance(spot.offset + length);
        Token { kind, text: self.text.get(spot.offset..self.at.offset).unwrap_or_default(), spot }
    }

    fn visible(&mut self, byte: u8) -> Token<'a> {
        match byte {
            b'"' | b'\'' => self.string(0),
            b'0'..=b'9' => self.number(),
            b'.' if self.byte(1).is_some_and(|b| b.is_ascii_digit()) => self.number(),
            b if is_name_byte(b) => self.name(),
            _ => self.operator(byte),
        }
    }

    fn name(&mut self) -> Token<'a> {
        let rest = &self.text[self.at.offset..];
        if let Some((why, length)) = rest.chars().next().and_then(stray) {
            return self.take(Kind::Bad(why), length);
        }
        // A stray character inside the name ends it, so that the character is reported at its own position.
        let end = |c: char| if c.is_ascii() { !is_name_byte(c as u8) } else { stray(c).is_some() };
        let length = rest.find(end).unwrap_or(rest.len());
        let prefix = length <= 2 && rest[..length].bytes().all(|b| b"rbuft".contains(&b.to_ascii_lowercase()));
        if prefix && matches!(self.byte(length), Some(b'"' | b'\'')) {
            return self.string(length);
        }
        self.take(Kind::Name, length)
    }

    fn number(&mut self) -> Token<'a> {
        let rest = &self.text.as_bytes()[self.at.offset..];
        let radix = rest[0] == b'0' && matches!(rest.get(1), Some(b'x' | b'X' | b'o' | b'O' | b'b' | b'B'));
        let mut length = 1;
        while let Some(&b) = rest.get(length) {
            let signed = matches!(b, b'+' | b'-') && !radix && matches!(rest[length - 1], b'e' | b'E');
            if !(b.is_ascii_alphanumeric() || b == b'_' || b == b'.' || signed) {
                break;
            }
            length += 1;
        }
        self.take(Kind::Number, length)
    }

    /// Reads a string literal whose quotes start after a prefix of `prefix` bytes.
    fn string(&mut self, prefix: usize) -> Token<'a> {
        let rest = &self.text.as_bytes()[self.at.offset..];
        let quote = rest[prefix];
        let triple = rest.get(prefix + 1) == Some(&quote) && rest.get(prefix + 2) == Some(&quote);
        let mut i = prefix + if triple { 3 } else { 1 };
        while let Some(&b) = rest.get(i) {
            match b {
                b'\\' if rest.get(i + 1) == Some(&b'\r') && rest.get(i + 2) == Some(&b'\n') => i += 3,
                b'\\' => i += 2,
                b'\n' | b'\r' if !triple => return self.take(Kind::Bad(text::STRING_UNCLOSED), i),
                b'\n' | b'\r' if self.line_by_line => return self.take(Kind::Bad(text::TRIPLE_UNCLOSED), i),
                _ if b != quote => i += 1,
                _ if !triple => return self.take(Kind::Str, i + 1),
                _ if rest.get(i + 1) == Some(&quote) && rest.get(i + 2) == Some(&quote) => {
                    return self.take(Kind::Str, i + 3);
                }
                _ => i += 1,
            }
        }
        if triple {
            self.line_by_line = true;
            let length = self.line_end() - self.at.offset;
            return self.take(Kind::Bad(text::TRIPLE_UNCLOSED), length);
        }
        self.take(Kind::Bad(text::STRING_UNCLOSED), i)
    }

    fn operator(&mut self, byte: u8) -> Token<'a> {
        match byte {
            b'(' | b'[' | b'{' => {
                if self.depth == 0 {
                    self.opened = self.at;
                }
                self.depth += 1;
            }
            b')' | b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let is_any = |ops: &[&str], n: usize| {
            self.text.get(self.at.offset..self.at.offset + n).is_some_and(|text| ops.contains(&text))
        };
        // The second character of most operators excludes the longer ones.
        if matches!(self.byte(1), Some(b'*' | b'/' | b'<' | b'>' | b'=' | b'.')) {
            if is_any(&OPS3, 3) {
                return self.take(Kind::Op, 3);
            }
            if is_any(&OPS2, 2) {
                return self.take(Kind::Op, 2);
            }
        }
        if b"+-*/%@&|^~<>()[]{},:.;=".contains(&byte) {
            return self.take(Kind::Op, 1);
        }
        self.take(Kind::Bad(text::NO_MEANING), 1)
    }
}

fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

/// Detects non-ASCII characters from word processors, web pages and input methods that Python rejects. Returns the
/// reason and the length in bytes. Any other character counts as a letter, which avoids Unicode tables.
fn stray(c: char) -> Option<(Key, usize)> {
    let why = match c {
        '‘' | '’' | '“' | '”' => text::CURLY_QUOTE,
        '\u{a0}' | '\u{2000}'..='\u{200f}' | '\u{202f}' | '\u{2060}' | '\u{3000}' | '\u{feff}' => text::INVISIBLE,
        '–' | '—' | '−' => text::TYPOGRAPHIC_DASH,
        '！'..='～' | '、' | '。' => text::FULL_WIDTH,
        _ => return None,
    };
    Some((why, c.len_utf8()))
}

/// Returns whether the text is a single name that can be assigned to.
pub(crate) fn is_name(text: &str) -> bool {
    let token = Lexer::new(text).next();
    token.kind == Kind::Name && token.text.len() == text.len() && !is_keyword(text)
}

/// Returns whether the word is a Python keyword.
pub(super) fn is_keyword(name: &str) -> bool {
    const KEYWORDS: [&str; 35] = [
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
        "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
        "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
    ];
    KEYWORDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the tokens, each as `line:column text`, with `expected`. `¶` marks the end of a logical line and `!` an
    /// invalid token.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut lexer = Lexer::new(text);
        let mut out = Vec::new();
        loop {
            let token = lexer.next();
            let Spot { line, column, .. } = token.spot;
            match token.kind {
                Kind::End => break,
                Kind::Newline => out.push("¶".into()),
                Kind::Bad(_) => out.push(format!("{line}:{column} !{}", token.text)),
                _ => out.push(format!("{line}:{column} {}", token.text)),
            }
        }
        assert_eq!(out.join(" "), expected);
    }

    #[test]
    fn names_numbers_operators() {
        check("a_1=0x_f//1.5e-3", "1:1 a_1 1:4 = 1:5 0x_f 1:9 // 1:11 1.5e-3");
        check("1e-5-.5", "1:1 1e-5 1:5 - 1:6 .5");
        check("a**=b != c", "1:1 a 1:2 **= 1:5 b 1:7 != 1:10 c");
    }

    #[test]
    fn comments_and_blank_lines_are_nothing() {
        check("# one\n\n  # two\na # three\n\nb", "4:1 a ¶ 6:1 b");
    }

    #[test]
    fn brackets_and_backslashes_join_lines() {
        check("a = (1,\n 2)\nb \\\n + c", "1:1 a 1:3 = 1:5 ( 1:6 1 1:7 , 2:2 2 2:3 ) ¶ 3:1 b 4:2 + 4:4 c");
    }

    #[test]
    fn every_line_break_counts_once() {
        check("a\r\nb\rc\nd", "1:1 a ¶ 2:1 b ¶ 3:1 c ¶ 4:1 d");
    }

    #[test]
    fn columns_count_characters() {
        check("x = 'é世' + y", "1:1 x 1:3 = 1:5 'é世' 1:10 + 1:12 y");
        check("\u{feff}größe = 1", "1:1 größe 1:7 = 1:9 1");
        check("\u{c}a", "1:2 a");
    }

    #[test]
    fn strings_of_each_kind() {
        check(r#"'' "a'" rb'\'' '\\'"#, r#"1:1 '' 1:4 "a'" 1:9 rb'\'' 1:16 '\\'"#);
        check("'''a\n'b''' c", "1:1 '''a\n'b''' 2:7 c");
        check("'a\\\nb' c", "1:1 'a\\\nb' 2:4 c");
        check("'open\nb", "1:1 !'open ¶ 2:1 b");
    }

    #[test]
    fn an_unclosed_triple_string_costs_one_line() {
        check("a = '''x\nb = 1", "1:1 a 1:3 = 1:5 !'''x ¶ 2:1 b 2:3 = 2:5 1");
    }

    #[test]
    fn stray_characters_are_named_with_position() {
        check("a = “x”", "1:1 a 1:3 = 1:5 !“ 1:6 x 1:7 !”");
        check("a\u{a0}= 1", "1:1 a 1:2 !\u{a0} 1:3 = 1:5 1");
        check("a ＝ $", "1:1 a 1:3 !＝ 1:5 !$");
        check("\\ a", "1:2 ! 1:3 a");
    }
}
