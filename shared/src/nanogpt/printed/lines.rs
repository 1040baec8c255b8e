//! Lines out of bytes that come in any pieces.

use std::borrow::Cow;

/// The longest line that is read; of a longer one, its beginning. The longest known message has a tenth of it.
pub const MAX_LINE_BYTES: usize = 16 << 10;

/// Makes lines. A line ends as on a terminal, with `\n`, `\r\n` or `\r`, so that each state of a progress bar is one;
/// colours and other orders to a terminal are left out, and bytes that are no UTF-8 become U+FFFD.
#[derive(Debug, Default)]
pub struct Lines {
    /// The beginning of a line whose end has not come.
    open: Vec<u8>,
    /// What comes up to the line's end is not read: some of it is lost.
    skips: bool,
    after_return: bool,
}

impl Lines {
    /// Takes bytes, and gives each line that they end.
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

    /// Bytes were lost here: the line that they were part of is not read.
    pub fn gap(&mut self) {
        self.open.clear();
        self.skips = true;
        self.after_return = false;
    }

    /// The bytes ended: the last line may have no end.
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

/// A line as a person sees it.
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

/// What stands behind an order to a terminal that began with an escape.
fn behind_order(rest: &[u8]) -> &[u8] {
    let behind = |end: Option<usize>| end.map_or(&rest[rest.len()..], |end| &rest[end + 1..]);
    match rest {
        // Parameters and one letter: colours, places of the cursor.
        [b'[', tail @ ..] => behind(tail.iter().position(|byte| (0x40..=0x7e).contains(byte)).map(|at| at + 1)),
        // A text up to a bell or another escape with its backslash: titles, links.
        [b']', tail @ ..] => match tail.iter().position(|byte| matches!(*byte, BELL | ESCAPE)) {
            Some(at) if tail[at] == ESCAPE && tail.get(at + 1) == Some(&b'\\') => &tail[at + 2..],
            Some(at) if tail[at] == ESCAPE => &tail[at..],
            end => behind(end.map(|at| at + 1)),
        },
        [_, tail @ ..] => tail,
        [] => rest,
    }
}
