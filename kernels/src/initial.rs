//! The initial values of a new model's parameters, in pieces that any backend may compute in any order.

use headroom_planner::gpt::tensors::Tensor;

use crate::{layout::Entry, reference::RealNumber, rng::Stream};

/// The initial values of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// A constant.
    All(f32),
    /// Normally distributed numbers.
    Normal {
        /// Their standard deviation.
        deviation: f64,
        /// The number of the seed's random stream.
        name: u64,
    },
}

impl Initial {
    /// The initial values of the layout's entry number `index`, as in nanoGPT.
    ///
    /// Matrices are normal with standard deviation 0.02, or 0.02 / sqrt(2 L) for the last layer of a residual branch.
    /// Scales are 1 and shifts are 0.
    pub fn of(index: usize, entry: &Entry, n_layer: usize) -> Self {
        let normal = |deviation| Self::Normal { deviation, name: index as u64 };
        match entry.parameter.tensor {
            Tensor::Ln1W | Tensor::Ln2W | Tensor::LnfW => Self::All(1.0),
            Tensor::AttProjW | Tensor::FcProjW => normal(0.02 / (2.0 * n_layer as f64).sqrt()),
            _ if entry.shape.len() > 1 => normal(0.02),
            _ => Self::All(0.0),
        }
    }

    /// Writes a piece of the tensor, starting at element `first`.
    pub fn fill(self, params: &mut [f32], first: usize, seed: u64) {
        match self {
            Self::All(value) => params.fill(value),
            Self::Normal { deviation, name } => {
                // A normal number uses two of the stream's numbers.
                let mut stream = Stream::new(seed, name).at(2 * first as u64);
                for param in params {
                    *param = f32::of(deviation * stream.normal());
                }
            }
        }
    }
}
