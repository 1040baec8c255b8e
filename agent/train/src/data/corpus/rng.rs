//! Random number generator of the stories: SplitMix64, so that a seed gives the same bytes on every machine.

use headroom_kernels::rng::{GOLDEN_GAMMA, split_mix};

/// Random number generator. It uses integers only, so no platform rounds differently.
#[derive(Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator with a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        let number = split_mix(self.state);
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        number
    }

    /// Returns a number from `first` to `last`, inclusive.
    pub fn within(&mut self, first: u32, last: u32) -> u32 {
        assert!(first <= last, "{first} to {last} is an empty range");
        let n = u128::from(last - first) + 1;
        let above = (u128::from(self.next()) * n) >> 64;
        first + u32::try_from(above).expect("it is below n")
    }

    /// Returns an index into a list of length `len`.
    pub fn index(&mut self, len: usize) -> usize {
        let last = u32::try_from(len).expect("a list of words") - 1;
        self.within(0, last) as usize
    }

    /// Returns a random element.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.index(list.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_paper() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.next(), rng.next()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn every_number_of_a_range_comes() {
        let mut rng = Rng::new(1);
        let seen: std::collections::BTreeSet<u32> = (0..200).map(|_| rng.within(3, 9)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6, 7, 8, 9]);
    }
}
