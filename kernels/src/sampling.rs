//! Token sampling, identical on every backend.
//!
//! The sample is the largest logit / temperature + noise among the kept tokens. The noise is a standard Gumbel variable
//! that is a function of seed, draw and token (the Gumbel-max trick, arXiv:1611.01144). This equals a draw from the
//! softmax, but needs one reduction and no sum over the vocabulary. A seed selects the same token on every device,
//! unless the scores of two candidates differ by less than its rounding error.

use crate::rng::{hash, split_mix};

/// The parameters of sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The divisor of logits; 0 selects the most likely token.
    pub temperature: f32,
    /// The number of most likely tokens to keep; 0 keeps all. Tokens tied with the last one stay, as in nanoGPT.
    pub top_k: u32,
    /// The seed of the text.
    pub seed: u64,
}

/// Below this temperature, logits / temperature could overflow f32, so the most likely token is selected.
const TEMPERATURE_MIN: f32 = 1e-6;

impl Sampling {
    /// The divisor of logits; `None` if the most likely token is selected.
    #[must_use]
    pub fn divisor(&self) -> Option<f32> {
        (self.temperature >= TEMPERATURE_MIN).then_some(self.temperature)
    }

    /// The noise key of draw number `draw` of the text.
    #[must_use]
    pub fn key(&self, draw: u32) -> u32 {
        (split_mix(split_mix(self.seed) ^ u64::from(draw)) >> 32) as u32
    }
}

/// Standard Gumbel noise of a token: -ln(-ln(u)), with u from the upper 23 bits of its hash, never 0 or 1.
///
/// With 24 bits the sum would be rounded, and the largest hash would give u = 1 and infinite noise.
#[must_use]
pub fn gumbel(key: u32, token: u32) -> f32 {
    gumbel_of(hash(key, token))
}

fn gumbel_of(hash: u32) -> f32 {
    let u = ((hash >> 9) as f32 + 0.5) * (1.0 / 8_388_608.0);
    -(-u.ln()).ln()
}

/// The `top_k`-th largest logit, the minimum of a kept token. Negative infinity if all tokens are kept.
#[must_use]
pub fn top_k_threshold(logits: &[f32], top_k: u32, scratch: &mut Vec<f32>) -> f32 {
    let k = top_k as usize;
    if k == 0 || k >= logits.len() {
        return f32::NEG_INFINITY;
    }
    scratch.clear();
    scratch.extend_from_slice(logits);
    *scratch.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
}

/// Samples the next token. Ties go to the smaller token id; NaN is never selected.
///
/// Shapes: `logits` (V). `scratch` is reused between calls.
#[must_use]
pub fn sample(logits: &[f32], sampling: &Sampling, draw: u32, scratch: &mut Vec<f32>) -> u32 {
    let threshold = top_k_threshold(logits, sampling.top_k, scratch);
    let key = sampling.key(draw);
    let divisor = sampling.divisor();
    let mut best = (f32::NEG_INFINITY, 0);
    for (&logit, token) in logits.iter().zip(0_u32..) {
        // The threshold is checked first: the noise takes two logarithms, and most tokens of a large vocabulary are not
        // kept.
        if logit >= threshold {
            let score = divisor.map_or(logit, |divisor| logit / divisor + gumbel(key, token));
            if score > best.0 {
                best = (score, token);
            }
        }
    }
    best.1
}

/// A possible next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token id.
    pub token: u32,
    /// The probability among the kept tokens; if the temperature is 0, the one at temperature 1.
    pub probability: f32,
}

/// Returns the `n` most likely of the kept tokens, in descending order. Ties go to the smaller token id.
///
/// Shapes: `logits` (V). `scratch` is reused between calls.
#[must_use]
pub fn candidates(logits: &[f32], sampling: &Sampling, n: usize, scratch: &mut Vec<f32>) -> Vec<Candidate> {
    let threshold = top_k_threshold(logits, sampling.top_k, scratch);
    let temperature = sampling.divisor().unwrap_or(1.0);
    let kept = || logits.iter().copied().zip(0..).filter(|&(logit, _)| logit >= threshold);
    // `n` is small compared with the vocabulary, so each token is inserted into the sorted best ones.
    let mut best: Vec<(f32, u32)> = Vec::with_capacity(n.min(logits.len()) + 1);
    for (logit, token) in kept() {
        if best.len() < n || best.last().is_some_and(|last| logit > last.0) {
            best.insert(best.partition_point(|other| other.0 >= logit), (logit, token));
            best.truncate(n);
        }
    }
    let max = kept().map(|(logit, _)| logit).fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = kept().map(|(logit, _)| f64::from((logit - max) / temperature).exp()).sum();
    let probability = |logit: f32| f64::from((logit - max) / temperature).exp() / sum;
    #[expect(clippy::cast_possible_truncation, reason = "a probability is shown, not computed with")]
    let candidate = |&(logit, token): &(f32, u32)| Candidate { token, probability: probability(logit) as f32 };
    best.iter().map(candidate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_finite_for_every_hash() {
        for hash in [0, 1, 511, 512, u32::MAX / 2, u32::MAX - 512, u32::MAX] {
            assert!(gumbel_of(hash).is_finite(), "{hash}");
        }
        assert!(gumbel_of(u32::MAX) > 16.0 && gumbel_of(0) < -2.0);
    }

    #[test]
    fn candidates_are_the_likeliest_with_what_they_share() {
        let logits = [0.1_f32, 0.4, 0.3, 0.1, 0.1].map(f32::ln);
        let list = |top_k, n| {
            let sampling = Sampling { temperature: 1.0, top_k, seed: 1 };
            candidates(&logits, &sampling, n, &mut Vec::new())
        };
        let tokens = |list: &[Candidate]| list.iter().map(|candidate| candidate.token).collect::<Vec<_>>();
        assert_eq!(tokens(&list(0, 4)), [1, 2, 0, 3]);
        assert!((list(0, 1)[0].probability - 0.4).abs() < 1e-6);
        let two = list(2, 9);
        assert_eq!(tokens(&two), [1, 2]);
        assert!((two[0].probability - 4.0 / 7.0).abs() < 1e-6);
    }

    fn frequencies(logits: &[f32], sampling: Sampling) -> Vec<f64> {
        let mut counts = vec![0.0; logits.len()];
        let mut scratch = Vec::new();
        for draw in 0..40_000 {
            counts[sample(logits, &sampling, draw, &mut scratch) as usize] += 1.0 / 40_000.0;
        }
        counts
    }

    #[track_caller]
    fn check(got: &[f64], want: &[f64]) {
        assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 0.01), "{got:?} instead of {want:?}");
    }

    #[test]
    fn tokens_come_as_often_as_their_probability_says() {
        let logits = [0.1_f32, 0.2, 0.3, 0.4].map(f32::ln);
        check(&frequencies(&logits, Sampling { temperature: 1.0, top_k: 0, seed: 1 }), &[0.1, 0.2, 0.3, 0.4]);
        let halved = Sampling { temperature: 0.5, top_k: 0, seed: 2 };
        check(&frequencies(&logits, halved), &[1.0, 4.0, 9.0, 16.0].map(|x: f64| x / 30.0));
        let two = Sampling { temperature: 1.0, top_k: 2, seed: 3 };
        check(&frequencies(&logits, two), &[0.0, 0.0, 3.0 / 7.0, 4.0 / 7.0]);
    }

    #[test]
    fn no_temperature_takes_the_likeliest_and_of_equals_the_first() {
        let greedy = Sampling { temperature: 0.0, top_k: 0, seed: 1 };
        assert_eq!(sample(&[1.0, 3.0, 3.0, f32::NAN], &greedy, 0, &mut Vec::new()), 1);
        for temperature in [1e-45, 1e-38, 1e-7] {
            let sampling = Sampling { temperature, ..greedy };
            assert_eq!(sample(&[1.0, 3.0, 2.0], &sampling, 0, &mut Vec::new()), 1, "{temperature:e}");
            assert_eq!(candidates(&[1.0, 3.0, 2.0], &sampling, 1, &mut Vec::new())[0].token, 1);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_text_and_another_another() {
        let logits = [0.0; 64];
        let text = |seed| {
            let sampling = Sampling { temperature: 1.0, top_k: 0, seed };
            (0..32).map(|draw| sample(&logits, &sampling, draw, &mut Vec::new())).collect::<Vec<_>>()
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }
}
