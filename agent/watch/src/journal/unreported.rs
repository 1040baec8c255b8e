//! Iterations that are not sent to viewers yet, thinned to what a chart can draw. Of the iterations between two updates
//! these remain: the lowest and the highest loss, the first without a loss, and the newest.

use headroom_protocol::run::Iteration;

/// Iterations since the last update.
#[derive(Debug, Default)]
pub struct Unreported {
    n: u64,
    /// Each with its position in the sequence.
    least: Option<(u64, Iteration)>,
    greatest: Option<(u64, Iteration)>,
    no_loss: Option<(u64, Iteration)>,
    newest: Option<(u64, Iteration)>,
}

impl Unreported {
    /// Adds an iteration.
    pub fn take(&mut self, iteration: Iteration) {
        self.n += 1;
        let found = Some((self.n, iteration));
        let loss = |kept: &Option<(u64, Iteration)>| kept.as_ref().and_then(|(_, kept)| kept.loss);
        match iteration.loss {
            None => self.no_loss = self.no_loss.or(found),
            Some(new) => {
                if loss(&self.least).is_none_or(|least| new < least) {
                    self.least = found;
                }
                if loss(&self.greatest).is_none_or(|greatest| new > greatest) {
                    self.greatest = found;
                }
            }
        }
        self.newest = found;
    }

    /// Whether no iterations are pending.
    pub const fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Takes the selected iterations, in the order of printing.
    pub fn drain(&mut self) -> Vec<Iteration> {
        let Self { least, greatest, no_loss, newest, .. } = std::mem::take(self);
        let mut iterations: Vec<(u64, Iteration)> = [least, greatest, no_loss, newest].into_iter().flatten().collect();
        iterations.sort_by_key(|(place, _)| *place);
        iterations.dedup_by_key(|(place, _)| *place);
        iterations.into_iter().map(|(_, iteration)| iteration).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_and_the_newest_are_reported_in_order() {
        let mut state = 1_u32;
        let mut chance = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % n
        };
        for _ in 0..2000 {
            let losses: Vec<Option<f64>> =
                (0..chance(40)).map(|_| (chance(8) > 0).then(|| f64::from(chance(1000)))).collect();
            let mut unreported = Unreported::default();
            for (iter, loss) in (0..).zip(&losses) {
                unreported.take(Iteration { iter, loss: *loss, ..Iteration::default() });
            }
            let iterations = unreported.drain();
            assert!(iterations.len() <= 4 && iterations.is_sorted_by(|a, b| a.iter < b.iter));
            assert_eq!(iterations.last().map(|it| it.iter), (losses.len() as u64).checked_sub(1));
            let numbers = || losses.iter().flatten().copied();
            let reported_numbers = || iterations.iter().filter_map(|it| it.loss);
            assert_eq!(reported_numbers().reduce(f64::min), numbers().reduce(f64::min));
            assert_eq!(reported_numbers().reduce(f64::max), numbers().reduce(f64::max));
            let first_without = (0..).zip(&losses).find(|(_, loss)| loss.is_none()).map(|(iter, _)| iter);
            assert_eq!(iterations.iter().find(|it| it.loss.is_none()).map(|it| it.iter), first_without);
            assert!(unreported.drain().is_empty());
        }
    }
}
