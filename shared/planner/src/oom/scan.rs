//! Single pass over a text that records the positions of the first and the last message.
//!
//! A filter over the last eight squeezed bytes selects candidates; only these are compared with a phrase.

use super::figures::find;
use super::message::NotOom;
use super::reader::{LineStart, Reader};

mod found;
mod signs;

use found::Sign;
pub(super) use found::{Frame, Frames, MessageForm, MessagePosition, Places};
use signs::{ending_with, may_be_a_sign};

/// Number of squeezed bytes kept for looking back.
const BEHIND: usize = 128;
/// Maximum number of bytes of a line before a phrase that belong to its surroundings.
const MAX_BEFORE_BYTES: usize = 700;
/// Number of preceding lines that belong to its surroundings.
const N_STARTS: usize = 8;

/// State and result of a scan.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    bytes: &'a [u8],
    /// Positions of messages.
    pub strong: Places<'a>,
    /// Positions that are used if there is no message.
    pub weak: Places<'a>,
    /// The most specific failure that is not an out-of-memory error.
    pub not_oom: Option<(NotOom, MessagePosition<'a>)>,
    /// Frames of the traceback that was read last.
    pub frames: Frames,
    /// Whether the text is from JAX.
    pub jax: bool,
    behind: [u8; 2 * BEHIND],
    n_behind: usize,
    starts: [LineStart; N_STARTS],
    n_starts: usize,
    /// Number of phrases examined.
    n_looks: u32,
}

impl<'a> Scan<'a> {
    /// Creates a scan with no results.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            strong: Places::default(),
            weak: Places::default(),
            not_oom: None,
            frames: Frames::default(),
            jax: false,
            behind: [0; 2 * BEHIND],
            n_behind: 0,
            starts: [LineStart::default(); N_STARTS],
            n_starts: 0,
            n_looks: 0,
        }
    }

    /// Reads the text from `at`, in line `line`, up to `end`.
    pub(super) fn run(&mut self, at: usize, end: usize, line: u32) {
        let mut reader = Reader::new(&self.bytes[..end], at, line);
        let mut last_bytes: u64 = 0;
        let mut line_start = usize::MAX;
        self.n_behind = 0;
        self.n_starts = 0;
        while let Some(c) = reader.next() {
            last_bytes = last_bytes << 8 | u64::from(c);
            if self.n_behind == self.behind.len() {
                self.behind.copy_within(BEHIND.., 0);
                self.n_behind = BEHIND;
            }
            self.behind[self.n_behind] = c;
            self.n_behind += 1;
            if reader.line_start != line_start {
                line_start = reader.line_start;
                self.starts[self.n_starts % N_STARTS] = reader.line_start();
                self.n_starts += 1;
            }
            if may_be_a_sign(last_bytes) {
                for (phrase, sign) in ending_with(last_bytes) {
                    if self.behind().ends_with(phrase.as_bytes()) {
                        self.on(sign, phrase.len(), &reader);
                    }
                }
            } else if reader.n_line == 6 && last_bytes & 0xffff_ffff_ffff == KILLED && self.is_news(NotOom::Killed) {
                let mut next = reader;
                if next.next().is_none() || next.line_start != line_start {
                    self.add_not(NotOom::Killed, 6, &reader);
                }
            }
        }
    }

    fn behind(&self) -> &[u8] {
        &self.behind[..self.n_behind]
    }

    /// Returns the last `n` squeezed bytes before the phrase.
    fn before(&self, phrase: usize, n: usize) -> &[u8] {
        let end = self.n_behind - phrase;
        &self.behind[end.saturating_sub(n)..end]
    }

    fn on(&mut self, sign: Sign, len: usize, reader: &Reader<'a>) {
        self.n_looks += 1;
        if self.n_looks > MAX_LOOKS && self.bytes.len() - reader.at > TAIL_BYTES {
            return;
        }
        let form = match sign {
            Sign::Traceback => {
                self.frames = Frames::default();
                return;
            }
            Sign::Frame(frame) => return self.frames.add(frame),
            Sign::Jax => {
                self.jax = true;
                return;
            }
            Sign::Not(not) => return self.add_not(not, len, reader),
            Sign::Form(form) => Some((true, form)),
            // Weaker signs are irrelevant once a message has been found.
            Sign::Weak(_) | Sign::Capacity | Sign::MemoryError if self.strong.n > 0 => None,
            Sign::Weak(form) => Some((false, form)),
            Sign::TriedToAllocate => self.tried(len, reader),
            Sign::OutOfMemory => self.out_of_memory(len, reader),
            Sign::Capacity => Some((false, MessageForm::CachingTail)),
            Sign::Trying => self.trying(len, reader),
            Sign::Exhausted => exhausted(reader),
            Sign::OomWhen => (!has(self.before(len, 64), b"exhausted")).then_some((true, MessageForm::OomWhen)),
            Sign::Unable => {
                let [next, ..] = ahead::<6>(reader);
                (next.is_ascii_digit() || ahead(reader) == *b"array").then_some((true, MessageForm::Numpy))
            }
            Sign::MemoryError => {
                let alone = reader.n_line as usize == len && ahead(reader) != *b":unable";
                alone.then_some((false, MessageForm::Host))
            }
            Sign::CudaError => {
                let next = ahead::<11>(reader);
                let another = next != *b"outofmemory" && !next.starts_with(b"cu") && next[0] != 0;
                another.then_some((false, MessageForm::Not(NotOom::CudaError)))
            }
        };
        match form {
            Some((_, MessageForm::Not(not))) => self.add_not(not, len, reader),
            Some((true, form)) => self.strong.add(self.found(form, len, reader)),
            Some((false, form)) => self.weak.add(self.found(form, len, reader)),
            None => {}
        }
    }

    fn tried(&self, len: usize, reader: &Reader<'a>) -> Option<(bool, MessageForm)> {
        let before = self.before(len, 100);
        let next = ahead::<11>(reader);
        if before.ends_with(b"you") {
            return Some((true, MessageForm::CpuAllocator));
        }
        let has_request = next[0].is_ascii_digit() || next == *b"morethan1eb";
        if before.ends_with(b"outofmemory.") {
            return Some((true, MessageForm::Caching));
        }
        let form = if has(before, b"maxallowed:") { MessageForm::Mps } else { MessageForm::Caching };
        (has_request || before.ends_with(b"memory.")).then_some((true, form))
    }

    fn out_of_memory(&self, len: usize, reader: &Reader<'a>) -> Option<(bool, MessageForm)> {
        let before = self.before(len, BEHIND);
        let next = ahead::<16>(reader);
        let ends = |ends: &[&[u8]]| ends.iter().any(|end| before.ends_with(end));
        if next.starts_with(b"error") {
            // The name of a class; its message follows.
            return None;
        }
        if ends(&[b"cuda", b"hip", b"xpu", b"npu", b"musa"]) {
            return (!next.starts_with(b".triedtoallocate")).then_some((false, MessageForm::CachingBare));
        }
        if has(&before[before.len().saturating_sub(16)..], b"cudafailure") {
            return Some((false, MessageForm::Nccl));
        }
        if matches!(before.last(), Some(b'"' | b'\'')) && matches!(next[0], b'"' | b'\'') {
            // Source code, as in: if "out of memory" in str(e)
            return None;
        }
        if before.ends_with(b"exceedallowedmemory.(") {
            return Some((true, MessageForm::Async));
        }
        if before.ends_with(b"error") && next.starts_with(b"atline") {
            return Some((true, MessageForm::Bitsandbytes));
        }
        if before.ends_with(b":") && has(before, b"[cudaerror]atfile") {
            return Some((true, MessageForm::LlmC));
        }
        // Each device names the same call differently.
        if ends(&[b"cudaerror:", b"hiperror:", b"drivererror:", b"error[cuda]:", b"mallocfailed:", b"error2:"]) {
            return Some((true, MessageForm::CudaMalloc));
        }
        if before.ends_with(b"(2):") {
            return Some((true, MessageForm::Thc));
        }
        if before.ends_with(b"error=2:") {
            return Some((false, MessageForm::Thc));
        }
        if before.ends_with(b"mpsbackend") {
            return Some((false, MessageForm::Mps));
        }
        if next.starts_with(b"whiletryingtoall") || next.starts_with(b"tryingtoallocate") {
            return None;
        }
        if next.starts_with(b"inmemoryspace") || (next.starts_with(b"allocating") && next[10].is_ascii_digit()) {
            return (!has(before, b"exhausted")).then_some((true, MessageForm::Xla));
        }
        if next.starts_with(b":killed") {
            return Some((false, MessageForm::Not(NotOom::Killed)));
        }
        if has(&before[before.len().saturating_sub(48)..], b"cuda") {
            return Some((false, MessageForm::CudaMalloc));
        }
        Some((false, MessageForm::Not(NotOom::OnlyMentioned)))
    }

    fn trying(&self, len: usize, reader: &Reader<'a>) -> Option<(bool, MessageForm)> {
        let before = self.before(len, 64);
        if before.ends_with(b"ranoutofmemory") {
            let warning = has(&ahead::<140>(reader), b"notafailure");
            return Some((false, if warning { MessageForm::Not(NotOom::Warning) } else { MessageForm::Bfc }));
        }
        (before.ends_with(b"outofmemorywhile") && !has(before, b"exhausted")).then_some((true, MessageForm::Xla))
    }

    /// Returns whether `not` is more specific than the failure found before.
    fn is_news(&self, not: NotOom) -> bool {
        self.not_oom.is_none_or(|(other, _)| not < other)
    }

    fn add_not(&mut self, not: NotOom, phrase: usize, reader: &Reader<'a>) {
        if self.is_news(not) {
            self.not_oom = Some((not, self.found(MessageForm::Not(not), phrase, reader)));
        }
    }

    /// Returns the position after the phrase that `reader` has just read.
    fn found(&self, form: MessageForm, phrase: usize, reader: &Reader<'a>) -> MessagePosition<'a> {
        let n = self.n_starts.min(N_STARTS);
        let oldest = self.n_starts - n;
        let near = |start: &LineStart| reader.at - start.at <= MAX_BEFORE_BYTES;
        let start = (oldest..self.n_starts).map(|i| self.starts[i % N_STARTS]).find(near);
        // On a line longer than this, only its last part.
        let last_part = || {
            let mut at = reader.at.saturating_sub(MAX_BEFORE_BYTES);
            while at < reader.at && !self.bytes[at].is_ascii() {
                at += 1;
            }
            let mut start = *reader;
            start.restart_within_line(at);
            start
        };
        let start = start.map_or_else(last_part, |start| reader.restarted(start));
        MessagePosition { form, start, anchor: reader.at, phrase, rank: reader.rank, frames: self.frames }
    }
}

/// Maximum number of phrases examined before the last `TAIL_BYTES` of the text. Examining a phrase reads ahead, so a
/// text made of phrases alone would be read many times. No real log contains as many, and the first and the last
/// message are found regardless.
const MAX_LOOKS: u32 = 20_000;
/// Size of the text's end in which every phrase is examined.
const TAIL_BYTES: usize = 64 * 1024;

/// `killed` as a number of six bytes.
const KILLED: u64 = 0x6b69_6c6c_6564;

fn exhausted(reader: &Reader<'_>) -> Option<(bool, MessageForm)> {
    let next = ahead::<14>(reader);
    if next.starts_with(b"error") {
        return (next != *b"errortraceback").then_some((true, MessageForm::Exhausted));
    }
    // Many services print this status when a quota is used up.
    let next = ahead::<96>(reader);
    let of_memory = has(&next, b"memory") || has(&next, b"allocat") || has(&next, b"oom");
    of_memory.then_some((true, MessageForm::Exhausted))
}

fn has(text: &[u8], phrase: &[u8]) -> bool {
    find(text, phrase).is_some()
}

/// Returns the next squeezed bytes, padded with zeros after the end of the text.
fn ahead<const N: usize>(reader: &Reader<'_>) -> [u8; N] {
    let mut reader = *reader;
    let mut next = [0; N];
    for place in &mut next {
        let Some(c) = reader.next() else { break };
        *place = c;
    }
    next
}
