//! A piece of history that was fetched, and whose it is.

use headroom_shared::protocol::history::History;

/// A piece of history that was fetched, or why it was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Fetched {
    /// It is on its way, or nobody asked.
    #[default]
    Nothing,
    /// Here it is.
    History(History),
    /// In words.
    Failed(String),
}

impl Fetched {
    /// What was fetched.
    pub const fn history(&self) -> Option<&History> {
        match self {
            Self::History(history) => Some(history),
            _ => None,
        }
    }
}

/// What was fetched of a run's card, with the run's number: whichever run is shown next, it is not that one's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunHistory {
    run: String,
    fetched: Fetched,
}

impl RunHistory {
    /// Of a run.
    pub const fn new(run: String, fetched: Fetched) -> Self {
        Self { run, fetched }
    }

    /// What was fetched of a run: nothing where that was of another.
    pub fn of(&self, run: &str) -> &Fetched {
        static NOTHING: Fetched = Fetched::Nothing;
        if self.run == run { &self.fetched } else { &NOTHING }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_fetched_of_a_run_is_no_other_run_s() {
        let failed = Fetched::Failed("no disk".to_owned());
        let fetched = RunHistory::new("a".to_owned(), failed.clone());
        assert_eq!((fetched.of("a"), fetched.of("b")), (&failed, &Fetched::Nothing));
    }
}
