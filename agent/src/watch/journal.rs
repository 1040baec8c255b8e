//! A run's journal: what is read of its output, and when, becomes the events of its history.
//!
//! It has no thread and no clock of its own: bytes come with the time since the run's start. Every printed iteration and
//! evaluation is kept. Events are told in the order in which they were printed; of iterations those that [`Untold`] picks.

mod builtin;
mod end;
mod kills;
mod last_words;
mod tail;
#[cfg(test)]
mod tests;
mod untold;

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use headroom_shared::{
    compute::speed,
    nanogpt::printed::{Lines, Printed, Reader},
    plan::Request,
    protocol::{
        event::What,
        run::{Contradiction, Iteration, RunStatus},
    },
    session::DEFAULT_GPU,
    text,
};

use super::{
    cards::Cards,
    contradiction::Figures as PrintedFigures,
    passing::{Copied, Stream},
    pattern::Pattern,
    planned::{Card, Config, summary},
    xid,
};
use crate::{foreman::saved, platform::Ending, store::printed::Figures};
use builtin::Builtin;
use kills::Kills;
use last_words::LastWords;
use tail::Tail;
use untold::Untold;

/// How often viewers are told iterations. A tiny model prints thousands a second, and no chart draws as many.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// How often it is told how far an evaluation is: a person looks no more often, and each is a row of history.
const EVALUATING_EVERY: Duration = Duration::from_secs(30);

/// Where events go.
pub trait Record: Send {
    /// Keeps an event of a run; waits for nothing.
    fn append(&self, run: &str, what: What);
    /// Keeps a line of figures that a run printed; waits for nothing.
    fn printed(&self, run: &Arc<str>, figures: Figures);
    /// Waits until everything is kept, or gives up: what is lost then.
    fn finish(self: Box<Self>) -> u64;
}

/// What a run is watched with.
#[derive(Debug)]
pub struct Settings {
    /// Of the run.
    pub id: Arc<str>,
    /// Its words.
    pub command: Vec<OsString>,
    /// The configuration that its owner named, where it prints none.
    pub given: Option<Config>,
    /// The card that its owner named.
    pub card: Option<Card>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible: Option<String>,
    /// For other trainers' lines.
    pub pattern: Option<Pattern>,
    /// After so long without progress it stalls; `None` for never.
    pub stall: Option<Duration>,
    /// When it began.
    pub started_ms: u64,
    /// Of a run of the agent's, the folder that its checkpoint lies in.
    pub out: Option<PathBuf>,
}

/// What is left of a run when it has ended.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub ending: Ending,
    /// It died of an out-of-memory error: the end of what it printed.
    pub out_of_memory: Option<String>,
    /// Its configuration.
    pub config: Option<Config>,
    /// The card that it was planned for.
    pub card: Option<Card>,
    /// It saved a checkpoint.
    pub saved: bool,
    /// What it printed contradicts its configuration.
    pub is_contradicted: bool,
}

/// The journal.
pub struct Journal {
    settings: Settings,
    record: Box<dyn Record>,
    cards: Arc<Mutex<Cards>>,
    streams: [(Lines, Reader); 2],
    tail: Tail,
    config: Option<Config>,
    /// The card that the configuration was planned for; `None` while that is not decided.
    planned_for: Option<Option<Card>>,
    request: Option<Request>,
    printed: PrintedFigures,
    /// What it is as a run of `headroom train`.
    builtin: Builtin,
    kills: Kills,
    /// Of each stream.
    last_words: [LastWords; 2],
    /// What of that contradicts the configuration, which has no plan then.
    contradiction: Option<Contradiction>,
    untold: Untold,
    told_at: Option<Duration>,
    /// When it was told last how far an evaluation is.
    evaluating_told_at: Option<Duration>,
    /// The last progress: before the first figures any line.
    progress_at: Duration,
    has_figures: bool,
    stalled: bool,
    saved: bool,
    /// The newest iteration whose checkpoint could not be saved.
    not_saved: Option<u64>,
}

impl Journal {
    /// Of a run that begins now.
    pub fn new(settings: Settings, record: Box<dyn Record>, cards: Arc<Mutex<Cards>>) -> Self {
        let config = settings.given.clone();
        let builtin = Builtin::of(&settings.command);
        Self {
            settings,
            record,
            cards,
            streams: Default::default(),
            tail: Tail::default(),
            config,
            planned_for: None,
            request: None,
            printed: PrintedFigures::default(),
            builtin,
            kills: Kills::default(),
            last_words: Default::default(),
            contradiction: None,
            untold: Untold::default(),
            told_at: None,
            evaluating_told_at: None,
            progress_at: Duration::ZERO,
            has_figures: false,
            stalled: false,
            saved: false,
            not_saved: None,
        }
    }

    /// Takes what came of a stream.
    pub fn bytes(&mut self, stream: Stream, copied: &Copied, now: Duration) {
        let (mut lines, mut reader) = std::mem::take(&mut self.streams[stream as usize]);
        if copied.gap {
            lines.gap();
            self.lines_left_out();
        }
        lines.push(&copied.bytes, |line| self.line(stream, &mut reader, line, now));
        self.streams[stream as usize] = (lines, reader);
    }

    /// Some of what was printed was not read: at least a line, perhaps of figures.
    pub fn lines_left_out(&mut self) {
        self.record.printed(&self.settings.id, Figures::LeftOut(1));
    }

    /// Time passes.
    pub fn tick(&mut self, now: Duration) {
        self.kills.tick(now);
        if self.told_at.is_none_or(|told| now.saturating_sub(told) >= TELL_EVERY) {
            self.tell_untold(now);
        }
        self.plan();
        self.memory();
        let is_late = |stall| now.saturating_sub(self.progress_at) >= stall;
        if !self.stalled && self.settings.stall.is_some_and(is_late) {
            self.stalled = true;
            let since_ms = self.settings.started_ms.saturating_add(millis(self.progress_at));
            self.status(RunStatus::Stalled { since_ms });
        }
    }

    /// The run ended, and all that it printed has come.
    pub fn end(mut self, ending: Ending, now: Duration) -> (Ended, Box<dyn Record>) {
        for stream in [Stream::Out, Stream::Err] {
            let (mut lines, mut reader) = std::mem::take(&mut self.streams[stream as usize]);
            lines.finish(|line| self.line(stream, &mut reader, line, now));
            let mut said = vec![];
            reader.finish(&mut |printed| said.push(printed));
            said.into_iter().for_each(|printed| self.printed(printed, now));
        }
        self.tell_untold(now);
        self.plan();
        self.memory();
        let (out_of_memory, status) = self.fate(ending, now);
        self.status(status);
        let ended = Ended {
            ending,
            out_of_memory,
            config: self.config,
            card: self.planned_for.flatten().or(self.settings.card),
            saved: self.saved,
            is_contradicted: self.contradiction.is_some(),
        };
        (ended, self.record)
    }

    fn line(&mut self, stream: Stream, reader: &mut Reader, line: &str, now: Duration) {
        self.tail.push(line);
        self.last_words[stream as usize].push(line);
        if !self.has_figures {
            self.progress(now);
        }
        let matched = self.settings.pattern.as_mut().and_then(|pattern| pattern.line(line, now.as_secs_f64() * 1000.0));
        if let Some(matched) = matched {
            matched.iterations.into_iter().for_each(|iteration| self.printed(Printed::Iteration(iteration), now));
            matched.evaluation.into_iter().for_each(|at| self.printed(Printed::Evaluation(at), now));
            return;
        }
        if self.builtin.is
            && let Some((iter, why)) = builtin::not_saved(line)
        {
            self.not_saved(iter, why, now);
            return;
        }
        let mut said = vec![];
        reader.line(line, &mut |printed| said.push(printed));
        said.into_iter().for_each(|printed| self.printed(printed, now));
    }

    /// Says that a checkpoint was not saved, and what is left.
    fn not_saved(&mut self, iter: u64, why: &str, now: Duration) {
        self.figures(now);
        // Both streams have the line.
        if self.not_saved.replace(iter) == Some(iter) {
            return;
        }
        let before = match self.settings.out.as_deref().and_then(saved::read) {
            Some(before) => text::not_saved_before(before.iter),
            None => text::NOT_SAVED_NONE.into(),
        };
        self.tell_untold(now);
        // A line each, as that is how they are put into another language.
        let message = format!("{}\n{before}", text::not_saved(iter, why));
        self.append(What::RunNotSaved { iter, message });
    }

    fn printed(&mut self, printed: Printed, now: Duration) {
        let what = match printed {
            Printed::Iteration(iteration) => {
                self.figures(now);
                let iteration = self.with_speed(iteration);
                self.record.printed(&self.settings.id, Figures::Iteration(iteration));
                self.untold.take(iteration);
                return;
            }
            Printed::TokensPerIteration(tokens) => {
                self.printed.tokens_per_iteration = Some(tokens);
                self.hold_against_plan();
                return;
            }
            Printed::Config(text) => {
                let config = Config::printed(&self.settings.command, &text);
                let what = What::RunConfig { config: config.text.clone(), max_iters: config.max_iters };
                self.config = Some(config);
                (self.planned_for, self.contradiction) = (None, None);
                self.tell_untold(now);
                self.append(what);
                self.plan();
                return;
            }
            // Each process prints it.
            Printed::Parameters { millions, decimals } if self.printed.parameters == Some((millions, decimals)) => {
                return;
            }
            Printed::Parameters { millions, decimals } => {
                self.printed.parameters = Some((millions, decimals));
                self.tell_untold(now);
                self.append(What::RunParameters { parameters_millions: millions });
                self.hold_against_plan();
                return;
            }
            Printed::Builtin(parameters) => {
                // What its config comes to in PyTorch is no plan of it.
                (self.builtin.is, self.request) = (true, None);
                What::RunParameters { parameters_millions: parameters as f64 / 1e6 }
            }
            Printed::OnCpu => {
                self.builtin.is_on_cpu = true;
                return;
            }
            Printed::Recompute(what) => {
                self.builtin.recompute = what;
                self.plan();
                return;
            }
            Printed::Allocation(bytes) => {
                self.builtin.bytes = Some(bytes);
                self.plan();
                return;
            }
            Printed::Evaluating { done, of } => {
                self.figures(now);
                if self.evaluating_told_at.is_some_and(|told| now.saturating_sub(told) < EVALUATING_EVERY) {
                    return;
                }
                self.evaluating_told_at = Some(now);
                What::RunEvaluating { done, of }
            }
            Printed::Evaluation(evaluation) => {
                self.figures(now);
                self.record.printed(&self.settings.id, Figures::Evaluation(evaluation));
                What::RunEvaluation(evaluation)
            }
            Printed::Checkpoint(folder) => {
                self.figures(now);
                self.saved = true;
                self.tell_untold(now);
                // It is printed once the file is in its place. One line of what happened for each would soon be all of it.
                self.append(match self.settings.out.as_deref().and_then(saved::read) {
                    Some(checkpoint) => What::RunSaved { checkpoint },
                    None => What::RunCheckpoint { folder },
                });
                return;
            }
        };
        self.tell_untold(now);
        self.append(what);
    }

    fn append(&self, what: What) {
        self.record.append(&self.settings.id, what);
    }

    fn status(&self, status: RunStatus) {
        let energy_joules = self.cards.lock().unwrap_or_else(PoisonError::into_inner).energy_joules();
        self.append(What::RunStatus { status, energy_joules });
    }

    fn figures(&mut self, now: Duration) {
        self.has_figures = true;
        self.tail.went_on(now);
        // Standard output may have both streams: what came before figures is no last word.
        self.last_words[Stream::Out as usize].clear();
        self.progress(now);
    }

    fn progress(&mut self, now: Duration) {
        self.progress_at = now;
        if std::mem::take(&mut self.stalled) {
            self.status(RunStatus::Running);
        }
    }

    fn tell_untold(&mut self, now: Duration) {
        let told = self.untold.drain();
        if told.is_empty() {
            return;
        }
        self.told_at = Some(now);
        told.into_iter().for_each(|iteration| self.append(What::RunIteration(iteration)));
    }

    /// Adds what the plan and the printed figures say of an iteration's speed.
    fn with_speed(&self, mut iteration: Iteration) -> Iteration {
        let computed = self.request.as_ref().map(|request| speed(request, iteration.time_ms)).unwrap_or_default();
        let seconds = iteration.time_ms / 1000.0;
        let counted = self.printed.tokens_per_iteration.filter(|_| seconds > 0.0).map(|tokens| tokens as f64 / seconds);
        iteration.tokens_per_second = iteration.tokens_per_second.or(counted).or(computed.tokens_per_second);
        if !self.builtin.is && self.planned_for.as_ref().is_some_and(Option::is_some) {
            iteration.mfu_percent = computed.mfu_percent;
        }
        iteration
    }

    /// Plans the configuration, once it and the card are known, and anew for another card; not where the run contradicts
    /// it, which no card changes.
    fn plan(&mut self) {
        if self.builtin.is {
            let card = self.settings.card.clone().or_else(|| {
                let cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
                cards.card(self.settings.visible.as_deref())
            });
            if let Some(plan) = self.builtin.plan(card.as_ref()) {
                self.append(What::RunPlanned { plan });
            }
            return;
        }
        let Some(config) = self.config.as_ref().filter(|_| self.contradiction.is_none()) else { return };
        let card = match &self.settings.card {
            _ if !config.is_on_cuda => None,
            Some(card) => Some(card.clone()),
            // Not known yet, perhaps: its tokens need no card, and the plan follows.
            None => {
                let cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
                cards.card(self.settings.visible.as_deref())
            }
        };
        if self.planned_for.as_ref() == Some(&card) {
            return;
        }
        // Without a card its tokens can be counted all the same.
        let assumed = card.clone().unwrap_or_else(|| Card::Named(DEFAULT_GPU.to_owned()));
        self.request = config.resolved(&assumed).request;
        self.planned_for = Some(card);
        self.hold_against_plan();
        let is_for_card = self.planned_for.as_ref().is_some_and(Option::is_some);
        if let Some(plan) = self.request.clone().filter(|_| is_for_card).and_then(summary) {
            self.append(What::RunPlanned { plan });
        }
    }

    /// Takes the plan back where what is printed is not what it comes to; the lines come before it and behind it.
    fn hold_against_plan(&mut self) {
        let Some(contradiction) = self.request.as_ref().and_then(|request| self.printed.contradict(request)) else {
            return;
        };
        self.request = None;
        self.contradiction = Some(contradiction);
        let max_iters = self.config.as_ref().and_then(|config| config.printed_max_iters);
        self.append(What::RunUnplanned { contradiction, max_iters });
    }

    fn memory(&self) {
        let peaks = self.cards.lock().unwrap_or_else(PoisonError::into_inner).take_peaks();
        for (gpu, bytes) in peaks {
            self.append(What::RunMemory { gpu, bytes });
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
