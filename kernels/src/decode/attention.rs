//! Attention of one token over the KV cache.
//!
//! Keys are stored by channel, with adjacent positions contiguous, so that scores of adjacent positions are lanes of
//! one vector. Values are stored by position, so that the output's channels are lanes.

use super::math::softmax;
use crate::simd::{Op, Simd};

/// The shape of a block's KV cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    /// The number of heads, NH.
    pub(super) nh: usize,
    /// Channels per head, HS.
    pub(super) hs: usize,
    /// Positions of the cache, T.
    pub(super) t: usize,
}

impl Heads {
    /// Stores a token's key and value in the cache.
    ///
    /// Shapes: `kv` (2, NH, HS * T), with keys (HS, T) and values (T, HS) per head; `qkv` (3, NH, HS).
    pub(super) fn remember(self, kv: &mut [f32], qkv: &[f32], position: usize) {
        let Self { nh, hs, t } = self;
        let c = nh * hs;
        let (keys, values) = kv.split_at_mut(c * t);
        for (channel, &key) in qkv[c..2 * c].iter().enumerate() {
            keys[channel * t + position] = key;
        }
        for (head, value) in qkv[2 * c..].chunks_exact(hs).enumerate() {
            values[(head * t + position) * hs..][..hs].copy_from_slice(value);
        }
    }
}

/// Attention of one token over all positions up to its own.
///
/// Shapes: `q` (NH, HS), `kv` (2, NH, HS * T) → `out` (NH, HS), and the first `n` elements of each row of `att` (NH,
/// T). Reference: [`crate::reference::attention_forward`].
#[derive(Debug)]
pub(super) struct Attention<'a> {
    pub(super) out: &'a mut [f32],
    pub(super) att: &'a mut [f32],
    pub(super) q: &'a [f32],
    pub(super) kv: &'a [f32],
    pub(super) heads: Heads,
    /// The number of attended positions, including the token's own.
    pub(super) n: usize,
}

impl Op for Attention<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Heads { nh, hs, t } = self.heads;
        let n = self.n;
        assert!(n <= t && self.q.len() == nh * hs && self.out.len() == nh * hs, "q and out are (NH, HS)");
        assert!(self.att.len() == nh * t && self.kv.len() == 2 * nh * hs * t, "att is (NH, T), kv (2, NH, HS * T)");
        let (keys, values) = self.kv.split_at(nh * hs * t);
        let scale = 1.0 / (hs as f32).sqrt();
        for head in 0..nh {
            let att = &mut self.att[head * t..][..n];
            scores(simd, att, &self.q[head * hs..][..hs], &keys[head * hs * t..][..hs * t], t, scale);
            softmax(simd, att);
            mean(simd, &mut self.out[head * hs..][..hs], att, &values[head * hs * t..][..n * hs]);
        }
    }
}

/// Vectors per step, so that their sums are independent.
const VECTORS: usize = 4;

/// Shapes: `q` (HS), `keys` (HS, T) → `att` (n), n <= T.
#[inline(always)]
fn scores<S: Simd>(simd: S, att: &mut [f32], q: &[f32], keys: &[f32], t: usize, scale: f32) {
    let n = att.len();
    assert!(n <= t && keys.len() == q.len() * t, "keys are (HS, T)");
    let mut i = 0;
    while i + VECTORS * S::LANES <= n {
        score_vectors::<S, VECTORS>(simd, att, q, keys, t, scale, i);
        i += VECTORS * S::LANES;
    }
    while i + S::LANES <= n {
        score_vectors::<S, 1>(simd, att, q, keys, t, scale, i);
        i += S::LANES;
    }
    for (i, att) in att.iter_mut().enumerate().skip(i) {
        let mut sum = 0.0;
        for (d, &q) in q.iter().enumerate() {
            sum = simd.mul_add_1(q * scale, keys[d * t + i], sum);
        }
        *att = sum;
    }
}

#[inline(always)]
fn score_vectors<S: Simd, const K: usize>(
    simd: S,
    att: &mut [f32],
    q: &[f32],
    keys: &[f32],
    t: usize,
    scale: f32,
    i: usize,
) {
    assert!(i + K * S::LANES <= att.len() && att.len() <= t && keys.len() == q.len() * t, "keys are (HS, T)");
    let mut sums = [simd.splat(0.0); K];
    for (d, &q) in q.iter().enumerate() {
        let q = simd.splat(q * scale);
        for (k, sum) in sums.iter_mut().enumerate() {
            // SAFETY: d < HS, and i + K * LANES <= T.
            *sum = simd.mul_add(q, unsafe { simd.load(keys.as_ptr().add(d * t + i + k * S::LANES)) }, *sum);
        }
    }
    for (k, &sum) in sums.iter().enumerate() {
        // SAFETY: i + K * LANES elements exist.
        unsafe { simd.store(att.as_mut_ptr().add(i + k * S::LANES), sum) };
    }
}

/// Shapes: `att` (n), `values` (n, HS) → `out` (HS).
#[inline(always)]
fn mean<S: Simd>(simd: S, out: &mut [f32], att: &[f32], values: &[f32]) {
    let hs = out.len();
    assert_eq!(values.len(), att.len() * hs, "values are (n, HS)");
    let mut d = 0;
    while d + VECTORS * S::LANES <= hs {
        mean_vectors::<S, VECTORS>(simd, out, att, values, d);
        d += VECTORS * S::LANES;
    }
    while d + S::LANES <= hs {
        mean_vectors::<S, 1>(simd, out, att, values, d);
        d += S::LANES;
    }
    for (d, out) in out.iter_mut().enumerate().skip(d) {
        let mut sum = 0.0;
        for (i, &weight) in att.iter().enumerate() {
            sum = simd.mul_add_1(weight, values[i * hs + d], sum);
        }
        *out = sum;
    }
}

#[inline(always)]
fn mean_vectors<S: Simd, const K: usize>(simd: S, out: &mut [f32], att: &[f32], values: &[f32], d: usize) {
    let hs = out.len();
    assert!(d + K * S::LANES <= hs && values.len() == att.len() * hs, "values are (n, HS)");
    let mut sums = [simd.splat(0.0); K];
    for (i, &weight) in att.iter().enumerate() {
        let weight = simd.splat(weight);
        for (k, sum) in sums.iter_mut().enumerate() {
            // SAFETY: i < n, and d + K * LANES <= HS.
            *sum = simd.mul_add(weight, unsafe { simd.load(values.as_ptr().add(i * hs + d + k * S::LANES)) }, *sum);
        }
    }
    for (k, &sum) in sums.iter().enumerate() {
        // SAFETY: d + K * LANES elements exist.
        unsafe { simd.store(out.as_mut_ptr().add(d + k * S::LANES), sum) };
    }
}
