//! Attention with a cache of the earlier tokens' keys, values and, optionally, queries.
//!
//! The cache of a block is one slice. Keys come first, as (NH, T / 4, HS / 4, 4) groups of four channels, so that
//! adjacent keys are contiguous. Values (NH, T, HS) and queries (NH, T, HS) follow.

use super::RealNumber;

/// The shape of a block's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The number of heads, NH.
    pub nh: usize,
    /// Channels per head, HS, a multiple of 4.
    pub hs: usize,
    /// The capacity in tokens, T, a multiple of 4.
    pub t: usize,
    /// Whether queries are cached.
    pub queries: bool,
}

impl Cache {
    /// The number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nh * self.t * self.hs * if self.queries { 3 } else { 2 }
    }

    /// Whether the cache has no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    const fn key(&self, h: usize, position: usize, channel: usize) -> usize {
        let group = (h * (self.t / 4) + position / 4) * (self.hs / 4) + channel / 4;
        (group * 4 + position % 4) * 4 + channel % 4
    }

    const fn value(&self, h: usize, position: usize, channel: usize) -> usize {
        (self.nh * self.t + h * self.t + position) * self.hs + channel
    }

    const fn query(&self, h: usize, position: usize, channel: usize) -> usize {
        (2 * self.nh * self.t + h * self.t + position) * self.hs + channel
    }

    fn check<F>(&self, cache: &[F], qkv: &[F], first: usize) -> usize {
        let n = qkv.len() / (3 * self.nh * self.hs);
        assert_eq!(qkv.len(), n * 3 * self.nh * self.hs, "qkv is (n, 3, NH, HS)");
        assert!(cache.len() == self.len() && first + n <= self.t, "the cache has room for (T) tokens");
        n
    }

    /// The attention weights of one query over the keys up to its own.
    fn weights<F: RealNumber>(
        &self,
        cache: &[F],
        query: impl Fn(usize) -> F,
        h: usize,
        n_keys: usize,
        scale: f64,
    ) -> Vec<F> {
        let dot = |key: usize| (0..self.hs).map(|channel| query(channel) * cache[self.key(h, key, channel)]).sum::<F>();
        let scores: Vec<F> = (0..n_keys).map(|key| dot(key) * F::of(scale)).collect();
        let max = scores.iter().copied().fold(F::neg_infinity(), F::max);
        let exponentials: Vec<F> = scores.iter().map(|&score| (score - max).exp()).collect();
        let sum: F = exponentials.iter().copied().sum();
        exponentials.into_iter().map(|e| e / sum).collect()
    }
}

/// Appends a pass's keys and values, and queries if cached, after the `first` earlier tokens.
///
/// Shapes: `qkv` (n, 3, NH, HS) → `cache`. WGSL kernel: `wgsl/cache_append.wgsl`.
///
/// # Panics
/// If a slice length is inconsistent with the shape, or the cache is full.
pub fn cache_append<F: RealNumber>(cache: &mut [F], qkv: &[F], first: usize, shape: Cache) {
    let n = shape.check(cache, qkv, first);
    let c = shape.nh * shape.hs;
    for (i, h, channel) in places(n, shape) {
        let part = |which: usize| qkv[(i * 3 + which) * c + h * shape.hs + channel];
        cache[shape.key(h, first + i, channel)] = part(1);
        cache[shape.value(h, first + i, channel)] = part(2);
        if shape.queries {
            cache[shape.query(h, first + i, channel)] = part(0);
        }
    }
}

/// Computes causal attention of a pass's queries over the cached keys and values, including the pass's own.
///
/// Shapes: `qkv` (n, 3, NH, HS), `cache` → `out` (n, NH, HS). `scale` is the factor of scores.
/// WGSL kernel: `wgsl/attention_cached.wgsl`.
///
/// # Panics
/// As for [`cache_append`].
pub fn attention_cached<F: RealNumber>(out: &mut [F], qkv: &[F], cache: &[F], first: usize, scale: f64, shape: Cache) {
    let n = shape.check(cache, qkv, first);
    let c = shape.nh * shape.hs;
    assert_eq!(out.len(), n * c, "out is (n, NH, HS)");
    for (i, h) in (0..n).flat_map(|i| (0..shape.nh).map(move |h| (i, h))) {
        let query = |channel: usize| qkv[i * 3 * c + h * shape.hs + channel];
        let weights = shape.weights(cache, query, h, first + i + 1, scale);
        for channel in 0..shape.hs {
            let values = weights.iter().enumerate();
            out[i * c + h * shape.hs + channel] =
                values.map(|(key, &weight)| weight * cache[shape.value(h, key, channel)]).sum();
        }
    }
}

/// Computes the attention weights of head `h` for the queries in `queries`.
///
/// Each row holds the weights of the keys up to its own position, then zeros.
///
/// Shapes: `cache` with queries → rows `first..first + n` of `out` (maxT, maxT), `columns` being maxT.
/// WGSL kernel: `wgsl/attention_weights.wgsl`.
///
/// # Panics
/// If queries are not cached, or a slice length is inconsistent with the shape.
pub fn attention_weights<F: RealNumber>(
    out: &mut [F],
    cache: &[F],
    queries: std::ops::Range<usize>,
    h: usize,
    scale: f64,
    shape: Cache,
    columns: usize,
) {
    assert!(shape.queries && cache.len() == shape.len() && queries.end <= shape.t, "queries are in the cache");
    for query in queries {
        let weights = shape.weights(cache, |channel| cache[shape.query(h, query, channel)], h, query + 1, scale);
        let row = &mut out[query * columns..][..columns];
        row.fill(F::zero());
        row[..=query].copy_from_slice(&weights);
    }
}

fn places(n: usize, shape: Cache) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..n).flat_map(move |i| (0..shape.nh).flat_map(move |h| (0..shape.hs).map(move |channel| (i, h, channel))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reference::attention_forward::{Heads, attention_forward},
        rng::Stream,
    };

    /// The cache gives the results of the reference's attention over whole sequences, token by token and in one pass.
    #[test]
    fn a_cache_changes_nothing() {
        let (t, nh, hs) = (7, 3, 4);
        let c = nh * hs;
        let mut stream = Stream::new(7, 0);
        let qkv: Vec<f64> = (0..t * 3 * c).map(|_| stream.normal()).collect();
        let (mut want, mut lse) = (vec![0.0; t * c], vec![0.0; nh * t]);
        let heads = Heads { t, c, nh, dropout: None };
        attention_forward(&mut want, &mut lse, &qkv, heads);
        let shape = Cache { nh, hs, t: 8, queries: true };
        for step in [1, 3, 7] {
            let (mut cache, mut out) = (vec![0.0; shape.len()], vec![0.0; t * c]);
            for first in (0..t).step_by(step) {
                let end = t.min(first + step);
                let qkv = &qkv[first * 3 * c..end * 3 * c];
                cache_append(&mut cache, qkv, first, shape);
                attention_cached(&mut out[first * c..end * c], qkv, &cache, first, heads.scale(), shape);
            }
            assert!(want.iter().zip(&out).all(|(want, out)| (want - out).abs() < 1e-12), "step {step}");
            let mut map = vec![-1.0; t * t];
            attention_weights(&mut map, &cache, 0..t, 1, heads.scale(), shape, t);
            for row in map.chunks_exact(t) {
                assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{row:?}");
            }
            assert_eq!(map[..t], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        }
    }
}
