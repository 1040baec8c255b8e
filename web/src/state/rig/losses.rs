//! A run's losses, thinned so that a run of any length draws as fast as a short one.

use headroom_shared::protocol::event::What;

/// Points of a curve at most: more than a chart has pixels.
pub const POINTS_MAX: usize = 2_000;

/// Numbers along an axis, of which every first, second, fourth… is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Thinned {
    kept: Vec<(f64, f64)>,
    /// The newest, where it is not among those that are kept.
    last: Option<(f64, f64)>,
    stride: usize,
    n: usize,
}

impl Default for Thinned {
    fn default() -> Self {
        Self { kept: Vec::new(), last: None, stride: 1, n: 0 }
    }
}

impl Thinned {
    /// Takes a point that is further along than all before; others are left out.
    pub fn push(&mut self, x: f64, y: f64) {
        if self.newest().is_some_and(|(newest, _)| x <= newest) || !y.is_finite() {
            return;
        }
        self.last = Some((x, y));
        if self.n.is_multiple_of(self.stride) {
            self.kept.push((x, y));
            self.last = None;
        }
        self.n += 1;
        if self.kept.len() > POINTS_MAX {
            let mut at = 0;
            // What is left out may have been the newest.
            self.last = self.kept.last().copied();
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.stride *= 2;
            self.last = self.last.filter(|last| self.kept.last() != Some(last));
        }
    }

    /// The newest point.
    pub fn newest(&self) -> Option<(f64, f64)> {
        self.last.or_else(|| self.kept.last().copied())
    }

    /// All that are kept, and the newest.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.kept.iter().copied().chain(self.last)
    }
}

/// The curves of a run, by iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Losses {
    /// Of single iterations.
    pub iterations: Thinned,
    /// Means over training data, of evaluations.
    pub train: Thinned,
    /// Means over the data held back.
    pub val: Thinned,
}

impl Losses {
    /// Takes what an event says of losses.
    pub fn take(&mut self, what: &What) {
        match what {
            What::RunIteration(iteration) => {
                if let Some(loss) = iteration.loss {
                    self.iterations.push(iteration.iter as f64, loss);
                }
            }
            What::RunEvaluation(evaluation) => {
                let x = evaluation.iter as f64;
                if let Some(loss) = evaluation.train_loss {
                    self.train.push(x, loss);
                }
                if let Some(loss) = evaluation.val_loss {
                    self.val.push(x, loss);
                }
            }
            _ => {}
        }
    }

    /// Goes on with what was taken live while these were fetched.
    pub fn go_on(&mut self, live: Self) {
        for (own, live) in
            [(&mut self.iterations, live.iterations), (&mut self.train, live.train), (&mut self.val, live.val)]
        {
            live.points().for_each(|(x, y)| own.push(x, y));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_points_keep_their_ends_and_their_shape() {
        let mut curve = Thinned::default();
        for n in 0..1_000_000 {
            curve.push(f64::from(n), f64::from(n) * 2.0);
            if n % 9_973 == 0 {
                assert_eq!(curve.newest(), Some((f64::from(n), f64::from(n) * 2.0)));
            }
        }
        let points: Vec<_> = curve.points().collect();
        assert!(points.len() > POINTS_MAX / 2 && points.len() <= POINTS_MAX + 1, "{}", points.len());
        assert_eq!((points[0], points[points.len() - 1]), ((0.0, 0.0), (999_999.0, 1_999_998.0)));
        assert!(points.is_sorted_by(|a, b| a.0 < b.0));
        assert!(points.iter().all(|(x, y)| (y - x * 2.0).abs() < 1e-9));
    }

    #[test]
    fn what_is_told_twice_or_is_no_number_is_left_out() {
        let mut curve = Thinned::default();
        for (x, y) in [(1.0, 1.0), (2.0, 2.0), (2.0, 9.0), (1.0, 9.0), (3.0, f64::NAN), (4.0, 4.0)] {
            curve.push(x, y);
        }
        assert_eq!(curve.points().map(|point| point.1).collect::<Vec<_>>(), [1.0, 2.0, 4.0]);
    }
}
