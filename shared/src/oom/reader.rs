//! A text without what people, terminals and forums do to it.
//!
//! A message comes wrapped in the middle of a word, quoted, coloured and with a prefix on every line. So it is looked
//! at squeezed: lower case, without blanks, line breaks, prefixes, colours, Markdown's marks and anything that is not
//! ASCII. In PyTorch's sentences no two figures meet that way. Nothing is copied but the surroundings of a message.

use super::prefix::{self, Prefix};

/// Where a reader stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// Offset of the next byte.
    pub at: usize,
    /// The next byte begins a line.
    fresh: bool,
    /// The line of the next byte, from 1.
    pub line: u32,
    /// The rank that this line's prefix names, or one of the lines just before.
    pub rank: Option<u32>,
    /// Lines since the rank was named.
    rank_age: u8,
    /// Offset of the line's first byte, prefix included.
    pub line_start: usize,
    /// Squeezed bytes this line has given.
    pub n_line: u32,
}

/// A line's beginning: what it takes to read it again.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineStart {
    /// Offset of its first byte, prefix included.
    pub at: usize,
    /// Its number, from 1.
    line: u32,
    /// The rank that counts in it.
    rank: Option<u32>,
}

/// Lines without a prefix that still belong to the rank before them: a message of a few lines, wrapped.
const MAX_RANK_AGE: u8 = 12;

/// A byte that is left out.
const SKIP: u8 = 0;
/// A byte that has to be looked at with what follows.
const SPECIAL: u8 = 1;

/// What becomes of a byte.
const SQUEEZED: [u8; 256] = {
    let mut map = [SKIP; 256];
    let mut c: u8 = b'!';
    while c < 0x7f {
        map[c as usize] = c.to_ascii_lowercase();
        c += 1;
    }
    // Markdown's marks, and the frames of tables.
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
    /// Reads `bytes` from `at`, a line's first byte.
    pub(super) fn new(bytes: &'a [u8], at: usize, line: u32) -> Self {
        Self { bytes, at, fresh: true, line, rank: None, rank_age: 0, line_start: at, n_line: 0 }
    }

    /// Where the reader stood at an earlier line's first byte.
    pub(super) fn restarted(&self, start: LineStart) -> Self {
        Self { rank: start.rank, ..Self::new(self.bytes, start.at, start.line) }
    }

    /// The line that the reader is in.
    pub(super) fn line_start(&self) -> LineStart {
        LineStart { at: self.line_start, line: self.line, rank: self.rank }
    }

    /// Goes back to `at`, within the same line.
    pub(super) fn restart_within_line(&mut self, at: usize) {
        self.at = at;
        self.fresh = false;
    }

    /// The next squeezed byte; `at` is then behind it.
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

    /// Whether the special byte before `at` stands for itself, by the byte behind it: a text may have little else.
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
        // Empty lines are many, and have none.
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

/// Entities that stand for one character of a message.
const ENTITIES: [&[u8]; 6] = [b"&nbsp;", b"&gt;", b"&lt;", b"&#39;", b"&quot;", b"&amp;"];

/// Bytes of `text` that say nothing: a colour, an entity, an escape of Markdown or JSON, `<br>`.
fn skipped(text: &[u8]) -> usize {
    match text[0] {
        0x1b => prefix::escape(text),
        b'&' => ENTITIES.iter().find(|entity| text.starts_with(entity)).map_or(0, |entity| entity.len()),
        // In a log of JSON a line break is two characters; in Markdown a backslash protects what follows.
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

/// What stands around a place, squeezed.
#[derive(Debug)]
pub(super) struct Window {
    /// The squeezed bytes.
    pub squeezed: Vec<u8>,
    /// Where each of them ends in the text, and its line.
    places: Vec<(usize, u32)>,
    /// How many of them lie before the place.
    pub anchor: usize,
}

impl Window {
    /// Reads from where `reader` stands to `n_after` squeezed bytes beyond the offset `anchor`.
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

    /// The squeezed text behind the place.
    pub(super) fn after(&self) -> &[u8] {
        &self.squeezed[self.anchor..]
    }

    /// The squeezed text up to the place.
    pub(super) fn before(&self) -> &[u8] {
        &self.squeezed[..self.anchor]
    }

    /// Where the squeezed byte `i` begins in the text, and its line.
    pub(super) fn begin(&self, i: usize) -> (usize, u32) {
        self.places.get(i).map_or((0, 1), |(end, line)| (end - 1, *line))
    }

    /// Where the first `n` squeezed bytes end in the text.
    pub(super) fn end(&self, n: usize) -> usize {
        n.checked_sub(1).and_then(|last| self.places.get(last)).map_or(0, |(end, _)| *end)
    }
}

/// The text from `from` to `to` without prefixes and colours, cut behind `max_bytes`.
pub(super) fn cleaned(text: &str, from: usize, to: usize, max_bytes: usize) -> String {
    let to = text.floor_char_boundary(to);
    let mut out = String::new();
    let mut at = text.floor_char_boundary(from.min(to));
    while at < to && out.len() < max_bytes {
        let rest = &text[at..to];
        let c = rest.as_bytes()[0];
        // Up to the next byte that could begin something to leave out.
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
