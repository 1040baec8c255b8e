//! Undo and redo, as steps of the browser's history.

/// The steps of this page in the browser's history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The current step. 0 is the run with which the page was opened.
    pub now: u32,
    /// The last step, to which redo leads.
    pub last: u32,
}

impl Steps {
    /// The steps after a new one, which replaces those that were undone.
    pub const fn next(self) -> Self {
        let now = self.now.saturating_add(1);
        Self { now, last: now }
    }

    /// The steps at another one, after Back, Forward or a reload.
    pub const fn at(self, now: u32) -> Self {
        Self { now, last: if now > self.last { now } else { self.last } }
    }

    /// Whether there is a step to redo, or to undo.
    pub const fn has(self, is_redo: bool) -> bool {
        if is_redo { self.now < self.last } else { self.now > 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undo_and_redo_stay_within_the_steps_of_the_page() {
        let mut steps = Steps::default();
        assert!(!steps.has(false) && !steps.has(true));
        steps = steps.next().next();
        assert!(steps.has(false) && !steps.has(true));
        steps = steps.at(0);
        assert!(!steps.has(false) && steps.has(true));
        // A new step after an undo discards what could be redone.
        steps = steps.at(1).next();
        assert_eq!(steps, Steps { now: 2, last: 2 });
        // A reload knows only the current step.
        assert_eq!(Steps::default().at(5), Steps { now: 5, last: 5 });
    }
}
