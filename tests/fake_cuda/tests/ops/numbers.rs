//! Tensors between the card and the reference.

use std::cell::RefCell;

use headroom_kernels::cuda::{Bf16, Device, Slice};

use crate::card::{Wrong, holds};

/// What rounding to bfloat16 is off by at most, relative to a number: half of the distance between 1 and the next.
pub const BF16_ROUNDING: f64 = 1.0 / 256.0;

/// What the card keeps, for the reference.
pub fn wide(values: &[Bf16]) -> Vec<f64> {
    values.iter().map(|value| f64::from(value.to_f32())).collect()
}

/// The same of 32 bits.
pub fn wide_f32(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// What a kernel left.
pub fn read(device: &Device, from: Slice<Bf16>) -> Result<Vec<f32>, Wrong> {
    Ok(device.download(from)?.into_iter().map(Bf16::to_f32).collect())
}

/// Holds that a computation gives the same bits each time, whatever the order of its threads.
#[track_caller]
pub fn repeats(compute: impl Fn(&Device) -> Result<Vec<f32>, Wrong>) {
    let first: RefCell<Option<Vec<u32>>> = RefCell::default();
    holds(|device| {
        for _ in 0..2 {
            let bits: Vec<u32> = compute(device)?.into_iter().map(f32::to_bits).collect();
            let mut first = first.borrow_mut();
            if first.get_or_insert_with(|| bits.clone()) != &bits {
                return Err(Wrong::Numbers("other bits than the first time".to_owned()));
            }
        }
        Ok(())
    });
}
