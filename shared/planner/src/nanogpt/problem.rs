//! Problems that a parser found in its input. Problems are values with a position; they never abort parsing.
//!
//! The wording of each problem is in the text table. This module defines the structure, the limit and the order.

use std::fmt;

use serde::Serialize;

use headroom_text::{self as text, Text};

/// Maximum number of problems kept, so that a hostile or broken file cannot fill a page. Further ones are counted.
pub const MAX_PROBLEMS: usize = 100;

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something was skipped that does not affect a setting, such as an import.
    Note,
    /// A setting may differ from what nanoGPT would use.
    Warning,
    /// Python or nanoGPT would stop here.
    Error,
}

/// A problem in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Severity.
    pub severity: Severity,
    /// The file's name as given, or the whole `--key=value` argument.
    pub source: String,
    /// Line in the source, from 1; 0 if the problem concerns the whole source (a command-line argument).
    pub line: u32,
    /// Column in characters, from 1; 0 with `line` 0.
    pub column: u32,
    /// Description of the problem for the user.
    pub message: Text,
    /// Suggested correction, if known.
    pub hint: Option<Text>,
}

impl Problem {
    /// Returns whether Python or nanoGPT stops here. Otherwise the input is valid or Headroom cannot read it, and a later
    /// assignment may replace what was not read.
    #[must_use]
    pub fn stops_run(&self) -> bool {
        // With a hint, the value is one that Python computes and this parser does not.
        let is_unread = self.hint.is_some() && self.message.is(&text::unreadable("", ""));
        let others =
            [text::may_set("", ""), text::may_set_any(""), text::file_not_read(""), text::CONFIG_NOT_READ.into()];
        self.severity == Severity::Error && !is_unread && !others.iter().any(|other| self.message.is(other))
    }
}

/// Formats as `config/x.py:12:9: message`, then, if there is a hint, a blank line and `hint: …`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// A bounded list of problems, in the order of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    omitted: u64,
}

impl Problems {
    /// Returns whether further problems below `Error` would only be counted. Callers use it to avoid formatting them.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= MAX_PROBLEMS
    }

    /// Counts a problem if the list would not store it. Callers use it to avoid formatting the problem.
    pub(super) fn is_only_counted(&mut self, severity: Severity) -> bool {
        let is_replaced = |problem: &Problem| severity == Severity::Error && problem.severity < severity;
        let is_counted = self.is_full() && !self.list.iter().any(is_replaced);
        self.omitted += u64::from(is_counted);
        is_counted
    }

    /// Adds a problem. If the list is full, an error replaces the latest problem of lower severity.
    pub fn push(&mut self, problem: Problem) {
        if !self.is_full() {
            self.list.push(problem);
            return;
        }
        self.omitted += 1;
        if problem.severity == Severity::Error
            && let Some(last) = self.list.iter().rposition(|p| p.severity < Severity::Error)
        {
            self.list.remove(last);
            self.list.push(problem);
        }
    }

    /// Adds a problem unless it is already present.
    pub fn push_once(&mut self, problem: Problem) {
        if !self.list.contains(&problem) {
            self.push(problem);
        }
    }

    /// Returns the stored problems, at most [`MAX_PROBLEMS`].
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.list
    }

    /// Returns the number of problems that were counted but not stored.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Returns the first problem at which Python or nanoGPT stops.
    #[must_use]
    pub fn first_stop(&self) -> Option<&Problem> {
        self.list.iter().find(|problem| problem.stops_run())
    }

    /// Returns whether any stored problem is an error.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|p| p.severity == Severity::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(severity: Severity, line: u32) -> Problem {
        Problem { severity, source: "a.py".into(), line, column: 9, message: text::verbatim("no"), hint: None }
    }

    #[test]
    fn shows_place_message_and_hint() {
        let mut p = problem(Severity::Error, 12);
        assert_eq!(p.to_string(), "a.py:12:9: no");
        p.hint = Some(text::verbatim("write 3"));
        assert_eq!(p.to_string(), "a.py:12:9: no\n\nhint: write 3");
        p.line = 0;
        p.source = "--a=b".into();
        assert_eq!(p.to_string(), "--a=b: no\n\nhint: write 3");
    }

    #[test]
    fn keeps_a_bounded_number_and_counts_the_rest() {
        let mut problems = Problems::default();
        for line in 1..=130 {
            problems.push(problem(Severity::Note, line));
        }
        assert_eq!(problems.as_slice().len(), MAX_PROBLEMS);
        assert_eq!(problems.omitted(), 30);
    }

    #[test]
    fn problem_is_only_counted_where_the_list_would_not_store_it() {
        let mut problems = Problems::default();
        for severity in [Severity::Note, Severity::Warning, Severity::Error, Severity::Error] {
            for line in 0..60 {
                let mut pushed = problems.clone();
                pushed.push(problem(severity, line));
                if problems.is_only_counted(severity) {
                    assert_eq!(problems, pushed);
                } else {
                    assert_ne!(problems.list, pushed.list);
                }
                problems = pushed;
            }
        }
        assert_eq!((problems.omitted(), problems.is_only_counted(Severity::Error)), (140, true));
    }

    #[test]
    fn an_error_is_not_crowded_out_by_notes() {
        let mut problems = Problems::default();
        for line in 1..=130 {
            problems.push(problem(Severity::Note, line));
        }
        assert!(!problems.has_errors());
        problems.push(problem(Severity::Error, 131));
        assert!(problems.has_errors());
        assert_eq!(problems.as_slice().len(), MAX_PROBLEMS);
    }
}
