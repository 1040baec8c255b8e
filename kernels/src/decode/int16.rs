//! Weights as 16-bit integers, which take half the bytes of f32 and widen faster than float16.
//!
//! A row is integers and one scale. Two adjacent weights share a 32-bit lane, the even one in the lower half. The lane
//! shifted left by 16 bits is 65,536 times the even one. The unshifted lane is 65,536 times the odd one, plus the even
//! one's bits as a fraction. The odd weight is rounded with that fraction included, so no instruction is needed to
//! remove it. One conversion each gives f32. So 2L weights take one load, one shift and two conversions of L lanes. The
//! activations are deinterleaved once for all rows.
//!
//! Error: at most half a step, which is the row's largest magnitude over 32,767. The conversion adds 2^-24 of the
//! value.

use crate::simd::pair;

/// A row's largest integer. The row's scale is its largest magnitude divided by this and by the 2^16 of [`pair`].
const LARGEST: f64 = 32_767.0;

/// The unit of a lane's fraction: 2^16.
const FRACTION: f64 = 65_536.0;

/// The error for an infinite or NaN weight, which integers cannot represent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotFinite;

/// Writes a row of weights as integers, and returns its scale.
pub(super) fn encode(ints: &mut [i16], row: &[f32]) -> Result<f32, NotFinite> {
    assert_eq!(ints.len(), row.len(), "an integer a weight");
    if row.iter().any(|weight| !weight.is_finite()) {
        return Err(NotFinite);
    }
    let largest = row.iter().fold(0.0_f32, |largest, weight| largest.max(weight.abs()));
    #[expect(clippy::cast_possible_truncation, reason = "the scale is stored in f32")]
    let scale = (f64::from(largest) / LARGEST / FRACTION) as f32;
    if !scale.is_normal() {
        // The row has no magnitude above 10^-28.
        ints.fill(0);
        return Ok(0.0);
    }
    let step = f64::from(scale) * FRACTION;
    for (ints, row) in ints.chunks_mut(2).zip(row.chunks(2)) {
        ints[0] = nearest(f64::from(row[0]) / step);
        if let [even, odd] = ints {
            *odd = nearest(f64::from(row[1]) / step - f64::from(even.cast_unsigned()) / FRACTION);
        }
    }
    Ok(scale)
}

#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
fn nearest(value: f64) -> i16 {
    value.round() as i16
}

/// One weight, without its row's scale.
#[inline(always)]
pub(super) fn weight(row: &[i16], i: usize) -> f32 {
    if i.is_multiple_of(2) { pair(row[i], 0).0 } else { pair(row[i - 1], row[i]).1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    #[expect(clippy::cast_possible_truncation, reason = "random weights")]
    fn normal(n: usize) -> Vec<f32> {
        let mut stream = Stream::new(5, 5);
        (0..n).map(|_| stream.normal() as f32 * 0.02).collect()
    }

    fn errors(row: &[f32]) -> (Vec<f64>, f64) {
        let mut ints = vec![0; row.len()];
        let scale = encode(&mut ints, row).expect("finite");
        let errors = row.iter().enumerate().map(|(i, &w)| f64::from(weight(&ints, i) * scale) - f64::from(w)).collect();
        (errors, f64::from(scale) * FRACTION)
    }

    #[test]
    fn every_weight_is_off_by_half_a_step_at_most() {
        for n in [1, 2, 7, 768] {
            let row = normal(n);
            let (errors, step) = errors(&row);
            let worst = errors.iter().fold(0.0_f64, |worst, error| worst.max(error.abs()));
            assert!(worst <= step * 0.51, "{n}: {worst} for steps of {step}");
        }
    }

    /// float16 keeps 11 bits: its error is uniform over half a unit in the last place to either side.
    #[test]
    fn on_normal_weights_the_mean_error_is_below_that_of_float16() {
        let row = normal(768);
        let ours = errors(&row).0.iter().map(|error| error * error).sum::<f64>();
        let place = |w: f32| f64::from(w.abs()).log2().floor().exp2() / 1024.0;
        let float16 = row.iter().map(|&w| place(w) * place(w) / 12.0).sum::<f64>();
        assert!(ours < float16 / 4.0, "{ours} against {float16}, squared");
    }

    #[test]
    fn the_odd_neighbour_knows_of_the_even_one() {
        // Otherwise the even weight's bits would cause an error of up to a whole step in the odd one.
        let (errors, step) = errors(&[-1e-4, 1.0, 0.99, -0.5, -0.7, 0.3]);
        assert!(errors.iter().all(|error| error.abs() <= step * 0.51), "{errors:?} for steps of {step}");
    }

    #[test]
    fn extremes_are_reported_or_kept() {
        assert_eq!(encode(&mut [0; 2], &[1.0, f32::NAN]), Err(NotFinite));
        assert_eq!(encode(&mut [0; 1], &[f32::INFINITY]), Err(NotFinite));
        assert_eq!(encode(&mut [1; 2], &[0.0, -0.0]), Ok(0.0));
        let (errors, step) = errors(&[1e38, -1e38, 1e38, 1e38]);
        assert!(errors.iter().all(|error| error.abs() <= step * 0.51), "{errors:?}");
    }
}
