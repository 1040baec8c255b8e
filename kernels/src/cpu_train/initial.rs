//! Initialisation of a new model's parameters on all threads.

use super::thread_pool::ThreadPool;
use crate::{initial::Initial, layout::Layout};

/// Elements per task.
const PIECE: usize = 1 << 14;

/// Initialises weights as nanoGPT does, by [`Initial`]. The result depends on the seed only.
pub fn initialize(thread_pool: &ThreadPool, params: &mut [f32], layout: &Layout, n_layer: usize, seed: u64) {
    for (index, entry) in layout.entries().iter().enumerate() {
        let initial = Initial::of(index, entry, n_layer);
        let params = &mut params[entry.range.clone()];
        thread_pool.for_each_piece(params, PIECE, |i, params| initial.fill(params, i * PIECE, seed));
    }
}
