// Settings of a pass over some tokens, written by `Pass` in wgpu/pass.rs.

struct Pass {
    // Position of the first token.
    first: u32,
    // Number of tokens in the pass.
    n: u32,
    // Head whose attention weights are computed.
    head: u32,
    // Key of the random numbers of this draw.
    key: u32,
    // Number of most likely tokens kept; 0 keeps all.
    top_k: u32,
    // Number of candidates to return with their probabilities.
    n_top: u32,
    // Divisor of the logits; 0 selects the most likely token.
    temperature: f32,
    unused: u32,
}
