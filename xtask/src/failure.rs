//! The error type of xtask: what failed, and what the user can do.

use std::fmt;

/// The failure of a step.
#[derive(Debug)]
pub struct Failure {
    /// What failed, and for which input, in one line.
    what: String,
    /// What to try; `None` if the message already states it.
    hint: Option<String>,
}

/// The result of a step.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// Creates a failure without a hint.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }

    /// Adds a hint.
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

/// Adds context to an I/O error.
pub trait IoContext<T> {
    /// Converts an error; `doing` completes the sentence "could not …".
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> IoContext<T> for std::result::Result<T, E> {
    fn doing(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure::new(format!("could not {}: {error}", doing())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_is_separate_from_error() {
        let failure = Failure::new("no page").hint("run `cargo xtask page`");
        assert_eq!(failure.to_string(), "error: no page\n\nhint: run `cargo xtask page`");
        assert_eq!(Failure::new("no page").to_string(), "error: no page");
    }
}
