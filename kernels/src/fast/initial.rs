//! The parameters of a fresh model, by all threads.

use super::team::Team;
use crate::{initial::Initial, layout::Layout};

/// Elements a task.
const PIECE: usize = 1 << 14;

/// Weights as nanoGPT initialises them, by [`Initial`]. A function of the seed alone.
pub fn initialize(team: &Team, params: &mut [f32], layout: &Layout, n_layer: usize, seed: u64) {
    for (index, entry) in layout.entries().iter().enumerate() {
        let initial = Initial::of(index, entry, n_layer);
        let params = &mut params[entry.range.clone()];
        team.for_each_piece(params, PIECE, |i, params| initial.fill(params, i * PIECE, seed));
    }
}
