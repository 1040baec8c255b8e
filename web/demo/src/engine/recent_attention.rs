//! Attention maps of the last tokens, which the CPU keeps while it writes.

use std::collections::VecDeque;

/// The attention weights of the text's last tokens. The CPU's cache has those of the last one only.
#[derive(Debug, Default)]
pub struct RecentAttention {
    /// Maximum number of tokens.
    pub n_max: usize,
    /// Number of tokens of the text up to the last one here.
    pub n_seen: usize,
    /// Number of heads in all layers.
    n_heads: usize,
    /// For each token: by head, the weights of the last keys, up to the token itself.
    pub tokens: VecDeque<Vec<f32>>,
}

impl RecentAttention {
    /// Weights of up to `n_max` tokens, after `n_seen` tokens without weights.
    pub fn new(n_max: usize, n_seen: usize) -> Self {
        Self { n_max, n_seen, ..Self::default() }
    }

    /// Adds the weights (heads, `n_keys`) of the next token.
    pub fn add(&mut self, weights: &[f32], n_keys: usize) {
        self.n_seen += 1;
        self.n_heads = weights.len() / n_keys;
        self.tokens.push_back(weights.chunks_exact(n_keys).flat_map(|row| tail(row, self.n_max)).copied().collect());
        if self.tokens.len() > self.n_max {
            self.tokens.pop_front();
        }
    }

    /// Returns the maps among these tokens, (heads, tokens, tokens).
    pub fn maps(&self) -> Vec<f32> {
        let n = self.tokens.len();
        let mut maps = vec![0.0; self.n_heads * n * n];
        for (row, weights) in self.tokens.iter().enumerate() {
            for (head, keys) in weights.chunks_exact(weights.len() / self.n_heads).enumerate() {
                // A window that has moved on may begin after the first column.
                let keys = tail(keys, row + 1);
                let end = (head * n + row) * n + row + 1;
                maps[end - keys.len()..end].copy_from_slice(keys);
            }
        }
        maps
    }
}

/// Returns the last `n` items, or all if there are fewer.
pub fn tail<T>(items: &[T], n: usize) -> &[T] {
    &items[items.len().saturating_sub(n)..]
}
