//! The one error type of xtask: what failed, and what the person in front of it can do.

use std::fmt;

/// A step that did not work.
#[derive(Debug)]
pub struct Failure {
    /// What failed, for which input, in one line.
    what: String,
    /// What to try; `None` where the message says it already.
    hint: Option<String>,
}

/// Result of a step.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with nothing more to say than what it is.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }

    /// Adds what to try next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        match &self.hint {
            Some(hint) => write!(f, "\n\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Gives an I/O error the name of what was being done.
pub trait Doing<T> {
    /// `doing` completes the sentence "could not …".
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Doing<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure::new(format!("could not {}: {error}", doing())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_stands_apart_from_the_error() {
        let failure = Failure::new("no page").hint("run `cargo xtask page`");
        assert_eq!(failure.to_string(), "error: no page\n\nhint: run `cargo xtask page`");
        assert_eq!(Failure::new("no page").to_string(), "error: no page");
    }
}
