//! Causal attention in blocks with an online softmax. No (T, T) tensor exists in forward or backward.
//!
//! A task is one head of one sequence. Scores are computed for [`Q_BLOCK`] queries and [`K_BLOCK`] keys at a time, in
//! the thread's scratch buffer. Backward recomputes them from what forward saved (arXiv:2205.14135).

use headroom_planner::gpt::tensors::ATTENTION_BLOCK;

use super::{
    math::{exp, max, sum, sum2, vectorized},
    product::{Mat, OutputMode, product_here},
    thread_pool::{DisjointSlice, Workers},
};
use crate::reference::{RealNumber, attention_forward::Heads};

/// Queries per block.
#[expect(clippy::cast_possible_truncation, reason = "64")]
const Q_BLOCK: usize = ATTENTION_BLOCK[0] as usize;

/// Keys per block.
#[expect(clippy::cast_possible_truncation, reason = "256")]
const K_BLOCK: usize = ATTENTION_BLOCK[1] as usize;

/// One thread's scratch buffer, divided.
struct Scratch<'a> {
    scores: &'a mut [f32],
    dscores: &'a mut [f32],
    dq: &'a mut [f32],
    dk: &'a mut [f32],
    dv: &'a mut [f32],
    row: &'a mut [f32],
}

impl<'a> Scratch<'a> {
    fn new(whole: &'a mut [f32], t: usize, hs: usize) -> Self {
        let block = Q_BLOCK.min(t) * K_BLOCK.min(t);
        let (scores, rest) = whole.split_at_mut(block);
        let (dscores, rest) = rest.split_at_mut(block);
        let (dq, rest) = rest.split_at_mut(t * hs);
        let (dk, rest) = rest.split_at_mut(t * hs);
        let (dv, row) = rest.split_at_mut(t * hs);
        Self { scores, dscores, dq, dk, dv, row }
    }
}

/// One head of one sequence in a (B, T, 3, NH, HS) tensor.
#[derive(Clone, Copy)]
struct Head<'a> {
    qkv: &'a [f32],
    start: usize,
    heads: Heads,
}

impl<'a> Head<'a> {
    fn new(qkv: &'a [f32], task: usize, heads: Heads) -> Self {
        let Heads { t, c, nh, .. } = heads;
        Self { qkv, start: task / nh * t * 3 * c + task % nh * heads.hs(), heads }
    }

    /// Returns `rows` rows from `first` of queries (0), keys (1) or values (2).
    fn rows(&self, which: usize, first: usize, rows: usize) -> Mat<'a> {
        let c = self.heads.c;
        Mat::strided(&self.qkv[self.start + (first * 3 + which) * c..], rows, self.heads.hs(), 3 * c)
    }
}

/// Rows of one head in a (B, T, NH, HS) tensor.
fn head_rows(data: &[f32], task: usize, heads: Heads, first: usize, rows: usize) -> Mat<'_> {
    let Heads { t, c, nh, .. } = heads;
    Mat::strided(&data[(task / nh * t + first) * c + task % nh * heads.hs()..], rows, heads.hs(), c)
}

/// Computes causal attention. Reference: `reference/attention_forward.rs`.
///
/// Shapes: `qkv` (B, T, 3, NH, HS) → `out` (B, T, NH, HS), `lse` (B, NH, T).
pub fn attention_forward(out: &mut [f32], lse: &mut [f32], qkv: &[f32], heads: Heads, crew: Workers<'_>) {
    let Heads { t, c, nh, .. } = heads;
    let hs = heads.hs();
    let (out, lse) = (DisjointSlice::new(out), DisjointSlice::new(lse));
    let n_heads = qkv.len() / (3 * t * hs);
    crew.thread_pool.for_each(n_heads, |task| {
        // SAFETY: the scratch is this thread's, and the row of lse is this head's.
        let (scratch, lse) = unsafe { (crew.scratch(), lse.part(task * t, t)) };
        let mut scratch = Scratch::new(scratch, t, hs);
        let head = Head::new(qkv, task, heads);
        for q0 in (0..t).step_by(Q_BLOCK) {
            let bq = Q_BLOCK.min(t - q0);
            forward_block(&mut scratch, &mut lse[q0..][..bq], head, task, q0);
            vectorized!({
                for (i, acc) in scratch.dq[..bq * hs].chunks_exact(hs).enumerate() {
                    // SAFETY: no other task accesses this head's channels of this token.
                    let out = unsafe { out.part((task / nh * t + q0 + i) * c + task % nh * hs, hs) };
                    let scale = 1.0 / scratch.row[i];
                    out.iter_mut().zip(acc).for_each(|(out, acc)| *out = acc * scale);
                }
            });
        }
    });
}

/// Processes one block of queries against all its keys.
///
/// Leaves unnormalised results in `dq` and their sums in `row`, and writes the logsumexp to `lse`.
fn forward_block(scratch: &mut Scratch<'_>, lse: &mut [f32], head: Head<'_>, task: usize, q0: usize) {
    let heads = head.heads;
    let (hs, bq) = (heads.hs(), lse.len());
    let mut maxima = [f32::NEG_INFINITY; Q_BLOCK];
    scratch.row[..bq].fill(0.0);
    for k0 in (0..q0 + bq).step_by(K_BLOCK) {
        let bk = K_BLOCK.min(q0 + bq - k0);
        let (queries, keys) = (head.rows(0, q0, bq), head.rows(1, k0, bk));
        product_here(scratch.scores, queries, keys.transposed(), OutputMode::Fresh, f32::of(heads.scale()));
        vectorized!({
            for (i, scores) in scratch.scores[..bq * bk].chunks_exact_mut(bk).enumerate() {
                // Whole rows are whole vectors, so masked scores are computed and then removed before and after the
                // exponential.
                let seen = bk.min(q0 + i + 1 - k0);
                scores[seen..].fill(f32::NEG_INFINITY);
                let largest = max(scores).max(maxima[i]);
                let correction = exp(maxima[i] - largest);
                scores.iter_mut().for_each(|score| *score = exp(*score - largest));
                scores[seen..].fill(0.0);
                scratch.row[i] = scratch.row[i] * correction + sum(scores, |x| x);
                maxima[i] = largest;
                if k0 > 0 {
                    scratch.dq[i * hs..][..hs].iter_mut().for_each(|acc| *acc *= correction);
                }
                if heads.dropout.is_some() {
                    let row = task * heads.t + q0 + i;
                    scores.iter_mut().enumerate().for_each(|(j, score)| *score *= heads.dropped(row, k0 + j));
                }
            }
        });
        let into = if k0 == 0 { OutputMode::Fresh } else { OutputMode::Sum };
        product_here(scratch.dq, Mat::new(scratch.scores, bq, bk), head.rows(2, k0, bk), into, 1.0);
    }
    for (i, lse) in lse.iter_mut().enumerate() {
        *lse = maxima[i] + scratch.row[i].ln();
    }
}

/// The tensors that forward saved.
#[derive(Clone, Copy, Debug)]
pub struct SavedAttention<'a> {
    /// Queries, keys and values, (B, T, 3, NH, HS).
    pub qkv: &'a [f32],
    /// Forward's output, (B, T, NH, HS).
    pub out: &'a [f32],
    /// The logsumexp of each row, (B, NH, T).
    pub lse: &'a [f32],
}

/// Writes the gradient of [`attention_forward`]. Reference: `reference/attention_backward.rs`.
///
/// Shapes: `dout` (B, T, NH, HS) → `dqkv` (B, T, 3, NH, HS).
pub fn attention_backward(dqkv: &mut [f32], dout: &[f32], saved: SavedAttention<'_>, heads: Heads, crew: Workers<'_>) {
    let Heads { t, c, nh, .. } = heads;
    let hs = heads.hs();
    let n_heads = saved.qkv.len() / (3 * t * hs);
    let dqkv = DisjointSlice::new(dqkv);
    crew.thread_pool.for_each(n_heads, |task| {
        // SAFETY: the scratch is this thread's.
        let mut scratch = Scratch::new(unsafe { crew.scratch() }, t, hs);
        head_backward(&mut scratch, dout, saved, heads, task);
        for (which, gradient) in [&*scratch.dq, &*scratch.dk, &*scratch.dv].into_iter().enumerate() {
            for (token, gradient) in gradient.chunks_exact(hs).enumerate() {
                let start = ((task / nh * t + token) * 3 + which) * c + task % nh * hs;
                // SAFETY: no other task accesses this head's channels of this token.
                unsafe { dqkv.part(start, hs) }.copy_from_slice(gradient);
            }
        }
    });
}

/// Computes dq, dk and dv of one head, in the scratch buffer.
fn head_backward(scratch: &mut Scratch<'_>, dout: &[f32], saved: SavedAttention<'_>, heads: Heads, task: usize) {
    let Heads { t, c, .. } = heads;
    let hs = heads.hs();
    let head = Head::new(saved.qkv, task, heads);
    let (douts, outs) = (head_rows(dout, task, heads, 0, t), head_rows(saved.out, task, heads, 0, t));
    vectorized!({
        for (token, d) in scratch.row.iter_mut().enumerate() {
            *d = sum2(&douts.data[token * c..][..hs], &outs.data[token * c..][..hs], |a, b| a * b);
        }
    });
    for gradient in [&mut *scratch.dq, &mut *scratch.dk, &mut *scratch.dv] {
        gradient.fill(0.0);
    }
    let scale = f32::of(heads.scale());
    for k0 in (0..t).step_by(K_BLOCK) {
        for q0 in (k0..t).step_by(Q_BLOCK) {
            let bq = Q_BLOCK.min(t - q0);
            let bk = K_BLOCK.min(q0 + bq - k0);
            let (queries, keys, values) = (head.rows(0, q0, bq), head.rows(1, k0, bk), head.rows(2, k0, bk));
            let dout = head_rows(dout, task, heads, q0, bq);
            product_here(scratch.scores, queries, keys.transposed(), OutputMode::Fresh, scale);
            product_here(scratch.dscores, dout, values.transposed(), OutputMode::Fresh, 1.0);
            weights_and_gradients(scratch, saved.lse, heads, (task, q0, k0), (bq, bk), scale);
            let (weights, dscores) = (Mat::new(scratch.scores, bq, bk), Mat::new(scratch.dscores, bq, bk));
            product_here(&mut scratch.dv[k0 * hs..], weights.transposed(), dout, OutputMode::Sum, 1.0);
            product_here(&mut scratch.dq[q0 * hs..], dscores, keys, OutputMode::Sum, 1.0);
            product_here(&mut scratch.dk[k0 * hs..], dscores.transposed(), queries, OutputMode::Sum, 1.0);
        }
    }
}

/// Replaces a block's scores by forward's attention weights, and the weights' gradients by the scores' gradients.
fn weights_and_gradients(
    scratch: &mut Scratch<'_>,
    lse: &[f32],
    heads: Heads,
    (task, q0, k0): (usize, usize, usize),
    (bq, bk): (usize, usize),
    scale: f32,
) {
    vectorized!({
        let rows = scratch.scores[..bq * bk].chunks_exact_mut(bk).zip(scratch.dscores[..bq * bk].chunks_exact_mut(bk));
        for (i, (scores, dscores)) in rows.enumerate() {
            let row = task * heads.t + q0 + i;
            let (lse, d) = (lse[row], scratch.row[q0 + i]);
            let seen = bk.min(q0 + i + 1 - k0);
            let both = scores.iter_mut().zip(dscores.iter_mut());
            if heads.dropout.is_none() {
                for (score, dscore) in both {
                    let weight = exp(*score - lse);
                    *dscore = weight * (*dscore - d) * scale;
                    *score = weight;
                }
            } else {
                for (j, (score, dscore)) in both.enumerate() {
                    let (weight, factor) = (exp(*score - lse), heads.dropped(row, k0 + j));
                    *dscore = weight * (*dscore * factor - d) * scale;
                    *score = weight * factor;
                }
            }
            scores[seen..].fill(0.0);
            dscores[seen..].fill(0.0);
        }
    });
}
