//! The end of what a run printed, which has the message that it died of.

use std::time::Duration;

/// What is kept: the tracebacks of eight processes that fail at once, and ten times that.
pub const TAIL_BYTES: usize = 256 << 10;

/// A run that prints figures for so long after an out-of-memory message did not die of it. Those that Python held back, and
/// that it prints as it ends, come all at once; and of several processes one may finish an iteration that another began.
const WENT_ON: Duration = Duration::from_secs(5);

/// Lines, newest last; the oldest go.
#[derive(Debug, Default)]
pub struct Tail {
    text: String,
    /// There is an out-of-memory message among them.
    has_message: bool,
    /// When figures came first behind it.
    went_on_at: Option<Duration>,
}

impl Tail {
    /// Keeps a line.
    pub fn push(&mut self, line: &str) {
        // Moved seldom: at least as much was added since as is moved.
        if self.text.len() + line.len() >= 2 * TAIL_BYTES {
            self.cut();
        }
        self.text.push_str(line);
        self.text.push('\n');
        if line.contains("ut of memory") || line.contains("OutOfMemory") {
            (self.has_message, self.went_on_at) = (true, None);
        }
    }

    /// The run printed figures: it goes on. A message that it went on from for long is none that it dies of, and is
    /// forgotten with all before it.
    pub fn went_on(&mut self, now: Duration) {
        if self.has_message && now.saturating_sub(*self.went_on_at.get_or_insert(now)) >= WENT_ON {
            *self = Self::default();
        }
    }

    /// What there is; nothing is left.
    pub fn take(&mut self) -> String {
        self.cut();
        std::mem::take(&mut self.text)
    }

    /// Whole lines go, so that nothing begins in the middle of one.
    fn cut(&mut self) {
        let from = self.text.len().saturating_sub(TAIL_BYTES);
        if from > 0 {
            let end = self.text.as_bytes()[from..].iter().position(|byte| *byte == b'\n');
            self.text.drain(..end.map_or(self.text.len(), |end| from + end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_stay_whole() {
        let mut tail = Tail::default();
        for i in 0..200_000 {
            tail.push(&format!("line {i} é"));
        }
        let text = tail.take();
        assert!(text.len() <= TAIL_BYTES && text.len() > TAIL_BYTES - 64, "{}", text.len());
        assert!(text.starts_with("line ") && text.ends_with("line 199999 é\n"));
        assert_eq!(tail.take(), "");
    }
}
