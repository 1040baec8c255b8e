//! Shared parts of the tests on a software adapter: the adapter, tolerances, and the comparison.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::OnceLock;

use headroom_kernels::{
    rng::Stream,
    wgpu::{Gpu, Request, block_on},
};
use headroom_planner::gpt::{GptConfig, GptShape};

/// Maximum difference of a result from its twin's.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Name of the comparison.
    pub of: &'static str,
    /// Absolute tolerance.
    pub atol: f32,
    /// Tolerance relative to the twin's result.
    pub rtol: f32,
}

/// All tolerances. Sums of C products of unit numbers are computed in another order: about sqrt(C) * 2^-24 each.
pub const TOLERANCES: &[Tolerance] = &[
    // WGSL allows inverseSqrt an error of 2 units in the last place; one sum of C.
    Tolerance { of: "layernorm", atol: 1e-5, rtol: 1e-5 },
    // One addition.
    Tolerance { of: "encoder", atol: 1e-7, rtol: 1e-6 },
    // A sum of up to 3072 products, and erf to 1.5e-7 in absolute terms times a value of up to 10.
    Tolerance { of: "linear", atol: 4e-5, rtol: 2e-5 },
    // A copy.
    Tolerance { of: "copy", atol: 0.0, rtol: 0.0 },
    // WGSL's exp has a relative error of 3 + 2 |x| units in the last place, x being up to 30 here.
    Tolerance { of: "attention", atol: 2e-5, rtol: 2e-5 },
    // A whole model of a few blocks, logits of size 1.
    Tolerance { of: "logits", atol: 3e-4, rtol: 1e-4 },
    // Weights rounded to 11 bits on one side only: an error of 2^-12 each, averaged over sums.
    Tolerance { of: "logits of rounded weights", atol: 2e-2, rtol: 1e-2 },
    // exp of a difference of logits, divided by a sum.
    Tolerance { of: "probability", atol: 1e-6, rtol: 2e-4 },
];

#[track_caller]
fn tolerance(of: &str) -> Tolerance {
    *TOLERANCES.iter().find(|tolerance| tolerance.of == of).unwrap_or_else(|| panic!("no tolerance of {of}"))
}

/// Describes the worst element outside of its tolerance; `None` if all are within it.
pub fn difference(of: &str, got: &[f32], want: &[f32]) -> Option<String> {
    let Tolerance { atol, rtol, .. } = tolerance(of);
    if got.len() != want.len() {
        return Some(format!("{of}: {} elements instead of {}", got.len(), want.len()));
    }
    let excess = |(got, want): (&f32, &f32)| {
        let (difference, allowed) = ((got - want).abs(), atol + rtol * want.abs());
        // Written so that NaN exceeds every tolerance.
        if difference <= allowed {
            f32::NEG_INFINITY
        } else if difference.is_nan() {
            f32::INFINITY
        } else {
            difference - allowed
        }
    };
    let beyond: Vec<(usize, f32)> =
        got.iter().zip(want).map(excess).enumerate().filter(|(_, e)| *e > f32::NEG_INFINITY).collect();
    let &(worst, _) = beyond.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "{of}: {} of {} differ, worst at {worst}: {} instead of {}",
        beyond.len(),
        got.len(),
        got[worst],
        want[worst]
    ))
}

/// Compares, and checks that the comparison detects a single wrong element and a NaN.
#[track_caller]
pub fn check(of: &str, got: &[f32], want: &[f32]) {
    assert!(!want.is_empty(), "{of}: nothing to compare");
    if let Some(difference) = difference(of, got, want) {
        panic!("{difference}");
    }
    let at = want.len() / 2;
    let Tolerance { atol, rtol, .. } = tolerance(of);
    for wrong in [want[at] + 4.0 * (atol + rtol * want[at].abs()) + 1e-6, f32::NAN] {
        let mut control = got.to_vec();
        control[at] = wrong;
        assert!(difference(of, &control, want).is_some(), "{of}: the comparison took {wrong} for {}", want[at]);
    }
}

/// The adapter: a GPU if the machine has one, else the software adapter of Mesa or Chromium. Tests fail without one.
pub fn gpu() -> Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let request = || match block_on(Gpu::request(Request::default())) {
        Ok(gpu) => gpu,
        Err(error) => panic!(
            "{error}\nThese tests need a Vulkan driver; `cargo xtask test` installs one in software (on Debian \
             `apt-get install libvulkan1 mesa-vulkan-drivers`)."
        ),
    };
    GPU.get_or_init(request).clone()
}

/// Seeded normal numbers with a standard deviation.
pub fn normals(n: usize, deviation: f32, seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed, 0);
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the type that is tested")]
    (0..n).map(|_| stream.normal() as f32 * deviation).collect()
}

/// Seeded tokens of a vocabulary.
pub fn tokens(n: usize, vocab_size: u64, seed: u64) -> Vec<u32> {
    let mut stream = Stream::new(seed, 1);
    (0..n).map(|_| u32::try_from(stream.below(vocab_size)).expect("small")).collect()
}

/// A configuration of these sizes, without dropout.
pub fn config(n_layer: u64, n_head: u64, n_embd: u64, block_size: u64, vocab_size: u64, bias: bool) -> GptConfig {
    GptConfig::new(GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias }).expect("valid")
}
