//! GELU and its gradient, for every bfloat16 number.

use headroom_kernels::{
    cuda::{
        Bf16, Device,
        ops::gelu::{gelu_backward, gelu_forward},
    },
    reference::gelu,
};

use crate::{
    compare::{Tolerance, close},
    gpu::{Outcome, catches, holds, normals_bf16},
    numbers::{BF16_ROUNDING, read, wide},
};

/// Phi's tail is fitted to a relative error of 6.1e-5. The reference adds 1 and a negative number near -1, so its error
/// is relative to 1, times x.
const TAIL: f64 = 7e-5;
const FORWARD: Tolerance = Tolerance { absolute: 1e-14, relative: BF16_ROUNDING + TAIL };

/// Returns every finite number.
fn all() -> Vec<Bf16> {
    (0..=u16::MAX).map(Bf16::from_bits).filter(|value| value.to_f32().is_finite()).collect()
}

pub fn forward(device: &Device, inp: &[Bf16]) -> Outcome {
    let mut expected = vec![0.0; inp.len()];
    gelu::gelu_forward(&mut expected, &wide(inp));
    let (inp, out) = (device.upload(inp)?, device.allocate(inp.len() as u64)?);
    gelu_forward(device, out.slice(), inp.slice())?;
    close("out", &read(device, out.slice())?, &expected, FORWARD)
}

/// The derivative crosses 0 near -0.75. There the error is relative to the terms that cancel, both below 0.23 of dout.
pub fn backward(device: &Device, inp: &[Bf16], in_place: bool) -> Outcome {
    let dout = normals_bf16(1, inp.len());
    let largest = wide(&dout).into_iter().fold(0.0, |largest: f64, d| largest.max(d.abs()));
    let tolerance = Tolerance { absolute: 2.0 * 0.23 * TAIL * largest, relative: BF16_ROUNDING + TAIL };
    let mut expected = vec![0.0; inp.len()];
    gelu::gelu_backward(&mut expected, &wide(&dout), &wide(inp));
    let (inp, dout) = (device.upload(inp)?, device.upload(&dout)?);
    let dinp = device.allocate(inp.slice().len())?;
    let dinp = if in_place { dout.slice() } else { dinp.slice() };
    gelu_backward(device, dinp, dout.slice(), inp.slice())?;
    close("dinp", &read(device, dinp)?, &expected, tolerance)
}

#[test]
fn gelu_is_that_of_the_reference_for_every_number() {
    holds(|device| forward(device, &all()));
}

#[test]
fn gelu_is_right_for_any_number_of_eights() {
    for n in [8, 2040, 2048, 2056] {
        holds(|device| forward(device, &normals_bf16(2, n)));
    }
}

#[test]
fn its_gradient_is_that_of_the_reference_for_every_number() {
    holds(|device| {
        // Beyond this the f64 reference is NaN: infinity times 0.
        let inp: Vec<_> = all().into_iter().filter(|x| x.to_f32().abs() < 1e18).collect();
        let inp = &inp[..inp.len() / 8 * 8];
        backward(device, inp, false)?;
        backward(device, inp, true)
    });
}

#[test]
fn eights_that_two_threads_write_are_noticed() {
    catches("gelu_forward", "two_threads_an_eight", |device| forward(device, &normals_bf16(2, 2048)));
}

#[test]
fn other_lengths_are_refused() {
    holds(|device| {
        let [nine, eight] = [9, 8].map(|n| device.upload(&normals_bf16(0, n)));
        let (nine, eight) = (nine?, eight?);
        let error = gelu_forward(device, nine.slice(), nine.slice()).expect_err("9 elements");
        assert_eq!(error.to_string(), "gelu_forward: the number of elements is 9, and has to be a multiple of 8");
        let error = gelu_backward(device, eight.slice(), nine.slice(), eight.slice()).expect_err("9 of 8");
        assert_eq!(error.to_string(), "gelu_backward: dout has 9 elements instead of 8");
        Ok(())
    });
}
