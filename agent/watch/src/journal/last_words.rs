//! Last words of a failed command: the exception of a Python program with its cause, otherwise the end of the output.

mod traceback;

use std::{collections::VecDeque, time::Duration};

use super::handled::FiguresAfterError;
use traceback::Tracebacks;

/// Limit of kept lines of a stream.
const KEPT_LINES: usize = 200;
/// Limit of a kept line in bytes.
const LINE_BYTES_MAX: usize = 400;
/// Limit of returned lines without a traceback.
const PLAIN_LINES: usize = 10;
/// Limit of the result in bytes.
const BYTES_MAX: usize = 4000;
/// Words by which a line reports an error, in lower case.
const ERROR_WORDS: [&str; 8] =
    ["error", "fatal", "panicked", "abort", "segmentation fault", "exception", "not found", "such file"];
/// Placeholder for omitted lines.
const LEFT_OUT: &str = "…";

/// Kind of last words, from the least to the most helpful.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Lines that report no error.
    Other,
    /// Lines that report an error.
    Error,
    /// Exception of a launcher, which reports that a process failed.
    Launcher,
    /// Exception of the program.
    Exception,
}

/// The newest lines and tracebacks of a stream.
#[derive(Debug, Default)]
pub struct LastWords {
    lines: VecDeque<String>,
    tracebacks: Tracebacks,
    figures_after_error: FiguresAfterError,
}

impl LastWords {
    /// Adds a line.
    pub fn push(&mut self, line: &str) {
        // Reuses the buffer of the oldest line.
        let mut kept = if self.lines.len() >= KEPT_LINES { self.lines.pop_front() } else { None }.unwrap_or_default();
        kept.clear();
        // A progress bar redraws itself after each carriage return; only its last state is visible.
        let seen = line.trim_end();
        let seen = seen.rfind('\r').map_or(seen, |at| &seen[at + 1..]);
        let seen = &seen[..seen.floor_char_boundary(LINE_BYTES_MAX)];
        kept.extend(seen.chars().filter(|c| *c == '\t' || !c.is_control()));
        self.tracebacks.push(&kept);
        self.lines.push_back(kept);
    }

    /// Removes the lines that report no error. Figures that a program buffers appear after its error message.
    pub fn clear_lines(&mut self) {
        self.lines.retain(|line| is_error(line));
    }

    /// Records that the run printed figures. If it does so for long enough after a traceback or an error message, the
    /// program has handled that error.
    pub fn figures(&mut self, now: Duration) {
        if self.tracebacks.is_empty() && !self.lines.iter().any(|line| is_error(line)) {
            self.figures_after_error.reset();
        } else if self.figures_after_error.is_handled(now) {
            self.tracebacks = Tracebacks::default();
            self.lines.retain(|line| !is_error(line));
        }
    }

    /// Takes the last words. `None` if there are none.
    pub fn take(&mut self) -> Option<(Kind, String)> {
        let lines: Vec<String> = std::mem::take(&mut self.lines).into();
        let (kind, words) = match self.tracebacks.take(BYTES_MAX) {
            Some((words, true)) => (Kind::Launcher, words),
            Some((words, false)) => (Kind::Exception, words),
            None => plain(lines),
        };
        let words = words.join("\n");
        let from = words.len().saturating_sub(BYTES_MAX);
        let from = words.ceil_char_boundary(from);
        Some((kind, words[from..].trim_matches('\n').to_owned())).filter(|(_, words)| !words.is_empty())
    }
}

fn is_error(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ERROR_WORDS.iter().any(|word| line.contains(word))
}

/// The last lines, after the last line before them that reports an error if they report none.
fn plain(mut lines: Vec<String>) -> (Kind, Vec<String>) {
    while lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
    let end = lines.split_off(lines.len().saturating_sub(PLAIN_LINES));
    if end.iter().any(|line| is_error(line)) {
        return (Kind::Error, end);
    }
    match lines.iter().rposition(|line| is_error(line)) {
        None => (Kind::Other, end),
        Some(at) => {
            let left_out = (at + 1 < lines.len()).then(|| LEFT_OUT.to_owned());
            (Kind::Error, [lines.swap_remove(at)].into_iter().chain(left_out).chain(end).collect())
        }
    }
}

#[cfg(test)]
mod tests;
