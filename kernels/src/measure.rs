//! How fast this machine computes: what `headroom bench` and this package's benchmarks print.
//!
//! Machines are noisy, and others work on them too: what is told is the median of some rounds, the first of which only
//! warms up, and what is told as a share of something was measured in turns with it. Weights and tokens are random, as
//! no figure depends on what they are.

pub mod decode;
mod text;
#[cfg(feature = "train")]
pub mod train;
#[cfg(feature = "wgpu")]
pub mod webgpu;

use headroom_shared::gpt::{GptConfig, GptConfigError, GptShape};
use serde::Serializer;

use crate::rng::Stream;

pub use text::TextSpeed;

/// How long to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// Until medians are steady.
    #[default]
    Full,
    /// A few rounds.
    Quick,
}

/// A model that writes text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// What it is called in reports.
    pub name: &'static str,
    /// Its shape.
    pub shape: GptShape,
    /// Tokens that a round puts behind the prompt.
    pub tokens: u32,
}

/// The models that write text: one as `headroom train` makes them, the same with GPT-2's vocabulary, and GPT-2 124M.
pub const MODELS: [Model; 3] = [
    Model { name: "tiny", shape: shape(4, 4, 128, 256, 65, true), tokens: 64 },
    Model { name: "tiny50257", shape: shape(4, 4, 128, 256, 50257, true), tokens: 64 },
    Model { name: "gpt2", shape: shape(12, 12, 768, 1024, 50257, true), tokens: 8 },
];

const fn shape(n_layer: u64, n_head: u64, n_embd: u64, block_size: u64, vocab_size: u64, bias: bool) -> GptShape {
    GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias }
}

impl Model {
    /// Its shape, checked.
    ///
    /// # Errors
    /// It is none.
    pub fn config(&self) -> Result<GptConfig, GptConfigError> {
        GptConfig::new(self.shape)
    }
}

/// Whether a benchmark is meant by the words of its command line: without any, all are.
#[must_use]
pub fn is_meant(name: &str, words: &[String]) -> bool {
    words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
}

/// Small normal numbers, the same piece again and again: what weights are does not matter, but that they are no zeros.
#[derive(Debug)]
struct RandomWeights(Vec<f32>);

impl RandomWeights {
    /// A piece whose length divides no row's, so that rows differ.
    const PIECE: usize = 65_537;

    fn new() -> Self {
        let mut stream = Stream::new(1, 0);
        #[expect(clippy::cast_possible_truncation, reason = "random numbers in the type of weights")]
        let piece = (0..Self::PIECE).map(|_| 0.02 * stream.normal() as f32).collect();
        Self(piece)
    }

    fn take(&self, n: usize) -> Vec<f32> {
        self.0.iter().copied().cycle().take(n).collect()
    }
}

/// Sorts, and gives the one in the middle.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Four digits that count: a further one would be another the next time.
fn significant<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(format!("{value:.3e}").parse().unwrap_or(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_is_one_and_has_room_for_a_round() {
        for model in MODELS {
            let config = model.config().expect("valid");
            assert!(u64::from(text::PROMPT + model.tokens) < config.block_size(), "{}", model.name);
        }
    }

    #[test]
    fn a_figure_has_four_digits() {
        #[derive(serde::Serialize)]
        struct Figure(#[serde(serialize_with = "significant")] f64);
        for (value, said) in [(123_456.0, "123500.0"), (0.000_123_456, "0.0001235"), (0.5, "0.5"), (0.0, "0.0")] {
            assert_eq!(serde_json::to_string(&Figure(value)).expect("a number"), said);
        }
    }

    #[test]
    fn words_name_benchmarks() {
        assert!(is_meant("train small", &[]));
        assert!(is_meant("train small", &["small".to_owned()]));
        assert!(!is_meant("train small", &["gpt2".to_owned()]));
    }
}
