//! What an engine of ours allocates, all of it at its start: rows of the table, and how many bytes each takes.
//!
//! A plan of ours is this list and nothing besides. The engine allocates from it, so that what was planned is what is
//! allocated, to the byte.

pub mod cuda;
mod decoder;
pub mod inference;
mod pack;
mod training;

pub use decoder::{PREFILL_TOKENS, Storage, decoder, is_multiplied};
pub use training::cpu_training;

use super::{
    GptConfig,
    tensors::{Category, Dims, Role, Stored, Tensor, TensorTooLarge, parameters},
};

/// One buffer of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its row of the table.
    pub stored: Stored,
    /// The block it belongs to.
    pub layer: Option<u64>,
    /// Its elements.
    pub elements: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl Buffer {
    /// The name a person knows it by.
    #[must_use]
    pub fn name(&self) -> String {
        self.stored.name(self.layer)
    }

    /// What it is for.
    #[must_use]
    pub fn category(&self) -> Category {
        self.stored.category()
    }
}

/// The list of an engine's buffers, as it is put together.
#[derive(Clone, Debug)]
pub struct Buffers {
    dims: Dims,
    all: Vec<Buffer>,
}

impl Buffers {
    /// No buffers yet, for tensors of these dimensions.
    #[must_use]
    pub const fn new(dims: Dims) -> Self {
        Self { dims, all: Vec::new() }
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// It is larger than any machine's memory.
    pub fn add(&mut self, stored: impl Into<Stored>, layer: Option<u64>) -> Result<(), TensorTooLarge> {
        let stored = stored.into();
        let too_large = TensorTooLarge { name: stored.tensor.name() };
        let bytes =
            stored.bytes(&self.dims).filter(|&bytes| bytes <= super::tensors::MAX_TENSOR_BYTES).ok_or(too_large)?;
        let elements = bytes / stored.dtype(self.dims.compute).bytes();
        self.all.push(Buffer { stored, layer, elements, bytes });
        Ok(())
    }

    /// Adds every parameter in some role, or the gradient of every one.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_parameters(&mut self, config: &GptConfig, role: Companion) -> Result<(), TensorTooLarge> {
        for parameter in parameters(config) {
            let stored = match role {
                Companion::Itself => Stored::from(parameter.tensor),
                Companion::Gradient => Stored::from(parameter.gradient),
                Companion::ExpAvg => Stored { tensor: parameter.tensor, role: Role::ExpAvg },
                Companion::ExpAvgSq => Stored { tensor: parameter.tensor, role: Role::ExpAvgSq },
            };
            self.add(stored, parameter.layer)?;
        }
        Ok(())
    }

    /// Adds tensors that every block has.
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

    /// The same list, to go on with tensors of other dimensions.
    #[must_use]
    pub fn then(self, dims: Dims) -> Self {
        Self { dims, ..self }
    }

    /// All, in the order in which they were added.
    #[must_use]
    pub fn all(&self) -> &[Buffer] {
        &self.all
    }

    /// Bytes of all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.all.iter().map(|buffer| buffer.bytes).fold(0, u64::saturating_add)
    }
}

/// What is added for every parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    /// The parameter.
    Itself,
    /// Its gradient.
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
        let mut buffers = Buffers::new(Dims::without_card(&config, 1));
        for role in [Companion::Itself, Companion::Gradient, Companion::ExpAvg, Companion::ExpAvgSq] {
            buffers.add_parameters(&config, role).expect("small");
        }
        assert_eq!(buffers.bytes(), 4 * 4 * 124_439_808);
        assert_eq!(buffers.all()[0].name(), "transformer.wte.weight");
    }

    #[test]
    fn what_no_machine_holds_is_refused_by_name() {
        let config = gpt2(1 << 32);
        let mut buffers = Buffers::new(Dims::without_card(&config, 1 << 20));
        let error = buffers.add(Tensor::Logits, None).expect_err("beyond any memory");
        assert_eq!(error.name, "logits");
        assert!(buffers.all().is_empty() && MAX_TENSOR_BYTES > 0);
    }
}
