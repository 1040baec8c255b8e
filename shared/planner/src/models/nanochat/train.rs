//! nanochat's `scripts.base_train`.

use super::{Args, Gpt, optim::MuonAdamW};
use crate::{
    dtype::Dtype,
    memory::{context::GpuProperties, program::Phase},
    torch::{Recorder, Recording, Script, Tensor, Torch},
};

/// Lengths of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Batches of each evaluation; 0 without evaluation.
    pub eval_steps: u64,
    /// Micro-steps of each step.
    pub grad_accum_steps: u64,
    /// Steps.
    pub num_iterations: u64,
    /// Steps between evaluations.
    pub eval_every: u64,
}

/// The buffer of a data loader, with inputs and targets.
fn loader(torch: &Torch, args: &Args) -> [Tensor; 2] {
    let tokens = args.device_batch_size * args.max_seq_len;
    let buffer = torch.input("batch", &[2 * tokens], Dtype::Int64);
    [(); 2].map(|()| {
        let half = torch.slice(&buffer, 0, tokens);
        torch.reshape(&half, &[args.device_batch_size, args.max_seq_len])
    })
}

/// One batch of `evaluate_bpb`: the loss and the bytes of each token, which the next batch replaces.
fn evaluate_batch(torch: &Torch, model: &Gpt, [x, y]: &[Tensor; 2], held: &mut [Option<Tensor>; 2]) {
    let _module = torch.enter("evaluate_bpb");
    let tokens = y.layout().elements();
    let vector = |name, dtype| torch.empty(name, &[tokens], dtype);
    let scalar = |name, dtype| torch.empty(name, &[], dtype);
    held[0] = Some(model.forward(torch, x, y, false));
    let mut condition = vector("y as int32", Dtype::Int32);
    condition = {
        let _before = condition;
        vector("y < 0", Dtype::Bool)
    };
    condition = {
        let _before = condition;
        scalar("any", Dtype::Bool)
    };
    drop(condition);
    held[1] = Some(vector("num_bytes2d", Dtype::Int32));
    let counted = vector("num_bytes2d > 0", Dtype::Bool);
    let product = vector("product", Dtype::Float32);
    drop(counted);
    let sum = scalar("sum", Dtype::Float32);
    drop((product, sum));
    let sum = scalar("sum", Dtype::Int64);
    drop((vector("num_bytes2d as int64", Dtype::Int64), sum));
}

/// A script's phases of an evaluation: the first batch and the others.
const EVALUATIONS: [[Phase; 2]; 2] = [[Phase::EvalFirst, Phase::Eval], [Phase::LaterEvalFirst, Phase::LaterEval]];

struct Loop<'a> {
    torch: &'a Torch,
    lengths: Lengths,
    model: Gpt,
    batch: [Tensor; 2],
    val_batch: [Tensor; 2],
    /// `loss` and `train_loss`.
    loss: [Option<Tensor>; 2],
}

impl Loop<'_> {
    fn evaluate(&self, script: &mut Script<'_>, phases: [Phase; 2]) {
        if self.lengths.eval_steps > 0 {
            self.evaluate_bpb(script, phases);
            script.section(phases[1]);
        }
    }

    fn evaluate_bpb(&self, script: &mut Script<'_>, [first, others]: [Phase; 2]) {
        let torch = self.torch;
        let _total_nats = torch.empty("total_nats", &[], Dtype::Float32);
        let _total_bytes = torch.empty("total_bytes", &[], Dtype::Int64);
        let mut held = [None, None];
        torch.no_grad(|| {
            evaluate_batch(torch, &self.model, &self.val_batch, &mut held);
            script.section(first);
            script.repeat(self.lengths.eval_steps - 1, |script| {
                evaluate_batch(torch, &self.model, &self.val_batch, &mut held);
                script.section(others);
            });
        });
    }

    fn micro_step(&mut self, script: &mut Script<'_>, [forward, backward]: [Phase; 2]) {
        let (torch, [x, y]) = (self.torch, &self.batch);
        self.loss[0] = Some(self.model.forward(torch, x, y, true));
        self.loss[1] = self.loss[0].clone();
        self.loss[0] = self.loss[0].take().map(|loss| torch.scale(&loss));
        script.section(forward);
        if let Some(loss) = &self.loss[0] {
            torch.backward(loss, &torch.empty("gradient of the loss", &[], Dtype::Float32));
        }
        script.section(backward);
    }

    /// A step, with its micro-steps.
    fn step(&mut self, script: &mut Script<'_>, optimizer: &mut MuonAdamW, is_first: bool) {
        const FIRST: [Phase; 2] = [Phase::FirstForward, Phase::FirstBackward];
        const STEADY: [Phase; 2] = [Phase::SteadyForward, Phase::SteadyBackward];
        self.micro_step(script, if is_first { FIRST } else { STEADY });
        script.repeat(self.lengths.grad_accum_steps - 1, |script| self.micro_step(script, STEADY));
        optimizer.step(self.torch, self.model.others(), self.model.matrices());
        self.torch.zero_grad(self.model.others().chain(self.model.matrices()));
        script.section(if is_first { Phase::FirstOptimizer } else { Phase::SteadyOptimizer });
    }

    /// The steps until everything repeats: the first, a later one, and one after a later evaluation.
    fn run(&mut self, script: &mut Script<'_>) {
        let mut optimizer = MuonAdamW::default();
        let Lengths { num_iterations, eval_every, .. } = self.lengths;
        self.evaluate(script, EVALUATIONS[0]);
        for step in 0..num_iterations.min(3) {
            let evaluates_before = if step == 2 { num_iterations > eval_every } else { step == eval_every };
            if step > 0 && evaluates_before {
                self.evaluate(script, EVALUATIONS[1]);
            }
            self.step(script, &mut optimizer, step == 0);
        }
    }
}

/// Runs the script. The first two sections are `token_bytes` and the model.
#[must_use]
pub fn run(args: &Args, lengths: Lengths, gpu: GpuProperties, recorder: Recorder) -> Recording {
    let torch = &Torch::new(gpu, recorder);
    let mut script = Script::new(torch);
    let _token_bytes = torch.input("token_bytes", &[args.vocab_size], Dtype::Int32);
    script.section(Phase::Init);
    let model = Gpt::new(torch, args);
    script.section(Phase::Init);
    let [batch, val_batch] = [(); 2].map(|()| loader(torch, args));
    Loop { torch, lengths, model, batch, val_batch, loss: [None, None] }.run(&mut script);
    script.finish()
}
