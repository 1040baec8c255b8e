//! How results are compared: each element by itself, so that one that is wrong shows among thousands.

use crate::card::{Outcome, Wrong};

/// How far a result may be off: by as much, and by that share of the right one.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Whatever the right one is.
    pub absolute: f64,
    /// Of the right one.
    pub relative: f64,
}

/// What f32 rounds off, relative to a number: half of 2^-23.
pub const F32_ROUNDING: f64 = 5.97e-8;

/// Holds results against the right ones.
pub fn close(name: &str, given: &[f32], expected: &[f64], tolerance: Tolerance) -> Outcome {
    if given.len() != expected.len() || given.is_empty() {
        return Err(Wrong::Numbers(format!("{name}: {} results for {}", given.len(), expected.len())));
    }
    let mut wrong = 0;
    let mut worst: (f64, usize) = (0.0, 0);
    for (i, (&given, &expected)) in given.iter().zip(expected).enumerate() {
        let off = (f64::from(given) - expected).abs() / (tolerance.absolute + tolerance.relative * expected.abs());
        // A result that is no number is as far off as can be.
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
    Err(Wrong::Numbers(format!(
        "{name}: {wrong} of {} are off, the worst being element {i}: {} instead of {}, {off:.1} times what is tolerated",
        given.len(),
        given[i],
        expected[i]
    )))
}

/// The same with a bound for each: what went into a sum that nearly cancels may be far more than the sum.
pub fn close_each(name: &str, given: &[f32], expected: &[f64], bounds: &[f64]) -> Outcome {
    if given.len() != expected.len() || bounds.len() != expected.len() || given.is_empty() {
        return Err(Wrong::Numbers(format!("{name}: {} results for {}", given.len(), expected.len())));
    }
    let off = |i: usize| {
        let off = (f64::from(given[i]) - expected[i]).abs() / bounds[i].max(f64::MIN_POSITIVE);
        if off.is_nan() { f64::INFINITY } else { off }
    };
    let n_wrong = (0..given.len()).filter(|&i| off(i) > 1.0).count();
    match (0..given.len()).max_by(|&a, &b| off(a).total_cmp(&off(b))) {
        Some(i) if n_wrong > 0 => Err(Wrong::Numbers(format!(
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
fn what_is_off_by_its_own_bound_is_found() {
    assert!(close_each("x", &[1.0, 2.001], &[1.0, 2.0], &[0.0, 0.002]).is_ok());
    for (given, told) in [
        (vec![1.0, 2.003], "1 of 2 are off, the worst being element 1: 2.003 instead of 2, 1.5 times"),
        (vec![f32::NAN, 2.0], "1 of 2 are off, the worst being element 0: NaN instead of 1"),
        (vec![1.0], "1 results for 2"),
    ] {
        let error = close_each("x", &given, &[1.0, 2.0], &[0.001, 0.002]).expect_err("it is off");
        assert!(matches!(&error, Wrong::Numbers(text) if text.contains(told)), "{error:?}");
    }
}

#[test]
fn what_is_off_is_found() {
    let tolerance = Tolerance { absolute: 1e-6, relative: 1e-3 };
    assert!(close("x", &[1.0, 2.001], &[1.0, 2.0], tolerance).is_ok());
    for (given, told) in [
        (vec![1.0, 2.003], "1 of 2 are off, the worst being element 1: 2.003 instead of 2, 1.5 times"),
        (vec![f32::NAN, 2.0], "1 of 2 are off, the worst being element 0: NaN instead of 1"),
        (vec![1.0], "1 results for 2"),
    ] {
        let error = close("x", &given, &[1.0, 2.0], tolerance).expect_err("it is off");
        assert!(matches!(&error, Wrong::Numbers(text) if text.contains(told)), "{error:?}");
    }
}
