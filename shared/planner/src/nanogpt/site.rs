//! Positions of values in a config's text.

/// Position at which a key got its final value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    /// Offset of the `=` or of an augmented assignment's operator.
    pub op_start: usize,
    /// Offset of the first byte after the operator.
    pub op_end: usize,
    pub value_end: usize,
    /// Whether the assignment has one target and is on one line.
    pub in_place: bool,
    /// Whether a later expression reads the key, so that a change here would also change that expression.
    pub is_read_later: bool,
}

impl Site {
    /// Returns the start of the value, after the operator and blanks.
    pub(super) fn value_start(&self, text: &str) -> usize {
        let between = text.get(self.op_end..self.value_end).unwrap_or_default();
        self.value_end - between.trim_start_matches([' ', '\t', '\u{c}']).len()
    }
}
