//! The shape of a GPT with nanoGPT's names, validated at construction.

pub mod buffers;
pub mod presets;
pub mod tensors;

use serde::Serialize;
use thiserror::Error;

use headroom_text::{self as text, Text, decimal};

/// Maximum number of layers of a plan. The cost of a plan grows with the number of layers, so this bounds it.
pub const MAX_N_LAYER: u64 = 1024;

/// Maximum of every other dimension. It keeps all products of tensor dimensions and counts within `u128`, and
/// [`crate::memory`] rejects values beyond `u64` in one place.
pub const MAX_DIMENSION: u64 = 1 << 32;

/// One million.
const MILLION: f64 = 1e6;
/// Tolerance for floating-point arithmetic, as a fraction of the printed unit.
const ROUNDING: f64 = 1e-6;

/// The shape of a GPT: nanoGPT's `model.GPTConfig`. Its dimensions are at least 1 and consistent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GptConfig {
    n_layer: u64,
    n_head: u64,
    n_embd: u64,
    block_size: u64,
    vocab_size: u64,
    dropout: f64,
    bias: bool,
}

/// Unvalidated values for [`GptConfig::new`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptShape {
    /// Transformer blocks, L.
    pub n_layer: u64,
    /// Attention heads, H; divides `n_embd`.
    pub n_head: u64,
    /// Channels, C.
    pub n_embd: u64,
    /// Tokens per sequence, T.
    pub block_size: u64,
    /// Rows of the token embedding, V.
    pub vocab_size: u64,
    /// Probability of dropping an element, from 0 to 1.
    pub dropout: f64,
    /// Whether layer norms and linear layers have a bias.
    pub bias: bool,
}

/// Error of an invalid model shape.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum GptConfigError {
    /// A dimension is zero or exceeds the maximum of a plan.
    OutOfRange {
        /// nanoGPT's name of the dimension.
        name: &'static str,
        /// The invalid value.
        value: u64,
        /// The maximum.
        max: u64,
    },
    /// The number of heads does not divide the number of channels.
    HeadsDoNotDivideChannels {
        /// Number of channels.
        n_embd: u64,
        /// Number of heads.
        n_head: u64,
    },
    /// Dropout is not a probability.
    Dropout {
        /// The invalid value.
        value: f64,
    },
}

impl GptConfigError {
    /// Error message.
    #[must_use]
    pub fn text(&self) -> Text {
        match *self {
            Self::OutOfRange { name, value, max } => text::out_of_range(name, value, 1_u64, max),
            Self::HeadsDoNotDivideChannels { n_embd, n_head } => text::heads_do_not_divide(n_embd, n_head),
            Self::Dropout { value } => text::not_a_dropout(decimal::shortest(value)),
        }
    }

    /// nanoGPT's key with the invalid value.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::OutOfRange { name, .. } => name,
            Self::HeadsDoNotDivideChannels { .. } => "n_head",
            Self::Dropout { .. } => "dropout",
        }
    }
}

impl GptShape {
    /// Returns every independent error: a dimension out of range, heads that do not divide the channels, and a dropout
    /// that is not a probability.
    #[must_use]
    pub fn errors(&self) -> Vec<GptConfigError> {
        let ranged = [
            ("n_layer", self.n_layer, MAX_N_LAYER),
            ("n_head", self.n_head, MAX_DIMENSION),
            ("n_embd", self.n_embd, MAX_DIMENSION),
            ("block_size", self.block_size, MAX_DIMENSION),
            ("vocab_size", self.vocab_size, MAX_DIMENSION),
        ];
        let out_of_range = ranged.iter().filter(|(_, value, max)| !(1..=*max).contains(value));
        let mut errors: Vec<_> =
            out_of_range.map(|&(name, value, max)| GptConfigError::OutOfRange { name, value, max }).collect();
        let (n_embd, n_head) = (self.n_embd, self.n_head);
        // A value out of range divides nothing, which is not an error of its own.
        let is_out = errors.iter().any(|error| matches!(error.key(), "n_head" | "n_embd"));
        if !is_out && !n_embd.is_multiple_of(n_head) {
            errors.push(GptConfigError::HeadsDoNotDivideChannels { n_embd, n_head });
        }
        if !(0.0..1.0).contains(&self.dropout) {
            errors.push(GptConfigError::Dropout { value: self.dropout });
        }
        errors
    }
}

impl GptConfig {
    /// Validates a shape.
    ///
    /// # Errors
    /// The first of [`GptShape::errors`].
    pub fn new(shape: GptShape) -> Result<Self, GptConfigError> {
        if let Some(error) = shape.errors().into_iter().next() {
            return Err(error);
        }
        let GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout, bias } = shape;
        Ok(Self { n_layer, n_head, n_embd, block_size, vocab_size, dropout, bias })
    }

    /// The values of this config.
    #[must_use]
    pub const fn shape(&self) -> GptShape {
        let Self { n_layer, n_head, n_embd, block_size, vocab_size, dropout, bias } = *self;
        GptShape { n_layer, n_head, n_embd, block_size, vocab_size, dropout, bias }
    }

    /// Transformer blocks, L.
    #[must_use]
    pub const fn n_layer(&self) -> u64 {
        self.n_layer
    }

    /// Attention heads, H.
    #[must_use]
    pub const fn n_head(&self) -> u64 {
        self.n_head
    }

    /// Channels, C.
    #[must_use]
    pub const fn n_embd(&self) -> u64 {
        self.n_embd
    }

    /// Channels per head.
    #[must_use]
    pub const fn head_size(&self) -> u64 {
        self.n_embd / self.n_head
    }

    /// Tokens per sequence, T.
    #[must_use]
    pub const fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Rows of the token embedding, V.
    #[must_use]
    pub const fn vocab_size(&self) -> u64 {
        self.vocab_size
    }

    /// Probability of dropping an element.
    #[must_use]
    pub const fn dropout(&self) -> f64 {
        self.dropout
    }

    /// Whether layer norms and linear layers have a bias.
    #[must_use]
    pub const fn bias(&self) -> bool {
        self.bias
    }

    /// Number of parameters, with the tied embedding counted once; `None` on overflow of `u64`.
    #[must_use]
    pub fn n_parameters(&self) -> Option<u64> {
        let (l, c, t, v) = (
            u128::from(self.n_layer),
            u128::from(self.n_embd),
            u128::from(self.block_size),
            u128::from(self.vocab_size),
        );
        let weights = v * c + t * c + l * (12 * c * c + 2 * c) + c;
        let biases = if self.bias { l * (3 * c + c + 4 * c + c + 2 * c) + c } else { 0 };
        u64::try_from(weights + biases).ok()
    }

    /// Millions of parameters if they differ from the number that nanoGPT printed with `decimals` decimals, with or
    /// without the position embeddings. The result is without them, as nanoGPT's `get_num_params`.
    #[must_use]
    pub fn other_parameters(&self, printed: f64, decimals: u32) -> Option<f64> {
        let all = self.n_parameters()?;
        let counted = all.checked_sub(self.block_size.checked_mul(self.n_embd)?)?;
        // Rounding to the last digit changes a number by at most half a unit.
        let unit = 0.1_f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX));
        let agrees = |counted: u64| (counted as f64 / MILLION - printed).abs() <= unit * (0.5 + ROUNDING);
        (!agrees(counted) && !agrees(all)).then_some(counted as f64 / MILLION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpt2(bias: bool, vocab_size: u64) -> GptConfig {
        let shape = GptShape { n_layer: 12, n_head: 12, n_embd: 768, block_size: 1024, vocab_size, dropout: 0.0, bias };
        GptConfig::new(shape).expect("GPT-2's shape is valid")
    }

    #[test]
    fn gpt2_has_its_published_parameter_counts() {
        assert_eq!(gpt2(true, 50257).n_parameters(), Some(124_439_808));
        assert_eq!(gpt2(false, 50257).n_parameters(), Some(124_337_664));
    }

    #[test]
    fn refuses_heads_that_do_not_divide_channels() {
        let shape = GptShape { n_head: 7, ..gpt2(true, 50257).shape() };
        assert_eq!(
            GptConfig::new(shape).map_err(|e| e.to_string()),
            Err("n_embd (768) must be divisible by n_head (7)".to_owned())
        );
    }

    #[test]
    fn refuses_zero_and_absurd_dimensions() {
        for shape in [
            GptShape { n_layer: 0, ..gpt2(true, 50257).shape() },
            GptShape { n_layer: MAX_N_LAYER + 1, ..gpt2(true, 50257).shape() },
            GptShape { vocab_size: u64::MAX, ..gpt2(true, 50257).shape() },
            GptShape { dropout: f64::NAN, ..gpt2(true, 50257).shape() },
        ] {
            assert!(GptConfig::new(shape).is_err(), "{shape:?} was taken");
        }
    }
}
