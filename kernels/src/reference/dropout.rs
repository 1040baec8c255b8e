//! Dropout with a mask that is a function of a key and an element's index.
//!
//! Backward needs no stored mask, and results do not depend on how the work is divided.

use super::RealNumber;
use crate::rng::hash;

/// A dropout mask, as a function, and its scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Elements with a smaller hash are dropped.
    threshold: u32,
    /// 1 / (1 - p).
    scale: f32,
    key: u32,
}

impl Dropout {
    /// Creates a dropout of probability `p`, from 0 to below 1; `key` distinguishes it from others. `None` if `p` is 0.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "p is below 1, so is its share of 2^32"
    )]
    pub fn new(p: f64, key: u32) -> Option<Self> {
        (p > 0.0).then(|| Self { threshold: (p * 4_294_967_296.0) as u32, scale: (1.0 / (1.0 - p)) as f32, key })
    }

    /// A kernel's parameters: the hash threshold below which an element is dropped, the factor of the others, and the
    /// key.
    #[must_use]
    pub const fn parts(&self) -> (u32, f32, u32) {
        (self.threshold, self.scale, self.key)
    }

    /// The factor of element `index`: 0 or 1 / (1 - p).
    #[must_use]
    #[inline(always)]
    pub fn factor(&self, index: u32) -> f32 {
        if hash(self.key, index) < self.threshold { 0.0 } else { self.scale }
    }
}

/// Multiplies each element by its factor, in forward and, for the gradient, in backward.
///
/// # Panics
/// If there are more than 2^32 elements.
pub fn dropout<F: RealNumber>(inout: &mut [F], dropout: Dropout) {
    for (x, index) in inout.iter_mut().zip(0_u32..) {
        *x *= F::of(f64::from(dropout.factor(index)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_its_share_and_keeps_the_mean() {
        let mut x = vec![1.0_f64; 1 << 16];
        dropout(&mut x, Dropout::new(0.2, 7).expect("p is above 0"));
        let dropped = x.iter().filter(|&&x| x == 0.0).count() as f64 / x.len() as f64;
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        assert!((dropped - 0.2).abs() < 0.01, "{dropped}");
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }

    #[test]
    fn keys_drop_differently() {
        let [a, b] = [1, 2].map(|key| Dropout::new(0.5, key).expect("p is above 0"));
        let same = (0..4096).filter(|&i| a.factor(i) == b.factor(i)).count();
        assert!((1900..2200).contains(&same), "{same} of 4096 agree");
    }

    #[test]
    fn zero_probability_gives_no_dropout() {
        assert_eq!(Dropout::new(0.0, 1), None);
    }
}
