//! The reference's element types: f32, as in production, and f64, for comparison with finite differences.

use std::fmt::Debug;
use std::iter::Sum;

use num_traits::{Float, NumAssign};

/// A floating-point type with the error function.
pub trait RealNumber: Float + NumAssign + Sum + Debug + Send + Sync + 'static {
    /// Rounds a constant to the type.
    fn of(value: f64) -> Self;

    /// Converts a count to the type.
    #[must_use]
    fn count(n: usize) -> Self {
        Self::of(n as f64)
    }

    /// The error function.
    #[must_use]
    fn erf(self) -> Self;

    /// Converts to f64, for comparisons.
    fn wide(self) -> f64;
}

impl RealNumber for f32 {
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

impl RealNumber for f64 {
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
