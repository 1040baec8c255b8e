//! Dropout as a separate op.

use headroom_kernels::{
    cuda::{Device, ops::dropout::dropout},
    reference::dropout::{self, Dropout},
};

use crate::{
    compare::{F32_ROUNDING, Tolerance, close},
    gpu::{Outcome, holds, normals_bf16},
    numbers::{BF16_ROUNDING, read, wide},
};

/// A product in float32, rounded to bfloat16.
const TOLERANCE: Tolerance = Tolerance { absolute: 1e-40, relative: BF16_ROUNDING + F32_ROUNDING };

pub fn check(device: &Device, n: usize, p: f64, in_place: bool) -> Outcome {
    let mask = Dropout::new(p, 0x1234_5678).expect("p is above 0");
    let inp = normals_bf16(n as u64, n);
    let mut expected = wide(&inp);
    dropout::dropout(&mut expected, mask);
    let (inp, out) = (device.upload(&inp)?, device.allocate(n as u64)?);
    let out = if in_place { inp.slice() } else { out.slice() };
    dropout(device, out, inp.slice(), mask)?;
    // Dropped elements are exactly 0.
    close("out", &read(device, out)?, &expected, TOLERANCE)
}

#[test]
fn the_same_elements_are_dropped_as_on_the_cpu() {
    for (n, p) in [(8, 0.5), (2048, 0.1), (5000, 0.9)] {
        for in_place in [false, true] {
            holds(|device| check(device, n, p, in_place));
        }
    }
}
