//! `transformers.Trainer`'s loop.

use super::{
    Args,
    body::Inputs,
    causal_lm::CausalLm,
    optim::{Optim, clip_grad_norm},
};
use crate::{
    dtype::Dtype,
    memory::{context::GpuProperties, program::Phase},
    torch::{Event, Recorder, Recording, Script, Tensor, Torch, optim::GradScaler},
};

/// A batch on the GPU.
struct Batch {
    input_ids: Tensor,
    labels: Tensor,
    attention_mask: Option<Tensor>,
}

impl Batch {
    fn new(torch: &Torch, args: &Args) -> Self {
        let tokens = |name| torch.input(name, &[args.batch, args.length], Dtype::Int64);
        Self {
            input_ids: tokens("input ids"),
            labels: tokens("labels"),
            attention_mask: args.padding_mask.then(|| tokens("attention mask")),
        }
    }
}

/// `_get_num_items_in_batch`: the number of targets of all micro-batches.
fn num_items_in_batch(torch: &Torch, batches: &[Batch]) -> Tensor {
    let mut total = None;
    for batch in batches {
        let [t, b] = [0, 1].map(|n| batch.labels.layout().from_last(n));
        let count = |name, sizes: &[u64], dtype| torch.empty(name, sizes, dtype);
        let is_target = count("targets", &[b, t.saturating_sub(1)], Dtype::Bool);
        let sum = count("number of targets", &[], Dtype::Int64);
        drop(count("targets", &[b, t.saturating_sub(1)], Dtype::Int64));
        drop(is_target);
        let next = count("number of targets", &[], Dtype::Int64);
        drop(sum);
        total = Some(next);
    }
    total.unwrap_or_else(|| torch.empty("number of targets", &[], Dtype::Int64))
}

/// The training loop's variables.
struct Trainer<'a> {
    torch: &'a Torch,
    args: &'a Args,
    model: CausalLm,
    optimizer: Optim,
    /// `fp16`'s.
    scaler: Option<GradScaler>,
    tr_loss_step: Option<Tensor>,
    grad_norm: Option<Tensor>,
}

impl Trainer<'_> {
    /// The model's forward under `accelerate`: autocast, with outputs in float32.
    fn forward(&self, batch: &Batch, num_items: Option<&Tensor>) -> Tensor {
        let inputs = Inputs { ids: &batch.input_ids, mask: batch.attention_mask.as_ref() };
        let run = || self.model.forward(self.torch, inputs, &batch.labels, num_items);
        let Some(dtype) = self.args.autocast else { return run().1 };
        let (logits, loss) = self.torch.autocast(dtype, run);
        let _logits = {
            let _before = logits.clone();
            drop(logits);
            self.torch.cast(&_before, Dtype::Float32)
        };
        loss
    }

    fn training_step(&mut self, batch: &Batch, num_items: &Tensor, mark: &mut dyn FnMut(Mark)) -> Tensor {
        let mut loss = self.forward(batch, Some(num_items));
        mark(Mark::Forward);
        loss = self.torch.scale_in_place(&loss);
        let mut scaled = self.torch.scale(&loss);
        let unscaled = scaled.clone();
        if let Some(scaler) = &mut self.scaler {
            scaled = scaler.scale(self.torch, &unscaled);
        }
        let ones = self.torch.empty("gradient of the loss", &[], Dtype::Float32);
        self.torch.backward(&scaled, &ones);
        self.model.settings.free_input_gradient(self.torch);
        drop(ones);
        drop((scaled, unscaled));
        self.torch.end_graph();
        loss.detached()
    }

    /// `evaluation_loop`, which keeps the losses only.
    fn evaluate(&self) {
        let vector = |n| self.torch.empty("losses of the evaluation", &[n], Dtype::Float32);
        let (mut batch, mut all_losses) = (None, None);
        for at in 1..=self.args.evaluation_batches {
            let next = Batch::new(self.torch, self.args);
            let batch = batch.insert(next);
            let num_items = num_items_in_batch(self.torch, std::slice::from_ref(batch));
            let loss = self.torch.evaluation(|| self.forward(batch, Some(&num_items)));
            let mean = self.torch.empty("mean of the loss", &[], Dtype::Float32);
            drop(num_items);
            drop(loss);
            let losses = vector(self.args.batch);
            drop(mean);
            all_losses = Some(match all_losses.take() {
                None => losses,
                Some(_earlier) => vector(at * self.args.batch),
            });
        }
    }

    fn check_loss(&self) {
        let check = |dtype| self.torch.empty("check of the loss", &[], dtype);
        drop(check(Dtype::Bool));
        let magnitude = check(Dtype::Float32);
        let _is_infinite = check(Dtype::Bool);
        drop(magnitude);
    }
}

/// Whether the allocator's cache is emptied before a phase: by `accelerate` in `Accelerator.free_memory`, and by PEFT at the
/// end of `prepare_model_for_kbit_training`.
#[must_use]
pub fn empties_cache(args: &Args, phase: &str) -> bool {
    phase == "train_begin" || phase == "lora" && args.quantization.is_some()
}

/// The end of a part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// The forward of a micro-batch.
    Forward,
    /// A part with this name in the golden rows.
    End(&'static str),
}

/// Events of a run by phase, in order.
#[must_use]
pub fn run(args: &Args, gpu: GpuProperties, recorder: Recorder) -> Vec<(&'static str, Vec<Event>)> {
    let torch = &Torch::new(gpu, recorder);
    let mut marks = Vec::new();
    train(torch, args, usize::MAX, &mut |mark| {
        if let Mark::End(name) = mark {
            marks.push((name, torch.n_events()));
        }
    });
    let events = torch.take_events();
    let starts = std::iter::once(0).chain(marks.iter().map(|(_, end)| *end));
    marks.iter().zip(starts).map(|((name, end), start)| (*name, events[start..*end].to_vec())).collect()
}

/// The run by the planner's phases.
#[must_use]
pub fn record(args: &Args, gpu: GpuProperties, recorder: Recorder) -> Recording {
    let torch = &Torch::new(gpu, recorder);
    let mut script = Script::new(torch);
    // Whether the first forward, backward and step are over.
    let mut is_over = [false; 3];
    train(torch, args, ROUNDS, &mut |mark| {
        let mut first = |at: usize, phases: [Phase; 2]| phases[usize::from(std::mem::replace(&mut is_over[at], true))];
        let phase = match mark {
            Mark::Forward => first(0, [Phase::FirstForward, Phase::SteadyForward]),
            Mark::End("substep" | "backward") => first(1, [Phase::FirstBackward, Phase::SteadyBackward]),
            Mark::End("optimizer") => first(2, [Phase::FirstOptimizer, Phase::SteadyOptimizer]),
            // `zero_grad` and what follows.
            Mark::End("step_end" | "trained") => Phase::Rest,
            Mark::End("evaluate" | "evaluated") => Phase::LaterEval,
            Mark::End(_) => Phase::Init,
        };
        if matches!(mark, Mark::End(phase) if empties_cache(args, phase)) {
            script.empty_cache();
        }
        script.section(phase);
    });
    script.finish()
}

/// Micro-batches of a recorded step that run: the first, a later one, and one more. The rounds after them repeat.
const ROUNDS: usize = 3;

/// Runs `Trainer.train()` with at most `rounds` micro-batches of each step.
fn train(torch: &Torch, args: &Args, rounds: usize, mark: &mut dyn FnMut(Mark)) {
    let mut model = match args.quantization {
        None => {
            drop(torch.empty("seed", &[1], Dtype::Int64));
            mark(Mark::End("context"));
            CausalLm::new(torch, &args.config, args.weights)
        }
        Some(quantization) => CausalLm::load(torch, &args.config, args.weights, quantization),
    };
    mark(Mark::End("init"));
    if args.quantization.is_some() {
        model.prepare(torch);
        mark(Mark::End("prepared"));
    }
    if let Some(lora) = &args.lora {
        model.adapt(torch, lora);
        model.settings.inputs_require_grads = args.checkpointing.is_some();
        mark(Mark::End("lora"));
    }
    model.settings.checkpointing = args.checkpointing;
    let tr_loss = torch.empty("sum of losses", &[], Dtype::Float32);
    mark(Mark::End("train_begin"));
    let optimizer = Optim::new(args.optimizer);
    let scaler = (args.autocast == Some(Dtype::Float16)).then(GradScaler::default);
    let mut trainer = Trainer { torch, args, model, optimizer, scaler, tr_loss_step: None, grad_norm: None };
    let (mut batches, mut num_items) = (Vec::new(), None);
    for _ in 0..args.steps {
        let next: Vec<_> = (0..args.accumulation).map(|_| Batch::new(torch, args)).collect();
        let next_items = num_items_in_batch(torch, &next);
        drop(num_items.replace(next_items));
        drop(std::mem::replace(&mut batches, next));
        let Some(num_items) = &num_items else { continue };
        for (at, batch) in batches[..rounds.min(batches.len())].iter().enumerate() {
            let loss = trainer.training_step(batch, num_items, mark);
            trainer.tr_loss_step = Some(loss);
            trainer.check_loss();
            if at + 1 < rounds.min(batches.len()) {
                mark(Mark::End("substep"));
            }
        }
        trainer.grad_norm = None;
        let found_inf = trainer.scaler.is_some().then(|| GradScaler::unscale(torch, false));
        let parameters = trainer.model.parameters();
        trainer.grad_norm = Some(clip_grad_norm(torch, &parameters));
        mark(Mark::End("backward"));
        trainer.optimizer.step(torch, &parameters, &trainer.model.embeddings(), found_inf.as_ref());
        drop(found_inf);
        mark(Mark::End("optimizer"));
        torch.zero_grad(parameters);
        mark(Mark::End("step_end"));
    }
    trainer.grad_norm = None;
    drop((num_items, batches));
    trainer.tr_loss_step = None;
    mark(Mark::End("trained"));
    if args.evaluation_batches > 0 {
        trainer.evaluate();
        mark(Mark::End("evaluate"));
        mark(Mark::End("evaluated"));
    }
    drop(tr_loss);
}
