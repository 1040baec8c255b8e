//! Search for the run behind a message when no config is known. Common runs are simulated on the message's GPU. A run
//! whose failure reproduces every printed figure is an exact solution.
//!
//! A search advances one candidate at a time, so that a page can run it in slices.

mod candidate;
mod filter;
mod solution;
mod target;
#[cfg(test)]
mod tests;
mod trainer;

use super::{Kind, Message, PhaseHint, explain::as_in_message, explanation::MAX_MATCHES};
use crate::{
    dtype::Dtype,
    gpt::tensors::TensorId,
    memory::{message::TorchVersion, program::Phase, simulate::simulate},
    nanogpt::{Value, defaults},
    session::{Options, resolve},
    train_config::Attention,
};
use candidate::Candidate;
use filter::Filter;
use headroom_text::{self as text, Text};
pub(super) use solution::source_of;
pub use solution::{Figures, FoundRun, Solution, headline, missing_figures, not_shown};
use target::{Agreement, Target};
pub use trainer::{OfTrainers, TrainerSearch, TrainerSolution};

/// Maximum number of simulations: about 0.2 s of a browser's time.
const MAX_SIMULATIONS: u32 = 800;
/// First version of PyTorch with expandable segments.
const FIRST_EXPANDABLE: TorchVersion = TorchVersion::new(2, 1);
/// A search in progress.
#[derive(Debug)]
pub struct Search {
    target: Target,
    /// GPU and environment as described by the message.
    options: Options,
    usual_dtype: Dtype,
    /// Segments of the allocator to try, most common first: whether they are expandable.
    segments: &'static [bool],
    /// Whether the message lacks figures, so that candidates are compared by the requested size only.
    is_by_size: bool,
    filter: Filter,
    candidates: std::vec::IntoIter<Candidate>,
    exact: Vec<Solution>,
    near: Vec<Solution>,
    /// Runs that store a tensor of the requested size. They are the answer if no run comes closer.
    by_size: Vec<Solution>,
    n_simulated: u32,
}

impl Search {
    /// Starts a search for the run behind a message of PyTorch's allocator. Returns `None` if the message has no
    /// requested size. The GPU is the message's unless `names_gpu`.
    #[must_use]
    pub fn new(message: &Message, hint: PhaseHint, options: &Options, names_gpu: bool) -> Option<Self> {
        if message.kind != Kind::Pytorch {
            return None;
        }
        let mut options = options.clone();
        as_in_message(&mut options, message, names_gpu);
        let base = resolve(&[], &options).request?;
        let usual_dtype = base.train.dtype;
        let reaches = |first| message.era.and_then(|era| era.last).is_none_or(|last| last >= first);
        let can_compile = reaches(TorchVersion::new(2, 0));
        Some(Self {
            target: Target::new(message, hint, base.machine.capacity_bytes()),
            usual_dtype,
            segments: match options.expandable_segments {
                true => &[true],
                false if reaches(FIRST_EXPANDABLE) => &[false, true],
                false => &[false],
            },
            is_by_size: missing_figures(message).is_some(),
            filter: Filter::new(
                message.requested?,
                message.allocated.map_or(u64::MAX, |size| size.bytes),
                options.clone(),
            ),
            options,
            candidates: Candidate::all(usual_dtype, can_compile).into_iter(),
            exact: vec![],
            near: vec![],
            by_size: vec![],
            n_simulated: 0,
        })
    }

    /// Examines the next candidate. Returns `false` when the search is over.
    pub fn advance(&mut self) -> bool {
        let n_found = if self.is_by_size { self.by_size.len() } else { self.exact.len() };
        if n_found >= MAX_MATCHES || self.n_simulated >= MAX_SIMULATIONS {
            return false;
        }
        let Some(candidate) = self.candidates.next() else { return false };
        if let Some(found) = self.filter.matching(&candidate)
            && !self.exact.iter().any(|known| same_batch(known, &candidate))
        {
            if self.is_by_size || self.target.is_where_traceback_is(found.1) {
                self.keep_by_size(&candidate, found);
            }
            if !self.is_by_size {
                self.try_variants(candidate);
            }
        }
        true
    }

    /// Returns the number of exact solutions found so far.
    #[must_use]
    pub fn n_exact(&self) -> usize {
        self.exact.len()
    }

    /// Runs the search to its end.
    #[must_use]
    pub fn finish(mut self) -> Vec<Solution> {
        while self.advance() {}
        self.solutions()
    }

    /// Returns the solutions found so far, most common run first: the exact ones; if there are none, the near ones; and if
    /// there are none either, those of the requested size.
    #[must_use]
    pub fn solutions(&self) -> Vec<Solution> {
        let best = [&self.exact, &self.near, &self.by_size].into_iter().find(|solutions| !solutions.is_empty());
        best.cloned().unwrap_or_default()
    }

    /// Simulates a candidate with nanoGPT's defaults, and with less common options if the result is close.
    fn try_variants(&mut self, candidate: Candidate) {
        let is_old =
            self.target.message.era.is_some_and(|era| era.last.is_some_and(|last| last <= TorchVersion::new(2, 0)));
        let math_attention: &[bool] = if is_old && !candidate.compile { &[false, true] } else { &[false] };
        for &expandable in self.segments {
            for &math_attention in math_attention {
                for one_micro_step in [false, true] {
                    let variant = Variant { expandable, one_micro_step, math_attention };
                    match self.simulated(&candidate, variant) {
                        Outcome::Agrees(mut found) => {
                            found.assumed = self.assumed(&found);
                            match found.is_exact() {
                                true => return self.exact.push(*found),
                                false => self.keep_near(*found, &candidate),
                            }
                        }
                        Outcome::Near => {}
                        Outcome::Other => break,
                    }
                }
            }
        }
    }

    /// Keeps a candidate that stores a tensor of the requested size. How it runs does not change that size, so each
    /// model and batch is kept once.
    fn keep_by_size(&mut self, candidate: &Candidate, (tensor, phase): (TensorId, Phase)) {
        let is_known = |known: &Solution| {
            let is_mode = |key: &str| matches!(key, "dtype" | "compile");
            let keys = candidate.keys();
            known.keys.iter().filter(|(key, _)| !is_mode(key)).eq(keys.iter().filter(|(key, _)| !is_mode(key)))
        };
        if self.by_size.len() < MAX_MATCHES && !self.by_size.iter().any(is_known) {
            let dtype = (candidate.dtype != self.usual_dtype).then(|| text::verbatim(candidate.dtype.name()));
            self.by_size.push(Solution {
                keys: candidate.keys(),
                assumed: vec![],
                options: self.options.clone(),
                figures: Figures::Requested,
                phase,
                tensor: tensor.name(None),
                text: candidate.text(dtype.as_slice()),
            });
        }
    }

    /// Keeps a near solution. For each run, the one with the smallest difference in reserved memory is kept.
    fn keep_near(&mut self, found: Solution, candidate: &Candidate) {
        let has_room = self.near.len() < MAX_MATCHES;
        match self.near.iter_mut().find(|known| same_batch(known, candidate)) {
            Some(known) if reserved_difference(known) <= reserved_difference(&found) => {}
            Some(known) => *known = found,
            None if has_room => self.near.push(found),
            None => {}
        }
    }

    /// Returns the settings of a solution that the message does not show: with another value, the run prints the same.
    fn assumed(&self, found: &Solution) -> Vec<(&'static str, Value)> {
        let has = |name: &str| found.keys.iter().any(|(key, _)| *key == name);
        // OpenAI's weights determine the shape.
        let of_shape = if has("init_from") { 2 } else { 0 };
        let names = ["n_head", "bias", "dropout", "gradient_accumulation_steps"];
        let values = names.into_iter().skip(of_shape).filter_map(|name| {
            let of_run = found.keys.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
            Some((name, of_run.or_else(|| defaults::find(name)?.default.value())?))
        });
        let is_hidden = |(name, value): &(&'static str, Value)| {
            let other = match value {
                Value::Int(1) => Value::Int(8),
                Value::Int(_) if *name == "gradient_accumulation_steps" => Value::Int(1),
                Value::Int(n_head) => Value::Int(n_head * 2),
                Value::Bool(is_set) => Value::Bool(!is_set),
                Value::Float(dropout) => Value::Float(if *dropout == 0.0 { 0.1 } else { 0.0 }),
                _ => return false,
            };
            let mut keys: Vec<_> = found.keys.iter().filter(|(key, _)| key != name).cloned().collect();
            keys.push((*name, other));
            let Some(request) = resolve(&[source_of(&keys)], &found.options).request else { return false };
            let Ok(program) = request.program() else { return false };
            self.target.capacities.iter().any(|capacity| {
                let failure = simulate(&program, request.machine.segments, *capacity).failure;
                matches!(failure.and_then(|failure| self.target.agreement(&failure)),
                    Some(Agreement::Printed { exact, .. }) if exact || !found.is_exact())
            })
        };
        values.filter(is_hidden).collect()
    }

    fn simulated(&mut self, candidate: &Candidate, variant: Variant) -> Outcome {
        let options = Options {
            expandable_segments: variant.expandable,
            attention: if variant.math_attention { Attention::Math } else { self.options.attention },
            ..self.options.clone()
        };
        let mut keys = candidate.keys();
        if variant.one_micro_step {
            keys.push(("gradient_accumulation_steps", Value::Int(1)));
        }
        let Some(request) = resolve(&[source_of(&keys)], &options).request else { return Outcome::Other };
        // The resolver decides whether compilation is supported on this GPU.
        if request.train.compile != candidate.compile {
            return Outcome::Other;
        }
        let Ok(program) = request.program() else { return Outcome::Other };
        let mut best = Outcome::Other;
        for capacity in self.target.capacities {
            self.n_simulated += 1;
            let failure = simulate(&program, request.machine.segments, capacity).failure;
            let Some((failure, agreement)) =
                failure.and_then(|failure| Some((failure, self.target.agreement(&failure)?)))
            else {
                match self.target.is_large() {
                    true => break,
                    false => continue,
                }
            };
            let Agreement::Printed { reserved_difference_bytes, exact } = agreement else {
                if matches!(best, Outcome::Other) {
                    best = Outcome::Near;
                }
                continue;
            };
            let found = Solution {
                keys: keys.clone(),
                assumed: vec![],
                options: options.clone(),
                figures: if exact { Figures::All } else { Figures::Allocated { reserved_difference_bytes } },
                phase: failure.phase,
                tensor: failure.tensor_name(&program),
                text: candidate.text(&variant.text(candidate.dtype, self.usual_dtype)),
            };
            if exact {
                return Outcome::Agrees(Box::new(found));
            }
            if !matches!(best, Outcome::Agrees(_)) {
                best = Outcome::Agrees(Box::new(found));
            }
        }
        best
    }
}

/// Returns the difference of a near solution from the printed reserved memory, in bytes.
fn reserved_difference(solution: &Solution) -> u64 {
    match solution.figures {
        Figures::Allocated { reserved_difference_bytes } => reserved_difference_bytes,
        Figures::All | Figures::Requested => 0,
    }
}

/// Returns whether a solution has the model, the batch and the mode of a candidate, regardless of its other keys.
fn same_batch(known: &Solution, candidate: &Candidate) -> bool {
    let differs = |key: &str| key != "dtype" && key != "gradient_accumulation_steps";
    let keys = candidate.keys();
    let mut of_known = known.keys.iter().filter(|(key, _)| differs(key));
    let mut of_candidate = keys.iter().filter(|(key, _)| differs(key));
    of_known.by_ref().eq(of_candidate.by_ref())
}

/// Result of simulating a candidate.
enum Outcome {
    Agrees(Box<Solution>),
    Near,
    Other,
}

/// A non-default way to run a candidate.
#[derive(Clone, Copy)]
struct Variant {
    expandable: bool,
    one_micro_step: bool,
    math_attention: bool,
}

impl Variant {
    /// Returns the non-default properties in words.
    fn text(self, dtype: Dtype, usual: Dtype) -> Vec<Text> {
        let dtype = (dtype != usual).then(|| text::verbatim(dtype.name()));
        let accumulation = self.one_micro_step.then(|| text::verbatim("gradient_accumulation_steps 1"));
        let expandable = self.expandable.then(|| text::RUN_EXPANDABLE.into());
        let attention = self.math_attention.then(|| text::RUN_MATH_ATTENTION.into());
        [dtype, accumulation, expandable, attention].into_iter().flatten().collect()
    }
}
