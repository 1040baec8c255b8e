//! Distinction between an error that ends a run and one that the run has handled.

use std::time::Duration;

/// A run that prints figures for this long after an error message did not end by it. Figures buffered by Python
/// arrive all at once at its end. With several processes, one may finish an iteration after another failed.
pub const HANDLED_AFTER: Duration = Duration::from_secs(5);

/// Time of the first figures after an error message. `None` before these.
#[derive(Debug, Default)]
pub struct FiguresAfterError(Option<Duration>);

impl FiguresAfterError {
    /// Starts over at a new error message.
    pub fn reset(&mut self) {
        self.0 = None;
    }

    /// Records figures. Returns whether the run printed them for long enough to have handled its error.
    pub fn is_handled(&mut self, now: Duration) -> bool {
        let is_handled = now.saturating_sub(*self.0.get_or_insert(now)) >= HANDLED_AFTER;
        if is_handled {
            self.reset();
        }
        is_handled
    }
}
