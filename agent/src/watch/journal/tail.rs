//! The end of what a run printed, which has the message that it died of.

/// What is kept: the tracebacks of eight processes that fail at once, and ten times that.
pub const TAIL_BYTES: usize = 256 << 10;

/// Lines, newest last; the oldest go.
#[derive(Debug, Default)]
pub struct Tail {
    text: String,
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
