//! Suggestions for a message without a config: the runs that would print it.

use headroom_planner::{
    link::trainer::encode,
    oom::{
        Message, PhaseHint,
        solve::{Figures, FoundRun, Search, Solution, TrainerSearch, TrainerSolution, headline, not_shown},
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
    pub fn search(&self) -> Option<Searches> {
        // A traceback that names a trainer excludes nanoGPT.
        let is_of_nanogpt = self.hint.origin.is_none();
        let nanogpt = is_of_nanogpt.then(|| Search::new(&self.message, self.hint, &self.options, true)).flatten();
        let trainers = TrainerSearch::new(&self.message, self.hint, &self.options);
        (nanogpt.is_some() || trainers.is_some()).then_some(Searches { nanogpt, trainers })
    }
}

/// The search among runs of nanoGPT, then, if none is exact, among those of other trainers.
pub struct Searches {
    nanogpt: Option<Search>,
    trainers: Option<TrainerSearch>,
}

/// The runs that were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    nanogpt: Vec<Solution>,
    trainers: Vec<TrainerSolution>,
}

impl Searches {
    /// Examines the next candidate. Returns `false` when the search is over.
    pub fn advance(&mut self) -> bool {
        if self.nanogpt.as_mut().is_some_and(Search::advance) {
            return true;
        }
        self.nanogpt.as_ref().is_none_or(|search| search.n_exact() == 0)
            && self.trainers.as_mut().is_some_and(TrainerSearch::advance)
    }

    /// The number of exact runs found so far.
    pub fn n_exact(&self) -> usize {
        self.nanogpt.as_ref().map_or(0, Search::n_exact) + self.trainers.as_ref().map_or(0, TrainerSearch::n_exact)
    }

    /// The runs found so far. An exact run of another trainer replaces near ones of nanoGPT.
    pub fn found(&self) -> Found {
        let trainers = self.trainers.as_ref().map(TrainerSearch::solutions).unwrap_or_default();
        let is_solved = trainers.first().is_some_and(FoundRun::is_exact);
        let nanogpt = self.nanogpt.as_ref().filter(|_| !is_solved).map(Search::solutions).unwrap_or_default();
        Found { nanogpt, trainers }
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
    /// The fragment of the page of another trainer's run.
    pub trainer: Option<String>,
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
    /// Whether the offers reproduce the requested size only.
    pub by_size: bool,
    /// The offers, best first.
    pub offers: Vec<Offer>,
}

/// The solutions of a message in words.
pub fn solved(found: &Found, of: &OpenQuestion, searching: bool) -> SearchProgress {
    let Found { nanogpt, trainers } = found;
    if nanogpt.is_empty() && !trainers.is_empty() {
        return progress(trainers, trainers.iter().map(offer_of_trainer), of, searching);
    }
    let mut progress = progress(nanogpt, nanogpt.iter().map(offer), of, searching);
    progress.offers.extend(trainers.iter().map(offer_of_trainer));
    progress
}

fn progress<S: FoundRun>(
    solutions: &[S],
    offers: impl Iterator<Item = Offer>,
    of: &OpenQuestion,
    searching: bool,
) -> SearchProgress {
    let headline = match searching && solutions.is_empty() {
        true => String::new(),
        false => say(&headline(solutions, &of.message, of.has_config)),
    };
    let exact = solutions.first().is_some_and(FoundRun::is_exact);
    let by_size = solutions.first().is_some_and(|solution| solution.figures() == Figures::Requested);
    let not_shown = not_shown(solutions).map_or_else(String::new, |text| say(&text));
    SearchProgress { searching, headline, not_shown, exact, by_size, offers: offers.collect() }
}

fn offer(solution: &Solution) -> Offer {
    Offer {
        label: say(&solution.described(format::size)),
        config: solution.config_with_assumed(),
        expandable_segments: solution.options.expandable_segments,
        math_attention: solution.options.attention == headroom_planner::train_config::Attention::Math,
        trainer: None,
    }
}

fn offer_of_trainer(solution: &TrainerSolution) -> Offer {
    Offer {
        label: say(&solution.described(format::size)),
        trainer: Some(encode(&solution.input, &solution.options)),
        ..Offer::default()
    }
}
