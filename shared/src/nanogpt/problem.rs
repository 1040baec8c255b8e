//! What a reader has to say about its input: problems as values, with their place, never as a failure.
//!
//! The wording of each problem is a text of the table; here is only the shape, the bound and the order.

use std::fmt;

use serde::Serialize;

use crate::text::Text;

/// At most this many problems are kept, so that a hostile or broken file cannot fill a page; the rest are counted.
pub const MAX_PROBLEMS: usize = 100;

/// How much a problem matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something was skipped that does not change a setting, such as an import.
    Note,
    /// A setting may differ from what nanoGPT would use.
    Warning,
    /// Python or nanoGPT would stop here.
    Error,
}

/// One thing that a person should know about what was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How much it matters.
    pub severity: Severity,
    /// The file's name as it was given, or the whole `--key=value` argument.
    pub source: String,
    /// Line in the source, from 1; 0 where the problem is the source as a whole (a command-line argument).
    pub line: u32,
    /// Column in characters, from 1; 0 with `line` 0.
    pub column: u32,
    /// What is wrong, for the person who can change it.
    pub message: Text,
    /// What to write instead, where that is known.
    pub hint: Option<Text>,
}

/// `config/x.py:12:9: message`, then a blank line and `hint: …` where there is a hint.
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

/// A bounded list of problems, in the order they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    omitted: u64,
}

impl Problems {
    /// Whether a further problem that is no error would only be counted: lets a caller save the work of wording it.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= MAX_PROBLEMS
    }

    /// Adds a problem. Once the list is full an error takes the place of the latest lesser problem.
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

    /// Adds a problem unless the same one is there already.
    pub fn push_once(&mut self, problem: Problem) {
        if !self.list.contains(&problem) {
            self.push(problem);
        }
    }

    /// The problems kept, at most [`MAX_PROBLEMS`].
    #[must_use]
    pub fn as_slice(&self) -> &[Problem] {
        &self.list
    }

    /// How many more there were than are kept.
    #[must_use]
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Whether one of those kept says that Python or nanoGPT would stop.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.list.iter().any(|p| p.severity == Severity::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

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
