//! Search among common runs of nanochat and of Hugging Face models.
//!
//! A model with few layers shows which tensors a run stores and how much memory it holds when it requests them. Only
//! runs that pass both checks are simulated in full.

mod candidate;
mod filter;
mod growth;
mod solution;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::{
    Figures, FoundRun, missing_figures,
    target::{Agreement, Target},
};
use crate::{
    memory::{allocator::SegmentKind, program::Program, simulate::simulate},
    oom::{Kind, Message, PhaseHint, explanation::MAX_MATCHES},
    plan::Machine,
    session::Options,
    trainers::{Run, TrainerRequest},
};
use candidate::{Candidate, Mode};
pub use solution::{OfTrainers, TrainerSolution};

/// Maximum number of events that are derived or replayed.
const MAX_EVENTS: usize = 600_000;

/// Maximum number of events before the candidates are simulated in full.
const MAX_FILTER_EVENTS: usize = MAX_EVENTS / 2;

/// Steps of a run that are simulated: the first, and one with the state of the optimizer.
const STEPS: [u64; 2] = [1, 2];

/// A search in progress.
#[derive(Debug)]
pub struct TrainerSearch {
    target: Target,
    /// GPU and environment as described by the message.
    options: Options,
    machine: Machine,
    /// Modes to examine, the most common first. The first adapters stand for all.
    modes: std::vec::IntoIter<Mode>,
    /// Modes that store a tensor of the requested size, the most common first.
    stored: VecDeque<Mode>,
    /// Runs that store a tensor of the requested size, most common last. Sorted after the last mode.
    queue: Vec<Candidate>,
    is_sorted: bool,
    exact: Vec<TrainerSolution>,
    near: Vec<TrainerSolution>,
    n_events: usize,
}

impl TrainerSearch {
    /// Starts a search for the run behind a message, on the GPU of the options. Returns `None` if the message lacks
    /// figures.
    #[must_use]
    pub fn new(message: &Message, hint: PhaseHint, options: &Options) -> Option<Self> {
        if message.kind != Kind::Pytorch || missing_figures(message).is_some() {
            return None;
        }
        let machine = options.machine().ok()?;
        let mut modes: Vec<Mode> = Mode::all(hint.origin).collect();
        modes.sort_by_key(Mode::odds);
        Some(Self {
            target: Target::new(message, hint, machine.capacity_bytes()),
            options: options.clone(),
            machine,
            modes: modes.into_iter(),
            stored: VecDeque::new(),
            queue: vec![],
            is_sorted: false,
            exact: vec![],
            near: vec![],
            n_events: 0,
        })
    }

    /// Examines the next mode of a model, or the next candidate. Returns `false` when the search is over.
    pub fn advance(&mut self) -> bool {
        if self.exact.len() >= MAX_MATCHES || self.n_events >= MAX_EVENTS {
            return false;
        }
        if let Some(mode) = self.modes.next() {
            if self.stores(mode) {
                self.stored.extend(mode.with_adapters(self.target.hint.origin));
            }
            return true;
        }
        if self.n_events < MAX_FILTER_EVENTS
            && let Some(mode) = self.stored.pop_front()
        {
            self.filter(mode);
            return true;
        }
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.queue.sort_by_key(|candidate| std::cmp::Reverse(candidate.odds()));
        }
        let Some(candidate) = self.queue.pop() else { return false };
        self.try_variants(&candidate);
        true
    }

    /// Returns the number of exact solutions found so far.
    #[must_use]
    pub fn n_exact(&self) -> usize {
        self.exact.len()
    }

    /// Runs the search to its end.
    #[must_use]
    pub fn finish(mut self) -> Vec<TrainerSolution> {
        while self.advance() {}
        self.solutions()
    }

    /// Returns the solutions found so far, most common run first: the exact ones, or the near ones if there are none.
    #[must_use]
    pub fn solutions(&self) -> Vec<TrainerSolution> {
        if self.exact.is_empty() { self.near.clone() } else { self.exact.clone() }
    }

    /// The program of a run on the message's GPU. `None` if Headroom does not plan it there.
    fn program(&mut self, run: Run) -> Option<Program> {
        let program = TrainerRequest::new(run, self.machine.clone()).ok()?.program().ok()?;
        self.n_events += program.sections.iter().map(|section| section.events.len()).sum::<usize>();
        Some(program)
    }

    fn try_variants(&mut self, candidate: &Candidate) {
        let mut best = None;
        for variant in candidate.variants() {
            // Other optimizers and ranks change little: they are tried if the first run comes close.
            if !variant.is_usual && best.is_none() {
                break;
            }
            for expandable in [false, true] {
                match self.simulated(&variant, expandable) {
                    Outcome::Agrees(mut found) if found.is_exact() => {
                        found.assumed = self.assumed(&variant, expandable);
                        return self.exact.push(*found);
                    }
                    Outcome::Agrees(found) => best = Some(Some(found)),
                    Outcome::Near => best = best.or(Some(None)),
                    Outcome::Other => break,
                }
            }
        }
        if let Some(Some(found)) = best
            && self.near.len() < MAX_MATCHES
        {
            self.near.push(*found);
        }
    }

    /// Simulates a candidate until it fails, with every capacity that the figures allow.
    fn simulated(&mut self, candidate: &Candidate, expandable: bool) -> Outcome {
        let Some(run) = candidate.run(None) else { return Outcome::Other };
        let machine = Machine {
            segments: if expandable { SegmentKind::Expandable } else { self.machine.segments },
            ..self.machine.clone()
        };
        let segments = run.segments(&machine);
        if expandable && segments == run.segments(&self.machine) {
            return Outcome::Other;
        }
        let mut best = Outcome::Other;
        for steps in STEPS {
            let Some(program) = self.program(run.with_steps(steps)) else { break };
            let mut fails = false;
            for capacity in self.target.capacities {
                let outcome = simulate(&program, segments, capacity);
                self.n_events += outcome.n_events;
                fails |= outcome.failure.is_some();
                let agreeing = outcome.failure.and_then(|failure| Some((failure, self.target.agreement(&failure)?)));
                // Other capacities within the rounding change nothing for a large request.
                if agreeing.is_none() && self.target.is_large() {
                    break;
                }
                let Some((failure, agreement)) = agreeing else { continue };
                let Agreement::Printed { reserved_difference_bytes, exact } = agreement else {
                    best = best.or(Outcome::Near);
                    continue;
                };
                let figures = if exact { Figures::All } else { Figures::Allocated { reserved_difference_bytes } };
                let options = Options {
                    expandable_segments: expandable || self.options.expandable_segments,
                    ..self.options.clone()
                };
                let (phase, tensor) = (failure.phase, failure.tensor_name(&program));
                let found = TrainerSolution::new(candidate, &run, options, figures, (phase, tensor));
                if exact {
                    return Outcome::Agrees(Box::new(found));
                }
                best = Outcome::Agrees(Box::new(found));
            }
            if fails {
                break;
            }
        }
        best
    }

    /// Options of an exact solution that the message does not show: with another value, the run prints the same.
    fn assumed(&mut self, candidate: &Candidate, expandable: bool) -> Vec<(&'static str, String)> {
        let others = candidate.hidden();
        others
            .into_iter()
            .filter_map(|(key, value, other)| {
                let same = matches!(self.simulated(&other, expandable), Outcome::Agrees(found) if found.is_exact());
                same.then_some((key, value))
            })
            .collect()
    }
}

/// Result of simulating a candidate.
enum Outcome {
    Agrees(Box<TrainerSolution>),
    Near,
    Other,
}

impl Outcome {
    fn or(self, other: Self) -> Self {
        if matches!(self, Self::Other) { other } else { self }
    }
}
