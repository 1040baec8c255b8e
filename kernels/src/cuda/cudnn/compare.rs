//! Whether two ways compute the same: random numbers on the card, and results held against each other.

use std::fmt;

use crate::{
    cuda::{Bf16, CudaError, Device, Slice},
    rng,
};

/// By how much two results may differ, in their length: both round to 16 bits, results and what they are made of, each by
/// 2^-9 of itself at most, and add up in other orders. A mask, a factor or an address that is wrong differs by about 1.
const TOLERANCE: f64 = 0.02;
/// What random numbers lie within.
const SPREAD: f32 = 2.0;

/// Fills a tensor with numbers as even as a hash of their places, sequence by sequence; `len` elements each.
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

/// Sequences that are compared: the first, one within, and the last.
pub fn picked(n: u64) -> Vec<u64> {
    let mut picked = vec![0, n / 2, n.saturating_sub(1)];
    picked.dedup();
    picked
}

/// By how much results differ from ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference(f64);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} %", self.0 * 100.0)
    }
}

/// By how much, where that is more than roundings; a result that is no number differs from any.
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
