//! End of a run's output, which contains the message of a fatal out-of-memory error.

use std::time::Duration;

use super::handled::FiguresAfterError;

/// Size limit: ten times the tracebacks of eight processes that fail at once.
pub const TAIL_BYTES: usize = 256 << 10;

/// The newest lines; the oldest are dropped.
#[derive(Debug, Default)]
pub struct Tail {
    text: String,
    /// Whether the lines contain an out-of-memory message.
    has_message: bool,
    figures_after_message: FiguresAfterError,
}

impl Tail {
    /// Adds a line.
    pub fn push(&mut self, line: &str) {
        // Amortized: at least as much was added since the last cut as is moved now.
        if self.text.len() + line.len() >= 2 * TAIL_BYTES {
            self.cut();
        }
        self.text.push_str(line);
        self.text.push('\n');
        if line.contains("ut of memory") || line.contains("OutOfMemory") {
            self.has_message = true;
            self.figures_after_message.reset();
        }
    }

    /// Records that the run printed figures. If it does so for long enough after a message, drops the message and all
    /// lines before.
    pub fn figures(&mut self, now: Duration) {
        if self.has_message && self.figures_after_message.is_handled(now) {
            *self = Self::default();
        }
    }

    /// Takes the text.
    pub fn take(&mut self) -> String {
        self.cut();
        std::mem::take(&mut self.text)
    }

    /// Removes whole lines, so that the text starts at a line.
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
