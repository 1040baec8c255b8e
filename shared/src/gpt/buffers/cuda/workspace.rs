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

/// Room that attention's backward by cuDNN may take at most: where a run's sequences need more together, they are done in
/// groups, one after the other.
const CUDNN_BYTES_MAX: u64 = 256 << 20;
/// Queries and keys are counted in multiples of this.
const CUDNN_TILE: u64 = 128;
/// Beside what a formula tells cuDNN takes some hundred bytes, backward and forward.
pub(super) const CUDNN_MORE_BYTES: u64 = 64 << 10;

/// Who computes attention, as far as a run's memory depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attender {
    /// Kernels of ours, which hold no scores.
    #[default]
    Own,
    /// cuDNN, and our kernels for what it does not do as fast.
    Cudnn,
}

impl Attender {
    /// All, as a command line lists them.
    pub const ALL: [Self; 2] = [Self::Own, Self::Cudnn];

    /// As it is written on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Cudnn => "cudnn",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attender| attender.name() == name)
    }

    /// Sequences of a group of cuDNN's backward: all, or a part that divides them; `None` where it is our kernels that do
    /// the backward, as one sequence's scores are too many.
    ///
    /// So that sums have one order, cuDNN writes the gradient of every score, in 16 bits, and sums it up in a second step
    /// (cuDNN 9, "deterministic algorithm"; held against what cuDNN 9.19 asks for: `tests/golden/cudnn`).
    #[must_use]
    pub fn cudnn_sequences(self, batch_size: u64, n_head: u64, block_size: u64) -> Option<u64> {
        let fits = |&n: &u64| cudnn_scores_bytes(n, n_head, block_size) <= CUDNN_BYTES_MAX;
        let most = CUDNN_BYTES_MAX / cudnn_scores_bytes(1, n_head, block_size).max(1);
        let divides = |n: &u64| batch_size.is_multiple_of(*n);
        (1..=batch_size.min(most)).rev().filter(|_| self == Self::Cudnn).filter(divides).find(fits)
    }

    /// Room for its backward.
    #[must_use]
    pub fn backward_bytes(self, batch_size: u64, n_head: u64, block_size: u64) -> u64 {
        let sequences = self.cudnn_sequences(batch_size, n_head, block_size);
        sequences.map_or(0, |n| cudnn_scores_bytes(n, n_head, block_size) + CUDNN_MORE_BYTES)
    }

    /// Room for its forward.
    #[must_use]
    pub const fn forward_bytes(self) -> u64 {
        match self {
            Self::Own => 0,
            Self::Cudnn => CUDNN_MORE_BYTES,
        }
    }
}

fn cudnn_scores_bytes(n: u64, n_head: u64, block_size: u64) -> u64 {
    let side = block_size.div_ceil(CUDNN_TILE).saturating_mul(CUDNN_TILE);
    n.saturating_mul(n_head).saturating_mul(side).saturating_mul(side).saturating_mul(2)
}

/// Libraries of the host's that a run is planned with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Libraries {
    /// Who multiplies matrices.
    pub multiplier: Multiplier,
    /// Who computes attention.
    pub attender: Attender,
}

impl Libraries {
    /// None: kernels of ours do all.
    pub const NONE: Self = Self { multiplier: Multiplier::Own, attender: Attender::Own };
}

impl From<Multiplier> for Libraries {
    fn from(multiplier: Multiplier) -> Self {
        Self { multiplier, attender: Attender::Own }
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
    fn sequences_are_grouped_so_that_scores_have_room() {
        let of = |b, nh, t| Attender::Cudnn.cudnn_sequences(b, nh, t);
        // A sequence of GPT-2 124M has 24 MiB of scores' gradients.
        assert_eq!([of(64, 12, 1024), of(12, 12, 1024), of(7, 12, 1024)], [Some(8), Some(6), Some(7)]);
        assert_eq!([of(11, 12, 1024), of(1, 12, 8192), of(0, 12, 1024)], [Some(1), None, None]);
        assert_eq!(Attender::Own.cudnn_sequences(64, 12, 1024), None);
        assert_eq!(Attender::Cudnn.backward_bytes(64, 12, 1024), (192 << 20) + CUDNN_MORE_BYTES);
        assert_eq!(Attender::Cudnn.backward_bytes(1, 12, 8192), 0);
    }

    #[test]
    fn a_product_that_fills_a_card_is_not_cut() {
        assert_eq!(weight_parts_elements(4096, 768, 50_304), 0);
        assert!(weight_parts_elements(65_536, 768, 768) > 0);
    }
}
