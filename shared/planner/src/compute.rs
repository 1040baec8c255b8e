//! FLOP counts and step-time estimates, used to state the cost of a change.
//!
//! Operations are counted ([`flops`]); seconds are an ESTIMATE by rooflines. Each part of a step (matrix products,
//! attention, elementwise work, loss, optimizer, all-reduce) takes as long as its arithmetic or its memory traffic.
//! Both run at achievable fractions of the GPU's data sheet. The host adds its launch time. Published timings of GPT-2
//! 124M are met within 35 %, ratios between settings within about 15 %; `compute/tests.rs` lists them, including the
//! misses. Evaluation and checkpoints are not part of a step.

mod constants;
mod flops;
mod gpu;
mod parts;
mod speed;
#[cfg(test)]
mod tests;

pub use flops::{Flops, flops, model_flops};
pub use speed::{Speed, speed};

use crate::request::Request;
use constants::{COMPILED_HOST_SECONDS, EAGER_HOST_SECONDS, KERNEL_SECONDS, MICRO_STEP_HOST_SECONDS, OVERLAP};
use flops::Pass;
use parts::Step;

/// Estimated seconds of one optimizer iteration: all micro-steps of one GPU in steady state.
///
/// `None` if the GPU's rates are unknown (a custom device), or if the result is not finite.
#[must_use]
pub fn step_seconds(request: &Request) -> Option<f64> {
    let step = Step::new(request)?;
    let train = &request.train;
    let micro_steps = train.gradient_accumulation_steps as f64;

    let forward = step.blocks(Pass::Forward);
    let backward = step.blocks(Pass::Backward);
    let (loss, ends) = (step.loss(), step.ends());
    let recomputed = if train.activation_checkpointing { forward } else { parts::Part::default() };
    let accumulation = step.accumulation();
    let (optimizer, optimizer_host) = step.optimizer();

    let micro_step = [forward, backward, loss, ends, recomputed];
    let later = (micro_steps - 1.0).max(0.0);
    let seconds = micro_steps * micro_step.iter().map(|part| part.seconds).sum::<f64>() + later * accumulation.seconds;
    let launches =
        micro_steps * micro_step.iter().map(|part| part.launches).sum::<f64>() + later * accumulation.launches;

    let exposed = (step.exchange() - OVERLAP * (backward.seconds + recomputed.seconds)).max(0.0);
    let gpu = seconds + launches * KERNEL_SECONDS + optimizer + exposed;
    let per_launch = if step.roofs.compiled { COMPILED_HOST_SECONDS } else { EAGER_HOST_SECONDS };
    let host = launches * per_launch + micro_steps * MICRO_STEP_HOST_SECONDS + optimizer_host;
    // The host runs ahead of the GPU; the slower of the two determines the step time.
    let step_seconds = gpu.max(host);
    step_seconds.is_finite().then_some(step_seconds)
}

/// Estimated time of an iteration after a change, relative to the time before; `None` if one of them is unknown.
///
/// The ratio compares iterations, not tokens: a change in tokens per iteration appears in full.
#[must_use]
pub fn step_time_ratio(before: &Request, after: &Request) -> Option<f64> {
    let ratio = step_seconds(after)? / step_seconds(before)?;
    ratio.is_finite().then_some(ratio)
}
