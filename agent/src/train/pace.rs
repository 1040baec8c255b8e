//! How fast a run goes: tokens a second, the share of what could be, and the time that is left.

use std::time::Duration;

use super::run::Run;

/// How fast a run goes.
pub struct Pace {
    /// A moving mean over iterations; none before the first.
    pub iteration: Option<f64>,
    evaluation_seconds: f64,
    /// Since the last iteration told.
    seconds: f64,
    iterations: u64,
    operations_a_token: f64,
    /// The most that was told of, where what can be was measured.
    most_flops: f64,
}

impl Pace {
    /// Of a run that begins.
    pub fn new(run: &Run<'_>) -> Self {
        let shape = run.gpt.shape();
        let [l, c, t] = [shape.n_layer, shape.n_embd, shape.block_size].map(|n| n as f64);
        let positions = shape.block_size.saturating_mul(shape.n_embd);
        let weights = run.gpt.n_parameters().unwrap_or(u64::MAX).saturating_sub(positions) as f64;
        // nanoGPT's estimate_mfu, after arXiv:2204.02311, appendix B.
        let operations_a_token = 6.0 * weights + 12.0 * l * c * t;
        Self {
            iteration: None,
            evaluation_seconds: 0.0,
            seconds: 0.0,
            iterations: 0,
            operations_a_token,
            most_flops: 0.0,
        }
    }

    /// Takes how long the newest evaluation was.
    pub fn evaluated(&mut self, time: Duration) {
        self.evaluation_seconds = time.as_secs_f64();
    }

    /// Takes how long one more iteration was.
    pub fn stepped(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.seconds += seconds;
        self.iterations += 1;
        self.iteration = Some(self.iteration.map_or(seconds, |mean| 0.95 * mean + 0.05 * seconds));
    }

    /// Tokens a second, the share of what the threads or the card can, and what is left; counted anew from here.
    pub fn told(&mut self, run: &Run<'_>, iter: u64) -> (f64, Option<f64>, Duration) {
        let settings = run.settings;
        let tokens = settings.batch_size * settings.gradient_accumulation_steps * run.gpt.block_size();
        let tokens_per_second = (tokens * self.iterations) as f64 / self.seconds.max(1e-9);
        let left = settings.max_iters.saturating_sub(iter);
        let evaluations = settings.max_iters / settings.eval_interval - iter / settings.eval_interval;
        let seconds = self.iteration.unwrap_or_default() * left as f64 + self.evaluation_seconds * evaluations as f64;
        (self.seconds, self.iterations) = (0.0, 0);
        let flops = tokens_per_second * self.operations_a_token;
        // What was reached can be reached.
        self.most_flops = self.most_flops.max(if run.is_peak_measured { flops } else { 0.0 });
        let mfu = run.peak_flops.map(|peak| flops / peak.max(self.most_flops));
        (tokens_per_second, mfu, Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}
