//! Buffers of the text generation engine.
//!
//! Tensors come from the table with padded axes, so that kernels can load four or eight numbers at once. Heads are
//! padded to multiples of 8 channels, rows of the embedding and tokens of the cache to multiples of 4. Common models
//! already have such shapes, except for a vocabulary like 50257 (50260). The padding is zero.

use super::{Buffers, is_multiplied};
use crate::gpt::{
    GptConfig,
    tensors::{Dims, Role, Tensor, TensorId, TensorTooLarge, parameters},
};

/// Maximum number of prompt tokens per pass; longer prompts take several passes.
///
/// Large enough that weights are rarely read, and small enough that activations stay small beside the weights.
pub const PREFILL_TOKENS: u64 = 256;

/// Multiple to which the channels per head are padded.
const HEAD_MULTIPLE: u64 = 8;

/// Block size of matrix rows and of cached tokens.
pub const ROW_BLOCK: u64 = 4;

/// Options of an engine, beyond the model's shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inference {
    /// Whether matrices are in half precision; vectors and the position embedding stay in single precision.
    pub half: bool,
    /// Whether queries are cached with keys and values, so that all attention weights can be displayed.
    pub attention: bool,
}

impl Inference {
    /// Dimensions of the engine's tensors: the model's, padded; T is the maximum number of tokens per pass.
    #[must_use]
    pub fn dims(&self, config: &GptConfig) -> Dims {
        let unpadded = Dims::without_gpu(config, 1);
        let c = config.n_head() * config.head_size().next_multiple_of(HEAD_MULTIPLE);
        let t = config.block_size().min(PREFILL_TOKENS);
        Dims { c, t, v: config.vocab_size().next_multiple_of(ROW_BLOCK), ..unpadded }
    }

    /// Dimensions of a block's cache: keys, values and optionally queries.
    #[must_use]
    pub fn cache_dims(&self, config: &GptConfig) -> Dims {
        let t = config.block_size().next_multiple_of(ROW_BLOCK);
        Dims { b: if self.attention { 3 } else { 2 }, t, ..self.dims(config) }
    }

    /// Stored form of a parameter: half precision for multiplied matrices if `half` is set.
    #[must_use]
    pub fn stored(&self, tensor: Tensor) -> TensorId {
        TensorId { tensor, role: if self.half && is_multiplied(tensor) { Role::Half } else { Role::Value } }
    }

    /// All buffers, in order of use.
    ///
    /// # Errors
    /// [`TensorTooLarge`] if a tensor exceeds the maximum size.
    pub fn buffers(&self, config: &GptConfig) -> Result<Buffers, TensorTooLarge> {
        let dims = self.dims(config);
        let whole = Dims { t: config.block_size(), ..dims };
        let one_token = Dims { t: 1, ..dims };
        let mut list = Buffers::new(whole);
        // Input and output of a pass, and the staging copy of the output.
        for _ in 0..3 {
            list.add(Tensor::Exchange, None)?;
        }
        list.add(Tensor::Tokens, None)?;
        for parameter in parameters(config) {
            list.add(self.stored(parameter.tensor), parameter.layer)?;
        }
        list.dims = self.cache_dims(config);
        list.add_blocks(config, &[Tensor::KvCache])?;
        list.dims = dims;
        for tensor in [Tensor::Encoded, Tensor::Ln1, Tensor::Qkv, Tensor::AttyRows, Tensor::FchGelu] {
            list.add(tensor, None)?;
        }
        // The second buffer of each pair is the staging copy.
        list.dims = one_token;
        for _ in 0..2 {
            list.add(Tensor::Logits, None)?;
        }
        if self.attention {
            list.dims = Dims { h: 1, ..whole };
            for _ in 0..2 {
                list.add(Tensor::Att, None)?;
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::{GptShape, presets::Preset};

    fn gpt2() -> GptConfig {
        GptConfig::new(Preset::named("gpt2").expect("a preset").shape(1024, 0.0)).expect("valid")
    }

    #[track_caller]
    fn check(inference: Inference, parameters: u64, cache: u64) {
        let list = inference.buffers(&gpt2()).expect("small");
        let sum = |wanted: fn(&super::super::Buffer) -> bool| -> u64 {
            list.all().iter().filter(|buffer| wanted(buffer)).map(|buffer| buffer.bytes).sum()
        };
        assert_eq!(sum(|buffer| buffer.category() == crate::gpt::tensors::Category::Parameters), parameters);
        assert_eq!(sum(|buffer| buffer.stored.tensor == Tensor::KvCache), cache);
    }

    #[test]
    fn gpt2_takes_its_parameters_and_a_cache() {
        let padding = 3 * 768;
        let cache = 12 * 1024 * 768 * 4;
        check(Inference::default(), 4 * (124_439_808 + padding), 2 * cache);
        check(Inference { attention: true, half: false }, 4 * (124_439_808 + padding), 3 * cache);
        let in_half = 50_260 * 768 + 12 * 12 * 768 * 768;
        let in_single = 124_439_808 + padding - in_half;
        check(Inference { half: true, attention: false }, 2 * in_half + 4 * in_single, 2 * cache);
    }

    #[test]
    fn odd_shapes_are_padded() {
        let shape =
            GptShape { n_layer: 1, n_head: 7, n_embd: 35, block_size: 13, vocab_size: 101, dropout: 0.0, bias: true };
        let config = GptConfig::new(shape).expect("valid");
        let dims = Inference::default().dims(&config);
        assert_eq!((dims.c, dims.v, dims.t), (56, 104, 13));
        assert_eq!(Inference::default().cache_dims(&config).t, 16);
    }
}
