//! What inference on the CPU allocates.

use super::Buffers;
use crate::gpt::{
    GptConfig,
    tensors::{Dims, Role, Stored, Tensor, TensorTooLarge, parameters},
};

/// How inference on the CPU keeps the matrices it multiplies with; everything else is in float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// As they come.
    F32,
    /// In 16-bit integers with a float32 scale a row: each weight is off by at most half a step, and a step is the row's
    /// largest magnitude over 32,767. On weights as a GPT has them that is nearer than float16 in the mean.
    Int16,
}

/// Tokens of a prompt that inference on the CPU takes at a time: each row of a matrix is read once for so many.
pub const PREFILL_TOKENS: u64 = 16;

/// What inference on the CPU allocates: weights, keys and values of a whole context, activations of a prompt's piece, one
/// token's logits, and as much again to choose among them.
///
/// # Errors
/// A tensor is larger than any machine's memory.
pub fn decoder(config: &GptConfig, storage: Storage) -> Result<Buffers, TensorTooLarge> {
    let whole = Dims::without_card(config, 1);
    let mut buffers = Buffers::new(whole);
    for parameter in parameters(config) {
        if storage == Storage::Int16 && is_multiplied(parameter.tensor) {
            for role in [Role::Int16, Role::RowScale] {
                buffers.add(Stored { tensor: parameter.tensor, role }, parameter.layer)?;
            }
        } else {
            buffers.add(parameter.tensor, parameter.layer)?;
        }
    }
    buffers.add(Tensor::X, None)?;
    for layer in 0..config.n_layer() {
        // Keys, then values.
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

/// Whether inference multiplies with a parameter, rather than adds it or looks a row up in it alone.
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
