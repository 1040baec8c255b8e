//! Journal of a run: turns its output, and the time of each line, into the events of its history.
//!
//! The journal has no thread or clock of its own: bytes arrive with the time since the run's start. It keeps every
//! printed iteration and evaluation. Events are sent in the order of printing; [`Unreported`] selects the iterations to
//! send.

mod builtin;
mod end;
mod handled;
mod json_lines;
mod kills;
mod last_words;
mod tail;
#[cfg(test)]
mod tests;
mod unreported;

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use headroom_planner::{compute::speed, plan::Request, session::DEFAULT_GPU};
use headroom_protocol::{
    event::EventKind,
    message::Message,
    printed::{Lines, PrintedInfo, Reader},
    run::{Contradiction, Evaluation, Iteration, RunStatus},
};
use headroom_text::{self as text, Separator};

use super::{
    contradiction::Figures as PrintedFigures,
    gpus::RunGpus,
    pattern::Pattern,
    prediction::{Config, PlannedGpu, summary},
    tee::{Stream, StreamCopy},
    xid,
};
use builtin::BuiltinRunState;
pub use end::RunEnd;
use headroom_agent_core::store::{Mark, printed::Figures};
use headroom_train::{
    checkpoint,
    status::{Status, StatusReader},
};
use kills::OomKillCounter;
use last_words::LastWords;
use tail::Tail;
use unreported::Unreported;

/// Interval between iterations sent to viewers. A tiny model prints thousands per second, which no chart can draw.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// Interval between reads of the status file.
const STATUS_EVERY: Duration = Duration::from_millis(100);

/// Interval between progress events of an evaluation. Each is a row of history, and more would not be seen.
const EVALUATING_EVERY: Duration = Duration::from_secs(30);

/// Destination of events.
pub trait Record: Send {
    /// Appends an event of a run. Does not block.
    fn append(&self, run: &str, what: EventKind);
    /// Appends a line of printed figures of a run. Does not block.
    fn printed(&self, run: &Arc<str>, figures: Figures);
    /// Position after everything that was appended so far.
    fn mark(&self) -> Mark;
    /// Whether everything before a mark is stored.
    fn has_kept(&self, mark: &Mark) -> bool;
    /// Waits until everything is stored or a limit is reached. Returns the number of lost entries.
    fn finish(self: Box<Self>) -> u64;
}

/// Settings of a journal.
#[derive(Debug)]
pub struct Settings {
    /// ID of the run.
    pub id: Arc<str>,
    /// Words of the command.
    pub command: Vec<OsString>,
    /// Config named by the user, for a run that prints none.
    pub given: Option<Config>,
    /// GPU named by the user.
    pub gpu: Option<PlannedGpu>,
    /// Value of `CUDA_VISIBLE_DEVICES`.
    pub visible: Option<String>,
    /// Pattern for the output of other trainers.
    pub pattern: Option<Pattern>,
    /// Time without progress after which the run counts as stalled. `None` for never.
    pub stall: Option<Duration>,
    /// Start of the run, in Unix milliseconds.
    pub started_ms: u64,
    /// Checkpoint directory of a run that the agent started.
    pub out: Option<PathBuf>,
    /// Status file of `headroom train`. `None` if it cannot be created.
    pub status_file: Option<PathBuf>,
    /// Energy of the run's GPUs before this watcher observed them, in joules.
    pub energy_joules_before: Option<f64>,
}

/// Journal of one run.
pub struct Journal {
    settings: Settings,
    record: Box<dyn Record>,
    gpus: Arc<Mutex<RunGpus>>,
    streams: [(Lines, Reader); 2],
    tail: Tail,
    config: Option<Config>,
    /// GPU of the current plan. `None` until that is decided.
    planned_for: Option<Option<PlannedGpu>>,
    request: Option<Request>,
    printed: PrintedFigures,
    /// State of a run of `headroom train`.
    builtin: BuiltinRunState,
    status: Option<StatusReader>,
    /// Time of the last read of the status file.
    status_at: Option<Duration>,
    kills: OomKillCounter,
    /// Last words of each stream.
    last_words: [LastWords; 2],
    /// Contradiction between the printed figures and the config. Such a run has no plan.
    contradiction: Option<Contradiction>,
    unreported: Unreported,
    reported_at: Option<Duration>,
    /// Time of the last progress event of an evaluation.
    evaluating_reported_at: Option<Duration>,
    /// Time of the last progress. Before the first figures, any line counts.
    progress_at: Duration,
    has_figures: bool,
    stalled: bool,
    saved: bool,
}

impl Journal {
    /// Creates the journal of a run that starts now.
    pub fn new(settings: Settings, record: Box<dyn Record>, gpus: Arc<Mutex<RunGpus>>) -> Self {
        let config = settings.given.clone();
        let status = settings.status_file.clone().map(StatusReader::new);
        // The agent starts only `headroom train`.
        let mut builtin = BuiltinRunState::default();
        builtin.is = settings.out.is_some();
        Self {
            settings,
            record,
            gpus,
            streams: Default::default(),
            tail: Tail::default(),
            config,
            planned_for: None,
            request: None,
            printed: PrintedFigures::default(),
            builtin,
            status,
            status_at: None,
            kills: OomKillCounter::default(),
            last_words: Default::default(),
            contradiction: None,
            unreported: Unreported::default(),
            reported_at: None,
            evaluating_reported_at: None,
            progress_at: Duration::ZERO,
            has_figures: false,
            stalled: false,
            saved: false,
        }
    }

    /// Parses output of a stream.
    pub fn bytes(&mut self, stream: Stream, copied: &StreamCopy, now: Duration) {
        let (mut lines, mut reader) = std::mem::take(&mut self.streams[stream as usize]);
        if copied.gap {
            lines.gap();
            self.lines_left_out();
        }
        lines.push(&copied.bytes, |line| self.line(stream, &mut reader, line, now));
        self.streams[stream as usize] = (lines, reader);
    }

    /// Records that output was skipped: at least one line, which may have had figures.
    pub fn lines_left_out(&mut self) {
        self.record.printed(&self.settings.id, Figures::LeftOut(1));
    }

    /// Advances the time.
    pub fn tick(&mut self, now: Duration) {
        self.kills.tick(now);
        if self.status_at.is_none_or(|at| now.saturating_sub(at) >= STATUS_EVERY) {
            self.read_status(now);
        }
        if self.reported_at.is_none_or(|reported| now.saturating_sub(reported) >= TELL_EVERY) {
            self.report_pending(now);
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

    fn line(&mut self, stream: Stream, reader: &mut Reader, line: &str, now: Duration) {
        self.tail.push(line);
        if !self.has_figures {
            self.progress(now);
        }
        let said = self.parse(stream, reader, line, now);
        // Figures are not last words, even after an error message.
        if !said.iter().any(is_figures) {
            self.last_words[stream as usize].push(line);
        }
        said.into_iter().for_each(|printed| self.printed(printed, now));
    }

    fn parse(&mut self, stream: Stream, reader: &mut Reader, line: &str, now: Duration) -> Vec<PrintedInfo> {
        let matched = self.settings.pattern.as_mut().and_then(|pattern| pattern.line(line, now.as_secs_f64() * 1000.0));
        if let Some(matched) = matched {
            let iterations = matched.iterations.into_iter().map(PrintedInfo::Iteration);
            return iterations.chain(matched.evaluation.map(PrintedInfo::Evaluation)).collect();
        }
        if stream == Stream::Out
            && let Some(printed) = json_lines::parse(line)
            && self.is_builtin(now)
        {
            return vec![printed];
        }
        let mut said = vec![];
        reader.line(line, &mut |printed| said.push(printed));
        said
    }

    /// Whether the run is a `headroom train`, which reports its start before it prints anything.
    fn is_builtin(&mut self, now: Duration) -> bool {
        if !self.builtin.is {
            self.read_status(now);
        }
        self.builtin.is
    }

    /// Reads new entries of the status file of `headroom train`.
    fn read_status(&mut self, now: Duration) {
        self.status_at = Some(now);
        for status in self.status.as_mut().map(StatusReader::poll).unwrap_or_default() {
            if let Status::NotSaved { iter, why } = &status {
                self.not_saved(*iter, why, now);
            }
            self.builtin.take(status);
        }
    }

    /// Records that a checkpoint was not saved, and which earlier one remains.
    fn not_saved(&mut self, iter: u64, why: &Message, now: Duration) {
        self.figures(now);
        let before = match self.settings.out.as_deref().and_then(checkpoint::progress) {
            Some(before) => text::not_saved_before(before.iter),
            None => text::NOT_SAVED_NONE.into(),
        };
        self.report_pending(now);
        let lines = [text::not_saved(iter, why.text()), before];
        let message = text::as_is(text::list(Separator::Line, lines)).into();
        self.append(EventKind::RunNotSaved { iter, message });
    }

    fn printed(&mut self, printed: PrintedInfo, now: Duration) {
        let what = match printed {
            PrintedInfo::Iteration(iteration) => {
                self.figures(now);
                let iteration = self.with_speed(iteration);
                self.record.printed(&self.settings.id, Figures::Iteration(iteration));
                self.unreported.take(Iteration { loss: finite(iteration.loss), ..iteration });
                return;
            }
            PrintedInfo::TokensPerIteration(tokens) => {
                self.printed.tokens_per_iteration = Some(tokens);
                self.hold_against_plan();
                return;
            }
            PrintedInfo::Config(text) => {
                let config = Config::printed(&self.settings.command, &text);
                let what = EventKind::RunConfig { config: config.text.clone(), max_iters: config.max_iters };
                self.config = Some(config);
                (self.planned_for, self.contradiction) = (None, None);
                self.report_pending(now);
                self.append(what);
                self.plan();
                return;
            }
            // Each process prints the count; later ones are repetitions.
            PrintedInfo::Parameters { millions, decimals } if self.printed.parameters == Some((millions, decimals)) => {
                return;
            }
            PrintedInfo::Parameters { millions, decimals } => {
                self.printed.parameters = Some((millions, decimals));
                self.report_pending(now);
                self.append(EventKind::RunParameters { parameters_millions: millions });
                self.hold_against_plan();
                return;
            }
            PrintedInfo::Builtin(parameters) => {
                // The PyTorch plan of the config does not apply to the built-in trainer.
                (self.builtin.is, self.request) = (true, None);
                EventKind::RunParameters { parameters_millions: parameters as f64 / 1e6 }
            }
            PrintedInfo::OnCpu => {
                self.builtin.is_on_cpu = true;
                return;
            }
            PrintedInfo::Allocation(bytes) => {
                self.builtin.bytes = Some(bytes);
                // The run has reported its recomputation before it printed this line.
                self.read_status(now);
                self.plan();
                return;
            }
            PrintedInfo::Evaluating { done, of } => {
                self.figures(now);
                if self.evaluating_reported_at.is_some_and(|reported| now.saturating_sub(reported) < EVALUATING_EVERY) {
                    return;
                }
                self.evaluating_reported_at = Some(now);
                EventKind::RunEvaluating { done, of }
            }
            PrintedInfo::Evaluation(evaluation) => {
                self.figures(now);
                self.record.printed(&self.settings.id, Figures::Evaluation(evaluation));
                let Evaluation { iter, train_loss, val_loss } = evaluation;
                EventKind::RunEvaluation(Evaluation {
                    iter,
                    train_loss: finite(train_loss),
                    val_loss: finite(val_loss),
                })
            }
            PrintedInfo::Checkpoint(folder) => {
                self.figures(now);
                self.saved = true;
                self.report_pending(now);
                // The file is in place when the line is printed. One event line per checkpoint would soon fill the
                // event list.
                self.append(match self.settings.out.as_deref().and_then(checkpoint::progress) {
                    Some(checkpoint) => EventKind::RunSaved { checkpoint },
                    None => EventKind::RunCheckpoint { folder },
                });
                return;
            }
        };
        self.report_pending(now);
        self.append(what);
    }

    fn append(&self, what: EventKind) {
        self.record.append(&self.settings.id, what);
    }

    /// Energy of the run's GPUs so far, in joules.
    pub fn energy_joules(&self) -> Option<f64> {
        let energy = self.gpus.lock().unwrap_or_else(PoisonError::into_inner).energy_joules();
        let before = self.settings.energy_joules_before;
        energy.map(|joules| joules + before.unwrap_or(0.0)).or(before)
    }

    /// The record, if it contains everything that was read. `None` while events are pending.
    pub fn record_in_step(&self) -> Option<&dyn Record> {
        self.unreported.is_empty().then_some(&*self.record)
    }

    /// Records that the run has not ended.
    pub fn runs_on(&self) {
        self.status(RunStatus::Running);
    }

    fn status(&self, status: RunStatus) {
        let energy_joules = self.energy_joules();
        self.append(EventKind::RunStatus { status, energy_joules });
    }

    fn figures(&mut self, now: Duration) {
        self.has_figures = true;
        self.tail.figures(now);
        self.last_words.iter_mut().for_each(|words| words.figures(now));
        // Standard output may carry both streams: text before figures is not part of the last words.
        self.last_words[Stream::Out as usize].clear_lines();
        self.progress(now);
    }

    fn progress(&mut self, now: Duration) {
        self.progress_at = now;
        if std::mem::take(&mut self.stalled) {
            self.status(RunStatus::Running);
        }
    }

    fn report_pending(&mut self, now: Duration) {
        let iterations = self.unreported.drain();
        if iterations.is_empty() {
            return;
        }
        self.reported_at = Some(now);
        iterations.into_iter().for_each(|iteration| self.append(EventKind::RunIteration(iteration)));
    }

    /// Adds the speed that the plan and the printed figures imply for an iteration.
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

    /// Plans the config once it and the GPU are known, and again for another GPU. A contradicted config stays without a
    /// plan, as no GPU changes that.
    fn plan(&mut self) {
        if self.builtin.is {
            let gpu = self.settings.gpu.clone().or_else(|| {
                let gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
                gpus.gpu(self.settings.visible.as_deref())
            });
            if let Some(plan) = self.builtin.plan(gpu.as_ref()) {
                self.append(EventKind::RunPlanned { plan });
            }
            return;
        }
        let Some(config) = self.config.as_ref().filter(|_| self.contradiction.is_none()) else { return };
        let gpu = match &self.settings.gpu {
            _ if !config.is_on_cuda => None,
            Some(gpu) => Some(gpu.clone()),
            // The GPU may still be unknown. Token counts do not depend on it, and the plan follows.
            None => {
                let gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
                gpus.gpu(self.settings.visible.as_deref())
            }
        };
        if self.planned_for.as_ref() == Some(&gpu) {
            return;
        }
        // Tokens can be counted without a GPU.
        let assumed = gpu.clone().unwrap_or_else(|| PlannedGpu::Named(DEFAULT_GPU.to_owned()));
        self.request = config.resolved(&assumed).request;
        self.planned_for = Some(gpu);
        self.hold_against_plan();
        let is_for_gpu = self.planned_for.as_ref().is_some_and(Option::is_some);
        if let Some(plan) = self.request.clone().filter(|_| is_for_gpu).and_then(summary) {
            self.append(EventKind::RunPlanned { plan });
        }
    }

    /// Withdraws the plan if the printed figures contradict it. They may appear before or after the config.
    fn hold_against_plan(&mut self) {
        let Some(contradiction) = self.request.as_ref().and_then(|request| self.printed.contradict(request)) else {
            return;
        };
        self.request = None;
        self.contradiction = Some(contradiction);
        let max_iters = self.config.as_ref().and_then(|config| config.printed_max_iters);
        self.append(EventKind::RunUnplanned { contradiction, max_iters });
    }

    fn memory(&self) {
        let peaks = self.gpus.lock().unwrap_or_else(PoisonError::into_inner).take_peaks();
        for (gpu, bytes) in peaks {
            self.append(EventKind::RunMemory { gpu, bytes });
        }
    }
}

/// Whether a line with this content reports progress.
const fn is_figures(printed: &PrintedInfo) -> bool {
    matches!(
        printed,
        PrintedInfo::Iteration(_)
            | PrintedInfo::Evaluation(_)
            | PrintedInfo::Evaluating { .. }
            | PrintedInfo::Checkpoint(_)
    )
}

/// A loss for an event, which has no infinite numbers.
fn finite(loss: Option<f64>) -> Option<f64> {
    loss.filter(|loss| loss.is_finite())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
