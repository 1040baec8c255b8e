//! A run's losses, thinned so that a run of any length draws as fast as a short one. Thinning keeps the extremes, the
//! newest loss, and the losses that are not finite.

use headroom_protocol::event::EventKind;

use crate::text::{self, Text};

use super::scale;

/// The most points kept of each kind: more than a chart has pixels.
pub const KEPT_MAX: usize = 4000;
/// The size of the groups of which thinning keeps the minimum and the maximum.
const GROUP: usize = 4;

/// A value of a printed iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The iteration.
    pub iter: u64,
    /// The loss or another value; `None` if it is not finite.
    pub loss: Option<f64>,
}

/// A printed evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The iteration that follows it.
    pub iter: u64,
    /// The loss on the training data.
    pub train: Option<f64>,
    /// The loss on the validation data.
    pub val: Option<f64>,
}

/// The losses of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    iterations: Vec<Point>,
    evaluations: Vec<Evaluation>,
    /// Learning rates and gradient norms, of runs that print them.
    besides: [Vec<Point>; 2],
    /// The last planned iteration, if known.
    pub max_iters: Option<u64>,
}

impl Losses {
    /// Returns whether nothing was printed.
    pub const fn is_empty(&self) -> bool {
        self.iterations.is_empty() && self.evaluations.is_empty()
    }

    /// Applies an event that concerns losses.
    pub fn take(&mut self, what: &EventKind) {
        match what {
            EventKind::RunConfig { max_iters, .. } => self.max_iters = max_iters.or(self.max_iters),
            EventKind::RunUnplanned { max_iters, .. } => self.max_iters = *max_iters,
            EventKind::RunIteration(iteration) => {
                self.take_iteration(iteration.iter, iteration.loss);
                for (points, value) in self.besides.iter_mut().zip([iteration.learning_rate, iteration.gradient_norm]) {
                    // A run that never prints the value gets no list of missing ones.
                    if value.is_some() || !points.is_empty() {
                        put(points, iteration.iter, value);
                    }
                }
            }
            EventKind::RunEvaluation(found) => self.take_evaluation(found.iter, found.train_loss, found.val_loss),
            _ => {}
        }
    }

    /// Appends newer losses, which may overlap these.
    pub fn go_on(&mut self, live: &Self) {
        live.iterations.iter().for_each(|point| self.take_iteration(point.iter, point.loss));
        live.evaluations.iter().for_each(|found| self.take_evaluation(found.iter, found.train, found.val));
        for (points, live) in self.besides.iter_mut().zip(&live.besides) {
            live.iter().for_each(|point| put(points, point.iter, point.loss));
        }
        self.max_iters = live.max_iters.or(self.max_iters);
    }

    /// Adds a printed iteration. A resumed run repeats iterations after its checkpoint; the newer ones replace the
    /// older ones.
    pub fn take_iteration(&mut self, iter: u64, loss: Option<f64>) {
        // Later evaluations belong to the discarded part of the run.
        if self.iterations.last().is_some_and(|last| last.iter >= iter) {
            self.evaluations.truncate(self.evaluations.partition_point(|evaluation| evaluation.iter <= iter));
        }
        put(&mut self.iterations, iter, loss);
    }

    /// Adds a printed evaluation.
    pub fn take_evaluation(&mut self, iter: u64, train: Option<f64>, val: Option<f64>) {
        self.evaluations.truncate(self.evaluations.partition_point(|evaluation| evaluation.iter < iter));
        let [train, val] = [train, val].map(|loss| loss.filter(|loss| loss.is_finite()));
        self.evaluations.push(Evaluation { iter, train, val });
        thin(&mut self.evaluations, |evaluation| evaluation.val.or(evaluation.train));
    }

    /// The kept iterations, ascending.
    pub fn iterations(&self) -> &[Point] {
        &self.iterations
    }

    /// The kept evaluations, ascending.
    pub fn evaluations(&self) -> &[Evaluation] {
        &self.evaluations
    }

    /// Learning rates and gradient norms; empty if the run does not print them.
    pub const fn besides(&self) -> &[Vec<Point>; 2] {
        &self.besides
    }

    /// The newest iteration with data.
    pub fn newest(&self) -> Option<u64> {
        let iteration = self.iterations.last().map(|point| point.iter);
        iteration.max(self.evaluations.last().map(|evaluation| evaluation.iter))
    }

    /// A summary of the run's losses, in sentences.
    pub fn summary(&self) -> Vec<Text> {
        let mut said = Vec::new();
        if let Some(Point { iter, loss }) = self.iterations.last().copied() {
            said.push(match self.max_iters.filter(|max_iters| *max_iters >= iter) {
                Some(max_iters) => text::losses_now_of(text::count(iter), text::count(max_iters), words(loss)),
                None => text::losses_now(text::count(iter), words(loss)),
            });
        }
        if let Some(Evaluation { iter, train, val }) = self.evaluations.last().copied() {
            said.push(text::losses_evaluated(text::count(iter), words(train), words(val)));
            let best = self.evaluations.iter().filter_map(|evaluation| Some((evaluation.val?, evaluation.iter)));
            let best = best.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(_, best)| *best != iter);
            said.extend(best.map(|(val, iter)| text::losses_best(words(Some(val)), text::count(iter))));
        }
        let lost = self.iterations.iter().find(|point| point.loss.is_none());
        said.extend(lost.map(|point| text::losses_not_a_number(text::count(point.iter))));
        said
    }
}

/// A loss in words.
pub fn words(loss: Option<f64>) -> String {
    loss.map_or_else(|| "NaN".to_owned(), scale::loss)
}

/// Appends a value after those of earlier iterations. Values of later iterations are removed: they belong to the
/// discarded part of the run.
fn put(points: &mut Vec<Point>, iter: u64, value: Option<f64>) {
    points.truncate(points.partition_point(|point| point.iter < iter));
    points.push(Point { iter, loss: value.filter(|value| value.is_finite()) });
    thin(points, |point| point.loss);
}

/// Halves a list that is too long. Each group keeps its minimum, its maximum and its first point without a number. The
/// last group is kept whole.
fn thin<T: Copy>(points: &mut Vec<T>, value: impl Fn(&T) -> Option<f64>) {
    if points.len() <= KEPT_MAX {
        return;
    }
    let whole_from = (points.len() - 1) / GROUP * GROUP;
    let mut keeps = vec![false; whole_from];
    for (group, keeps) in points.chunks(GROUP).zip(keeps.chunks_mut(GROUP)) {
        let numbers = || group.iter().enumerate().filter_map(|(index, point)| Some((index, value(point)?)));
        let least = numbers().min_by(|a, b| a.1.total_cmp(&b.1));
        let greatest = numbers().max_by(|a, b| a.1.total_cmp(&b.1));
        let none = group.iter().position(|point| value(point).is_none());
        for index in [least.map(|found| found.0), greatest.map(|found| found.0), none].into_iter().flatten() {
            keeps[index] = true;
        }
    }
    let mut index = 0;
    points.retain(|_| {
        index += 1;
        keeps.get(index - 1).copied().unwrap_or(true)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_protocol::run::Iteration;
    use proptest::prelude::*;

    fn of(points: &[(u64, Option<f64>)]) -> Losses {
        let mut losses = Losses::default();
        for (iter, loss) in points {
            losses.take_iteration(*iter, *loss);
        }
        losses
    }

    #[test]
    fn a_run_of_any_length_keeps_extremes_and_the_newest() {
        let mut losses = Losses::default();
        for iter in 0..600_000_u64 {
            let loss = match iter {
                123_456 => 99.0,
                300_001 => 0.001,
                _ => 3.0 + (iter % 7) as f64 / 100.0,
            };
            losses.take_iteration(iter, (iter != 77_777).then_some(loss));
            assert!(losses.iterations().len() <= KEPT_MAX);
        }
        let kept = losses.iterations();
        assert!(kept.len() > KEPT_MAX / 3, "{}", kept.len());
        for iter in [123_456, 300_001, 77_777, 599_999] {
            assert!(kept.iter().any(|point| point.iter == iter), "{iter}");
        }
        assert!(kept.windows(2).all(|two| two[0].iter < two[1].iter));
    }

    #[test]
    fn a_run_that_goes_on_from_a_checkpoint_takes_the_place_of_what_it_repeats() {
        let losses = of(&[(0, Some(11.0)), (10, Some(9.0)), (20, Some(8.0)), (10, Some(8.5)), (20, Some(7.5))]);
        let kept: Vec<(u64, Option<f64>)> = losses.iterations().iter().map(|point| (point.iter, point.loss)).collect();
        assert_eq!(kept, [(0, Some(11.0)), (10, Some(8.5)), (20, Some(7.5))]);
    }

    #[test]
    fn going_back_drops_evaluations_of_the_way_that_was_not_gone_and_what_was_printed_besides() {
        let mut losses = Losses::default();
        let iteration = |iter, learning_rate| {
            EventKind::RunIteration(Iteration { iter, loss: Some(3.0), learning_rate, ..Iteration::default() })
        };
        for iter in 0..40 {
            losses.take(&iteration(iter, Some(1e-3 * iter as f64)));
            if iter % 10 == 9 {
                losses.take_evaluation(iter + 1, Some(3.0), Some(3.1));
            }
        }
        losses.take(&iteration(20, Some(0.5)));
        assert_eq!(losses.evaluations().iter().map(|found| found.iter).collect::<Vec<_>>(), [10, 20]);
        let [rates, norms] = losses.besides();
        assert_eq!((rates.len(), rates[20].loss), (21, Some(0.5)));
        assert!(norms.is_empty(), "none was printed");
        let mut all = Losses::default();
        all.go_on(&losses);
        assert_eq!(all.besides(), losses.besides());
    }

    #[test]
    fn losses_are_said_with_what_matters() {
        let mut losses = of(&[(1000, Some(3.21456)), (1001, Some(f64::NAN))]);
        losses.max_iters = Some(600_000);
        losses.take_evaluation(500, Some(3.0), Some(3.1));
        losses.take_evaluation(1000, Some(2.9), Some(3.2));
        let said: Vec<String> = losses.summary().iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[0].contains("1,001 of 600,000") && said[0].contains("NaN"), "{said:?}");
        assert!(said[1].contains("2.9000") && said[1].contains("3.2000"), "{said:?}");
        assert!(said[2].contains("3.1000") && said[2].contains("500"), "{said:?}");
        assert!(said[3].contains("1,001"), "{said:?}");
        assert!(Losses::default().summary().is_empty());
    }

    proptest! {
        #[test]
        fn printed_losses_are_ordered_and_bounded(
            points in prop::collection::vec((0_u64..20_000, prop::option::of(any::<f64>())), 0..200),
            n_more in 0_u64..10_000,
        ) {
            let mut losses = of(&points);
            for iter in 0..n_more {
                losses.take_iteration(20_000 + iter, (iter % 3 > 0).then_some(iter as f64));
            }
            let kept = losses.iterations();
            prop_assert!(kept.len() <= KEPT_MAX);
            prop_assert!(kept.windows(2).all(|two| two[0].iter < two[1].iter));
            let newest = if n_more > 0 { Some(20_000 + n_more - 1) } else { points.last().map(|point| point.0) };
            prop_assert_eq!(losses.newest(), newest);
        }
    }
}
