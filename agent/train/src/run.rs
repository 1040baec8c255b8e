//! nanoGPT's training loop over a trainer, a data set and a checkpoint directory.
//!
//! Random draws of a run depend only on its seed and the iteration, so a resumed run repeats the draws of an
//! uninterrupted one. The run reports its progress as [`Event`]s and stops when its stop flag is set. Printing the
//! events and setting the flag are the caller's task.

mod error;

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use headroom_kernels::{
    reference::{
        adamw_update::AdamW,
        global_norm::clip_scale,
        gpt::{DropoutPass, Micro},
    },
    rng::{Stream, split_mix},
    training::{AdamMoments, Training, TrainingError},
    weights::Tokenizer,
};
use headroom_planner::gpt::GptConfig;
use headroom_text::{self as text, Key, Text};
use serde_json::{Map, Value as Json};

use super::{
    checkpoint::{self, CheckpointError, Meta, SavedCheckpoint, State, Store, TRAIN_BATCHES, Tensors},
    divergence::{DivergenceLimit, Losses},
    out_of_memory::joined,
    settings::RunSettings,
    throughput::{PeakRate, Throughput},
};
use crate::data::dataset::{Dataset, DatasetError, Split};
pub use error::RunError;
use error::decimal;

/// Prefix of the line that reports a failed save; the iteration, a colon and the cause follow.
pub const NOT_SAVED: &str = "checkpoint not saved at iteration ";

/// Random streams of a seed, by purpose. The parameters' own streams have small numbers.
mod streams {
    pub const TRAIN_BATCHES: u64 = 1 << 32;
    pub const EVAL_BATCHES: u64 = 2 << 32;
    pub const DROPOUT: u64 = 3 << 32;
}

/// Interval between progress reports of a long evaluation. One per batch would be too many, and silence looks like a
/// hang.
const EVALUATING_EVERY: Duration = Duration::from_secs(5);

/// A progress report of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A long evaluation is in progress.
    Evaluating {
        /// Completed iterations.
        iter: u64,
        /// Evaluated batches.
        done: u64,
        /// Batches of the whole evaluation.
        of: u64,
    },
    /// An evaluation is complete.
    Evaluated {
        /// Completed iterations.
        iter: u64,
        /// Mean loss over batches of the training split.
        train_loss: f64,
        /// Mean loss over batches of the validation split.
        val_loss: f64,
        /// Learning rate of the next iteration.
        learning_rate: f64,
    },
    /// An iteration whose figures are due by `log_interval`.
    Stepped(Step),
    /// A checkpoint was written.
    Saved {
        /// Completed iterations.
        iter: u64,
        /// File length in bytes.
        bytes: u64,
    },
    /// A checkpoint could not be written. The run continues, unless it was asked to stop.
    NotSaved {
        /// Completed iterations.
        iter: u64,
        /// Cause and hint.
        why: Text,
    },
}

/// Figures of one iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Iteration number, from 0.
    pub iter: u64,
    /// Mean loss of the micro-batches, before the update.
    pub loss: f64,
    /// Learning rate of the update.
    pub learning_rate: f64,
    /// Norm of the gradients before clipping.
    pub gradient_norm: f64,
    /// Duration of the iteration.
    pub time: Duration,
    /// Throughput since the previous reported iteration.
    pub tokens_per_second: f64,
    /// Model FLOPs utilisation: achieved rate over the peak rate of the threads or the GPU. `None` if the peak is
    /// unknown.
    pub mfu: Option<f64>,
    /// Estimated time to the end of the run at this pace. `None` if no end is foreseeable.
    pub time_left: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The run completed.
    Done {
        /// Iteration of the last checkpoint. `None` if nothing was saved.
        kept: Option<u64>,
    },
    /// The run was asked to stop, and saved a checkpoint.
    Saved,
    /// The run was asked to stop and kept its previous checkpoint. Either the model had lost most of its progress, or
    /// the write failed, which was reported.
    NotSaved {
        /// Iteration of the previous checkpoint. `None` if nothing was saved.
        kept: Option<u64>,
    },
}

/// Reaction to a checkpoint that cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSaveError {
    /// Continue: the previous checkpoint is intact, and disk space may become free.
    #[default]
    Continue,
    /// Stop the run.
    Stop,
}

/// Cause and hint of a failed save.
fn why(error: &CheckpointError) -> Text {
    joined([error.text()].into_iter().chain(error.hint()))
}

/// A run that is ready to start.
pub struct Run<'a> {
    /// Settings of the loop.
    pub settings: &'a RunSettings,
    /// Config keys, for checkpoints.
    pub config: Map<String, Json>,
    /// Shape of the model.
    pub gpt: GptConfig,
    /// Trainer that holds the model.
    pub trainer: &'a mut dyn Training,
    /// Training data.
    pub dataset: &'a Dataset,
    /// Tokenizer of the data set.
    pub tokenizer: Option<Tokenizer>,
    /// Store for checkpoints.
    pub store: &'a Store,
    /// Progress so far.
    pub state: State,
    /// Iteration of the last checkpoint: the resumed one, or the one saved since.
    pub kept: Option<u64>,
    /// Peak rate of the threads or the GPU.
    pub peak: PeakRate,
    /// Reaction to a checkpoint that cannot be written.
    pub on_save_error: OnSaveError,
    /// Longest time between two checkpoints. `None` if only evaluations save.
    pub save_every: Option<Duration>,
}

impl Run<'_> {
    /// Runs to the end, or until `stop` is set. `tell` receives every event.
    ///
    /// # Errors
    /// The data cannot be read, a checkpoint cannot be written, or the run has diverged.
    pub fn run(mut self, stop: &AtomicBool, tell: &mut dyn FnMut(Event)) -> Result<RunOutcome, RunError> {
        let mut pace = Throughput::new(&self.gpt, self.settings, self.peak);
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
                    return Ok(RunOutcome::Done { kept: self.kept });
                }
            }
            if iter > self.settings.max_iters {
                if let Some(lost) = losses.forgetting() {
                    return Err(RunError::Forgot { iter, lost, kept: self.kept });
                }
                // nanoGPT would discard the progress since its last evaluation.
                if self.settings.always_save_checkpoint && evaluated_at != Some(iter) && pace.iteration.is_some() {
                    self.save_and_tell(OnSaveError::Stop, tell)?;
                }
                return Ok(RunOutcome::Done { kept: self.kept });
            }
            if stop.load(Ordering::Relaxed) {
                return self.stopped(&losses, tell);
            }
            if self.save_every.is_some_and(|every| saved.elapsed() >= every) && self.kept != Some(iter) {
                // A model that lost most of its progress is not saved.
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
                let (tokens_per_second, mfu, time_left) = pace.progress(iter);
                let step = Step { iter, loss, learning_rate, gradient_norm, time, tokens_per_second, mfu, time_left };
                tell(Event::Stepped(step));
            }
            if let Some(lost) = losses.diverged() {
                return Err(RunError::Forgot { iter, lost, kept: self.kept });
            }
        }
    }

    /// Saves the current state, unless it is already saved or has lost most of its progress.
    fn stopped(&mut self, losses: &Losses, tell: &mut dyn FnMut(Event)) -> Result<RunOutcome, RunError> {
        if let Some(lost) = losses.forgetting() {
            tell(Event::NotSaved { iter: self.state.iter_num, why: self.worth_nothing(lost) });
            return Ok(RunOutcome::NotSaved { kept: self.kept });
        }
        let iter = self.state.iter_num;
        if self.kept == Some(iter) {
            return Ok(RunOutcome::Saved);
        }
        // The run only evaluates, so there is no progress to save.
        if self.settings.eval_only {
            return Ok(RunOutcome::NotSaved { kept: self.kept });
        }
        match self.save()? {
            Ok(SavedCheckpoint { bytes }) => tell(Event::Saved { iter, bytes }),
            // A failed save does not prevent the requested stop.
            Err(error) => {
                tell(Event::NotSaved { iter, why: why(&error) });
                return Ok(RunOutcome::NotSaved { kept: self.kept });
            }
        }
        Ok(RunOutcome::Saved)
    }

    /// Reason for not saving a model that lost most of its progress.
    fn worth_nothing(&self, DivergenceLimit { best, limit }: DivergenceLimit) -> Text {
        let forgot = text::save_forgot(decimal(limit), decimal(best));
        joined([forgot].into_iter().chain(self.kept.map(text::try_last_checkpoint)))
    }

    /// Evaluates the model, reports the losses and saves a checkpoint. Breaks if `stop` is set.
    fn evaluate(
        &mut self,
        losses: &Losses,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(Event),
    ) -> Result<ControlFlow<()>, RunError> {
        let iter = self.state.iter_num;
        let mut last_report = Instant::now();
        let Some(train_loss) = self.mean_loss(Split::Train, stop, &mut last_report, tell)? else {
            return Ok(ControlFlow::Break(()));
        };
        let Some(val_loss) = self.mean_loss(Split::Val, stop, &mut last_report, tell)? else {
            return Ok(ControlFlow::Break(()));
        };
        let learning_rate = self.settings.schedule.at(iter);
        tell(Event::Evaluated { iter, train_loss, val_loss, learning_rate });
        // A model without a finite loss does not replace a checkpoint that has one.
        self.numbers([(text::DIVERGED_TRAIN_LOSS, train_loss), (text::DIVERGED_VAL_LOSS, val_loss)])?;
        self.state.val_loss = Some(val_loss);
        let improves = self.state.best_val_loss.is_none_or(|best| val_loss < best);
        if improves {
            self.state.best_val_loss = Some(val_loss);
        }
        if iter == 0 || !(improves || self.settings.always_save_checkpoint) {
            return Ok(ControlFlow::Continue(()));
        }
        // Nor does a model that lost most of its progress.
        if let Some(lost) = losses.forgot(train_loss) {
            tell(Event::NotSaved { iter, why: self.worth_nothing(lost) });
            return Ok(ControlFlow::Continue(()));
        }
        self.save_and_tell(self.on_save_error, tell)?;
        Ok(ControlFlow::Continue(()))
    }

    /// Saves a checkpoint and reports the result.
    fn save_and_tell(&mut self, on_error: OnSaveError, tell: &mut dyn FnMut(Event)) -> Result<(), RunError> {
        let iter = self.state.iter_num;
        match self.save()? {
            Ok(SavedCheckpoint { bytes }) => tell(Event::Saved { iter, bytes }),
            Err(error) if on_error == OnSaveError::Stop => return Err(RunError::Checkpoint { error, iter }),
            Err(error) => tell(Event::NotSaved { iter, why: why(&error) }),
        }
        Ok(())
    }

    /// nanoGPT's `estimate_loss` for one split. `None` if `stop` is set before the last batch.
    fn mean_loss(
        &mut self,
        split: Split,
        stop: &AtomicBool,
        last_report: &mut Instant,
        tell: &mut dyn FnMut(Event),
    ) -> Result<Option<f64>, RunError> {
        let settings = self.settings;
        let which = if split == Split::Train { 0 } else { 1 };
        let mut sum = 0.0;
        for i in 0..settings.eval_iters {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if last_report.elapsed() >= EVALUATING_EVERY {
                *last_report = Instant::now();
                let (done, of) = (which * settings.eval_iters + i, 2 * settings.eval_iters);
                tell(Event::Evaluating { iter: self.state.iter_num, done, of });
            }
            let batch = (self.state.iter_num * 2 + which) * settings.eval_iters + i;
            self.fetch(split, streams::EVAL_BATCHES, batch)?;
            sum += self.trainer.loss().map_err(|error| self.failed(error))?;
        }
        Ok(Some(sum / settings.eval_iters as f64))
    }

    /// Reads batch number `batch` of a random stream.
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

    /// Performs one update. Returns its loss, learning rate and gradient norm. A value that is not finite prevents the
    /// update.
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

    /// Writes a checkpoint. The inner error means that the write failed. The outer one means that the trainer failed or
    /// that a value is not finite, so there is nothing to write.
    fn save(&mut self) -> Result<Result<SavedCheckpoint, CheckpointError>, RunError> {
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
        let AdamMoments { exp_avg, exp_avg_sq } = self.trainer.moments().map_err(|error| self.failed(error))?;
        // An update can overflow even if the loss before it was finite.
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

    /// Fails with the first value that is not finite.
    fn numbers(&self, values: [(Key, f64); 2]) -> Result<(), RunError> {
        let (iter, kept) = (self.state.iter_num, self.kept);
        let broken = values.into_iter().find(|(_, value)| !value.is_finite());
        broken.map_or(Ok(()), |(what, value)| Err(RunError::Diverged { iter, what, value, kept }))
    }
}
