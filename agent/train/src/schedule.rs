//! The learning rate of an iteration.

/// nanoGPT's keys of the learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The peak learning rate, reached after the warmup.
    pub learning_rate: f64,
    /// Whether the rate changes at all.
    pub decay_lr: bool,
    /// Iterations of the linear warmup.
    pub warmup_iters: u64,
    /// The iteration at which the rate reaches `min_lr`.
    pub lr_decay_iters: u64,
    /// The learning rate after the decay.
    pub min_lr: f64,
}

impl Schedule {
    /// Returns the learning rate of iteration `iter`: linear warmup, cosine decay, then `min_lr`. Equals nanoGPT's
    /// `get_lr`.
    #[must_use]
    pub fn at(&self, iter: u64) -> f64 {
        if !self.decay_lr {
            return self.learning_rate;
        }
        if iter < self.warmup_iters {
            return self.learning_rate * (iter + 1) as f64 / (self.warmup_iters + 1) as f64;
        }
        if iter > self.lr_decay_iters || self.lr_decay_iters <= self.warmup_iters {
            return self.min_lr;
        }
        let done = (iter - self.warmup_iters) as f64 / (self.lr_decay_iters - self.warmup_iters) as f64;
        let share = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        self.min_lr + share * (self.learning_rate - self.min_lr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: Schedule =
        Schedule { learning_rate: 6e-4, decay_lr: true, warmup_iters: 2000, lr_decay_iters: 600_000, min_lr: 6e-5 };

    #[track_caller]
    fn check(schedule: Schedule, iter: u64, want: f64) {
        let got = schedule.at(iter);
        assert!((got - want).abs() < 1e-12, "iteration {iter} has {got} instead of {want}");
    }

    #[test]
    fn rises_falls_and_stays() {
        check(GPT2, 0, 6e-4 / 2001.0);
        check(GPT2, 1999, 6e-4 * 2000.0 / 2001.0);
        check(GPT2, 2000, 6e-4);
        check(GPT2, 301_000, (6e-4 + 6e-5) / 2.0);
        check(GPT2, 600_000, 6e-5);
        check(GPT2, 700_000, 6e-5);
    }

    #[test]
    fn a_constant_rate_stays() {
        check(Schedule { decay_lr: false, ..GPT2 }, 0, 6e-4);
    }

    #[test]
    fn a_decay_that_ends_with_the_rise_is_no_division_by_zero() {
        check(Schedule { lr_decay_iters: 2000, ..GPT2 }, 2000, 6e-5);
        check(Schedule { lr_decay_iters: 0, ..GPT2 }, 5000, 6e-5);
    }
}
