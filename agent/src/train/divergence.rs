//! When a run has diverged though its losses are still numbers.
//!
//! What a model knows is what its loss is below that of guessing, ln(V). A run that has lost half of that has diverged if
//! it stays so: a spike comes back within tens of iterations, a run whose learning rate is too high settles at what the
//! tokens' frequencies alone give, or climbs without end. What learns by heart is not meant: its validation loss climbs,
//! and the loss that it is trained on does not.

/// Iterations in a row, all above the limit, after which nobody waits any longer: several times what a spike takes.
pub const PATIENCE: u64 = 200;
/// What a run must have learnt, in nats, before it can forget: more than the noise of small batches.
const LEARNT_MIN: f64 = 0.5;
/// What a run loses at most of what it has learnt.
const LOST_MAX: f64 = 0.5;
/// Of a run that has learnt nothing yet: times guessing, or what it began with where that was more.
const CLIMB_MAX: f64 = 1.5;
/// The weight of the newest loss in the mean.
const NEWEST: f64 = 0.05;

/// The losses of a run's iterations, as far as they say whether it still learns.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// The loss of one who guesses.
    guess: f64,
    seen: Option<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    first: f64,
    /// A moving mean.
    mean: f64,
    /// The least that the mean has been.
    best: f64,
    /// How many of the newest ones are above the limit.
    above: u64,
}

/// What a run was and what it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// What the mean loss had come down to.
    pub best: f64,
    /// What a loss may be at most, after that.
    pub limit: f64,
}

impl Losses {
    /// Of a model with so many tokens.
    #[must_use]
    pub fn new(vocab_size: u64) -> Self {
        Self { guess: (vocab_size.max(1) as f64).ln(), seen: None }
    }

    /// Takes the loss of one more iteration, a finite number.
    pub fn push(&mut self, loss: f64) {
        let limit = self.lost().limit;
        let seen = self.seen.get_or_insert(Seen { first: loss, mean: loss, best: loss, above: 0 });
        seen.mean += NEWEST * (loss - seen.mean);
        seen.best = seen.best.min(seen.mean);
        seen.above = if loss > limit { seen.above + 1 } else { 0 };
    }

    /// What is lost, where it has been for as long as one waits.
    #[must_use]
    pub fn diverged(&self) -> Option<Lost> {
        self.seen.filter(|seen| seen.above >= PATIENCE).map(|_| self.lost())
    }

    /// What is lost, where a mean over other batches says so.
    #[must_use]
    pub fn forgot(&self, mean_loss: f64) -> Option<Lost> {
        let lost = self.lost();
        (mean_loss > lost.limit).then_some(lost)
    }

    /// What is lost, by the newest iterations.
    #[must_use]
    pub fn forgetting(&self) -> Option<Lost> {
        self.forgot(self.seen?.mean)
    }

    fn lost(&self) -> Lost {
        let Some(Seen { first, best, .. }) = self.seen else {
            // What weights know that come from elsewhere is not known yet.
            return Lost { best: self.guess, limit: f64::INFINITY };
        };
        let learnt = self.guess - best;
        let limit = if learnt >= LEARNT_MIN { best + LOST_MAX * learnt } else { CLIMB_MAX * self.guess.max(first) };
        Lost { best, limit }
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

    /// The loss of GPT-2 124M, roughly: from guessing to 3.3 within some thousand iterations.
    fn learning(iter: u64) -> f64 {
        3.3 + 7.6 * (-(iter as f64) / 300.0).exp()
    }

    #[test]
    fn one_that_settles_at_the_tokens_frequencies_has_diverged() {
        let losses = after((0..3000).map(learning).chain((0..PATIENCE).map(|_| 7.5)));
        let lost = losses.diverged().expect("it is far above what it was");
        assert!((3.3..3.4).contains(&lost.best) && (7.0..7.1).contains(&lost.limit), "{lost:?}");
        assert_eq!(losses.forgetting(), Some(lost), "a checkpoint of it would be worth nothing");
    }

    #[test]
    fn one_that_climbs_before_it_learnt_anything_has_diverged() {
        let climbing = (0..400).map(|iter| 10.9 + 0.1 * f64::from(iter));
        assert!(after(climbing).diverged().is_some());
    }

    #[test]
    fn a_spike_is_none() {
        let spike = (1..PATIENCE).map(|_| 9.0);
        let losses = after((0..3000).map(learning).chain(spike).chain([3.4; 100]));
        assert_eq!(losses.diverged(), None);
        assert_eq!(losses.forgetting(), None, "what it learnt came back");
        assert!(losses.forgot(9.0).is_some(), "within the spike nothing is kept");
    }

    #[test]
    fn weights_from_elsewhere_may_begin_high() {
        assert_eq!(Losses::new(VOCAB_SIZE).forgot(30.0), None, "before the first iteration nothing is known");
        assert_eq!(after((0..1000).map(|iter| 18.0 - 0.01 * f64::from(iter))).diverged(), None);
    }

    /// A run that learns, however fast and noisy, is never stopped and always kept.
    #[test]
    fn what_learns_has_not_diverged() {
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
