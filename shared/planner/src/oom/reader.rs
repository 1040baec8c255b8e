//! Reader that normalises a text as it was changed by terminals, forums and copying.
//!
//! A pasted message may be wrapped in the middle of a word, quoted, coloured and prefixed on every line. The reader
//! therefore returns *squeezed* text: lower case, without blanks, line breaks, prefixes, colours, Markdown marks and
//! non-ASCII characters. Squeezing never joins two figures in PyTorch's sentences. Only the surroundings of a message
//! are copied.

use super::prefix::{self, Prefix};

/// A position in the text, with the state of the current line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// Offset of the next byte.
    pub at: usize,
    /// Whether the next byte begins a line.
    fresh: bool,
    /// Line of the next byte, from 1.
    pub line: u32,
    /// Rank named by the prefix of this line or of a line shortly before it.
    pub rank: Option<u32>,
    /// Number of lines since the rank was named.
    rank_age: u8,
    /// Offset of the line's first byte, prefix included.
    pub line_start: usize,
    /// Number of squeezed bytes returned from this line.
    pub n_line: u32,
}

/// The state at the beginning of a line, for reading it again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineStart {
    /// Offset of the line's first byte, including the prefix.
    pub at: usize,
    /// Line number, from 1.
    line: u32,
    /// Rank in effect on the line.
    rank: Option<u32>,
}

/// Maximum number of lines without a prefix that still belong to the previous rank, as in a wrapped message.
const MAX_RANK_AGE: u8 = 12;

/// Marks a byte that is skipped.
const SKIP: u8 = 0;
/// Marks a byte whose meaning depends on what follows.
const SPECIAL: u8 = 1;

/// Squeezed value of each byte.
const SQUEEZED: [u8; 256] = {
    let mut map = [SKIP; 256];
    let mut c: u8 = b'!';
    while c < 0x7f {
        map[c as usize] = c.to_ascii_lowercase();
        c += 1;
    }
    // Markdown marks and table borders.
    map[b'*' as usize] = SKIP;
    map[b'`' as usize] = SKIP;
    map[b'|' as usize] = SKIP;
    map[b'\n' as usize] = SPECIAL;
    map[b'\r' as usize] = SPECIAL;
    map[0x1b] = SPECIAL;
    map[b'&' as usize] = SPECIAL;
    map[b'\\' as usize] = SPECIAL;
    map[b'[' as usize] = SPECIAL;
    map[b'<' as usize] = SPECIAL;
    map
};

impl<'a> Reader<'a> {
    /// Creates a reader of `bytes` at `at`, the first byte of a line.
    pub(super) fn new(bytes: &'a [u8], at: usize, line: u32) -> Self {
        Self { bytes, at, fresh: true, line, rank: None, rank_age: 0, line_start: at, n_line: 0 }
    }

    /// Returns a reader at the first byte of an earlier line, with its state.
    pub(super) fn restarted(&self, start: LineStart) -> Self {
        Self { rank: start.rank, ..Self::new(self.bytes, start.at, start.line) }
    }

    /// Returns the beginning of the current line.
    pub(super) fn line_start(&self) -> LineStart {
        LineStart { at: self.line_start, line: self.line, rank: self.rank }
    }

    /// Moves back to `at`, within the same line.
    pub(super) fn restart_within_line(&mut self, at: usize) {
        self.at = at;
        self.fresh = false;
    }

    /// Returns the next squeezed byte and advances `at` past it.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u8> {
        loop {
            if self.fresh {
                self.begin_line();
            }
            let c = *self.bytes.get(self.at)?;
            self.at += 1;
            match SQUEEZED[usize::from(c)] {
                SKIP => {}
                SPECIAL => {
                    if matches!(c, b'\n' | b'\r') {
                        self.fresh = true;
                        self.line += u32::from(c == b'\n');
                        continue;
                    }
                    if self.is_itself(c) {
                        self.n_line += 1;
                        return Some(c);
                    }
                    if let Some(c) = self.special(c) {
                        self.n_line += 1;
                        return Some(c);
                    }
                }
                c => {
                    self.n_line += 1;
                    return Some(c);
                }
            }
        }
    }

    /// Returns whether the special byte before `at` is literal, from the byte after it. This must be fast: a text may
    /// consist mostly of such bytes.
    #[inline]
    fn is_itself(&self, c: u8) -> bool {
        let next = self.bytes.get(self.at).copied().unwrap_or(0);
        match c {
            b'[' => !next.is_ascii_digit() && next != b';',
            b'&' => !b"nglq#a".contains(&next),
            _ => false,
        }
    }

    fn begin_line(&mut self) {
        self.fresh = false;
        self.n_line = 0;
        self.line_start = self.at;
        // Empty lines are frequent and have no prefix.
        let Prefix { len, rank } = match self.bytes.get(self.at) {
            Some(b'\n' | b'\r') | None => Prefix::default(),
            Some(_) => prefix::of(&self.bytes[self.at..]),
        };
        self.at += len;
        if rank.is_some() {
            (self.rank, self.rank_age) = (rank, 0);
        } else {
            self.rank_age = self.rank_age.saturating_add(1);
            if self.rank_age > MAX_RANK_AGE {
                self.rank = None;
            }
        }
    }

    #[cold]
    fn special(&mut self, c: u8) -> Option<u8> {
        let rest = &self.bytes[self.at - 1..];
        let skipped = skipped(rest);
        if skipped == 0 {
            return Some(c);
        }
        self.at += skipped - 1;
        None
    }
}

/// HTML entities for single characters of a message.
const ENTITIES: [&[u8]; 6] = [b"&nbsp;", b"&gt;", b"&lt;", b"&#39;", b"&quot;", b"&amp;"];

/// Returns the length of an ignorable sequence in `text`: a colour, an entity, an escape of Markdown or JSON, `<br>`.
fn skipped(text: &[u8]) -> usize {
    match text[0] {
        0x1b => prefix::escape(text),
        b'&' => ENTITIES.iter().find(|entity| text.starts_with(entity)).map_or(0, |entity| entity.len()),
        // In a JSON log, a line break is two characters. In Markdown, a backslash escapes the next character.
        b'\\' => match text.get(1) {
            Some(b'n' | b'r' | b't') => 2,
            Some(b'u') if text.starts_with(b"\\u001b[") => 5 + prefix::escape(&text[5..]),
            _ => 1,
        },
        b'[' => prefix::orphan_colour(text),
        b'<' if text.starts_with(b"<br") => text.iter().take(6).position(|c| *c == b'>').map_or(0, |n| n + 1),
        _ => 0,
    }
}

/// Squeezed text around a position.
#[derive(Debug)]
pub(super) struct Window {
    /// Squeezed bytes.
    pub squeezed: Vec<u8>,
    /// End offset in the text and line of each squeezed byte.
    places: Vec<(usize, u32)>,
    /// Number of squeezed bytes before the position.
    pub anchor: usize,
}

impl Window {
    /// Reads from the position of `reader` to `n_after` squeezed bytes beyond the offset `anchor`.
    pub(super) fn read(mut reader: Reader<'_>, anchor: usize, n_after: usize) -> Self {
        let mut window = Self { squeezed: vec![], places: vec![], anchor: 0 };
        while let Some(c) = reader.next() {
            if reader.at <= anchor {
                window.anchor += 1;
            }
            window.squeezed.push(c);
            window.places.push((reader.at, reader.line));
            if window.squeezed.len() >= window.anchor + n_after {
                break;
            }
        }
        window
    }

    /// Returns the squeezed text after the position.
    pub(super) fn after(&self) -> &[u8] {
        &self.squeezed[self.anchor..]
    }

    /// Returns the squeezed text before the position.
    pub(super) fn before(&self) -> &[u8] {
        &self.squeezed[..self.anchor]
    }

    /// Returns the offset in the text at which the squeezed byte `i` begins, and its line.
    pub(super) fn begin(&self, i: usize) -> (usize, u32) {
        self.places.get(i).map_or((0, 1), |(end, line)| (end - 1, *line))
    }

    /// Returns the offset in the text at which the first `n` squeezed bytes end.
    pub(super) fn end(&self, n: usize) -> usize {
        n.checked_sub(1).and_then(|last| self.places.get(last)).map_or(0, |(end, _)| *end)
    }
}

/// Returns the text from `from` to `to` without prefixes and colours, truncated to `max_bytes`.
pub(super) fn cleaned(text: &str, from: usize, to: usize, max_bytes: usize) -> String {
    let to = text.floor_char_boundary(to);
    let mut out = String::new();
    let mut at = text.floor_char_boundary(from.min(to));
    while at < to && out.len() < max_bytes {
        let rest = &text[at..to];
        let c = rest.as_bytes()[0];
        // Up to the next byte that could begin a sequence to remove.
        let plain = rest.bytes().skip(1).position(|c| matches!(c, b'\n' | b'\r' | 0x1b | b'&' | b'[')).map(|n| n + 1);
        let mut len = plain.unwrap_or(rest.len());
        match c {
            b'\n' | b'\r' => {
                if !out.is_empty() && !out.ends_with('\n') {
                    out.push('\n');
                }
                len = text.ceil_char_boundary(at + 1 + prefix::of(&text.as_bytes()[at + 1..]).len) - at;
            }
            b'&' if rest.starts_with("&gt;") => {
                out.push('>');
                len = 4;
            }
            b'&' if rest.starts_with("&nbsp;") => {
                out.push(' ');
                len = 6;
            }
            0x1b | b'[' if skipped(rest.as_bytes()) > 0 => {
                len = text.ceil_char_boundary((at + skipped(rest.as_bytes())).min(to)) - at;
            }
            _ => out.push_str(&rest[..len]),
        }
        at += len;
    }
    out.truncate(out.floor_char_boundary(max_bytes));
    out.truncate(out.trim_end().len());
    out
}
