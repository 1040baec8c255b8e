//! The sum of token and position embeddings.

use super::RealNumber;

/// The positions of a call's rows.
#[derive(Clone, Copy, Debug)]
pub struct Positions {
    /// Tokens per sequence, T.
    pub t: usize,
    /// The position of a sequence's first token: 0, except for tokens that continue a cached text.
    pub first: usize,
}

/// Computes the start of the residual stream: each token's row of `wte` plus its position's row of `wpe`.
///
/// Shapes: `inp` (B, T), `wte` (V, C), `wpe` (maxT, C) → `out` (B, T, C).
///
/// # Panics
/// If slice lengths are inconsistent, a token exceeds `wte`, or a position exceeds `wpe`.
pub fn encoder_forward<F: RealNumber>(
    out: &mut [F],
    inp: &[u32],
    wte: &[F],
    wpe: &[F],
    positions: Positions,
    c: usize,
) {
    assert_eq!(out.len(), inp.len() * c, "out is (B, T, C) for inp (B, T)");
    for (i, (out, &token)) in out.chunks_exact_mut(c).zip(inp).enumerate() {
        let (token, position) = (token as usize, positions.first + i % positions.t);
        let (wte, wpe) = (&wte[token * c..][..c], &wpe[position * c..][..c]);
        for (out, (&token, &position)) in out.iter_mut().zip(wte.iter().zip(wpe)) {
            *out = token + position;
        }
    }
}

/// Adds the gradients of [`encoder_forward`].
///
/// Shapes: `dout` (B, T, C), `inp` (B, T) → adds to `dwte` (V, C), `dwpe` (maxT, C).
///
/// # Panics
/// As for [`encoder_forward`].
pub fn encoder_backward<F: RealNumber>(
    dwte: &mut [F],
    dwpe: &mut [F],
    dout: &[F],
    inp: &[u32],
    positions: Positions,
    c: usize,
) {
    assert_eq!(dout.len(), inp.len() * c, "dout is (B, T, C) for inp (B, T)");
    for (i, (dout, &token)) in dout.chunks_exact(c).zip(inp).enumerate() {
        let (token, position) = (token as usize, positions.first + i % positions.t);
        for (j, &d) in dout.iter().enumerate() {
            dwte[token * c + j] += d;
            dwpe[position * c + j] += d;
        }
    }
}
