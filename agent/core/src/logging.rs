//! Areas of the log, and a filter for errors that repeat.
//!
//! Every log event names an area as its target, such as `tracing::warn!(target: logging::HISTORY, ...)`. Only `headroom
//! serve` prints the log; in other commands the events have no subscriber.
//!
//! Messages and fields contain no secret: no token, pairing code, header, query string, command line, config or text
//! that a client chose. Text that may quote such content passes `server::secrets` first.

use std::fmt::Display;

/// Start and end of the server.
pub const SERVE: &str = "serve";
/// HTTP requests and WebSocket sessions.
pub const HTTP: &str = "http";
/// Tokens and pairing.
pub const ACCESS: &str = "access";
/// The history file.
pub const HISTORY: &str = "history";
/// Alert rules and their queue.
pub const ALERTS: &str = "alerts";
/// Delivery of alerts to the webhook.
pub const WEBHOOK: &str = "webhook";
/// GPUs and their driver.
pub const TELEMETRY: &str = "telemetry";
/// Runs that the agent starts, stops, resumes or continues to watch.
pub const RUNS: &str = "runs";

/// All areas.
pub const AREAS: &[&str] = &[SERVE, HTTP, ACCESS, HISTORY, ALERTS, WEBHOOK, TELEMETRY, RUNS];

/// The last error of an operation that is repeated. Only a different error is logged.
#[derive(Debug, Default)]
pub struct LastError(Option<String>);

impl LastError {
    /// Whether an error differs from the last one.
    pub fn is_new(&mut self, error: &impl Display) -> bool {
        let text = error.to_string();
        let is_new = self.0.as_ref() != Some(&text);
        self.0 = Some(text);
        is_new
    }

    /// Records a success. Returns whether an error preceded it.
    pub fn clear(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Whether to log the `n`th repetition: the first, and then each time their number has doubled.
pub const fn is_logged(n: u64) -> bool {
    n.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_error_is_new_once() {
        let mut last = LastError::default();
        assert!(!last.clear());
        assert!(last.is_new(&"disk full") && !last.is_new(&"disk full") && last.is_new(&"permission denied"));
        assert!(last.clear() && last.is_new(&"permission denied"));
    }
}
