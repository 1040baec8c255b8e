//! Settings of a pass, as `wgsl/parts/pass.wgsl` reads them, and its result.

use crate::sampling::{Candidate, Sampling};

/// Settings of one pass, with the fields of the shaders' `Pass`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pass {
    /// Position of the first token.
    pub(super) first: u32,
    /// Number of tokens in the pass.
    pub(super) n: u32,
    /// Head whose attention weights are computed.
    pub(super) head: u32,
    /// Key of the random numbers of a draw.
    pub(super) key: u32,
    /// Number of tokens kept by top-k sampling; 0 keeps all.
    pub(super) top_k: u32,
    /// Number of candidates to return.
    pub(super) n_top: u32,
    /// Divisor of the logits; 0 selects the most likely token.
    pub(super) temperature: f32,
}

/// Maximum number of candidates that a pass can return.
pub(super) const N_TOP_MAX: u32 = 30;

impl Pass {
    /// Sets the fields of sampling.
    pub(super) fn choosing(self, sampling: &Sampling, draw: u32, n_top: u32) -> Self {
        Self {
            key: sampling.key(draw),
            top_k: sampling.top_k,
            n_top: n_top.min(N_TOP_MAX),
            temperature: sampling.divisor().unwrap_or(0.0),
            ..self
        }
    }

    /// The bytes of the shaders' `Pass`.
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

/// Decodes the selected token and the candidates.
pub(super) fn decode_output(bytes: &[u8]) -> (u32, Vec<Candidate>) {
    let mut words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let mut next = || words.next().unwrap_or(u32::MAX);
    let (token, n_top) = (next(), next());
    let candidates = (0..n_top.min(N_TOP_MAX)).map(|_| (next(), f32::from_bits(next())));
    // If fewer tokens are kept than candidates requested, the remaining entries have no token.
    let candidates = candidates.take_while(|&(token, _)| token != u32::MAX);
    (token, candidates.map(|(token, probability)| Candidate { token, probability }).collect())
}

/// Size in bytes of a pass's result with `n_top` candidates.
pub(super) const fn output_bytes(n_top: u32) -> u64 {
    8 + 8 * (if n_top < N_TOP_MAX { n_top } else { N_TOP_MAX }) as u64
}

/// Decodes float32 numbers.
pub(super) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
