//! Suggestions for a message without a config: the runs that would print it.

use headroom_planner::{
    oom::{
        Message, PhaseHint,
        solve::{FoundRun, Search, Solution, headline, not_shown},
    },
    session::Options,
};

use super::format;
use crate::text::say;

/// A message whose run is searched for.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenQuestion {
    /// The message.
    pub message: Message,
    /// The phase that its traceback indicates.
    pub hint: PhaseHint,
    /// The GPU as the message describes it.
    pub options: Options,
    /// Whether a config is known and does not agree.
    pub has_config: bool,
}

impl OpenQuestion {
    /// The search; `None` if the figures do not suffice.
    pub fn search(&self) -> Option<Search> {
        Search::new(&self.message, self.hint, &self.options, true)
    }
}

/// A run to select.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offer {
    /// A short description.
    pub label: String,
    /// The config.
    pub config: String,
    /// Whether it uses expandable segments.
    pub expandable_segments: bool,
    /// Whether it computes attention without a fused kernel.
    pub math_attention: bool,
}

/// The progress of a search, and its results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchProgress {
    /// Whether the search is still running.
    pub searching: bool,
    /// The text above the offers, or why there are none; empty before the first offer.
    pub headline: String,
    /// The settings that the message does not show, in a sentence; empty without any.
    pub not_shown: String,
    /// Whether the offers reproduce every figure.
    pub exact: bool,
    /// The offers, best first.
    pub offers: Vec<Offer>,
}

/// The solutions of a message in words.
pub fn solved(solutions: &[Solution], of: &OpenQuestion, searching: bool) -> SearchProgress {
    let headline = match searching && solutions.is_empty() {
        true => String::new(),
        false => say(&headline(solutions, &of.message, of.has_config)),
    };
    let exact = solutions.first().is_some_and(FoundRun::is_exact);
    let not_shown = not_shown(solutions).map_or_else(String::new, |text| say(&text));
    SearchProgress { searching, headline, not_shown, exact, offers: solutions.iter().map(offer).collect() }
}

fn offer(solution: &Solution) -> Offer {
    Offer {
        label: say(&solution.described(format::size)),
        config: solution.config_with_assumed(),
        expandable_segments: solution.options.expandable_segments,
        math_attention: solution.options.attention == headroom_planner::train_config::Attention::Math,
    }
}
