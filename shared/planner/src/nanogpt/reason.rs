//! Reasons why a value is unknown.

use super::problem::Severity;
use super::value::Value;
use headroom_text::{self as text, Key};

/// Reason why a value is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub severity: Severity,
    pub what: Key,
}

/// Reason for an expression at which Python would stop.
pub(super) const fn stops(what: Key) -> Reason {
    Reason { severity: Severity::Error, what }
}

/// Reason for a valid expression that this parser does not evaluate.
pub(super) const fn skipped(what: Key) -> Reason {
    Reason { severity: Severity::Warning, what }
}

pub(super) type EvaluatedValue = Result<Value, Reason>;

pub(super) const TOO_LARGE: Key = text::INT_TOO_LARGE;
