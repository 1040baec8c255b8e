//! Comparison of results element by element, so that a single wrong one is found among thousands.

use crate::gpu::{CheckFailure, Outcome};

/// The permitted error of a result: an absolute part plus a relative part.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// The error permitted for any expected value.
    pub absolute: f64,
    /// The error permitted in proportion to the expected value.
    pub relative: f64,
}

/// Relative rounding error of float32: half of 2^-23.
pub const F32_ROUNDING: f64 = 5.97e-8;

/// Compares results with the expected ones.
pub fn close(name: &str, given: &[f32], expected: &[f64], tolerance: Tolerance) -> Outcome {
    if given.len() != expected.len() || given.is_empty() {
        return Err(CheckFailure::Numbers(format!("{name}: {} results for {}", given.len(), expected.len())));
    }
    let mut wrong = 0;
    let mut worst: (f64, usize) = (0.0, 0);
    for (i, (&given, &expected)) in given.iter().zip(expected).enumerate() {
        let off = (f64::from(given) - expected).abs() / (tolerance.absolute + tolerance.relative * expected.abs());
        // A NaN counts as an infinite error.
        let off = if off.is_nan() { f64::INFINITY } else { off };
        if off > 1.0 {
            wrong += 1;
        }
        if off > worst.0 {
            worst = (off, i);
        }
    }
    if wrong == 0 {
        return Ok(());
    }
    let (off, i) = worst;
    Err(CheckFailure::Numbers(format!(
        "{name}: {wrong} of {} are off, the worst being element {i}: {} instead of {}, {off:.1} times what is tolerated",
        given.len(),
        given[i],
        expected[i]
    )))
}

/// Compares with a bound for each element. The terms of a sum that nearly cancels may be far larger than the sum.
pub fn close_each(name: &str, given: &[f32], expected: &[f64], bounds: &[f64]) -> Outcome {
    if given.len() != expected.len() || bounds.len() != expected.len() || given.is_empty() {
        return Err(CheckFailure::Numbers(format!("{name}: {} results for {}", given.len(), expected.len())));
    }
    let off = |i: usize| {
        let off = (f64::from(given[i]) - expected[i]).abs() / bounds[i].max(f64::MIN_POSITIVE);
        if off.is_nan() { f64::INFINITY } else { off }
    };
    let n_wrong = (0..given.len()).filter(|&i| off(i) > 1.0).count();
    match (0..given.len()).max_by(|&a, &b| off(a).total_cmp(&off(b))) {
        Some(i) if n_wrong > 0 => Err(CheckFailure::Numbers(format!(
            "{name}: {n_wrong} of {} are off, the worst being element {i}: {} instead of {}, {:.1} times what is tolerated",
            given.len(),
            given[i],
            expected[i],
            off(i)
        ))),
        _ => Ok(()),
    }
}

#[test]
fn deviation_at_bound_is_found() {
    assert!(close_each("x", &[1.0, 2.001], &[1.0, 2.0], &[0.0, 0.002]).is_ok());
    for (given, expected) in [
        (vec![1.0, 2.003], "1 of 2 are off, the worst being element 1: 2.003 instead of 2, 1.5 times"),
        (vec![f32::NAN, 2.0], "1 of 2 are off, the worst being element 0: NaN instead of 1"),
        (vec![1.0], "1 results for 2"),
    ] {
        let error = close_each("x", &given, &[1.0, 2.0], &[0.001, 0.002]).expect_err("it is off");
        assert!(matches!(&error, CheckFailure::Numbers(text) if text.contains(expected)), "{error:?}");
    }
}

#[test]
fn deviation_is_found() {
    let tolerance = Tolerance { absolute: 1e-6, relative: 1e-3 };
    assert!(close("x", &[1.0, 2.001], &[1.0, 2.0], tolerance).is_ok());
    for (given, expected) in [
        (vec![1.0, 2.003], "1 of 2 are off, the worst being element 1: 2.003 instead of 2, 1.5 times"),
        (vec![f32::NAN, 2.0], "1 of 2 are off, the worst being element 0: NaN instead of 1"),
        (vec![1.0], "1 results for 2"),
    ] {
        let error = close("x", &given, &[1.0, 2.0], tolerance).expect_err("it is off");
        assert!(matches!(&error, CheckFailure::Numbers(text) if text.contains(expected)), "{error:?}");
    }
}
