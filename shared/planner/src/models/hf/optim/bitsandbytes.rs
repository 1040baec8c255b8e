//! The optimizers of bitsandbytes: states in 8 bits, and states in managed memory.
//!
//! Source: bitsandbytes 0.50 (optim/optimizer.py) and transformers 5.17 (trainer.py, trainer_optimizer.py).

use crate::{
    dtype::Dtype,
    torch::{Tensor, Torch},
};

/// Elements below which a tensor keeps states in float32: `min_8bit_size`.
const MIN_8BIT_SIZE: u64 = 4096;
/// Elements from which a state is in managed memory, if the optimizer is paged.
const MIN_PAGED_SIZE: u64 = 100_000;
/// Values of a state in 8 bits that share a scale.
const BLOCK: u64 = 256;
/// Values of a code of 8 bits.
const CODE: u64 = 256;

/// An optimizer of bitsandbytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bitsandbytes {
    /// States of each parameter: two of AdamW, one of Lion and RMSprop.
    pub n_states: usize,
    /// Whether large states have 8 bits. Those of embeddings have 32.
    pub is_8bit: bool,
    /// Whether large states are in managed memory, which is outside of PyTorch's allocator.
    pub is_paged: bool,
}

impl Bitsandbytes {
    fn is_paged(self, elements: u64) -> bool {
        self.is_paged && elements >= MIN_PAGED_SIZE
    }

    fn stores_8bit(self, parameter: &Tensor, embeddings: &[&Tensor]) -> bool {
        let is_embedding = embeddings.iter().any(|embedding| embedding.is_parameter(parameter));
        self.is_8bit && parameter.layout().elements() >= MIN_8BIT_SIZE && !is_embedding
    }

    /// `init_state` of each parameter: its states and their scales. The first state in 8 bits makes the codes.
    pub(super) fn states(
        self,
        torch: &Torch,
        group: &[&Tensor],
        embeddings: &[&Tensor],
        codes: &mut Vec<Tensor>,
    ) -> Vec<Tensor> {
        let mut states = Vec::new();
        for parameter in group {
            let elements = parameter.layout().elements();
            let is_8bit = self.stores_8bit(parameter, embeddings);
            if is_8bit && codes.is_empty() {
                let code = |_| torch.optimizer_state("code", &[CODE], Dtype::Float32, None);
                codes.extend((0..self.n_states).map(code));
            }
            let state = |name, sizes: &[u64], dtype| torch.optimizer_state(name, sizes, dtype, Some(parameter));
            if !self.is_paged(elements) {
                let dtype = if is_8bit { Dtype::Uint8 } else { Dtype::Float32 };
                states.extend(
                    ["state1", "state2"][..self.n_states].iter().map(|name| state(name, parameter.sizes(), dtype)),
                );
            }
            if is_8bit {
                let scales = [elements.div_ceil(BLOCK)];
                let scale = |name: &&'static str| state(name, &scales, Dtype::Float32);
                states.extend(["absmax1", "absmax2"][..self.n_states].iter().map(scale));
            }
        }
        states
    }
}
