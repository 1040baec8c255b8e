//! A run: nanoGPT's loop over a trainer, a data set and a folder for checkpoints.
//!
//! What a run draws at random is a function of its seed and of the iteration, so that one that goes on from a checkpoint
//! draws what it would have drawn. It tells what happens by [`Event`]s and stops where it is asked to; who reads them,
//! and how a person asks, is not known here.

use std::{
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
use serde_json::{Map, Value as Json, json};
use thiserror::Error;

use super::{
    checkpoint::{CheckpointError, Meta, State, Store, Tensors, Written},
    settings::RunSettings,
};
use crate::data::dataset::{Dataset, DatasetError, Split};

/// The seed's streams, by what they are for. The parameters' own have small numbers.
mod streams {
    pub const TRAIN_BATCHES: u64 = 1 << 32;
    pub const EVAL_BATCHES: u64 = 2 << 32;
    pub const DROPOUT: u64 = 3 << 32;
}

/// What happens in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
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
    /// A checkpoint could not be written, and the run goes on.
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
    Done,
    /// It was asked to stop, and saved what it had.
    Stopped,
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
        error: TrainingError,
        /// Iterations that are done.
        iter: u64,
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
    },
}

impl RunError {
    /// What to try.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Data(error) => error.hint(),
            Self::Checkpoint { error, .. } => error.hint(),
            Self::Training { .. } => Some(text::TRY_RESUME.to_string()),
            Self::Diverged { .. } => Some(format!("{}; {}", text::TRY_SLOWER, text::TRY_LAST_CHECKPOINT)),
        }
    }
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
    /// Operations a second that the threads or the card can; none where that is not known.
    pub peak_flops: Option<f64>,
    /// What to do where a checkpoint cannot be written.
    pub on_save_error: OnSaveError,
}

impl Run<'_> {
    /// Runs to the end, or until `stop` is set. `tell` gets every event.
    ///
    /// # Errors
    /// The data cannot be read, a checkpoint cannot be written, or the loss is no number any more.
    pub fn run(mut self, stop: &AtomicBool, tell: &mut dyn FnMut(Event)) -> Result<Ending, RunError> {
        let mut pace = Pace::new(&self);
        let mut evaluated_at = None;
        loop {
            let iter = self.state.iter_num;
            if iter.is_multiple_of(self.settings.eval_interval) {
                let start = Instant::now();
                self.evaluate(tell)?;
                evaluated_at = Some(iter);
                pace.evaluated(start.elapsed());
                if iter == 0 && self.settings.eval_only {
                    return Ok(Ending::Done);
                }
            }
            if iter > self.settings.max_iters {
                // nanoGPT leaves what it learnt since its last evaluation.
                if self.settings.always_save_checkpoint && evaluated_at != Some(iter) && pace.iteration.is_some() {
                    self.save_or_fail(tell)?;
                }
                return Ok(Ending::Done);
            }
            if stop.load(Ordering::Relaxed) {
                self.save_or_fail(tell)?;
                return Ok(Ending::Stopped);
            }
            let start = Instant::now();
            let (loss, learning_rate, gradient_norm) = self.iterate(iter)?;
            self.state.iter_num += 1;
            let time = start.elapsed();
            pace.stepped(time);
            if iter.is_multiple_of(self.settings.log_interval) {
                let (tokens_per_second, mfu, time_left) = pace.told(&self, iter);
                let step = Step { iter, loss, learning_rate, gradient_norm, time, tokens_per_second, mfu, time_left };
                tell(Event::Stepped(step));
            }
        }
    }

    fn evaluate(&mut self, tell: &mut dyn FnMut(Event)) -> Result<(), RunError> {
        let iter = self.state.iter_num;
        let train_loss = self.mean_loss(Split::Train)?;
        let val_loss = self.mean_loss(Split::Val)?;
        let learning_rate = self.settings.schedule.at(iter);
        tell(Event::Evaluated { iter, train_loss, val_loss, learning_rate });
        // What gives no loss is not written over a checkpoint that does.
        numbers(iter, [(text::DIVERGED_TRAIN_LOSS, train_loss), (text::DIVERGED_VAL_LOSS, val_loss)])?;
        let improves = self.state.best_val_loss.is_none_or(|best| val_loss < best);
        if improves {
            self.state.best_val_loss = Some(val_loss);
        }
        if iter == 0 || !(improves || self.settings.always_save_checkpoint) {
            return Ok(());
        }
        match self.save()? {
            Ok(Written { bytes }) => tell(Event::Saved { iter, bytes }),
            Err(error) if self.on_save_error == OnSaveError::Stop => return Err(RunError::Checkpoint { error, iter }),
            Err(error) => {
                let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
                tell(Event::NotSaved { iter, why: format!("{error}{hint}") });
            }
        }
        Ok(())
    }

    /// nanoGPT's `estimate_loss` of one half of the data.
    fn mean_loss(&mut self, split: Split) -> Result<f64, RunError> {
        let settings = self.settings;
        let which = if split == Split::Train { 0 } else { 1 };
        let mut sum = 0.0;
        for batch in 0..settings.eval_iters {
            let batch = (self.state.iter_num * 2 + which) * settings.eval_iters + batch;
            self.fetch(split, streams::EVAL_BATCHES, batch)?;
            sum += self.trainer.loss().map_err(|error| self.failed(error))?;
        }
        Ok(sum / settings.eval_iters as f64)
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
        RunError::Training { error, iter: self.state.iter_num }
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
        numbers(iter, [(text::DIVERGED_LOSS, loss), (text::DIVERGED_NORM, norm)])?;
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

    fn save_or_fail(&mut self, tell: &mut dyn FnMut(Event)) -> Result<(), RunError> {
        let iter = self.state.iter_num;
        let Written { bytes } = self.save()?.map_err(|error| RunError::Checkpoint { error, iter })?;
        tell(Event::Saved { iter, bytes });
        Ok(())
    }

    /// Writes a checkpoint; inside, what the disk says. Outside is for whom there is nothing to be written of.
    fn save(&mut self) -> Result<Result<Written, CheckpointError>, RunError> {
        let batches = self.state.iter_num.wrapping_mul(self.settings.gradient_accumulation_steps);
        let train = Stream::new(self.settings.seed, streams::TRAIN_BATCHES);
        let train = train.at(batches.wrapping_mul(self.settings.batch_size));
        self.state.streams = [("train_batches".to_owned(), train.into())].into();
        self.state.data = json!({ "dataset": self.settings.dataset, "batches": batches });
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
            return Err(RunError::Diverged { iter, what, value: value.into() });
        }
        Ok(self.store.save(&meta, Tensors { params: &params, exp_avg: &exp_avg, exp_avg_sq: &exp_avg_sq }))
    }
}

/// Says which value is no number.
fn numbers(iter: u64, values: [(Key, f64); 2]) -> Result<(), RunError> {
    let broken = values.into_iter().find(|(_, value)| !value.is_finite());
    broken.map_or(Ok(()), |(what, value)| Err(RunError::Diverged { iter, what, value }))
}

/// How fast a run goes.
struct Pace {
    /// A moving mean over iterations; none before the first.
    iteration: Option<f64>,
    evaluation_seconds: f64,
    /// Since the last iteration told.
    seconds: f64,
    iterations: u64,
    operations_a_token: f64,
}

impl Pace {
    fn new(run: &Run<'_>) -> Self {
        let shape = run.gpt.shape();
        let [l, c, t] = [shape.n_layer, shape.n_embd, shape.block_size].map(|n| n as f64);
        let positions = shape.block_size.saturating_mul(shape.n_embd);
        let weights = run.gpt.n_parameters().unwrap_or(u64::MAX).saturating_sub(positions) as f64;
        // nanoGPT's estimate_mfu, after arXiv:2204.02311, appendix B.
        let operations_a_token = 6.0 * weights + 12.0 * l * c * t;
        Self { iteration: None, evaluation_seconds: 0.0, seconds: 0.0, iterations: 0, operations_a_token }
    }

    fn evaluated(&mut self, time: Duration) {
        self.evaluation_seconds = time.as_secs_f64();
    }

    fn stepped(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.seconds += seconds;
        self.iterations += 1;
        self.iteration = Some(self.iteration.map_or(seconds, |mean| 0.95 * mean + 0.05 * seconds));
    }

    /// Tokens a second, the share of what the threads or the card can, and what is left; counted anew from here.
    fn told(&mut self, run: &Run<'_>, iter: u64) -> (f64, Option<f64>, Duration) {
        let settings = run.settings;
        let tokens = settings.batch_size * settings.gradient_accumulation_steps * run.gpt.block_size();
        let tokens_per_second = (tokens * self.iterations) as f64 / self.seconds.max(1e-9);
        let left = settings.max_iters.saturating_sub(iter);
        let evaluations = settings.max_iters / settings.eval_interval - iter / settings.eval_interval;
        let seconds = self.iteration.unwrap_or_default() * left as f64 + self.evaluation_seconds * evaluations as f64;
        (self.seconds, self.iterations) = (0.0, 0);
        let mfu = run.peak_flops.map(|peak| tokens_per_second * self.operations_a_token / peak);
        (tokens_per_second, mfu, Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}
