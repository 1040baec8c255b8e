//! Speed of this machine: the measurements of `headroom bench` and of this package's benchmarks.
//!
//! Machines are noisy and shared. A figure is therefore the median of several rounds, of which the first only warms up.
//! A figure relative to another one was measured in turns with it. Weights and tokens are random, as no figure depends
//! on their values.

pub mod decode;
mod text;
#[cfg(feature = "train")]
pub mod train;
#[cfg(feature = "wgpu")]
pub mod webgpu;

use headroom_planner::gpt::{GptConfig, GptConfigError, GptShape};
use serde::Serializer;

use crate::rng::Stream;

pub use text::TextSpeed;

/// The duration of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effort {
    /// Enough rounds for steady medians.
    #[default]
    Full,
    /// A few rounds.
    Quick,
}

/// A model that generates text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    pub name: &'static str,
    /// The model's shape.
    pub shape: GptShape,
    /// Tokens that a round generates after the prompt.
    pub tokens: u32,
}

/// The models for text generation: one as `headroom train` trains them, the same with GPT-2's vocabulary, and GPT-2
/// 124M.
pub const MODELS: [Model; 3] = [
    Model { name: "tiny", shape: shape(4, 4, 128, 256, 65, true), tokens: 64 },
    Model { name: "tiny50257", shape: shape(4, 4, 128, 256, 50257, true), tokens: 64 },
    Model { name: "gpt2", shape: shape(12, 12, 768, 1024, 50257, true), tokens: 8 },
];

const fn shape(n_layer: u64, n_head: u64, n_embd: u64, block_size: u64, vocab_size: u64, bias: bool) -> GptShape {
    GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout: 0.0, bias }
}

impl Model {
    /// The model's validated shape.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn config(&self) -> Result<GptConfig, GptConfigError> {
        GptConfig::new(self.shape)
    }
}

/// Whether the words of the command line select a benchmark. Without words, all are selected.
#[must_use]
pub fn is_meant(name: &str, words: &[String]) -> bool {
    words.is_empty() || words.iter().any(|word| name.contains(word.as_str()))
}

/// Small normal numbers, in a repeating piece. The values do not matter, except that zeros would be atypical.
#[derive(Debug)]
struct RandomWeights(Vec<f32>);

impl RandomWeights {
    /// The length of the piece, which divides no row's length, so that rows differ.
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

/// Sorts the values and returns the middle one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Serialises a value with four significant digits, as further digits are not reproducible.
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
