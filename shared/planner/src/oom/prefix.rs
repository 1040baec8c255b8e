//! Line prefixes: ranks, timestamps, log levels, quotation marks and colours.
//!
//! Only unambiguous prefixes are removed. A wrapped message may continue with any part of itself, so a bare number or
//! an opening bracket does not count as a prefix.

/// A line's prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Prefix {
    /// Length in bytes.
    pub len: usize,
    /// Rank named by the prefix.
    pub rank: Option<u32>,
}

/// Maximum number of bytes examined per line.
const MAX_PREFIX_BYTES: usize = 400;
/// Maximum length of a bracketed text that counts as a prefix.
const MAX_BRACKET_BYTES: usize = 80;

const LEVELS: [&[u8]; 9] =
    [b"INFO", b"WARNING", b"WARN", b"ERROR", b"DEBUG", b"CRITICAL", b"FATAL", b"stderr", b"stdout"];

/// Parses the prefix of the first line of `text`.
pub(super) fn of(text: &[u8]) -> Prefix {
    let end = text.iter().take(MAX_PREFIX_BYTES).position(|c| matches!(c, b'\n' | b'\r'));
    let line = &text[..end.unwrap_or(text.len().min(MAX_PREFIX_BYTES))];
    let mut prefix = Prefix::default();
    // Whether the previous item was a log field, which a hyphen may follow.
    let mut in_log = false;
    while let Some(&c) = line.get(prefix.len) {
        let rest = &line[prefix.len..];
        let len = match c {
            b' ' | b'\t' | b'>' | b'|' | 0x80.. => 1,
            b'-' if in_log && rest.starts_with(b"- ") => 2,
            0x1b => escape(rest),
            b'[' if orphan_colour(rest) > 0 => orphan_colour(rest),
            b'&' if rest.starts_with(b"&gt;") => 4,
            _ => {
                let (len, rank) = field(rest, in_log);
                prefix.rank = rank.or(prefix.rank);
                in_log |= len > 0;
                len
            }
        };
        if len == 0 {
            break;
        }
        prefix.len += len;
    }
    prefix
}

/// Parses a rank, a timestamp, a level or a logger's name. Returns its length in bytes, and the rank.
fn field(text: &[u8], in_log: bool) -> (usize, Option<u32>) {
    let none = (0, None);
    match text[0] {
        b'[' => {
            let Some(end) = text.iter().take(MAX_BRACKET_BYTES).position(|c| *c == b']') else { return none };
            let inside = &text[1..end];
            let colon = text.get(end + 1) == Some(&b':');
            if let Some(rank) = named_rank(inside) {
                return (end + 1 + usize::from(colon), Some(rank));
            }
            // torchrun's shortest form. Without the colon it could be a shape.
            if colon && let Some(rank) = whole_number(inside) {
                return (end + 2, Some(rank));
            }
            // mpirun: [job,rank]<stderr>:
            if text[end + 1..].starts_with(b"<std") {
                let rank = inside.rsplit(|c| *c == b',').next().and_then(whole_number);
                let len = text[end..].iter().position(|c| *c == b':').map_or(end + 1, |n| end + n + 1);
                return (len, rank);
            }
            let of_log = timestamp(inside) > 0 || level(inside) > 0 || is_source_line(inside);
            if of_log { (end + 1, None) } else { none }
        }
        b'(' => match text.iter().take(MAX_BRACKET_BYTES).position(|c| *c == b')') {
            // Ray's and vLLM's workers.
            Some(end) if text[..end].windows(4).any(|window| window == b"pid=") => (end + 1, None),
            _ => none,
        },
        b'0'..=b'9' => {
            let len = timestamp(text);
            // TensorFlow: 2018-09-12 20:59:57.154299: I tensorflow/…
            (len + usize::from(len > 0 && text.get(len) == Some(&b':')), None)
        }
        b'I' | b'W' | b'E' | b'F' if n_digits(&text[1..]) == 4 && timestamp_at(text, 6) => {
            // glog: E1103 18:23:55.103160 3413767 file.cc:361]
            let end = text.iter().take(MAX_BRACKET_BYTES).position(|c| *c == b']');
            (end.map_or(0, |end| end + 1), None)
        }
        // pytest
        b'E' if text.starts_with(b"E   ") => (4, None),
        b'r' | b'R' => {
            let end = text.iter().take(12).position(|c| *c == b':').unwrap_or(0);
            match named_rank(&text[..end]) {
                Some(rank) => (end + 1, Some(rank)),
                None => none,
            }
        }
        _ if level(text) > 0 => (level(text), None),
        // `- root - `: with a colon it could be part of a message.
        _ if in_log && has_hyphen(text) => (logger(text), None),
        _ => none,
    }
}

/// Parses `rank0`, `Rank 0`, `rank: 0`, `default0` or `local_rank=0`.
fn named_rank(text: &[u8]) -> Option<u32> {
    let digits = text.iter().position(u8::is_ascii_digit)?;
    let (name, number) = text.split_at(digits);
    let name = name.trim_ascii_end();
    let name = name.strip_suffix(b":").or_else(|| name.strip_suffix(b"=")).unwrap_or(name);
    let known = [&b"rank"[..], b"default", b"local_rank"].iter().any(|known| name.eq_ignore_ascii_case(known));
    if known { whole_number(number) } else { None }
}

fn whole_number(text: &[u8]) -> Option<u32> {
    let all_digits = !text.is_empty() && n_digits(text) == text.len();
    if all_digits { super::figures::index(text) } else { None }
}

fn n_digits(text: &[u8]) -> usize {
    text.iter().take_while(|c| c.is_ascii_digit()).count()
}

/// Returns the length of a log level with its separators: `ERROR`, `WARNING:root:`.
fn level(text: &[u8]) -> usize {
    let Some(name) = LEVELS.iter().find(|name| text.starts_with(name)) else { return 0 };
    match text.get(name.len()) {
        Some(b':') => name.len() + 1 + logger(&text[name.len() + 1..]),
        Some(c) if c.is_ascii_alphanumeric() || *c == b'_' => 0,
        _ => name.len(),
    }
}

/// Returns the length of a logger's name including the colon or hyphen that ends it. The class of an exception is not a
/// logger.
fn logger(text: &[u8]) -> usize {
    let len = text.iter().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.')).count();
    let (name, rest) = text.split_at(len);
    if name.is_empty() || name.ends_with(b"Error") || name.ends_with(b"Exception") {
        return 0;
    }
    if rest.starts_with(b" - ") {
        len + 3
    } else if rest.first() == Some(&b':') && rest.get(1).is_some_and(|c| *c != b' ') {
        len + 1
    } else {
        0
    }
}

fn has_hyphen(text: &[u8]) -> bool {
    let end = text.iter().position(|c| *c == b' ');
    end.is_some_and(|end| text[end..].starts_with(b" - "))
}

/// Returns whether the text is a source location: `launch.py:320:sigkill_handler`, `multiproc_executor.py:962`.
fn is_source_line(text: &[u8]) -> bool {
    text.windows(4).any(|window| window == b".py:" || window == b".cc:")
}

fn timestamp_at(text: &[u8], at: usize) -> bool {
    text.get(at..).is_some_and(|rest| timestamp(rest) > 0)
}

/// Returns the length of a date, a time of day, or both.
fn timestamp(text: &[u8]) -> usize {
    let date = [&b"dddd-dd-dd"[..], b"dddd/dd/dd", b"dd/dd/dddd", b"dd-dd ", b"dd/dd "];
    let date = date.iter().find(|form| has_form(text, form)).map_or(0, |form| form.trim_ascii_end().len());
    let gap = usize::from(date > 0 && matches!(text.get(date), Some(b'T' | b' ' | b'_')));
    let rest = &text[date + gap..];
    let mut len = match [&b"dd:dd:dd"[..], b"d:dd:dd"].iter().find(|form| has_form(rest, form)) {
        Some(form) => form.len(),
        // A date of five characters is ambiguous; one of ten is not.
        None => return if date >= 10 { date } else { 0 },
    };
    if matches!(rest.get(len), Some(b'.' | b',')) && rest.get(len + 1).is_some_and(u8::is_ascii_digit) {
        len += 1 + n_digits(&rest[len + 1..]);
    }
    if rest.get(len) == Some(&b'Z') {
        len += 1;
    } else if matches!(rest.get(len), Some(b'+' | b'-')) && n_digits(&rest[len + 1..]) > 0 {
        len += 1 + rest[len + 1..].iter().take_while(|c| c.is_ascii_digit() || **c == b':').count();
    }
    date + gap + len
}

/// Returns whether `text` begins with `form`, in which `d` matches any digit.
fn has_form(text: &[u8], form: &[u8]) -> bool {
    text.len() >= form.len() && form.iter().zip(text).all(|(f, c)| if *f == b'd' { c.is_ascii_digit() } else { f == c })
}

/// Returns the length of the terminal escape sequence at the start of `text`.
pub(super) fn escape(text: &[u8]) -> usize {
    match text.get(1) {
        Some(b'[') => {
            let end = text.iter().skip(2).take(MAX_BRACKET_BYTES).position(|c| (0x40..=0x7e).contains(c));
            end.map_or(2, |n| n + 3)
        }
        // A title or a link, terminated by BEL or by the next escape.
        Some(b']') => {
            let end = text.iter().skip(2).take(MAX_BRACKET_BYTES).position(|c| matches!(c, 7 | 0x1b));
            end.map_or(2, |n| n + 2 + usize::from(text[n + 2] == 7))
        }
        _ => 1,
    }
}

/// Returns the length of a colour sequence whose escape character was lost: `[31m`.
#[inline]
pub(super) fn orphan_colour(text: &[u8]) -> usize {
    if !matches!(text.get(1), Some(b'0'..=b'9' | b';')) {
        return 0;
    }
    let n = text.iter().skip(1).take(16).take_while(|c| c.is_ascii_digit() || **c == b';').count();
    if n > 0 && text.get(n + 1) == Some(&b'm') { n + 2 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        for (prefix, rank) in [
            ("[rank0]: ", Some(0)),
            ("[rank12]:     ", Some(12)),
            ("[default3]:", Some(3)),
            ("[0]:", Some(0)),
            ("[Rank 7] ", Some(7)),
            ("rank1: ", Some(1)),
            ("[1,2]<stderr>: ", Some(2)),
            ("> > ", None),
            ("&gt; ", None),
            ("\u{1b}[31m\u{1b}[1m", None),
            ("[0m", None),
            ("2024-05-14 23:55:39,233 - ERROR - __main__ - ", None),
            ("2025-11-12T11:25:13.4961658Z ", None),
            ("2018-09-12 20:59:57.154299: ", None),
            ("03/20/2020 13:36:52 - WARNING - ", None),
            ("[2023-11-13 16:59:54,760] [ERROR] [launch.py:320:sigkill_handler] ", None),
            ("[16:10:33] ", None),
            ("(Worker_TP0 pid=548) ERROR 07-29 21:48:54 [multiproc_executor.py:962] ", None),
            ("(train_rft pid=2657296) ", None),
            ("E1103 18:23:55.103160 3413767 gpu_allocator.cc:361] ", None),
            ("WARNING:root:", None),
            ("[rank1]: [E312 ", None),
            ("E   ", None),
            ("│ ", None),
        ] {
            let line = format!("{prefix}Tried to allocate");
            let expected = if prefix == "[rank1]: [E312 " { (9, Some(1)) } else { (prefix.len(), rank) };
            let found = of(line.as_bytes());
            assert_eq!((found.len, found.rank), expected, "{line}");
        }
    }

    #[test]
    fn pieces_of_a_message_are_no_prefix() {
        for line in [
            "39.56 GiB of which",
            "0; 15.78 GiB total capacity",
            "[1,12,1024,1024] and type float",
            "(GPU 0; 15.78 GiB",
            // srun --label writes ranks in this form, but a wrapped `init.lua:118: Error` looks the same.
            "118: Error in CuDNN",
            "[CUDA ERROR] at file",
            "ERROR_OUT_OF_MEMORY",
            "Error out of memory at line",
            "12",
            "2023",
            "reserved in total",
            "RuntimeError: CUDA",
            "[enforce fail at alloc_cpu.cpp:73]",
        ] {
            assert_eq!(of(line.as_bytes()), Prefix::default(), "{line}");
        }
    }
}
