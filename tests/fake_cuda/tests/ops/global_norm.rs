//! The norm of all gradients.

use headroom_kernels::{
    cuda::{
        Device,
        ops::global_norm::{N_SUMS, global_norm},
    },
    reference::global_norm::sum_of_squares,
};

use crate::{
    compare::{F32_ROUNDING, Tolerance, close},
    gpu::{Outcome, catches, holds, normals},
};

/// A thread sums one in 2^19 squares, then a block sums 512 threads, and one block 1024 sums. In these sizes a square
/// passes at most 20 roundings of positive sums, and the root halves the error.
const TOLERANCE: Tolerance = Tolerance { absolute: 0.0, relative: 20.0 * F32_ROUNDING };

pub fn check(device: &Device, n: usize) -> Outcome {
    let grads = normals(n as u64, n);
    let expected = sum_of_squares(&grads.iter().copied().map(f64::from).collect::<Vec<_>>()).sqrt();
    let (inp, sums) = (device.upload(&grads)?, device.allocate(N_SUMS)?);
    let norm = device.allocate(1)?;
    global_norm(device, norm.slice(), sums.slice(), inp.slice())?;
    close("norm", &device.download(norm.slice())?, &[expected], TOLERANCE)
}

#[test]
fn the_norm_is_that_of_the_reference() {
    for n in [1, 31, 512, 513, 70_001, 2_200_002] {
        holds(|device| check(device, n));
    }
}

#[test]
fn a_lost_rest_of_the_gradients_is_noticed() {
    catches("global_norm_squared_forward", "no_tail", |device| check(device, 513));
}

#[test]
fn slices_of_other_lengths_are_refused() {
    holds(|device| {
        let [one, two] = [device.upload(&[0.0_f32; 1])?, device.upload(&[0.0_f32; 2])?];
        let error = global_norm(device, two.slice(), one.slice(), one.slice()).expect_err("two norms");
        assert_eq!(error.to_string(), "global_norm: norm has 2 elements instead of 1");
        let error = global_norm(device, one.slice(), two.slice(), one.slice()).expect_err("too few sums");
        assert_eq!(error.to_string(), "global_norm: sums has 2 elements instead of 1024");
        let (grads, sums) = (device.upload(&[0.0_f32; 8])?, device.allocate(N_SUMS)?);
        let error =
            global_norm(device, one.slice(), sums.slice(), grads.slice().part(1, 7)?).expect_err("between fours");
        assert!(error.to_string().ends_with("and has to be a multiple of 16"), "{error}");
        Ok(())
    });
}
