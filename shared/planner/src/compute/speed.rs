//! Speed of a run, computed from the printed time per iteration.

use super::flops::model_flops;
use crate::{dtype::Dtype, request::Request};

/// Throughput and utilisation derived from the time per iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// Tokens per second over all processes; `None` if the time is invalid.
    pub tokens_per_second: Option<f64>,
    /// Model FLOPs utilisation of each GPU, in percent of its own peak rate. `None` if the peak is unknown. Also `None`
    /// above 100, which means that the run differs from the request, as with a modified model.py.
    pub mfu_percent: Option<f64>,
}

/// Speed of a run whose iterations take `time_ms` milliseconds.
///
/// nanoGPT prints the utilisation of an A100's 312 TFLOP/s in bfloat16, regardless of the GPU and dtype. This function
/// divides the same operations ([`model_flops`]) by the peak rate of the request's GPU in the request's dtype. nanoGPT
/// allows TF32, so float32 uses the TF32 rate if the GPU has one.
#[must_use]
pub fn speed(request: &Request, time_ms: f64) -> Speed {
    let seconds = time_ms / 1000.0;
    // This also rejects NaN.
    if !(seconds.is_finite() && seconds > 0.0) {
        return Speed::default();
    }
    let (gpt, train, device) = (&request.gpt, &request.train, &request.machine.device);
    let rate = match train.dtype {
        Dtype::Float32 => device.rates.tf32.or(device.rates.fp32),
        dtype => device.peak_flops(dtype),
    };
    let finite = |value: f64| value.is_finite().then_some(value);
    let tokens = train.tokens_per_iteration(gpt.block_size());
    Speed {
        tokens_per_second: tokens.and_then(|tokens| finite(tokens as f64 / seconds)),
        mfu_percent: rate
            .map(|rate| model_flops(gpt, train) / seconds / rate as f64 * 100.0)
            .filter(|percent| *percent <= 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        nanogpt::Source,
        session::{Options, resolve},
    };

    fn request(gpu: &str, overrides: &[&str]) -> Request {
        let sources: Vec<Source> = overrides.iter().map(|text| Source::Override { text: (*text).to_owned() }).collect();
        let options = Options { gpu: gpu.to_owned(), ..Options::default() };
        resolve(&sources, &options).request.expect("a request")
    }

    #[track_caller]
    fn check(actual: Option<f64>, expected: f64) {
        let actual = actual.expect("it is known");
        assert!((actual - expected).abs() <= 1e-9 * expected, "{actual} for {expected}");
    }

    #[test]
    fn an_a100_is_what_nanogpt_prints() {
        // estimate_mfu of model.py by hand: 123,587,328 parameters without positions, 6N + 12LHQT per token, 12 * 1024
        // * 5 tokens per iteration, 312e12 per second.
        let run = request("A100 40GB", &["--gradient_accumulation_steps=5"]);
        let printed = 100.0 * (6.0 * 123_587_328.0 + 12.0 * 12.0 * 768.0 * 1024.0) * 61_440.0 / 312e12 / 0.25;
        // The data sheet's 312 TFLOP/s are 311.87 by the GPU's clock and units.
        let rate = run.machine.device.rates.bf16.expect("known") as f64;
        assert!((rate / 312e12 - 1.0).abs() < 1e-3, "{rate}");
        check(speed(&run, 250.0).mfu_percent, printed * 312e12 / rate);
        check(speed(&run, 250.0).tokens_per_second, 61_440.0 / 0.25);
    }

    #[test]
    fn another_gpu_is_measured_by_its_own_rate() {
        let [slow, fast] = ["RTX 3060", "A100 40GB"].map(|gpu| request(gpu, &[]));
        let ratio = |of: &Request| speed(of, 100_000.0).mfu_percent.expect("known");
        let rate = |of: &Request| of.machine.device.rates.bf16.expect("known") as f64;
        assert!((ratio(&slow) / ratio(&fast) - rate(&fast) / rate(&slow)).abs() < 1e-9);
        assert!(rate(&fast) / rate(&slow) > 4.0, "they are not alike");
    }

    #[test]
    fn every_process_counts_for_tokens_and_its_own_work_for_its_gpu() {
        let options = Options { gpu: "A100 40GB".to_owned(), world_size: 8, ..Options::default() };
        let eight = resolve(&[], &options).request.expect("a request");
        let one = request("A100 40GB", &["--gradient_accumulation_steps=5"]);
        let tokens = |of: &Request| speed(of, 250.0).tokens_per_second.expect("known");
        assert_eq!(tokens(&eight), 8.0 * tokens(&one));
        assert_eq!(speed(&eight, 250.0).mfu_percent, speed(&one, 250.0).mfu_percent);
    }

    #[test]
    fn a_gpu_does_no_more_than_it_can() {
        let run = request("A100 40GB", &["--gradient_accumulation_steps=5"]);
        let Speed { tokens_per_second, mfu_percent } = speed(&run, 10.0);
        assert_eq!((tokens_per_second.is_some(), mfu_percent), (true, None));
    }

    #[test]
    fn no_time_is_no_speed() {
        let run = request("A100 40GB", &[]);
        for time_ms in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE] {
            assert_eq!(speed(&run, time_ms), Speed::default(), "{time_ms}");
        }
        let options = Options { gpu: String::new(), vram_bytes: Some(12 << 30), ..Options::default() };
        let unknown = resolve(&[], &options).request.expect("a request");
        assert_eq!(speed(&unknown, 100.0).mfu_percent, None);
        assert!(speed(&unknown, 100.0).tokens_per_second.is_some());
    }
}
