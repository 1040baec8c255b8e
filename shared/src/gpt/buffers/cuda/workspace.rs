//! Room that kernels need between two launches: parts of sums, which a second launch adds up.
//!
//! How a sum is cut into parts is a function of its sizes and of nothing else, not even of the card, so that a run repeats
//! itself bit by bit on any.

use super::ROW_MULTIPLE;

/// The side of a product's tile, which one block computes.
pub const TILE: u64 = 128;
/// Elements that a tile goes through at a time along the dimension that is summed over.
pub const DEPTH: u64 = 32;
/// Blocks that keep any card busy.
const BLOCKS: u64 = 512;
/// Rows of a part of a weight's gradient at least: fewer would be more writing than multiplying.
const WEIGHT_ROWS: u64 = 512;
/// Columns of a bias that one block sums, and rows of a part at least.
pub const BIAS_COLUMNS: u64 = 256;
const BIAS_ROWS: u64 = 64;
/// Parts of the sum of squares of all gradients, at most.
pub const NORM_PARTS: u64 = 1024;
/// 32-bit numbers that describe a token: itself, where its rows begin, how many there are, and nothing.
pub const BUCKET_WORDS: u64 = 4;
/// 64-bit numbers that describe a tensor to the optimizer.
pub const TENSOR_WORDS: u64 = 8;

/// Threads of a block of layer normalisation, warps that may share a row, and channels that each has room for.
pub const NORM_THREADS: u64 = 384;
/// Warps that a row is the work of, by kernel.
pub const NORM_WARPS: [u64; 3] = [1, 4, 12];
/// Channels that each warp has room for.
pub const NORM_COLUMNS: u64 = 768;
/// Channels of a row, at most.
pub const NORM_COLUMNS_MAX: u64 = NORM_WARPS[NORM_WARPS.len() - 1] * NORM_COLUMNS;
/// Channels of the widest head that attention is made for.
pub const HEAD_SIZE_MAX: u64 = 128;

/// Whether attention is made for heads of so many channels: what is moved at once is 8 of them.
#[must_use]
pub const fn takes_heads_of(head_size: u64) -> bool {
    head_size.is_multiple_of(ROW_MULTIPLE) && head_size <= HEAD_SIZE_MAX
}

/// Who multiplies matrices, as far as a run's memory depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Multiplier {
    /// Kernels of ours, which need nothing besides the parts of sums.
    #[default]
    Own,
    /// cuBLASLt, and our kernels for what it has no algorithm for.
    CublasLt {
        /// Room that it may use between the launches of a product.
        workspace_bytes: u64,
    },
}

impl Multiplier {
    /// cuBLASLt with the room that NVIDIA recommends on cards of compute capability `major`.x: 32 MiB from Hopper on and 4
    /// MiB before (cuBLAS library, `cublasSetWorkspace`).
    #[must_use]
    pub const fn cublaslt(major: u32) -> Self {
        Self::CublasLt { workspace_bytes: if major >= 9 { 32 << 20 } else { 4 << 20 } }
    }

    /// Room that it may use between the launches of a product.
    #[must_use]
    pub const fn workspace_bytes(self) -> u64 {
        match self {
            Self::Own => 0,
            Self::CublasLt { workspace_bytes } => workspace_bytes,
        }
    }
}

/// Rows of one part of a weight's gradient, a multiple of [`DEPTH`], for `n` rows.
#[must_use]
pub fn weight_part_rows(n: u64, c: u64, oc: u64) -> u64 {
    let tiles = c.div_ceil(TILE) * oc.div_ceil(TILE);
    let parts = (BLOCKS / tiles.max(1)).min(n / WEIGHT_ROWS);
    let rows = if parts > 1 { n.div_ceil(parts) } else { n };
    rows.next_multiple_of(DEPTH).max(DEPTH)
}

/// Elements of the parts of a weight's gradient; 0 where there is one part, which is written in its place.
#[must_use]
pub fn weight_parts_elements(n: u64, c: u64, oc: u64) -> u64 {
    let parts = n.div_ceil(weight_part_rows(n, c, oc));
    if parts > 1 { parts.saturating_mul(oc).saturating_mul(c) } else { 0 }
}

/// Rows of one part of a bias' gradient.
#[must_use]
pub fn bias_part_rows(n: u64, oc: u64) -> u64 {
    let parts = (BLOCKS / oc.div_ceil(BIAS_COLUMNS).max(1)).max(1);
    n.div_ceil(parts.min(n.div_ceil(BIAS_ROWS).max(1))).max(1)
}

/// Elements of the parts of a bias' gradient.
#[must_use]
pub fn bias_parts_elements(n: u64, oc: u64) -> u64 {
    n.div_ceil(bias_part_rows(n, oc)).saturating_mul(oc)
}

/// Which kernel of layer normalisation takes rows of `c` channels, by its place in [`NORM_WARPS`]; `None` where none does.
#[must_use]
pub fn norm_kernel(c: u64) -> Option<usize> {
    NORM_WARPS.iter().position(|warps| (1..=warps * NORM_COLUMNS).contains(&c))
}

/// Rows that are a block's work at once, by kernel.
#[must_use]
pub fn norm_block_rows(kernel: usize) -> u64 {
    NORM_THREADS / 32 / NORM_WARPS[kernel.min(NORM_WARPS.len() - 1)]
}

/// Blocks of layer normalisation's backward.
#[must_use]
pub fn norm_blocks(n: u64, kernel: usize) -> u64 {
    n.div_ceil(norm_block_rows(kernel)).min(BLOCKS)
}

/// Elements of the parts of a layer norm's gradients; 0 where no kernel takes such rows.
#[must_use]
pub fn norm_parts_elements(n: u64, c: u64) -> u64 {
    norm_kernel(c).map_or(0, |kernel| 2 * norm_blocks(n, kernel) * c)
}

/// 32-bit numbers that a micro-batch's tokens take, sorted, out of `v`.
#[must_use]
pub fn token_words(tokens: u64, v: u64) -> u64 {
    tokens.saturating_add(tokens.min(v).saturating_mul(BUCKET_WORDS))
}

/// Floats that any of a trainer's sums needs, for `n` rows in chunks of `chunk_rows` before the classifier.
#[must_use]
pub(super) fn parts_elements(n: u64, chunk_rows: u64, c: u64, padded_vocab_size: u64) -> u64 {
    let wide = c.saturating_mul(4);
    let qkv = c.saturating_mul(3);
    let layers = [(c, qkv), (c, c), (c, wide), (wide, c)];
    let weights = layers.map(|(c, oc)| weight_parts_elements(n, c, oc));
    let biases = layers.map(|(_, oc)| bias_parts_elements(n, oc));
    let last = [weight_parts_elements(chunk_rows, c, padded_vocab_size), norm_parts_elements(n, c), NORM_PARTS];
    weights.into_iter().chain(biases).chain(last).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_row() {
        for n in [1, 31, 512, 1000, 4096, 65_536] {
            for (c, oc) in [(8, 8), (64, 192), (768, 768), (768, 3072), (768, 50_304)] {
                let rows = weight_part_rows(n, c, oc);
                assert!(rows.is_multiple_of(DEPTH) && n.div_ceil(rows) * rows >= n);
                assert!(bias_part_rows(n, oc) * (bias_parts_elements(n, oc) / oc) >= n);
            }
        }
    }

    #[test]
    fn a_product_that_fills_a_card_is_not_cut() {
        assert_eq!(weight_parts_elements(4096, 768, 50_304), 0);
        assert!(weight_parts_elements(65_536, 768, 768) > 0);
    }
}
