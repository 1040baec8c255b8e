//! Bursts of edits. Each is one step of the browser's history, so that Back undoes a whole edit and not a keystroke.

/// Pause in milliseconds after which the next edit in the same field starts another burst.
const PAUSE_MILLIS: f64 = 3000.0;

/// The burst that the last edit belongs to; by default there was no edit.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    /// The id of the edited field, with the time of its last edit.
    last: Option<(String, f64)>,
}

impl Burst {
    /// Adds an edit of a field at a time in milliseconds. Returns whether it starts a burst.
    pub fn add(&mut self, field: String, now_millis: f64) -> bool {
        let is_same = |(last, at): &(String, f64)| *last == field && now_millis - at < PAUSE_MILLIS;
        let starts = !self.last.as_ref().is_some_and(is_same);
        self.last = Some((field, now_millis));
        starts
    }

    /// Ends the burst. The next edit starts another one.
    pub fn end(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_ends_with_a_pause_another_field_or_a_step() {
        let mut burst = Burst::default();
        let mut add = |field: &str, at: f64| burst.add(field.to_owned(), at);
        assert!(add("config", 0.0));
        assert!(!add("config", 200.0));
        // The pause counts from the last edit.
        assert!(!add("config", 200.0 + PAUSE_MILLIS - 1.0));
        assert!(add("batch_size", 3300.0));
        assert!(add("config", 3400.0));
        assert!(add("config", 3400.0 + PAUSE_MILLIS));
        burst.end();
        assert!(burst.add("config".to_owned(), 3401.0 + PAUSE_MILLIS));
    }
}
