//! Forward of causal attention.

use super::{RealNumber, dropout::Dropout};

/// The shape of the heads, and the dropout of attention weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heads {
    /// Tokens per sequence, T.
    pub t: usize,
    /// Channels, C = NH * HS.
    pub c: usize,
    /// The number of heads, NH.
    pub nh: usize,
    /// The dropout of attention weights; a weight's index is ((b * NH + h) * T + query) * T + key.
    pub dropout: Option<Dropout>,
}

impl Heads {
    /// Channels per head, HS.
    #[must_use]
    pub const fn hs(&self) -> usize {
        self.c / self.nh
    }

    /// The factor of scores: 1 / sqrt(HS).
    #[must_use]
    pub fn scale(&self) -> f64 {
        1.0 / (self.hs() as f64).sqrt()
    }

    /// The dropout factor of one weight; `row` is (b * NH + h) * T + query.
    #[must_use]
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a mask of more than 2^32 elements repeats itself")]
    pub fn dropped(&self, row: usize, key: usize) -> f32 {
        self.dropout
            .map_or(1.0, |dropout| dropout.factor((row as u32).wrapping_mul(self.t as u32).wrapping_add(key as u32)))
    }
}

/// Computes causal self-attention of every head: each query's softmax-weighted mean of the values up to its position.
///
/// Shapes: `qkv` (B, T, 3, NH, HS) → `out` (B, T, NH, HS), `lse` (B, NH, T), each row's logsumexp of the scaled scores.
/// Numerics: the row's maximum is subtracted before the exponential.
/// Source: `torch.nn.functional.scaled_dot_product_attention(is_causal=True)`.
///
/// # Panics
/// If slice lengths are inconsistent.
pub fn attention_forward<F: RealNumber>(out: &mut [F], lse: &mut [F], qkv: &[F], heads: Heads) {
    let Heads { t, c, nh, .. } = heads;
    let (hs, scale) = (heads.hs(), F::of(heads.scale()));
    let b = qkv.len() / (t * 3 * c);
    assert_eq!(qkv.len(), b * t * 3 * c, "qkv is (B, T, 3C)");
    assert_eq!(out.len(), b * t * c, "out is (B, T, C)");
    assert_eq!(lse.len(), b * nh * t, "lse is (B, NH, T)");
    let mut scores = vec![F::zero(); t];
    for (row, lse) in lse.iter_mut().enumerate() {
        let (b, h, query) = (row / (nh * t), row / t % nh, row % t);
        let part = |token: usize, which: usize| &qkv[((b * t + token) * 3 + which) * c + h * hs..][..hs];
        let scores = &mut scores[..=query];
        for (key, score) in scores.iter_mut().enumerate() {
            let dot: F = part(query, 0).iter().zip(part(key, 1)).map(|(&q, &k)| q * k).sum();
            *score = dot * scale;
        }
        let max = scores.iter().copied().fold(F::neg_infinity(), F::max);
        let sum: F = scores.iter().map(|&score| (score - max).exp()).sum();
        *lse = max + sum.ln();
        let out = &mut out[(b * t + query) * c + h * hs..][..hs];
        out.fill(F::zero());
        for (key, &score) in scores.iter().enumerate() {
            let weight = (score - *lse).exp() * F::of(f64::from(heads.dropped(row, key)));
            for (out, &v) in out.iter_mut().zip(part(key, 2)) {
                *out += weight * v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_sees_itself_alone() {
        let qkv: Vec<f64> = (0..2 * 3 * 4).map(|i| f64::from(i) * 0.1).collect();
        let (mut out, mut lse) = (vec![0.0; 8], vec![0.0; 4]);
        attention_forward(&mut out, &mut lse, &qkv, Heads { t: 2, c: 4, nh: 2, dropout: None });
        assert_eq!(out[..4], qkv[8..12]);
    }

    #[test]
    fn equal_scores_give_the_mean_of_the_values_and_large_ones_stay_finite() {
        // One head of one channel: queries of zero, then a query so large that unshifted exponentials overflow f32.
        let mut qkv = vec![0.0_f32, 5.0, 1.0, 0.0, 5.0, 2.0, 0.0, 5.0, 6.0];
        let heads = Heads { t: 3, c: 1, nh: 1, dropout: None };
        let (mut out, mut lse) = (vec![0.0; 3], vec![0.0; 3]);
        attention_forward(&mut out, &mut lse, &qkv, heads);
        let near = |out: &[f32], want: [f32; 3]| out.iter().zip(want).all(|(out, want)| (out - want).abs() < 1e-2);
        assert!(near(&out, [1.0, 1.5, 3.0]), "{out:?}");
        qkv[6] = 1e4;
        attention_forward(&mut out, &mut lse, &qkv, heads);
        assert!(near(&out, [1.0, 1.5, 3.0]) && lse[2].is_finite(), "{out:?} {lse:?}");
    }
}
