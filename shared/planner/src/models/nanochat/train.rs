//! nanochat's `scripts.base_train`.

use super::{Args, Gpt, optim::MuonAdamW};
use crate::{
    dtype::Dtype,
    memory::context::GpuProperties,
    torch::{Event, Recorder, Tensor, Torch},
};

/// Rounds of a run; fewer than its own show the same events.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// Batches of each evaluation.
    pub eval: u64,
    /// Micro-steps of each step.
    pub micro_steps: u64,
    /// Steps.
    pub steps: u64,
}

/// The buffer of a data loader, with inputs and targets.
fn loader(torch: &Torch, args: &Args) -> [Tensor; 2] {
    let tokens = args.device_batch_size * args.max_seq_len;
    let buffer = torch.empty("batch", &[2 * tokens], Dtype::Int64);
    [(); 2].map(|()| {
        let half = torch.slice(&buffer, 0, tokens);
        torch.reshape(&half, &[args.device_batch_size, args.max_seq_len])
    })
}

/// `evaluate_bpb`.
fn evaluate_bpb(torch: &Torch, model: &Gpt, [x, y]: &[Tensor; 2], steps: u64) {
    let _total_nats = torch.empty("total_nats", &[], Dtype::Float32);
    let _total_bytes = torch.empty("total_bytes", &[], Dtype::Int64);
    let tokens = y.layout().elements();
    let (mut loss2d, mut num_bytes2d) = (None, None);
    torch.no_grad(|| {
        for _ in 0..steps {
            let vector = |dtype| torch.empty("evaluate_bpb", &[tokens], dtype);
            let scalar = |dtype| torch.empty("evaluate_bpb", &[], dtype);
            loss2d = Some(model.forward(torch, x, y, false));
            let mut condition = vector(Dtype::Int32);
            condition = {
                let _before = condition;
                vector(Dtype::Bool)
            };
            condition = {
                let _before = condition;
                scalar(Dtype::Bool)
            };
            drop(condition);
            num_bytes2d = Some(vector(Dtype::Int32));
            let counted = vector(Dtype::Bool);
            let product = vector(Dtype::Float32);
            drop(counted);
            let sum = scalar(Dtype::Float32);
            drop((product, sum));
            let sum = scalar(Dtype::Int64);
            drop((vector(Dtype::Int64), sum));
        }
    });
    drop((loss2d, num_bytes2d));
}

/// Events of a run by phase, in order: `init`, `eval`, then `backward` and `optimizer` of each step.
#[must_use]
pub fn run(args: &Args, gpu: GpuProperties, recorder: Recorder, rounds: Rounds) -> Vec<(&'static str, Vec<Event>)> {
    let torch = &Torch::new(gpu, recorder);
    let mut phases = Vec::new();
    let token_bytes = torch.empty("token_bytes", &[args.vocab_size], Dtype::Int32);
    phases.push(("context", torch.take_events()));
    let model = Gpt::new(torch, args);
    phases.push(("init", torch.take_events()));
    let mut optimizer = MuonAdamW::default();
    let [x, y] = loader(torch, args);
    let val_loader = loader(torch, args);
    evaluate_bpb(torch, &model, &val_loader, rounds.eval);
    phases.push(("eval", torch.take_events()));
    let mut loss = None;
    let mut train_loss = None;
    for _ in 0..rounds.steps {
        for _ in 0..rounds.micro_steps {
            loss = Some(model.forward(torch, &x, &y, true));
            train_loss.clone_from(&loss);
            loss = loss.map(|loss| torch.scale(&loss));
            if phases.len() == 3 {
                phases.push(("forward", torch.take_events()));
            }
            let Some(loss) = &loss else { continue };
            let ones = torch.empty("gradient of the loss", &[], Dtype::Float32);
            torch.backward(loss, &ones);
        }
        phases.push(("backward", torch.take_events()));
        optimizer.step(torch, model.others(), model.matrices());
        torch.zero_grad(model.others().chain(model.matrices()));
        phases.push(("optimizer", torch.take_events()));
    }
    drop((train_loss, loss, token_bytes));
    phases
}
