//! Benchmark of CPU training: tokens per second, FLOP per second, and the fraction of the same threads' GEMM rate.
//! Rounds of the model and of the GEMM alternate.

use std::time::{Duration, Instant};

use headroom_planner::gpt::{GptConfig, GptConfigError, GptShape, buffers::cpu_training};
use serde::Serialize;

use super::{Effort, median, shape, significant};
use crate::{
    cpu_train::{GEMM_SIDE, Micro, ThreadPool, Trainer, TrainerError, gemm_rate, gemm_rate_bytes},
    reference::{adamw_update::AdamW, gpt::DropoutPass},
    rng::Stream,
};

/// A model to train, and the amount of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub name: &'static str,
    /// The model's shape.
    pub shape: GptShape,
    /// Sequences per batch.
    pub batch_size: u64,
    rounds: usize,
    steps_a_round: u64,
}

/// The models to train.
pub const CASES: [Case; 3] = [
    Case { name: "small", shape: shape(4, 4, 128, 64, 65, false), batch_size: 12, rounds: 9, steps_a_round: 20 },
    Case { name: "medium", shape: shape(6, 6, 384, 256, 65, false), batch_size: 16, rounds: 7, steps_a_round: 1 },
    Case { name: "gpt2", shape: shape(12, 12, 768, 256, 50304, false), batch_size: 2, rounds: 5, steps_a_round: 1 },
];

impl Case {
    /// The model's validated shape.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn config(&self) -> Result<GptConfig, GptConfigError> {
        GptConfig::new(self.shape)
    }

    /// The work for a steady median.
    #[must_use]
    pub const fn full(&self) -> Work {
        Work { rounds: self.rounds, steps_a_round: self.steps_a_round }
    }

    /// A few short rounds.
    #[must_use]
    pub const fn quick(&self, rounds: usize) -> Work {
        Work { rounds, steps_a_round: self.steps_a_round.div_ceil(4) }
    }

    /// The estimated duration of the work in seconds, for a given rate in FLOP per second.
    #[must_use]
    pub fn seconds(&self, config: &GptConfig, work: Work, flops_per_second: f64) -> f64 {
        let steps = (work.rounds as u64 + 1) * work.steps_a_round;
        steps as f64 * flops(config, self.batch_size) / flops_per_second
    }
}

/// The rounds of a case, after a warm-up round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Measured rounds, at least 1.
    pub rounds: usize,
    /// Iterations per round.
    pub steps_a_round: u64,
}

/// The results of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The number of threads that computed.
    pub threads: usize,
    /// Sequences per batch.
    pub batch_size: u64,
    /// Tokens per sequence.
    pub block_size: u64,
    /// Measured rounds.
    pub rounds: usize,
    /// Milliseconds per iteration in the median round: forward, backward, and the update.
    #[serde(serialize_with = "significant")]
    pub millis_an_iteration: f64,
    /// Tokens per second in the median round.
    #[serde(serialize_with = "significant")]
    pub tokens_per_second: f64,
    /// GFLOP per second of forward and backward, in the median round.
    #[serde(serialize_with = "significant")]
    pub gflops: f64,
    /// GFLOP per second of the same threads' GEMM, in its median round.
    #[serde(serialize_with = "significant")]
    pub gemm_gflops: f64,
    /// The ratio of `gflops` to `gemm_gflops`.
    #[serde(serialize_with = "significant")]
    pub fraction_of_gemm: f64,
    /// Tokens per second in the fastest round.
    #[serde(serialize_with = "significant")]
    pub best_tokens_per_second: f64,
    /// The ratio of the fastest round's rate to the fastest GEMM's.
    #[serde(serialize_with = "significant")]
    pub best_fraction_of_best_gemm: f64,
}

/// The GEMM rate of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GemmFigures {
    /// The number of threads that computed.
    pub threads: usize,
    /// Rows and columns of each matrix; every thread computes a product of its own.
    pub side: usize,
    /// GFLOP per second of the median product.
    #[serde(serialize_with = "significant")]
    pub gflops: f64,
}

/// Measures the GEMM rate of the threads.
///
/// # Errors
/// The threads cannot be started.
pub fn gemm(threads: usize, effort: Effort) -> Result<GemmFigures, TrainerError> {
    let thread_pool = ThreadPool::new(threads)?;
    let time = match effort {
        Effort::Full => Duration::from_secs(2),
        Effort::Quick => Duration::from_millis(300),
    };
    // Warms up the new threads and any sleeping core.
    let _ = gemm_rate(&thread_pool, Duration::from_millis(50));
    Ok(GemmFigures { threads: thread_pool.threads(), side: GEMM_SIDE, gflops: gemm_rate(&thread_pool, time) / 1e9 })
}

/// Bytes that [`measure`] allocates: the trainer's and the GEMM's.
///
/// # Errors
/// The model exceeds any machine's memory.
pub fn planned_bytes(case: &Case, config: &GptConfig, threads: usize) -> Result<u64, TrainerError> {
    let planned = cpu_training(config, case.batch_size, threads as u64)?;
    Ok(planned.bytes().saturating_add(gemm_rate_bytes(threads)))
}

/// Measures the training speed of a model.
///
/// # Errors
/// The model does not fit this machine's memory, or its threads cannot be started.
pub fn measure(case: &Case, config: &GptConfig, threads: usize, work: Work) -> Result<Figures, TrainerError> {
    let mut trainer = Trainer::new(config, case.batch_size, threads)?;
    trainer.initialize(1337);
    let mut stream = Stream::new(1, 1);
    let (x, y) = trainer.batch_mut();
    for token in x.iter_mut().chain(y) {
        *token = u32::try_from(stream.below(case.shape.vocab_size)).unwrap_or(0);
    }
    let (mut step, mut seconds, mut rates) = (0, Vec::new(), Vec::new());
    for round in 0..=work.rounds.max(1) {
        let start = Instant::now();
        for _ in 0..work.steps_a_round {
            step += 1;
            trainer.micro_step(Micro { first: true, loss_scale: 1.0, dropout: DropoutPass::NONE });
            let gradient_scale = (1.0 / trainer.gradient_norm()).min(1.0);
            trainer.update(adamw(step, gradient_scale));
        }
        // The first round warms up.
        if round > 0 {
            seconds.push(start.elapsed().as_secs_f64() / work.steps_a_round as f64);
            rates.push(gemm_rate(trainer.thread_pool(), Duration::from_millis(200)));
        }
    }
    let (seconds, best, rate) = (median(&mut seconds), seconds[0], median(&mut rates));
    let best_rate = rates[rates.len() - 1];
    let tokens = (case.batch_size * case.shape.block_size) as f64;
    let operations = flops(config, case.batch_size);
    Ok(Figures {
        threads: trainer.thread_pool().threads(),
        batch_size: case.batch_size,
        block_size: case.shape.block_size,
        rounds: rates.len(),
        millis_an_iteration: 1e3 * seconds,
        tokens_per_second: tokens / seconds,
        gflops: operations / seconds / 1e9,
        gemm_gflops: rate / 1e9,
        fraction_of_gemm: operations / seconds / rate,
        best_tokens_per_second: tokens / best,
        best_fraction_of_best_gemm: operations / best / best_rate,
    })
}

const fn adamw(step: u64, gradient_scale: f64) -> AdamW {
    AdamW { learning_rate: 1e-4, beta1: 0.9, beta2: 0.95, eps: AdamW::EPS, weight_decay: 0.1, step, gradient_scale }
}

/// FLOP of forward and backward: 6 per multiplying weight and token, plus causal attention, of which only the unmasked
/// half counts. nanoGPT's `estimate_mfu` includes the masked half.
fn flops(config: &GptConfig, batch_size: u64) -> f64 {
    let shape = config.shape();
    let [l, c, t, v] = [shape.n_layer, shape.n_embd, shape.block_size, shape.vocab_size].map(|n| n as f64);
    let tokens = batch_size as f64 * t;
    tokens * 6.0 * (12.0 * l * c * c + v * c) + tokens * 6.0 * l * c * (t + 1.0)
}
