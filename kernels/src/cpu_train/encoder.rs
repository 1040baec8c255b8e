//! Embeddings: the start of the residual stream, and its gradients.

use super::thread_pool::{DisjointSlice, ThreadPool};
use crate::reference::dropout::Dropout;

/// Rows per task.
const ROWS: usize = 16;

/// Columns per task in backward. Each task sums its columns over every token, so that no two tasks write one element.
const COLUMNS: usize = 64;

/// Adds each token's row of `wte` and its position's row of `wpe`.
///
/// Shapes: `inp` (B, T), `wte` (V, C), `wpe` (T, C) → `out` (B, T, C). Reference: `reference/encoder.rs`.
pub fn encoder_forward(
    thread_pool: &ThreadPool,
    out: &mut [f32],
    inp: &[u32],
    (wte, wpe): (&[f32], &[f32]),
    (t, c): (usize, usize),
    dropout: Option<Dropout>,
) {
    thread_pool.for_each_piece(out, ROWS * c, |task, out| {
        for (i, (out, &token)) in out.chunks_exact_mut(c).zip(&inp[task * ROWS..]).enumerate() {
            let row = task * ROWS + i;
            let (wte, wpe) = (&wte[token as usize * c..][..c], &wpe[row % t * c..][..c]);
            for (out, (token, position)) in out.iter_mut().zip(wte.iter().zip(wpe)) {
                *out = token + position;
            }
        }
        if let Some(dropout) = dropout {
            drop_in_place(out, task * ROWS * c, dropout);
        }
    });
}

/// Multiplies elements by their dropout factors; the first element has number `start`.
#[expect(clippy::cast_possible_truncation, reason = "a mask of more than 2^32 elements repeats itself")]
pub fn drop_in_place(inout: &mut [f32], start: usize, dropout: Dropout) {
    for (j, x) in inout.iter_mut().enumerate() {
        *x *= dropout.factor((start + j) as u32);
    }
}

/// Adds to the embeddings' gradients.
///
/// Shapes: `dout` (B, T, C), `inp` (B, T) → adds to `dwte` (V, C), `dwpe` (T, C).
pub fn encoder_backward(
    thread_pool: &ThreadPool,
    dwte: &mut [f32],
    dwpe: &mut [f32],
    dout: &[f32],
    inp: &[u32],
    (t, c): (usize, usize),
) {
    let (dwte, dwpe) = (DisjointSlice::new(dwte), DisjointSlice::new(dwpe));
    thread_pool.for_each(c.div_ceil(COLUMNS), |task| {
        let start = task * COLUMNS;
        let n = COLUMNS.min(c - start);
        for (row, &token) in inp.iter().enumerate() {
            let dout = &dout[row * c + start..][..n];
            // SAFETY: no other task accesses these columns, and the two slices belong to different tensors.
            let (dwte, dwpe) = unsafe { (dwte.part(token as usize * c + start, n), dwpe.part(row % t * c + start, n)) };
            for (i, d) in dout.iter().enumerate() {
                dwte[i] += d;
                dwpe[i] += d;
            }
        }
    });
}
