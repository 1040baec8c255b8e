//! The parameters of a fresh model: what each tensor begins with, by its piece, whoever computes the pieces.

use headroom_shared::gpt::tensors::Tensor;

use crate::{cpu::Real, layout::Entry, rng::Stream};

/// What a tensor begins with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// The same number everywhere.
    All(f32),
    /// Normal numbers.
    Normal {
        /// Their deviation.
        deviation: f64,
        /// Which of the seed's streams they come of.
        name: u64,
    },
}

impl Initial {
    /// Of the layout's entry number `index`, as nanoGPT has it: normal of deviation 0.02, of 0.02 / sqrt(2 L) where a
    /// block adds to the residual stream; scales one, shifts zero.
    pub fn of(index: usize, entry: &Entry, n_layer: usize) -> Self {
        let normal = |deviation| Self::Normal { deviation, name: index as u64 };
        match entry.parameter.tensor {
            Tensor::Ln1W | Tensor::Ln2W | Tensor::LnfW => Self::All(1.0),
            Tensor::AttProjW | Tensor::FcProjW => normal(0.02 / (2.0 * n_layer as f64).sqrt()),
            _ if entry.shape.len() > 1 => normal(0.02),
            _ => Self::All(0.0),
        }
    }

    /// Writes a piece of the tensor, its elements from `first` on.
    pub fn fill(self, params: &mut [f32], first: usize, seed: u64) {
        match self {
            Self::All(value) => params.fill(value),
            Self::Normal { deviation, name } => {
                // Each normal number takes two of the stream.
                let mut stream = Stream::new(seed, name).at(2 * first as u64);
                for param in params {
                    *param = f32::of(deviation * stream.normal());
                }
            }
        }
    }
}
