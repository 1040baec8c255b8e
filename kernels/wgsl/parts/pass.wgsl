// What a pass over some tokens is told; `Pass` in wgpu/pass.rs writes it.

struct Pass {
    // Position of the first token.
    first: u32,
    // Tokens of this pass.
    n: u32,
    // The head that attention weights are asked of.
    head: u32,
    // Key of this draw's noise.
    key: u32,
    // Tokens kept, the likeliest; 0 keeps all.
    top_k: u32,
    // Candidates to tell with their probabilities.
    n_top: u32,
    // What logits are divided by; 0 takes the likeliest token.
    temperature: f32,
    unused: u32,
}
