//! A run: nanoGPT's loop over a trainer, a data set and a folder for checkpoints.
//!
//! What a run draws at random is a function of its seed and of the iteration, so that one that goes on from a checkpoint
//! draws what it would have drawn. It tells what happens by [`Event`]s and stops where it is asked to; who reads them,
//! and how a person asks, is not known here.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use headroom_kernels::{
    cpu::{
        adamw_update::AdamW,
        global_norm::clip_scale,
        gpt::{DropoutPass, Micro},
    },
    rng::{Stream, split_mix},
    training::{Moments, Training, TrainingError},
    weights::Tokenizer,
};
use headroom_shared::{
    gpt::GptConfig,
    text::{self, Key},
};
use serde_json::{Map, Value as Json};
use thiserror::Error;

use super::{
    checkpoint::{self, CheckpointError, Meta, State, Store, TRAIN_BATCHES, Tensors, Written},
    divergence::{Losses, Lost, PATIENCE},
    pace::Pace,
    settings::RunSettings,
};
use crate::data::dataset::{Dataset, DatasetError, Split};

/// What begins the line of a checkpoint that could not be saved, before its iteration, a colon and why.
pub const NOT_SAVED: &str = "checkpoint not saved at iteration ";

/// The seed's streams, by what they are for. The parameters' own have small numbers.
mod streams {
    pub const TRAIN_BATCHES: u64 = 1 << 32;
    pub const EVAL_BATCHES: u64 = 2 << 32;
    pub const DROPOUT: u64 = 3 << 32;
}

/// How often a long evaluation says how far it is: it is nothing to read every batch of, and silence looks like a hang.
const EVALUATING_EVERY: Duration = Duration::from_secs(5);

/// What happens in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An evaluation that takes its time.
    Evaluating {
        /// Iterations that are done.
        iter: u64,
        /// Batches that are evaluated.
        done: u64,
        /// Of so many.
        of: u64,
    },
    /// An evaluation.
    Evaluated {
        /// Iterations that are done.
        iter: u64,
        /// The mean loss over batches that were trained on.
        train_loss: f64,
        /// The mean loss over batches that were not.
        val_loss: f64,
        /// What the next iteration learns with.
        learning_rate: f64,
    },
    /// An iteration whose turn it is to be told.
    Stepped(Step),
    /// A checkpoint was written.
    Saved {
        /// Iterations that are done.
        iter: u64,
        /// The file's length.
        bytes: u64,
    },
    /// A checkpoint could not be written; the run goes on, unless it was asked to stop.
    NotSaved {
        /// Iterations that are done.
        iter: u64,
        /// Why, and what to try.
        why: String,
    },
}

/// An iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Its number, from 0.
    pub iter: u64,
    /// The mean loss of its micro-batches, before its update.
    pub loss: f64,
    /// What it learnt with.
    pub learning_rate: f64,
    /// The gradients' norm before clipping.
    pub gradient_norm: f64,
    /// How long it took.
    pub time: Duration,
    /// Since the last one told.
    pub tokens_per_second: f64,
    /// The same as operations, over what the threads or the card can; none where that is not known.
    pub mfu: Option<f64>,
    /// To the end of the run, at this pace; none where it has no end in sight.
    pub time_left: Duration,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It did all it was to do.
    Done {
        /// The iteration of the checkpoint that there is; none where nothing was saved.
        kept: Option<u64>,
    },
    /// It was asked to stop, and saved what it had.
    Saved,
    /// It was asked to stop and left what was saved before: it had forgotten most of what it learnt, or the disk did not
    /// take it, which was told.
    NotSaved {
        /// The iteration of that; none where nothing was.
        kept: Option<u64>,
    },
}

/// What to do where a checkpoint cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSaveError {
    /// Go on: the checkpoint before is intact, and space may be made meanwhile.
    #[default]
    Continue,
    /// Stop.
    Stop,
}

/// Why a run ended early.
#[derive(Debug, Error)]
pub enum RunError {
    /// The data.
    #[error(transparent)]
    Data(#[from] DatasetError),
    /// A checkpoint that had to be written.
    #[error("{error}")]
    Checkpoint {
        /// Why it was not.
        error: CheckpointError,
        /// Iterations that are done.
        iter: u64,
    },
    /// What computes.
    #[error("{}", text::run_not_computed(*iter, error.to_string()))]
    Training {
        /// Why; a kernel that did it is named.
        error: Box<TrainingError>,
        /// Iterations that are done.
        iter: u64,
        /// The iteration of the checkpoint that there is.
        kept: Option<u64>,
    },
    /// Nothing can be learnt from here on.
    #[error("{}", text::run_diverged(*what, *iter, value.to_string()))]
    Diverged {
        /// The iteration.
        iter: u64,
        /// What is no number there.
        what: Key,
        /// What it is instead.
        value: f64,
        /// The iteration of the checkpoint that there is.
        kept: Option<u64>,
    },
    /// What was learnt is lost, though all values are numbers.
    #[error("{}", text::run_forgot(decimal(lost.limit), PATIENCE, decimal(lost.best), *iter))]
    Forgot {
        /// The iteration.
        iter: u64,
        /// What it was and is.
        lost: Lost,
        /// The iteration of the checkpoint that there is.
        kept: Option<u64>,
    },
}

impl RunError {
    /// What to try.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Data(error) => error.hint(),
            Self::Checkpoint { error, .. } => error.hint(),
            Self::Training { kept, .. } => kept.map(|iter| text::try_resume(iter).to_string()),
            Self::Diverged { kept, .. } | Self::Forgot { kept, .. } => {
                let kept = kept.map_or_else(String::new, |iter| format!("; {}", text::try_last_checkpoint(iter)));
                Some(format!("{}{kept}", text::TRY_SLOWER))
            }
        }
    }
}

/// Why a checkpoint was not written, and what to try.
fn why(error: &CheckpointError) -> String {
    let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
    format!("{error}{hint}")
}

/// A loss, as a person reads it.
fn decimal(loss: f64) -> String {
    format!("{loss:.2}")
}

/// A run that is ready to start.
pub struct Run<'a> {
    /// What it is to do.
    pub settings: &'a RunSettings,
    /// Its keys, for checkpoints.
    pub config: Map<String, Json>,
    /// The model's shape.
    pub gpt: GptConfig,
    /// The model.
    pub trainer: &'a mut dyn Training,
    /// What it learns from.
    pub dataset: &'a Dataset,
    /// How its tokens are made of text.
    pub tokenizer: Option<Tokenizer>,
    /// Where its checkpoints go.
    pub store: &'a Store,
    /// Where it stands.
    pub state: State,
    /// The iteration of the checkpoint that it goes on from, or that it saved.
    pub kept: Option<u64>,
    /// Operations a second that the threads or the card can; none where that is not known.
    pub peak_flops: Option<f64>,
    /// Whether that was measured, so that it may have been too little where others were at work then.
    pub is_peak_measured: bool,
    /// What to do where a checkpoint cannot be written.
    pub on_save_error: OnSaveError,
    /// The longest time from one checkpoint to the next; none where evaluations alone save.
    pub save_every: Option<Duration>,
}

impl Run<'_> {
    /// Runs to the end, or until `stop` is set. `tell` gets every event.
    ///
    /// # Errors
    /// The data cannot be read, a checkpoint cannot be written, or the run has diverged.
    pub fn run(mut self, stop: &AtomicBool, tell: &mut dyn FnMut(Event)) -> Result<Ending, RunError> {
        let mut pace = Pace::new(&self);
        let mut losses = Losses::new(self.gpt.vocab_size());
        let mut evaluated_at = None;
        let mut saved = Instant::now();
        loop {
            let iter = self.state.iter_num;
            if iter.is_multiple_of(self.settings.eval_interval) {
                let start = Instant::now();
                if self.evaluate(&losses, stop, tell)?.is_break() {
                    return self.stopped(&losses, tell);
                }
                evaluated_at = Some(iter);
                pace.evaluated(start.elapsed());
                if self.kept == Some(iter) {
                    saved = Instant::now();
                }
                if iter == 0 && self.settings.eval_only {
                    return Ok(Ending::Done { kept: self.kept });
                }
            }
            if iter > self.settings.max_iters {
                if let Some(lost) = losses.forgetting() {
                    return Err(RunError::Forgot { iter, lost, kept: self.kept });
                }
                // nanoGPT leaves what it learnt since its last evaluation.
                if self.settings.always_save_checkpoint && evaluated_at != Some(iter) && pace.iteration.is_some() {
                    self.save_and_tell(OnSaveError::Stop, tell)?;
                }
                return Ok(Ending::Done { kept: self.kept });
            }
            if stop.load(Ordering::Relaxed) {
                return self.stopped(&losses, tell);
            }
            if self.save_every.is_some_and(|every| saved.elapsed() >= every) && self.kept != Some(iter) {
                // What has forgotten most of it is no checkpoint.
                if losses.forgetting().is_none() {
                    self.save_and_tell(self.on_save_error, tell)?;
                }
                saved = Instant::now();
            }
            let start = Instant::now();
            let (loss, learning_rate, gradient_norm) = self.iterate(iter)?;
            self.state.iter_num += 1;
            self.state.val_loss = None;
            let time = start.elapsed();
            pace.stepped(time);
            losses.push(loss);
            if iter.is_multiple_of(self.settings.log_interval) {
                let (tokens_per_second, mfu, time_left) = pace.told(&self, iter);
                let step = Step { iter, loss, learning_rate, gradient_norm, time, tokens_per_second, mfu, time_left };
                tell(Event::Stepped(step));
            }
            if let Some(lost) = losses.diverged() {
                return Err(RunError::Forgot { iter, lost, kept: self.kept });
            }
        }
    }

    /// Saves what there is, unless it is saved or worth nothing.
    fn stopped(&mut self, losses: &Losses, tell: &mut dyn FnMut(Event)) -> Result<Ending, RunError> {
        if let Some(lost) = losses.forgetting() {
            tell(Event::NotSaved { iter: self.state.iter_num, why: self.worth_nothing(lost) });
            return Ok(Ending::NotSaved { kept: self.kept });
        }
        let iter = self.state.iter_num;
        if self.kept == Some(iter) {
            return Ok(Ending::Saved);
        }
        // It only evaluates, and learnt nothing.
        if self.settings.eval_only {
            return Ok(Ending::NotSaved { kept: self.kept });
        }
        match self.save()? {
            Ok(Written { bytes }) => tell(Event::Saved { iter, bytes }),
            // Whoever asks for the end gets it.
            Err(error) => {
                tell(Event::NotSaved { iter, why: why(&error) });
                return Ok(Ending::NotSaved { kept: self.kept });
            }
        }
        Ok(Ending::Saved)
    }

    /// Why no checkpoint is made of this.
    fn worth_nothing(&self, Lost { best, limit }: Lost) -> String {
        let kept = self.kept.map_or_else(String::new, |iter| format!("; {}", text::try_last_checkpoint(iter)));
        format!("{}{kept}", text::save_forgot(decimal(limit), decimal(best)))
    }

    /// Tells what the model knows, and saves it; breaks off where it is to stop.
    fn evaluate(
        &mut self,
        losses: &Losses,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Event),
    ) -> Result<ControlFlow<()>, RunError> {
        let iter = self.state.iter_num;
        let mut told = Instant::now();
        let Some(train_loss) = self.mean_loss(Split::Train, stop, &mut told, tell)? else {
            return Ok(ControlFlow::Break(()));
        };
        let Some(val_loss) = self.mean_loss(Split::Val, stop, &mut told, tell)? else {
            return Ok(ControlFlow::Break(()));
        };
        let learning_rate = self.settings.schedule.at(iter);
        tell(Event::Evaluated { iter, train_loss, val_loss, learning_rate });
        // What gives no loss is not written over a checkpoint that does.
        self.numbers([(text::DIVERGED_TRAIN_LOSS, train_loss), (text::DIVERGED_VAL_LOSS, val_loss)])?;
        self.state.val_loss = Some(val_loss);
        let improves = self.state.best_val_loss.is_none_or(|best| val_loss < best);
        if improves {
            self.state.best_val_loss = Some(val_loss);
        }
        if iter == 0 || !(improves || self.settings.always_save_checkpoint) {
            return Ok(ControlFlow::Continue(()));
        }
        // Nor what has forgotten most of it.
        if let Some(lost) = losses.forgot(train_loss) {
            tell(Event::NotSaved { iter, why: self.worth_nothing(lost) });
            return Ok(ControlFlow::Continue(()));
        }
        self.save_and_tell(self.on_save_error, tell)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Saves, and tells whether that worked.
    fn save_and_tell(&mut self, on_error: OnSaveError, tell: &mut dyn FnMut(Event)) -> Result<(), RunError> {
        let iter = self.state.iter_num;
        match self.save()? {
            Ok(Written { bytes }) => tell(Event::Saved { iter, bytes }),
            Err(error) if on_error == OnSaveError::Stop => return Err(RunError::Checkpoint { error, iter }),
            Err(error) => tell(Event::NotSaved { iter, why: why(&error) }),
        }
        Ok(())
    }

    /// nanoGPT's `estimate_loss` of one half of the data; none where it is to stop before all of it is read.
    fn mean_loss(
        &mut self,
        split: Split,
        stop: &AtomicBool,
        told: &mut Instant,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<f64>, RunError> {
        let settings = self.settings;
        let which = if split == Split::Train { 0 } else { 1 };
        let mut sum = 0.0;
        for i in 0..settings.eval_iters {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if told.elapsed() >= EVALUATING_EVERY {
                *told = Instant::now();
                let (done, of) = (which * settings.eval_iters + i, 2 * settings.eval_iters);
                tell(Event::Evaluating { iter: self.state.iter_num, done, of });
            }
            let batch = (self.state.iter_num * 2 + which) * settings.eval_iters + i;
            self.fetch(split, streams::EVAL_BATCHES, batch)?;
            sum += self.trainer.loss().map_err(|error| self.failed(error))?;
        }
        Ok(Some(sum / settings.eval_iters as f64))
    }

    /// Reads batch number `batch` of a stream.
    fn fetch(&mut self, split: Split, stream: u64, batch: u64) -> Result<(), DatasetError> {
        let block_size = usize::try_from(self.gpt.block_size()).unwrap_or(usize::MAX);
        let n_offsets = self.dataset.n_offsets(split, block_size)?;
        let b = self.settings.batch_size;
        let mut stream = Stream::new(self.settings.seed, stream).at(batch.wrapping_mul(b));
        let offsets: Vec<u64> = (0..b).map(|_| stream.below(n_offsets)).collect();
        let (x, y) = self.trainer.batch_mut();
        self.dataset.read_batch(split, &offsets, block_size, x, y)
    }

    fn failed(&self, error: TrainingError) -> RunError {
        RunError::Training { error: Box::new(error), iter: self.state.iter_num, kept: self.kept }
    }

    /// One update: its loss, what it learnt with, and the gradients' norm. Where one is no number nothing is updated.
    fn iterate(&mut self, iter: u64) -> Result<(f64, f64, f64), RunError> {
        let settings = self.settings;
        let micro_steps = settings.gradient_accumulation_steps;
        let mut loss = 0.0;
        for micro_step in 0..micro_steps {
            let batch = iter.wrapping_mul(micro_steps).wrapping_add(micro_step);
            self.fetch(Split::Train, streams::TRAIN_BATCHES, batch)?;
            let key = split_mix(split_mix(settings.seed).wrapping_add(streams::DROPOUT)).wrapping_add(batch);
            #[expect(clippy::cast_possible_truncation, reason = "a share between 0 and 1")]
            let loss_scale = (1.0 / micro_steps as f64) as f32;
            let dropout = DropoutPass { p: self.gpt.dropout(), key: split_mix(key) };
            let micro = Micro { first: micro_step == 0, loss_scale, dropout };
            loss += self.trainer.micro_step(micro).map_err(|error| self.failed(error))? / micro_steps as f64;
        }
        let norm = self.trainer.gradient_norm().map_err(|error| self.failed(error))?;
        self.numbers([(text::DIVERGED_LOSS, loss), (text::DIVERGED_NORM, norm)])?;
        let learning_rate = settings.schedule.at(iter);
        self.state.optimizer_step += 1;
        let adamw = AdamW {
            learning_rate,
            beta1: settings.beta1,
            beta2: settings.beta2,
            eps: AdamW::EPS,
            weight_decay: settings.weight_decay,
            step: self.state.optimizer_step,
            gradient_scale: clip_scale(norm, settings.grad_clip),
        };
        self.trainer.update(adamw).map_err(|error| self.failed(error))?;
        Ok((loss, learning_rate, norm))
    }

    /// Writes a checkpoint; inside, what the disk says. Outside is for whom there is nothing to be written of.
    fn save(&mut self) -> Result<Result<Written, CheckpointError>, RunError> {
        let batches = self.state.iter_num.wrapping_mul(self.settings.gradient_accumulation_steps);
        let train = Stream::new(self.settings.seed, streams::TRAIN_BATCHES);
        let train = train.at(batches.wrapping_mul(self.settings.batch_size));
        self.state.streams = [(TRAIN_BATCHES.to_owned(), train.into())].into();
        self.state.data = checkpoint::data(&self.settings.dataset, batches);
        let meta = Meta {
            gpt: self.gpt,
            config: self.config.clone(),
            state: self.state.clone(),
            tokenizer: self.tokenizer.clone(),
        };
        let params = self.trainer.params().map_err(|error| self.failed(error))?;
        let Moments { exp_avg, exp_avg_sq } = self.trainer.moments().map_err(|error| self.failed(error))?;
        // An update can overflow after a loss that was a number.
        if let Some(&value) = params.iter().find(|value| !value.is_finite()) {
            let (iter, what) = (self.state.iter_num, text::DIVERGED_WEIGHT);
            return Err(RunError::Diverged { iter, what, value: value.into(), kept: self.kept });
        }
        let saved = self.store.save(&meta, Tensors { params: &params, exp_avg: &exp_avg, exp_avg_sq: &exp_avg_sq });
        if saved.is_ok() {
            self.kept = Some(self.state.iter_num);
        }
        Ok(saved)
    }

    /// Says which value is no number.
    fn numbers(&self, values: [(Key, f64); 2]) -> Result<(), RunError> {
        let (iter, kept) = (self.state.iter_num, self.kept);
        let broken = values.into_iter().find(|(_, value)| !value.is_finite());
        broken.map_or(Ok(()), |(what, value)| Err(RunError::Diverged { iter, what, value, kept }))
    }
}
