//! Buffers of inference on the CPU.

use super::Buffers;
use crate::gpt::{
    GptConfig,
    tensors::{Dims, Role, Tensor, TensorId, TensorTooLarge, parameters},
};

/// Format of multiplied matrices in inference on the CPU; all other tensors are float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Unchanged float32.
    F32,
    /// 16-bit integers with a float32 scale per row. The error of a weight is at most half a step, and a step is the
    /// row's largest magnitude over 32,767. For typical GPT weights the mean error is smaller than float16's.
    Int16,
}

/// Prompt tokens per pass of inference on the CPU: each matrix row is read once per pass.
pub const PREFILL_TOKENS: u64 = 16;

/// Buffers of inference on the CPU: weights, keys and values of a whole context, activations of a prompt chunk, and the
/// logits of one token. A further buffer of the size of the logits serves sampling.
///
/// # Errors
/// [`TensorTooLarge`] if a tensor exceeds the maximum size.
pub fn decoder(config: &GptConfig, storage: Storage) -> Result<Buffers, TensorTooLarge> {
    let whole = Dims::without_gpu(config, 1);
    let mut buffers = Buffers::new(whole);
    for parameter in parameters(config) {
        if storage == Storage::Int16 && is_multiplied(parameter.tensor) {
            for role in [Role::Int16, Role::RowScale] {
                buffers.add(TensorId { tensor: parameter.tensor, role }, parameter.layer)?;
            }
        } else {
            buffers.add(parameter.tensor, parameter.layer)?;
        }
    }
    buffers.add(Tensor::X, None)?;
    for layer in 0..config.n_layer() {
        // Keys and values.
        buffers = buffers.then(Dims { b: 2, ..whole });
        buffers.add(Tensor::KvCache, Some(layer))?;
        buffers = buffers.then(whole);
        buffers.add(Tensor::AttLast, Some(layer))?;
    }
    let mut buffers = buffers.then(Dims { t: whole.t.min(PREFILL_TOKENS), ..whole });
    for tensor in [Tensor::Encoded, Tensor::Ln1, Tensor::Qkv, Tensor::AttyRows, Tensor::FchGelu] {
        buffers.add(tensor, None)?;
    }
    let mut buffers = buffers.then(Dims { t: 1, ..whole });
    for tensor in [Tensor::Logits, Tensor::LogProbs] {
        buffers.add(tensor, None)?;
    }
    Ok(buffers)
}

/// Whether inference multiplies with a parameter, instead of only adding it or looking up rows in it.
#[must_use]
pub const fn is_multiplied(tensor: Tensor) -> bool {
    matches!(tensor, Tensor::Wte | Tensor::QkvW | Tensor::AttProjW | Tensor::FcW | Tensor::FcProjW)
}

#[cfg(test)]
mod tests {
    use super::{super::tests::gpt2, *};

    #[test]
    fn inference_of_gpt2_takes_its_weights_once_and_a_context() {
        let config = gpt2(1024);
        let context = 12 * (2 * 1024 * 768 + 12 * 1024) * 4 + 1024 * 8;
        let pieces = 16 * (1 + 1 + 3 + 1 + 4) * 768 * 4 + 2 * 50257 * 4;
        let f32 = decoder(&config, Storage::F32).expect("small");
        assert_eq!(f32.bytes(), 4 * 124_439_808 + context + pieces);
        let matrices = 50257 * 768 + 12 * 12 * 768 * 768;
        let rows = 50257 + 12 * 9 * 768;
        let int16 = decoder(&config, Storage::Int16).expect("small");
        assert_eq!(f32.bytes() - int16.bytes(), 2 * matrices - 4 * rows);
        assert_eq!(int16.all()[1].name(), "row scales of transformer.wte.weight");
    }
}
