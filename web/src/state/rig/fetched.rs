//! A fetched piece of history, and the run that it belongs to.

use headroom_protocol::history::History;

/// A fetched piece of history, or the error.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum FetchedHistory {
    /// The fetch is pending or was not requested.
    #[default]
    Nothing,
    /// The fetched history.
    History(History),
    /// The error, in words.
    Failed(String),
}

impl FetchedHistory {
    /// The fetched history, if there is one.
    pub const fn history(&self) -> Option<&History> {
        match self {
            Self::History(history) => Some(history),
            _ => None,
        }
    }
}

/// The history of a run's GPU, with the run's id, so that it is never shown for another run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunHistory {
    run: String,
    fetched: FetchedHistory,
}

impl RunHistory {
    /// The history of a run.
    pub const fn new(run: String, fetched: FetchedHistory) -> Self {
        Self { run, fetched }
    }

    /// The history of a run; [`FetchedHistory::Nothing`] if the fetched one belongs to another run.
    pub fn of(&self, run: &str) -> &FetchedHistory {
        static NOTHING: FetchedHistory = FetchedHistory::Nothing;
        if self.run == run { &self.fetched } else { &NOTHING }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetched_history_belongs_to_its_run() {
        let failed = FetchedHistory::Failed("no disk".to_owned());
        let fetched = RunHistory::new("a".to_owned(), failed.clone());
        assert_eq!((fetched.of("a"), fetched.of("b")), (&failed, &FetchedHistory::Nothing));
    }
}
