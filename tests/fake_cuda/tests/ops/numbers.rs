//! Conversion of tensors between the GPU and the reference.

use std::cell::RefCell;

use headroom_kernels::cuda::{Bf16, Device, Slice};

use crate::gpu::{CheckFailure, holds};

/// Largest relative error of rounding to bfloat16: half of the distance between 1 and the next number.
pub const BF16_ROUNDING: f64 = 1.0 / 256.0;

/// Converts bfloat16 numbers to f64.
pub fn wide(values: &[Bf16]) -> Vec<f64> {
    values.iter().map(|value| f64::from(value.to_f32())).collect()
}

/// Converts float32 numbers to f64.
pub fn wide_f32(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Reads a kernel's results.
pub fn read(device: &Device, from: Slice<Bf16>) -> Result<Vec<f32>, CheckFailure> {
    Ok(device.download(from)?.into_iter().map(Bf16::to_f32).collect())
}

/// Asserts that a computation gives the same bits each time, for every order of threads.
#[track_caller]
pub fn repeats(compute: impl Fn(&Device) -> Result<Vec<f32>, CheckFailure>) {
    let first: RefCell<Option<Vec<u32>>> = RefCell::default();
    holds(|device| {
        for _ in 0..2 {
            let bits: Vec<u32> = compute(device)?.into_iter().map(f32::to_bits).collect();
            let mut first = first.borrow_mut();
            if first.get_or_insert_with(|| bits.clone()) != &bits {
                return Err(CheckFailure::Numbers("other bits than the first time".to_owned()));
            }
        }
        Ok(())
    });
}
