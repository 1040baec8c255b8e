//! Embeddings: the residual stream's start and its gradients.

use super::team::{Disjoint, Team};
use crate::cpu::dropout::Dropout;

/// Rows a task.
const ROWS: usize = 16;

/// Columns a task in backward: each task adds up its columns of every token, so that no two write one element.
const COLUMNS: usize = 64;

/// Each token's row of `wte` plus its position's of `wpe`.
///
/// Shapes: `inp` (B, T), `wte` (V, C), `wpe` (T, C) → `out` (B, T, C). Twin: `cpu/encoder.rs`.
pub fn encoder_forward(
    team: &Team,
    out: &mut [f32],
    inp: &[u32],
    (wte, wpe): (&[f32], &[f32]),
    (t, c): (usize, usize),
    dropout: Option<Dropout>,
) {
    team.for_each_piece(out, ROWS * c, |task, out| {
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

/// Multiplies elements, from number `start` on, with their dropout factors.
#[expect(clippy::cast_possible_truncation, reason = "a mask of more than 2^32 elements repeats itself")]
pub fn drop_in_place(inout: &mut [f32], start: usize, dropout: Dropout) {
    for (j, x) in inout.iter_mut().enumerate() {
        *x *= dropout.factor((start + j) as u32);
    }
}

/// Adds the embeddings' gradients.
///
/// Shapes: `dout` (B, T, C), `inp` (B, T) → adds to `dwte` (V, C), `dwpe` (T, C).
pub fn encoder_backward(
    team: &Team,
    dwte: &mut [f32],
    dwpe: &mut [f32],
    dout: &[f32],
    inp: &[u32],
    (t, c): (usize, usize),
) {
    let (dwte, dwpe) = (Disjoint::new(dwte), Disjoint::new(dwpe));
    team.for_each(c.div_ceil(COLUMNS), |task| {
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
