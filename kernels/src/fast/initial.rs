//! The parameters of a fresh model.

use headroom_shared::gpt::tensors::Tensor;

use super::team::Team;
use crate::{cpu::Real, layout::Layout, rng::Stream};

/// Elements a task.
const PIECE: usize = 1 << 14;

/// Weights as nanoGPT initialises them: normal of deviation 0.02, of 0.02 / sqrt(2 L) where a block adds to the residual
/// stream; scales one, shifts zero. A function of the seed alone.
pub fn initialize(team: &Team, params: &mut [f32], layout: &Layout, n_layer: usize, seed: u64) {
    for (entry, name) in layout.entries().iter().zip(0_u64..) {
        let params = &mut params[entry.range.clone()];
        let deviation = match entry.parameter.tensor {
            Tensor::Ln1W | Tensor::Ln2W | Tensor::LnfW => {
                params.fill(1.0);
                continue;
            }
            Tensor::AttProjW | Tensor::FcProjW => 0.02 / (2.0 * n_layer as f64).sqrt(),
            _ if entry.shape.len() > 1 => 0.02,
            _ => {
                params.fill(0.0);
                continue;
            }
        };
        team.for_each_piece(params, PIECE, |i, params| {
            // Each normal number takes two of the stream.
            let mut stream = Stream::new(seed, name).at(2 * (i * PIECE) as u64);
            for param in params {
                *param = f32::of(deviation * stream.normal());
            }
        });
    }
}
