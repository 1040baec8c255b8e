//! Training on CPU threads, as tokens a second, operations a second, and a fraction of what the same threads multiply in
//! the same minute: rounds of the model and of the plain product take turns.

use std::time::{Duration, Instant};

use headroom_shared::gpt::{GptConfig, GptConfigError, GptShape, buffers::cpu_training};
use serde::Serialize;

use super::{Effort, median, shape, significant};
use crate::{
    cpu::{adamw_update::AdamW, gpt::DropoutPass},
    fast::{GEMM_SIDE, Micro, Team, Trainer, TrainerError, gemm_rate, gemm_rate_bytes},
    rng::Stream,
};

/// A model that is trained, and how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// What it is called in reports.
    pub name: &'static str,
    /// Its shape.
    pub shape: GptShape,
    /// Sequences of a batch.
    pub batch_size: u64,
    rounds: usize,
    steps_a_round: u64,
}

/// What is trained.
pub const CASES: [Case; 3] = [
    Case { name: "small", shape: shape(4, 4, 128, 64, 65, false), batch_size: 12, rounds: 9, steps_a_round: 20 },
    Case { name: "medium", shape: shape(6, 6, 384, 256, 65, false), batch_size: 16, rounds: 7, steps_a_round: 1 },
    Case { name: "gpt2", shape: shape(12, 12, 768, 256, 50304, false), batch_size: 2, rounds: 5, steps_a_round: 1 },
];

impl Case {
    /// Its shape, checked.
    ///
    /// # Errors
    /// It is none.
    pub fn config(&self) -> Result<GptConfig, GptConfigError> {
        GptConfig::new(self.shape)
    }

    /// Until the median is steady.
    #[must_use]
    pub const fn full(&self) -> Work {
        Work { rounds: self.rounds, steps_a_round: self.steps_a_round }
    }

    /// A few short rounds.
    #[must_use]
    pub const fn quick(&self, rounds: usize) -> Work {
        Work { rounds, steps_a_round: self.steps_a_round.div_ceil(4) }
    }

    /// About how long the work takes where threads train at so many operations a second.
    #[must_use]
    pub fn seconds(&self, config: &GptConfig, work: Work, flops_per_second: f64) -> f64 {
        let steps = (work.rounds as u64 + 1) * work.steps_a_round;
        steps as f64 * flops(config, self.batch_size) / flops_per_second
    }
}

/// How long a case is trained, after a round that warms up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Rounds that count, at least one.
    pub rounds: usize,
    /// Iterations of each.
    pub steps_a_round: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Threads that computed.
    pub threads: usize,
    /// Sequences of a batch.
    pub batch_size: u64,
    /// Tokens of a sequence.
    pub block_size: u64,
    /// Rounds that count.
    pub rounds: usize,
    /// An iteration in the median round: forward, backward, and the update.
    #[serde(serialize_with = "significant")]
    pub millis_an_iteration: f64,
    /// In the median round.
    #[serde(serialize_with = "significant")]
    pub tokens_per_second: f64,
    /// Operations of forward and backward, in the median round.
    #[serde(serialize_with = "significant")]
    pub gflops: f64,
    /// The same threads' plain product, in its median round.
    #[serde(serialize_with = "significant")]
    pub gemm_gflops: f64,
    /// The one of the other.
    #[serde(serialize_with = "significant")]
    pub fraction_of_gemm: f64,
    /// In the quickest round.
    #[serde(serialize_with = "significant")]
    pub best_tokens_per_second: f64,
    /// The quickest round, of the quickest plain product.
    #[serde(serialize_with = "significant")]
    pub best_fraction_of_best_gemm: f64,
}

/// What threads reach in plain products.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GemmFigures {
    /// Threads that computed.
    pub threads: usize,
    /// Rows and columns of each matrix; every thread has a product of its own.
    pub side: usize,
    /// The median product.
    #[serde(serialize_with = "significant")]
    pub gflops: f64,
}

/// How fast the threads multiply.
///
/// # Errors
/// They cannot be started.
pub fn gemm(threads: usize, effort: Effort) -> Result<GemmFigures, TrainerError> {
    let team = Team::new(threads)?;
    let time = match effort {
        Effort::Full => Duration::from_secs(2),
        Effort::Quick => Duration::from_millis(300),
    };
    // Threads that have just been started, and a core that slept.
    let _ = gemm_rate(&team, Duration::from_millis(50));
    Ok(GemmFigures { threads: team.threads(), side: GEMM_SIDE, gflops: gemm_rate(&team, time) / 1e9 })
}

/// Bytes that [`measure`] takes: the trainer's and the plain product's.
///
/// # Errors
/// The model is beyond any machine.
pub fn planned_bytes(case: &Case, config: &GptConfig, threads: usize) -> Result<u64, TrainerError> {
    let planned = cpu_training(config, case.batch_size, threads as u64)?;
    Ok(planned.bytes().saturating_add(gemm_rate_bytes(threads)))
}

/// Measures a model.
///
/// # Errors
/// It does not fit this machine, or its threads cannot be started.
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
            rates.push(gemm_rate(trainer.team(), Duration::from_millis(200)));
        }
    }
    let (seconds, best, rate) = (median(&mut seconds), seconds[0], median(&mut rates));
    let best_rate = rates[rates.len() - 1];
    let tokens = (case.batch_size * case.shape.block_size) as f64;
    let operations = flops(config, case.batch_size);
    Ok(Figures {
        threads: trainer.team().threads(),
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

/// Operations of forward and backward: 6 a weight that multiplies and token, and causal attention's, counted once
/// (nanoGPT's `estimate_mfu` counts the half that is masked too).
fn flops(config: &GptConfig, batch_size: u64) -> f64 {
    let shape = config.shape();
    let [l, c, t, v] = [shape.n_layer, shape.n_embd, shape.block_size, shape.vocab_size].map(|n| n as f64);
    let tokens = batch_size as f64 * t;
    tokens * 6.0 * (12.0 * l * c * c + v * c) + tokens * 6.0 * l * c * (t + 1.0)
}
