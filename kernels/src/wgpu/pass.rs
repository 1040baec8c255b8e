//! What a pass is told, as `wgsl/parts/pass.wgsl` reads it, and what it tells.

use crate::sampling::{Candidate, Sampling};

/// The settings of one pass. Field by field `Pass` of the shaders.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pass {
    /// Position of the first token.
    pub(super) first: u32,
    /// Tokens of the pass.
    pub(super) n: u32,
    /// The head that attention weights are asked of.
    pub(super) head: u32,
    /// Key of the draw's noise.
    pub(super) key: u32,
    /// Tokens kept; 0 keeps all.
    pub(super) top_k: u32,
    /// Candidates to tell.
    pub(super) n_top: u32,
    /// 0 takes the likeliest token.
    pub(super) temperature: f32,
}

/// Candidates that fit what a pass tells.
pub(super) const N_TOP_MAX: u32 = 30;

impl Pass {
    /// With the settings of a choice.
    pub(super) fn choosing(self, sampling: &Sampling, draw: u32, n_top: u32) -> Self {
        Self {
            key: sampling.key(draw),
            top_k: sampling.top_k,
            n_top: n_top.min(N_TOP_MAX),
            temperature: sampling.divisor().unwrap_or(0.0),
            ..self
        }
    }

    /// As the shaders read it.
    pub(super) fn bytes(&self) -> [u8; 32] {
        let words =
            [self.first, self.n, self.head, self.key, self.top_k, self.n_top, self.temperature.to_bits(), 0_u32];
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// The token that was chosen, and the candidates beside it.
pub(super) fn told(bytes: &[u8]) -> (u32, Vec<Candidate>) {
    let mut words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let mut next = || words.next().unwrap_or(u32::MAX);
    let (token, n_top) = (next(), next());
    let candidates = (0..n_top.min(N_TOP_MAX)).map(|_| (next(), f32::from_bits(next())));
    // Where fewer are kept than were asked for, no token fills the places.
    let candidates = candidates.take_while(|&(token, _)| token != u32::MAX);
    (token, candidates.map(|(token, probability)| Candidate { token, probability }).collect())
}

/// Bytes of what a pass tells about `n_top` candidates.
pub(super) const fn told_bytes(n_top: u32) -> u64 {
    8 + 8 * (if n_top < N_TOP_MAX { n_top } else { N_TOP_MAX }) as u64
}

/// Numbers out of their bytes.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
