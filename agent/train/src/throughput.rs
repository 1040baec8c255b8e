//! A run's speed: tokens per second, model FLOPs utilisation, and remaining time.

use std::time::Duration;

use headroom_planner::gpt::GptConfig;

use super::settings::RunSettings;

/// Peak rate of the threads or the GPU that compute a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PeakRate {
    /// The rate in FLOP/s. `None` if unknown.
    pub flops: Option<f64>,
    /// Whether the rate was measured. A measurement is too low if other processes were busy at the time.
    pub is_measured: bool,
}

/// The speed of a run.
#[derive(Debug)]
pub struct Throughput {
    /// A moving mean of the time per iteration, in seconds; `None` before the first.
    pub iteration: Option<f64>,
    evaluation_seconds: f64,
    /// Seconds since the last report.
    seconds: f64,
    iterations: u64,
    operations_a_token: f64,
    tokens_per_iteration: u64,
    max_iters: u64,
    eval_interval: u64,
    peak: PeakRate,
    /// The highest rate reported so far, in FLOP/s, for a peak that was measured.
    most_flops: f64,
}

impl Throughput {
    /// Creates the state for a new run.
    pub fn new(gpt: &GptConfig, settings: &RunSettings, peak: PeakRate) -> Self {
        let shape = gpt.shape();
        let [l, c, t] = [shape.n_layer, shape.n_embd, shape.block_size].map(|n| n as f64);
        let positions = shape.block_size.saturating_mul(shape.n_embd);
        let weights = gpt.n_parameters().unwrap_or(u64::MAX).saturating_sub(positions) as f64;
        // nanoGPT's estimate_mfu, after arXiv:2204.02311, appendix B.
        let operations_a_token = 6.0 * weights + 12.0 * l * c * t;
        Self {
            iteration: None,
            evaluation_seconds: 0.0,
            seconds: 0.0,
            iterations: 0,
            operations_a_token,
            tokens_per_iteration: settings.batch_size * settings.gradient_accumulation_steps * gpt.block_size(),
            max_iters: settings.max_iters,
            eval_interval: settings.eval_interval,
            peak,
            most_flops: 0.0,
        }
    }

    /// Records the duration of the newest evaluation.
    pub fn evaluated(&mut self, time: Duration) {
        self.evaluation_seconds = time.as_secs_f64();
    }

    /// Records the duration of an iteration.
    pub fn stepped(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.seconds += seconds;
        self.iterations += 1;
        self.iteration = Some(self.iteration.map_or(seconds, |mean| 0.95 * mean + 0.05 * seconds));
    }

    /// Returns tokens per second, the share of the peak rate, and the remaining time, and starts a new interval.
    pub fn progress(&mut self, iter: u64) -> (f64, Option<f64>, Duration) {
        let tokens_per_second = (self.tokens_per_iteration * self.iterations) as f64 / self.seconds.max(1e-9);
        let left = self.max_iters.saturating_sub(iter);
        let evaluations = self.max_iters / self.eval_interval - iter / self.eval_interval;
        let seconds = self.iteration.unwrap_or_default() * left as f64 + self.evaluation_seconds * evaluations as f64;
        (self.seconds, self.iterations) = (0.0, 0);
        let flops = tokens_per_second * self.operations_a_token;
        // A measured peak is at least the highest rate that was reached.
        self.most_flops = self.most_flops.max(if self.peak.is_measured { flops } else { 0.0 });
        let mfu = self.peak.flops.map(|peak| flops / peak.max(self.most_flops));
        (tokens_per_second, mfu, Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}
