//! Backward of causal attention.

use super::{RealNumber, attention_forward::Heads};

/// The tensors saved by forward.
#[derive(Clone, Copy, Debug)]
pub struct SavedAttention<'a, F> {
    /// Forward's input, (B, T, 3, NH, HS).
    pub qkv: &'a [F],
    /// Forward's output, (B, T, NH, HS).
    pub out: &'a [F],
    /// Each row's logsumexp, (B, NH, T).
    pub lse: &'a [F],
}

/// Adds the gradient of [`super::attention_forward`] to `dqkv`.
///
/// Shapes: `dout` (B, T, NH, HS) → adds to `dqkv` (B, T, 3, NH, HS).
/// Source: arXiv:2205.14135, appendix B: with P the weights and D = sum(dout * out), dS = P * (dP - D).
///
/// # Panics
/// If slice lengths are inconsistent.
pub fn attention_backward<F: RealNumber>(dqkv: &mut [F], dout: &[F], saved: SavedAttention<'_, F>, heads: Heads) {
    let SavedAttention { qkv, out, lse } = saved;
    let Heads { t, c, nh, .. } = heads;
    let (hs, scale) = (heads.hs(), F::of(heads.scale()));
    assert_eq!(dqkv.len(), qkv.len(), "dqkv and qkv are (B, T, 3C)");
    assert!(dout.len() == out.len() && out.len() * 3 == qkv.len(), "out and dout are (B, T, C)");
    for (row, &lse) in lse.iter().enumerate() {
        let (b, h, query) = (row / (nh * t), row / t % nh, row % t);
        let at = |token: usize, which: usize| ((b * t + token) * 3 + which) * c + h * hs;
        let here = (b * t + query) * c + h * hs;
        let (dout, out) = (&dout[here..][..hs], &out[here..][..hs]);
        let d: F = dout.iter().zip(out).map(|(&dout, &out)| dout * out).sum();
        for key in 0..=query {
            let (q, k, v) = (&qkv[at(query, 0)..][..hs], &qkv[at(key, 1)..][..hs], &qkv[at(key, 2)..][..hs]);
            let score: F = q.iter().zip(k).map(|(&q, &k)| q * k).sum::<F>() * scale;
            let weight = (score - lse).exp();
            let factor = F::of(f64::from(heads.dropped(row, key)));
            let dweight = dout.iter().zip(v).map(|(&dout, &v)| dout * v).sum::<F>() * factor;
            let dscore = weight * (dweight - d) * scale;
            for i in 0..hs {
                dqkv[at(query, 0) + i] += dscore * k[i];
                dqkv[at(key, 1) + i] += dscore * q[i];
                dqkv[at(key, 2) + i] += weight * factor * dout[i];
            }
        }
    }
}
