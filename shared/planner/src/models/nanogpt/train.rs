//! nanoGPT's train.py.

use super::Gpt;
use crate::{
    dtype::Dtype,
    gpt::GptConfig,
    memory::context::GpuProperties,
    torch::{
        Event, Recorder, Tensor, Torch,
        optim::{GradScaler, Optim},
    },
    train_config::{Attention, TrainConfig},
};

/// Rounds of a run; fewer than the config's show the same events.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Batches of each evaluation.
    pub eval: u64,
    /// Micro-steps of each iteration.
    pub micro_steps: u64,
}

struct Loop<'a> {
    torch: &'a Torch,
    config: &'a GptConfig,
    train: &'a TrainConfig,
    model: &'a Gpt,
    rounds: Rounds,
}

impl Loop<'_> {
    fn get_batch(&self, batch_size: u64) -> (Tensor, Tensor) {
        let batch = |name| self.torch.empty(name, &[batch_size, self.config.block_size()], Dtype::Int64);
        (batch("X"), batch("Y"))
    }

    fn estimate_loss(&self) {
        let mut batch = None;
        let (mut logits, mut loss) = (None, None);
        self.torch.no_grad(|| {
            for _ in 0..self.rounds.eval {
                let (x, y) = batch.insert(self.get_batch(self.train.eval_batch()));
                self.torch.autocast(self.train.dtype, || {
                    let (new_logits, new_loss) = self.model.forward(self.torch, x, y, false);
                    (logits, loss) = (new_logits, Some(new_loss));
                });
                if self.train.del_eval_logits {
                    logits = None;
                }
            }
        });
        drop((batch, logits, loss));
    }

    fn iterations(&self, mut optimizer: Optim) -> Vec<Event> {
        let (torch, train) = (self.torch, self.train);
        let mut scaler = (train.dtype == Dtype::Float16).then(GradScaler::default);
        let mut batch = self.get_batch(train.batch_size);
        let (mut logits, mut loss) = (None, None);
        for iteration in 0..n_iterations(train) {
            if train.eval_iters > 0 && (iteration == 0 || evaluates_at(train, iteration)) {
                self.estimate_loss();
            }
            if iteration == 0 && train.eval_only {
                break;
            }
            for _ in 0..self.rounds.micro_steps {
                torch.autocast(train.dtype, || {
                    let (new_logits, new_loss) = self.model.forward(torch, &batch.0, &batch.1, true);
                    (logits, loss) = (new_logits, Some(new_loss));
                    loss = loss.take().map(|loss| torch.scale(&loss));
                });
                let Some(loss) = &loss else { return Vec::new() };
                batch = self.get_batch(train.batch_size);
                let scaled = scaler.as_mut().map(|scaler| scaler.scale(torch, loss));
                let ones = torch.empty("gradient of the loss", &[], Dtype::Float32);
                torch.backward(scaled.as_ref().unwrap_or(loss), &ones);
                drop((ones, scaled));
                if train.del_train_logits {
                    logits = None;
                }
            }
            optimizer.step(torch, scaler.as_ref(), train.clips_gradients);
            torch.zero_grad(self.model.parameters());
        }
        torch.take_events()
    }
}

/// Iterations until all events have appeared.
fn n_iterations(train: &TrainConfig) -> u64 {
    match train.max_iters {
        0 => 1,
        _ if evaluates_at(train, 2) => 3,
        _ => 2,
    }
}

/// Whether the run evaluates before an iteration after the first: before the second or the third, if at all.
fn evaluates_at(train: &TrainConfig, iteration: u64) -> bool {
    train.eval_iters > 0 && train.eval_interval <= train.max_iters && iteration == train.eval_interval.min(2)
}

/// Events of a run: the model, the evaluation, and iterations until they repeat.
#[must_use]
pub fn run(
    config: &GptConfig,
    train: &TrainConfig,
    gpu: GpuProperties,
    recorder: Recorder,
    rounds: Rounds,
) -> Vec<Event> {
    let torch = &Torch::new(gpu, recorder);
    // A resumed run never releases the checkpoint.
    let state_dict = train.resumes.then(|| Gpt::new(torch, config, Attention::Flash, train));
    let resumed = state_dict.as_ref().map(|checkpoint| {
        let mut optimizer = Optim::new(train.optimizer, checkpoint.parameters());
        optimizer.allocate_state(torch);
        optimizer
    });
    let model = &Gpt::new(torch, config, train.attention, train);
    let n: u64 = model.parameters().iter().map(|parameter| parameter.layout().elements()).sum();
    let _buckets = (train.world_size > 1).then(|| torch.empty("DDP gradient buckets", &[n], Dtype::Float32));
    let optimizer = resumed.unwrap_or_else(|| Optim::new(train.optimizer, model.parameters()));
    Loop { torch, config, train, model, rounds }.iterations(optimizer)
}
