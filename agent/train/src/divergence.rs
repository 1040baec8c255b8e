//! Detection of diverged runs whose losses are still finite.
//!
//! What a model has learnt is the difference between its loss and that of guessing, ln(V). A run has diverged if it has
//! lost half of that and does not recover. A spike recovers within tens of iterations. A run whose learning rate is too
//! high settles at the loss of the tokens' frequencies alone, or climbs without end. Overfitting is not detected: it
//! raises the validation loss, not the training loss.

/// Consecutive iterations above the limit after which a run counts as diverged: several times the length of a spike.
pub const PATIENCE: u64 = 200;
/// Minimum progress in nats before divergence is detected. It exceeds the noise of small batches.
const LEARNT_MIN: f64 = 0.5;
/// Maximum fraction of its progress that a run may lose.
const LOST_MAX: f64 = 0.5;
/// The limit of a run that has learnt nothing yet, as a factor of the loss of guessing or of the first loss if larger.
const CLIMB_MAX: f64 = 1.5;
/// The weight of the newest loss in the mean.
const NEWEST: f64 = 0.05;

/// Statistics of a run's losses for the detection.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// The loss of uniform guessing, ln(V).
    guess: f64,
    seen: Option<LossHistory>,
}

#[derive(Clone, Copy, Debug)]
struct LossHistory {
    first: f64,
    /// A moving mean of the loss.
    mean: f64,
    /// The lowest value of the mean so far.
    best: f64,
    /// The number of newest consecutive losses above the limit.
    above: u64,
}

/// The best loss of a run and the limit that it exceeded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DivergenceLimit {
    /// The lowest mean loss so far.
    pub best: f64,
    /// The largest loss that does not count as lost.
    pub limit: f64,
}

impl Losses {
    /// Creates the state for a model with `vocab_size` tokens.
    #[must_use]
    pub fn new(vocab_size: u64) -> Self {
        Self { guess: (vocab_size.max(1) as f64).ln(), seen: None }
    }

    /// Adds the loss of an iteration, a finite number.
    pub fn push(&mut self, loss: f64) {
        let limit = self.lost().limit;
        let seen = self.seen.get_or_insert(LossHistory { first: loss, mean: loss, best: loss, above: 0 });
        seen.mean += NEWEST * (loss - seen.mean);
        seen.best = seen.best.min(seen.mean);
        seen.above = if loss > limit { seen.above + 1 } else { 0 };
    }

    /// Returns what was lost if the run has diverged.
    #[must_use]
    pub fn diverged(&self) -> Option<DivergenceLimit> {
        self.seen.filter(|seen| seen.above >= PATIENCE).map(|_| self.lost())
    }

    /// Returns what was lost if `mean_loss`, a mean over other batches, exceeds the limit.
    #[must_use]
    pub fn forgot(&self, mean_loss: f64) -> Option<DivergenceLimit> {
        let lost = self.lost();
        (mean_loss > lost.limit).then_some(lost)
    }

    /// Returns what was lost if the moving mean exceeds the limit.
    #[must_use]
    pub fn forgetting(&self) -> Option<DivergenceLimit> {
        self.forgot(self.seen?.mean)
    }

    fn lost(&self) -> DivergenceLimit {
        let Some(LossHistory { first, best, .. }) = self.seen else {
            // Pretrained weights may begin below the loss of guessing, so there is no limit before the first loss.
            return DivergenceLimit { best: self.guess, limit: f64::INFINITY };
        };
        let learnt = self.guess - best;
        let limit = if learnt >= LEARNT_MIN { best + LOST_MAX * learnt } else { CLIMB_MAX * self.guess.max(first) };
        DivergenceLimit { best, limit }
    }
}

#[cfg(test)]
mod tests {
    use headroom_kernels::rng::Stream;

    use super::*;

    const VOCAB_SIZE: u64 = 50_304;

    fn after(losses: impl IntoIterator<Item = f64>) -> Losses {
        let mut all = Losses::new(VOCAB_SIZE);
        losses.into_iter().for_each(|loss| all.push(loss));
        all
    }

    /// Roughly the loss of GPT-2 124M: from guessing to 3.3 within some thousand iterations.
    fn learning(iter: u64) -> f64 {
        3.3 + 7.6 * (-(iter as f64) / 300.0).exp()
    }

    #[test]
    fn one_that_settles_at_the_tokens_frequencies_has_diverged() {
        let losses = after((0..3000).map(learning).chain((0..PATIENCE).map(|_| 7.5)));
        let lost = losses.diverged().expect("it is far above what it was");
        assert!((3.3..3.4).contains(&lost.best) && (7.0..7.1).contains(&lost.limit), "{lost:?}");
        assert_eq!(losses.forgetting(), Some(lost), "a checkpoint of it would be useless");
    }

    #[test]
    fn one_that_climbs_before_it_learnt_anything_has_diverged() {
        let climbing = (0..400).map(|iter| 10.9 + 0.1 * f64::from(iter));
        assert!(after(climbing).diverged().is_some());
    }

    #[test]
    fn loss_spike_is_not_divergence() {
        let spike = (1..PATIENCE).map(|_| 9.0);
        let losses = after((0..3000).map(learning).chain(spike).chain([3.4; 100]));
        assert_eq!(losses.diverged(), None);
        assert_eq!(losses.forgetting(), None, "the loss recovered");
        assert!(losses.forgot(9.0).is_some(), "no checkpoint is kept during a spike");
    }

    #[test]
    fn weights_from_elsewhere_may_begin_high() {
        assert_eq!(Losses::new(VOCAB_SIZE).forgot(30.0), None, "before the first iteration nothing is known");
        assert_eq!(after((0..1000).map(|iter| 18.0 - 0.01 * f64::from(iter))).diverged(), None);
    }

    /// A run that learns has not diverged, at any speed and with any noise.
    #[test]
    fn learning_run_has_not_diverged() {
        for pace in [5.0, 50.0, 500.0, 2000.0] {
            for floor in [0.2, 1.0, 3.3, 6.0, 9.0] {
                let mut noise = Stream::new(7, 7);
                let mut losses = Losses::new(VOCAB_SIZE);
                for iter in 0..4000_u32 {
                    let noise = noise.below(1600) as f64 / 1000.0 - 0.8;
                    let loss = floor + (10.9 - floor) * (-f64::from(iter) / pace).exp() + noise;
                    losses.push(loss.max(0.01));
                    assert_eq!(losses.diverged(), None, "pace {pace}, floor {floor}, iteration {iter}");
                    assert_eq!(losses.forgetting(), None, "pace {pace}, floor {floor}, iteration {iter}");
                }
            }
        }
    }
}
