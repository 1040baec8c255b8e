//! What the reference computes in: f32 as it ships, f64 where gradients are held against finite differences.

use std::fmt::Debug;
use std::iter::Sum;

use num_traits::{Float, NumAssign};

/// A floating-point type with the error function.
pub trait Real: Float + NumAssign + Sum + Debug + Send + Sync + 'static {
    /// A constant.
    fn of(value: f64) -> Self;

    /// A count.
    #[must_use]
    fn count(n: usize) -> Self {
        Self::of(n as f64)
    }

    /// The error function.
    #[must_use]
    fn erf(self) -> Self;

    /// As f64, for comparisons.
    fn wide(self) -> f64;
}

impl Real for f32 {
    #[expect(clippy::cast_possible_truncation, reason = "constants are rounded to the type they are used in")]
    fn of(value: f64) -> Self {
        value as Self
    }

    fn erf(self) -> Self {
        libm::erff(self)
    }

    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Real for f64 {
    fn of(value: f64) -> Self {
        value
    }

    fn erf(self) -> Self {
        libm::erf(self)
    }

    fn wide(self) -> f64 {
        self
    }
}
