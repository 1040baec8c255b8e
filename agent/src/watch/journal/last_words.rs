//! The last words of a command that failed: the end of what it printed to standard error, and of a Python program its
//! newest traceback.

use std::collections::VecDeque;

/// Lines that are kept of standard error.
const KEPT_LINES: usize = 200;
/// Bytes that are kept of a line.
const LINE_BYTES_MAX: usize = 400;
/// Lines that are given of an end that is no traceback.
const PLAIN_LINES: usize = 10;
/// Lines that are given of a traceback besides its head: the innermost frames and the exception.
const TRACEBACK_LINES: usize = 16;
/// Bytes that are given at most.
const BYTES_MAX: usize = 4000;
/// How Python begins a traceback.
const TRACEBACK: &str = "Traceback (most recent call last):";
/// What stands for lines that are left out.
const LEFT_OUT: &str = "  …";

/// The newest lines of an output.
#[derive(Debug, Default)]
pub struct LastWords {
    lines: VecDeque<String>,
}

impl LastWords {
    /// Takes a line.
    pub fn push(&mut self, line: &str) {
        // A line's room is used again.
        let mut kept = if self.lines.len() >= KEPT_LINES { self.lines.pop_front() } else { None }.unwrap_or_default();
        kept.clear();
        // A bar of progress draws itself anew behind each return, and only its last state is seen.
        let seen = line.trim_end();
        let seen = seen.rfind('\r').map_or(seen, |at| &seen[at + 1..]);
        kept.push_str(&seen[..seen.floor_char_boundary(LINE_BYTES_MAX)]);
        self.lines.push_back(kept);
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// The words; `None` where there are none.
    pub fn take(&mut self) -> Option<String> {
        let shown = |line: String| line.chars().filter(|c| *c == '\t' || !c.is_control()).collect::<String>();
        let mut lines: Vec<String> = std::mem::take(&mut self.lines).into_iter().map(shown).collect();
        while lines.last().is_some_and(|line| line.trim().is_empty()) {
            lines.pop();
        }
        let words = match traceback(&lines) {
            Some(traceback) => traceback,
            None => lines.split_off(lines.len().saturating_sub(PLAIN_LINES)),
        };
        let words = words.join("\n");
        let from = words.len().saturating_sub(BYTES_MAX);
        let from = words.ceil_char_boundary(from);
        Some(words[from..].trim_matches('\n').to_owned()).filter(|words| !words.is_empty())
    }
}

/// The newest traceback of some lines, with what stands behind it: its first line, the innermost frames, the exception.
fn traceback(lines: &[String]) -> Option<Vec<String>> {
    let is_head = |line: &String| line.ends_with(TRACEBACK);
    let head = lines.iter().rposition(is_head)?;
    // What torchrun prints around a process's traceback, say, names the process and not the reason.
    let indent = lines[head].len() - TRACEBACK.len();
    let is_inside = |line: &&String| line.get(indent..).is_some_and(|rest| rest.starts_with(' ') || rest.is_empty());
    let n_frames = lines[head + 1..].iter().take_while(is_inside).count();
    let end = (head + 1 + n_frames + PLAIN_LINES).min(lines.len());
    let body = &lines[head + 1..end];
    let n_left_out = body.len().saturating_sub(TRACEBACK_LINES);
    let mut words = vec![lines[head].clone()];
    if n_left_out > 0 {
        words.push(LEFT_OUT.to_owned());
    }
    words.extend_from_slice(&body[n_left_out..]);
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Option<String> {
        let mut words = LastWords::default();
        text.lines().for_each(|line| words.push(line));
        words.take()
    }

    #[test]
    fn of_a_traceback_the_innermost_frames_and_the_exception_are_kept() {
        let frames: String = (0..50).map(|i| format!("  File \"m{i}.py\", line {i}, in f\n    g()\n")).collect();
        let text = format!("step 1\nTraceback (most recent call last):\n{frames}KeyError: 'wte'\n\n");
        let said = words(&text).expect("words");
        assert!(said.starts_with("Traceback (most recent call last):\n  …\n"), "{said}");
        assert!(said.ends_with("  File \"m49.py\", line 49, in f\n    g()\nKeyError: 'wte'"), "{said}");
        assert!(said.lines().count() <= TRACEBACK_LINES + 2 && !said.contains("step 1"), "{said}");
    }

    #[test]
    fn of_chained_exceptions_the_newest_counts() {
        let text = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 1\n\nDuring handling of the \
                    above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"b.py\", line 2, in g\n    \
                    raise ValueError(2)\nValueError: 2\n";
        let expected =
            "Traceback (most recent call last):\n  File \"b.py\", line 2, in g\n    raise ValueError(2)\nValueError: 2";
        assert_eq!(words(text).as_deref(), Some(expected));
    }

    #[test]
    fn of_another_program_the_last_lines_are_kept() {
        let text: String = (0..500).map(|i| format!("line {i}\n")).collect();
        let said = words(&text).expect("words");
        assert_eq!((said.lines().next(), said.lines().last()), (Some("line 490"), Some("line 499")));
        assert_eq!(
            words("  5%|#    |\r 99%|#### |\n\u{1b}[31mno such file\n").as_deref(),
            Some(" 99%|#### |\n[31mno such file")
        );
        assert_eq!(words("\n \n"), None);
        let long = words(&"é".repeat(10_000)).expect("words");
        assert_eq!(long.len(), LINE_BYTES_MAX);
        let many = "x".repeat(5000) + "\n";
        assert!(words(&many.repeat(300)).expect("words").len() <= BYTES_MAX);
    }
}
