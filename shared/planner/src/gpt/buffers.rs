//! Buffers of Headroom's own engines, all allocated at startup: rows of the tensor table with their sizes.
//!
//! An engine's plan is exactly this list. The engine allocates from the list, so plan and allocation agree to the byte.

pub mod cuda;
mod decoder;
pub mod inference;
mod pack;
mod training;

pub use decoder::{PREFILL_TOKENS, Storage, decoder, is_multiplied};
pub use training::cpu_training;

use super::{
    GptConfig,
    tensors::{Category, Dims, Role, Tensor, TensorId, TensorTooLarge, parameters},
};

/// One buffer of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Row of the tensor table.
    pub stored: TensorId,
    /// Index of the block, if the buffer belongs to one.
    pub layer: Option<u64>,
    /// Number of elements.
    pub elements: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl Buffer {
    /// Name for the user.
    #[must_use]
    pub fn name(&self) -> String {
        self.stored.name(self.layer)
    }

    /// Category of the tensor.
    #[must_use]
    pub fn category(&self) -> Category {
        self.stored.category()
    }
}

/// Builder of an engine's buffer list.
#[derive(Clone, Debug)]
pub struct Buffers {
    dims: Dims,
    all: Vec<Buffer>,
}

impl Buffers {
    /// An empty list, for tensors of these dimensions.
    #[must_use]
    pub const fn new(dims: Dims) -> Self {
        Self { dims, all: Vec::new() }
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// [`TensorTooLarge`] if the tensor exceeds the maximum size.
    pub fn add(&mut self, stored: impl Into<TensorId>, layer: Option<u64>) -> Result<(), TensorTooLarge> {
        let stored = stored.into();
        let too_large = TensorTooLarge { name: stored.tensor.name() };
        let bytes =
            stored.bytes(&self.dims).filter(|&bytes| bytes <= super::tensors::MAX_TENSOR_BYTES).ok_or(too_large)?;
        let elements = bytes / stored.dtype(self.dims.compute).bytes();
        self.all.push(Buffer { stored, layer, elements, bytes });
        Ok(())
    }

    /// Adds every parameter in a role, or the gradient of every parameter.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_parameters(&mut self, config: &GptConfig, role: CompanionTensor) -> Result<(), TensorTooLarge> {
        for parameter in parameters(config) {
            let stored = match role {
                CompanionTensor::Itself => TensorId::from(parameter.tensor),
                CompanionTensor::Gradient => TensorId::from(parameter.gradient),
                CompanionTensor::ExpAvg => TensorId { tensor: parameter.tensor, role: Role::ExpAvg },
                CompanionTensor::ExpAvgSq => TensorId { tensor: parameter.tensor, role: Role::ExpAvgSq },
            };
            self.add(stored, parameter.layer)?;
        }
        Ok(())
    }

    /// Adds tensors to every block.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_blocks(&mut self, config: &GptConfig, tensors: &[Tensor]) -> Result<(), TensorTooLarge> {
        for layer in 0..config.n_layer() {
            for &tensor in tensors {
                self.add(tensor, Some(layer))?;
            }
        }
        Ok(())
    }

    /// The same list with other dimensions for further tensors.
    #[must_use]
    pub fn then(self, dims: Dims) -> Self {
        Self { dims, ..self }
    }

    /// All buffers, in the order of their addition.
    #[must_use]
    pub fn all(&self) -> &[Buffer] {
        &self.all
    }

    /// Total size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.all.iter().map(|buffer| buffer.bytes).fold(0, u64::saturating_add)
    }
}

/// Tensor to add for every parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompanionTensor {
    /// The parameter itself.
    Itself,
    /// The gradient.
    Gradient,
    /// AdamW's first moment.
    ExpAvg,
    /// AdamW's second moment.
    ExpAvgSq,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpt::{GptShape, tensors::MAX_TENSOR_BYTES};

    pub(super) fn gpt2(block_size: u64) -> GptConfig {
        let shape =
            GptShape { n_layer: 12, n_head: 12, n_embd: 768, block_size, vocab_size: 50257, dropout: 0.0, bias: true };
        GptConfig::new(shape).expect("valid")
    }

    #[test]
    fn parameters_and_their_companions_take_what_gpt2_counts() {
        let config = gpt2(1024);
        let mut buffers = Buffers::new(Dims::without_gpu(&config, 1));
        for role in
            [CompanionTensor::Itself, CompanionTensor::Gradient, CompanionTensor::ExpAvg, CompanionTensor::ExpAvgSq]
        {
            buffers.add_parameters(&config, role).expect("small");
        }
        assert_eq!(buffers.bytes(), 4 * 4 * 124_439_808);
        assert_eq!(buffers.all()[0].name(), "transformer.wte.weight");
    }

    #[test]
    fn impossible_tensor_is_refused_by_name() {
        let config = gpt2(1 << 32);
        let mut buffers = Buffers::new(Dims::without_gpu(&config, 1 << 20));
        let error = buffers.add(Tensor::Logits, None).expect_err("beyond any memory");
        assert_eq!(error.name, "logits");
        assert!(buffers.all().is_empty() && MAX_TENSOR_BYTES > 0);
    }
}
