//! Embeddings: the residual stream's start and its gradients.

use rayon::prelude::*;

use super::team::{Disjoint, for_each};
use crate::cpu::dropout::Dropout;

/// Rows a task.
const ROWS: usize = 16;

/// Columns a task in backward: each task adds up its columns of every token, so that no two write one element.
const COLUMNS: usize = 64;

/// Each token's row of `wte` plus its position's of `wpe`.
///
/// Shapes: `inp` (B, T), `wte` (V, C), `wpe` (T, C) → `out` (B, T, C). Twin: `cpu/encoder.rs`.
pub fn encoder_forward(
    out: &mut [f32],
    inp: &[u32],
    wte: &[f32],
    wpe: &[f32],
    (t, c): (usize, usize),
    dropout: Option<Dropout>,
) {
    out.par_chunks_mut(ROWS * c).zip(inp.par_chunks(ROWS)).enumerate().for_each(|(task, (out, inp))| {
        for (i, (out, &token)) in out.chunks_exact_mut(c).zip(inp).enumerate() {
            let row = task * ROWS + i;
            let (wte, wpe) = (&wte[token as usize * c..][..c], &wpe[row % t * c..][..c]);
            for (out, (token, position)) in out.iter_mut().zip(wte.iter().zip(wpe)) {
                *out = token + position;
            }
            if let Some(dropout) = dropout {
                drop_row(out, row * c, dropout);
            }
        }
    });
}

/// Multiplies each element with its dropout factor, in place.
#[expect(clippy::cast_possible_truncation, reason = "a mask of more than 2^32 elements repeats itself")]
fn drop_row(row: &mut [f32], start: usize, dropout: Dropout) {
    for (j, x) in row.iter_mut().enumerate() {
        *x *= dropout.factor((start + j) as u32);
    }
}

/// A copy with each element multiplied with its dropout factor.
pub fn dropped_copy(out: &mut [f32], inp: &[f32], c: usize, dropout: Dropout) {
    out.par_chunks_mut(ROWS * c).zip(inp.par_chunks(ROWS * c)).enumerate().for_each(|(task, (out, inp))| {
        out.copy_from_slice(inp);
        drop_row(out, task * ROWS * c, dropout);
    });
}

/// The same in place.
pub fn drop_in_place(inout: &mut [f32], c: usize, dropout: Dropout) {
    let tasks = inout.par_chunks_mut(ROWS * c).enumerate();
    tasks.for_each(|(task, inout)| drop_row(inout, task * ROWS * c, dropout));
}

/// Adds the embeddings' gradients.
///
/// Shapes: `dout` (B, T, C), `inp` (B, T) → adds to `dwte` (V, C), `dwpe` (T, C).
pub fn encoder_backward(dwte: &mut [f32], dwpe: &mut [f32], dout: &[f32], inp: &[u32], (t, c): (usize, usize)) {
    let (dwte, dwpe) = (Disjoint::new(dwte), Disjoint::new(dwpe));
    for_each(c.div_ceil(COLUMNS), |task| {
        let start = task * COLUMNS;
        let n = COLUMNS.min(c - start);
        for (row, &token) in inp.iter().enumerate() {
            let dout = &dout[row * c + start..][..n];
            // SAFETY: no other task has these columns, and the two are of different tensors.
            let (dwte, dwpe) = unsafe { (dwte.part(token as usize * c + start, n), dwpe.part(row % t * c + start, n)) };
            for (i, d) in dout.iter().enumerate() {
                dwte[i] += d;
                dwpe[i] += d;
            }
        }
    });
}
