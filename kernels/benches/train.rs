//! How fast the CPU trains, as tokens a second, operations a second, and a fraction of what the same threads multiply in
//! the same minute: `cargo bench -p headroom-kernels --features train --bench train [small|medium|gpt2] [--threads N]`.
//!
//! Machines are noisy: rounds of the model and of the plain product take turns, and each figure is of the median round.
//! `kernels/benches/pytorch` runs the same shapes with PyTorch and prints the ratio.

use std::time::{Duration, Instant};

use headroom_kernels::{
    cpu::{adamw_update::AdamW, gpt::DropoutPass},
    fast::{Micro, Trainer, gemm_rate},
    rng::Stream,
};
use headroom_shared::gpt::{GptConfig, GptShape};

struct Case {
    name: &'static str,
    shape: GptShape,
    batch_size: u64,
    rounds: usize,
    steps_a_round: u64,
}

const fn shape(n_layer: u64, n_head: u64, n_embd: u64, block_size: u64, vocab_size: u64) -> GptShape {
    GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias: false }
}

const CASES: [Case; 3] = [
    Case { name: "small", shape: shape(4, 4, 128, 64, 65), batch_size: 12, rounds: 9, steps_a_round: 20 },
    Case { name: "medium", shape: shape(6, 6, 384, 256, 65), batch_size: 16, rounds: 7, steps_a_round: 1 },
    Case { name: "gpt2", shape: shape(12, 12, 768, 256, 50304), batch_size: 2, rounds: 5, steps_a_round: 1 },
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let threads = args.iter().position(|arg| arg == "--threads").and_then(|i| args.get(i + 1)?.parse().ok());
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let named = |case: &&Case| {
        args.iter().any(|arg| arg == case.name) || !CASES.iter().any(|case| args.iter().any(|arg| arg == case.name))
    };
    for case in CASES.iter().filter(named) {
        run(case, threads);
    }
}

#[expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]
fn run(case: &Case, threads: usize) {
    let config = GptConfig::new(case.shape).expect("valid");
    let mut trainer = Trainer::new(&config, case.batch_size, threads).expect("it fits");
    trainer.initialize(1337);
    let mut stream = Stream::new(1, 1);
    let (x, y) = trainer.batch_mut();
    for token in x.iter_mut().chain(y) {
        *token = u32::try_from(stream.below(case.shape.vocab_size)).expect("small");
    }
    let tokens = case.batch_size * case.shape.block_size;
    let (mut step, mut seconds, mut rates) = (0, Vec::new(), Vec::new());
    for round in 0..=case.rounds {
        let start = Instant::now();
        for _ in 0..case.steps_a_round {
            step += 1;
            trainer.micro_step(Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE });
            let gradient_scale = (1.0 / trainer.gradient_norm()).min(1.0);
            trainer.update(adamw(step, gradient_scale));
        }
        // The first round warms up.
        if round > 0 {
            seconds.push(start.elapsed().as_secs_f64() / case.steps_a_round as f64);
            rates.push(gemm_rate(trainer.team(), Duration::from_millis(200)));
        }
    }
    let (seconds, best, rate) = (median(&mut seconds), seconds[0], median(&mut rates));
    let best_rate = rates[rates.len() - 1];
    let operations = flops(&config, case.batch_size);
    println!(
        "{{\"case\":\"{}\",\"threads\":{threads},\"tokens_per_second\":{:.0},\"gflops\":{:.1},\"gemm_gflops\":{:.1},\
         \"of_gemm\":{:.3},\"best_tokens_per_second\":{:.0},\"best_of_best_gemm\":{:.3}}}",
        case.name,
        tokens as f64 / seconds,
        operations / seconds / 1e9,
        rate / 1e9,
        operations / seconds / rate,
        tokens as f64 / best,
        operations / best / best_rate,
    );
}

fn adamw(step: u64, gradient_scale: f64) -> AdamW {
    AdamW { learning_rate: 1e-4, beta1: 0.9, beta2: 0.95, eps: AdamW::EPS, weight_decay: 0.1, step, gradient_scale }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Operations of forward and backward: 6 a weight that multiplies and token, and causal attention's, counted once
/// (nanoGPT's `estimate_mfu` counts the half that is masked too).
fn flops(config: &GptConfig, batch_size: u64) -> f64 {
    let shape = config.shape();
    let [l, c, t, v] = [shape.n_layer, shape.n_embd, shape.block_size, shape.vocab_size].map(|n| n as f64);
    let tokens = batch_size as f64 * t;
    tokens * 6.0 * (12.0 * l * c * c + v * c) + tokens * 6.0 * l * c * (t + 1.0)
}
