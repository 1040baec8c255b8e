//! Splits bytes that arrive in arbitrary chunks into lines.

use std::borrow::Cow;

/// Maximum length of a line in bytes; longer lines are truncated. The longest known message has a tenth of it.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// Line splitter. A line ends as on a terminal, with `\n`, `\r\n` or `\r`, so each state of a progress bar is a line.
/// Colours and other terminal escape sequences are removed. Bytes that are not UTF-8 become U+FFFD.
#[derive(Debug, Default)]
pub struct Lines {
    /// Start of a line whose end has not arrived yet.
    open: Vec<u8>,
    /// Whether the rest of the current line is skipped because part of it was lost.
    skips: bool,
    after_return: bool,
}

impl Lines {
    /// Adds bytes and calls `line` with each line that they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut line: impl FnMut(&str)) {
        if self.after_return && !bytes.is_empty() {
            self.after_return = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (whole, rest) = (&bytes[..end], &bytes[end + 1..]);
            let returns = bytes[end] == b'\r';
            if self.skips {
                self.skips = false;
            } else if self.open.is_empty() {
                line(&cleaned(&whole[..whole.len().min(MAX_LINE_BYTES)]));
            } else {
                self.keep(whole);
                line(&cleaned(&self.open));
            }
            self.open.clear();
            bytes = rest;
            if returns {
                self.after_return = bytes.is_empty();
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
        }
        if !self.skips {
            self.keep(bytes);
        }
    }

    /// Records that bytes were lost. The line that they were part of is skipped.
    pub fn gap(&mut self) {
        self.open.clear();
        self.skips = true;
        self.after_return = false;
    }

    /// Handles the end of the stream. The last line may have no line break.
    pub fn finish(&mut self, mut line: impl FnMut(&str)) {
        if !self.open.is_empty() {
            line(&cleaned(&self.open));
        }
        *self = Self::default();
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE_BYTES.saturating_sub(self.open.len());
        self.open.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;

/// Returns a line without terminal escape sequences.
fn cleaned(line: &[u8]) -> Cow<'_, str> {
    if !line.contains(&ESCAPE) {
        return String::from_utf8_lossy(line);
    }
    let mut kept = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.iter().position(|byte| *byte == ESCAPE) {
        kept.extend_from_slice(&rest[..at]);
        rest = behind_order(&rest[at + 1..]);
    }
    kept.extend_from_slice(rest);
    Cow::Owned(String::from_utf8_lossy(&kept).into_owned())
}

/// Returns the bytes after a terminal escape sequence.
fn behind_order(rest: &[u8]) -> &[u8] {
    let behind = |end: Option<usize>| end.map_or(&rest[rest.len()..], |end| &rest[end + 1..]);
    match rest {
        // Parameters and one letter: colours, cursor movement.
        [b'[', tail @ ..] => behind(tail.iter().position(|byte| (0x40..=0x7e).contains(byte)).map(|at| at + 1)),
        // A text terminated by BEL or by an escape and a backslash: titles, links.
        [b']', tail @ ..] => match tail.iter().position(|byte| matches!(*byte, BELL | ESCAPE)) {
            Some(at) if tail[at] == ESCAPE && tail.get(at + 1) == Some(&b'\\') => &tail[at + 2..],
            Some(at) if tail[at] == ESCAPE => &tail[at..],
            end => behind(end.map(|at| at + 1)),
        },
        [_, tail @ ..] => tail,
        [] => rest,
    }
}
