//! Numbers of a run that people change to make it fit, and the search for the largest that does.

use super::largest;

/// A number of a run that people change to make it fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Key of the trainer.
    pub key: &'static str,
    /// Value of the run.
    pub value: u64,
    /// Tried values are multiples of this number.
    pub step: u64,
    /// Largest value that is tried.
    pub max: u64,
}

impl Knob {
    /// The values to try, ascending: multiples of the step, and the value of the run.
    #[must_use]
    pub fn values(&self) -> Vec<u64> {
        let step = self.step.max(1);
        let mut values: Vec<u64> = (1..=self.max / step).map(|n| n * step).collect();
        if let Err(at) = values.binary_search(&self.value) {
            values.insert(at, self.value);
        }
        values
    }
}

/// The largest of these ascending values that passes, by bisection. `None` if the smallest does not pass.
#[must_use]
pub fn largest_of(values: &[u64], passes: impl Fn(u64) -> bool) -> Option<u64> {
    let passes_at = |index: u64| usize::try_from(index).ok().and_then(|at| values.get(at)).is_some_and(|v| passes(*v));
    if !passes_at(0) {
        return None;
    }
    let (mut passing, mut beyond) = (0, 1);
    while passes_at(beyond) {
        (passing, beyond) = (beyond, beyond * 2 + 1);
    }
    let found = largest(passing, beyond.min(values.len() as u64), passes_at);
    usize::try_from(found).ok().and_then(|at| values.get(at)).copied()
}
