//! Comparison of two implementations: random inputs on the GPU, and the distance of the results.

use std::fmt;

use crate::{
    cuda::{Bf16, CudaError, Device, Slice},
    rng,
};

/// Maximum relative L2 distance of two results. Both round results and intermediate values to 16 bits, each by at most
/// 2^-9 relative, and sum in different orders. A wrong mask, factor or address gives a distance of about 1.
const TOLERANCE: f64 = 0.02;
/// Bound of the random numbers' absolute values.
const SPREAD: f32 = 2.0;

/// Fills a tensor with uniform numbers, sequence by sequence of `len` elements. A number is a hash of its index.
#[track_caller]
pub fn fill(device: &Device, tensor: Slice<Bf16>, len: u64, key: u32) -> Result<(), CudaError> {
    for first in 0..tensor.len() / len.max(1) {
        let of = |index: u64| {
            #[expect(clippy::cast_possible_truncation, reason = "a hash of what is left is as random")]
            let hash = rng::hash(key, (first * len + index) as u32);
            // 24 bits are exact in f32.
            Bf16::from_f32(((hash >> 8) as f32 / 16_777_216.0 - 0.5) * 2.0 * SPREAD)
        };
        let values: Vec<Bf16> = (0..len).map(of).collect();
        device.write(tensor.part(first * len, len)?, &values)?;
    }
    Ok(())
}

/// Indices of the compared sequences: the first, the middle and the last.
pub fn picked(n: u64) -> Vec<u64> {
    let mut picked = vec![0, n / 2, n.saturating_sub(1)];
    picked.dedup();
    picked
}

/// Relative L2 distance of two results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference(f64);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

/// Returns the distance if it exceeds [`TOLERANCE`]. NaN in a result always does.
pub fn differs(ours: impl Iterator<Item = f32>, theirs: impl Iterator<Item = f32>) -> Option<Difference> {
    let (mut length, mut distance) = (0.0, 0.0);
    for (ours, theirs) in ours.zip(theirs).map(|(ours, theirs)| (f64::from(ours), f64::from(theirs))) {
        length += ours * ours;
        distance += (ours - theirs) * (ours - theirs);
    }
    let difference = (distance / length.max(f64::MIN_POSITIVE)).sqrt();
    let is_rounding = difference <= TOLERANCE;
    (!is_rounding).then_some(Difference(difference))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roundings_are_no_difference_and_all_else_is() {
        let ours = || (0..1000_u32).map(|i| rng::hash(1, i) as f32 / 4e9 - 0.5);
        let rounded = ours().map(|x| Bf16::from_f32(Bf16::from_f32(x * 1.004).to_f32()).to_f32());
        assert_eq!(differs(ours(), rounded), None);
        assert_eq!(differs(ours(), ours().map(|x| x * 1.05)).map(|by| by.to_string()).as_deref(), Some("5.0 %"));
        assert!(differs(ours(), ours().skip(1)).is_some());
        assert!(differs(ours(), ours().map(|x| if x > 0.49 { f32::NAN } else { x })).is_some());
        assert!(differs(ours(), ours().map(|_| 0.0)).is_some());
        assert_eq!(differs([0.0].into_iter(), [0.0].into_iter()), None);
    }

    #[test]
    fn the_first_and_the_last_are_compared() {
        assert_eq!([picked(1), picked(2), picked(64)], [vec![0], vec![0, 1], vec![0, 32, 63]]);
    }
}
