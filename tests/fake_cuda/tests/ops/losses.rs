//! The sum of all losses.

use headroom_kernels::cuda::{Device, ops::losses::losses_sum};

use crate::{
    compare::{F32_ROUNDING, Tolerance, close},
    gpu::{Outcome, catches, holds, normals},
};

pub fn check(device: &Device, n: usize) -> Outcome {
    // Typical losses: 11 at the start, and never below 0.
    let losses: Vec<f32> = normals(1, n).into_iter().map(|x| (11.0 + x).max(0.0)).collect();
    let mean = losses.iter().copied().map(f64::from).sum::<f64>() / n as f64;
    let (losses, sum) = (device.upload(&losses)?, device.allocate(1)?);
    #[expect(clippy::cast_possible_truncation, reason = "a share is f32")]
    let scale = (1.0 / n as f64) as f32;
    // Sums of a thread's 70 losses, a warp's lanes and 32 warps; all are positive.
    let tolerance = Tolerance { absolute: 0.0, relative: 110.0 * F32_ROUNDING };
    losses_sum(device, sum.slice(), losses.slice(), scale, false)?;
    close("sum", &device.download(sum.slice())?, &[mean], tolerance)?;
    losses_sum(device, sum.slice(), losses.slice(), 2.0 * scale, true)?;
    close("sum of two", &device.download(sum.slice())?, &[3.0 * mean], tolerance)
}

#[test]
fn losses_are_summed_as_the_reference_does() {
    for n in [1, 33, 1024, 1025, 70_000] {
        holds(|device| check(device, n));
    }
}

#[test]
fn a_lost_loss_is_noticed() {
    catches("losses_sum", "a_loss_less", |device| check(device, 1025));
}
