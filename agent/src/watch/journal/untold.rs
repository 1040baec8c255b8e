//! Iterations that viewers are not told yet. What is told is thinned to what a chart draws: of the iterations between two
//! times of telling, the least and the greatest loss, the first without a loss, and the newest.

use headroom_shared::protocol::run::Iteration;

/// Iterations since the last telling.
#[derive(Debug, Default)]
pub struct Untold {
    n: u64,
    /// Each with its place among all of them.
    least: Option<(u64, Iteration)>,
    greatest: Option<(u64, Iteration)>,
    no_loss: Option<(u64, Iteration)>,
    newest: Option<(u64, Iteration)>,
}

impl Untold {
    /// Takes an iteration.
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

    /// Those that are told, in the order in which they were printed; nothing is left.
    pub fn drain(&mut self) -> Vec<Iteration> {
        let Self { least, greatest, no_loss, newest, .. } = std::mem::take(self);
        let mut told: Vec<(u64, Iteration)> = [least, greatest, no_loss, newest].into_iter().flatten().collect();
        told.sort_by_key(|(place, _)| *place);
        told.dedup_by_key(|(place, _)| *place);
        told.into_iter().map(|(_, iteration)| iteration).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_and_the_newest_are_told_in_order() {
        let mut state = 1_u32;
        let mut chance = |n: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % n
        };
        for _ in 0..2000 {
            let losses: Vec<Option<f64>> =
                (0..chance(40)).map(|_| (chance(8) > 0).then(|| f64::from(chance(1000)))).collect();
            let mut untold = Untold::default();
            for (iter, loss) in (0..).zip(&losses) {
                untold.take(Iteration { iter, loss: *loss, ..Iteration::default() });
            }
            let told = untold.drain();
            assert!(told.len() <= 4 && told.is_sorted_by(|a, b| a.iter < b.iter));
            assert_eq!(told.last().map(|it| it.iter), (losses.len() as u64).checked_sub(1));
            let numbers = || losses.iter().flatten().copied();
            let told_numbers = || told.iter().filter_map(|it| it.loss);
            assert_eq!(told_numbers().reduce(f64::min), numbers().reduce(f64::min));
            assert_eq!(told_numbers().reduce(f64::max), numbers().reduce(f64::max));
            let first_without = (0..).zip(&losses).find(|(_, loss)| loss.is_none()).map(|(iter, _)| iter);
            assert_eq!(told.iter().find(|it| it.loss.is_none()).map(|it| it.iter), first_without);
            assert!(untold.drain().is_empty());
        }
    }
}
