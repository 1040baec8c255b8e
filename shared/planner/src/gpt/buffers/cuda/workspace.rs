//! Workspace of the CUDA kernels: partial sums that one launch writes and a second launch adds up.
//!
//! The split of a sum into parts depends only on its sizes, not on the GPU. A run is therefore bit-identical on every
//! GPU.

use super::ROW_MULTIPLE;
pub use crate::gpt::tensors::{BUCKET_WORDS, TENSOR_WORDS, token_words};
use crate::hardware::ComputeCapability;

/// Side of a GEMM tile in elements; one block computes one tile.
pub const TILE: u64 = 128;
/// Elements per step of a tile along the dimension that is summed over.
pub const DEPTH: u64 = 32;
/// Number of blocks that keeps any GPU busy.
const BLOCKS: u64 = 512;
/// Minimum rows per part of a weight's gradient. With fewer rows, writing the parts would cost more than multiplying.
const WEIGHT_ROWS: u64 = 512;
/// Columns of a bias that one block sums, and the minimum rows per part.
pub const BIAS_COLUMNS: u64 = 256;
const BIAS_ROWS: u64 = 64;
/// Maximum number of parts of the sum of squares of all gradients.
pub const NORM_PARTS: u64 = 1024;

/// Threads per block of layer normalisation.
pub const NORM_THREADS: u64 = 384;
/// Warps per row, by kernel.
pub const NORM_WARPS: [u64; 3] = [1, 4, 12];
/// Maximum channels per warp.
pub const NORM_COLUMNS: u64 = 768;
/// Maximum channels per row.
pub const NORM_COLUMNS_MAX: u64 = NORM_WARPS[NORM_WARPS.len() - 1] * NORM_COLUMNS;
/// Maximum head size of the attention kernels, in channels.
pub const HEAD_SIZE_MAX: u64 = 128;

/// Whether the attention kernels support heads of `head_size` channels: a multiple of 8, at most [`HEAD_SIZE_MAX`].
#[must_use]
pub const fn takes_heads_of(head_size: u64) -> bool {
    head_size.is_multiple_of(ROW_MULTIPLE) && head_size <= HEAD_SIZE_MAX
}

/// GEMM backend; determines the workspace of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GemmBackend {
    /// Headroom's own kernels, which need only the partial sums.
    #[default]
    BuiltinKernels,
    /// cuBLASLt, with Headroom's own kernels for products without a cuBLASLt algorithm.
    CublasLt {
        /// Workspace of a product, in bytes.
        workspace_bytes: u64,
    },
}

impl GemmBackend {
    /// cuBLASLt with the workspace that NVIDIA recommends for the architecture.
    #[must_use]
    pub const fn cublaslt(capability: ComputeCapability) -> Self {
        Self::CublasLt { workspace_bytes: capability.architecture().cublaslt_workspace_bytes }
    }

    /// Workspace of a product, in bytes.
    #[must_use]
    pub const fn workspace_bytes(self) -> u64 {
        match self {
            Self::BuiltinKernels => 0,
            Self::CublasLt { workspace_bytes } => workspace_bytes,
        }
    }
}

/// Maximum workspace of cuDNN's attention backward. If all sequences together need more, they are processed in groups,
/// one after the other.
const CUDNN_BYTES_MAX: u64 = 256 << 20;
/// Tile of cuDNN's workspace formula: queries and keys are rounded up to a multiple of it.
const CUDNN_TILE: u64 = 128;
/// Additional workspace beyond cuDNN's formula: cuDNN uses a few hundred bytes more in backward and forward.
pub(super) const CUDNN_MORE_BYTES: u64 = 64 << 10;

/// Attention backend; determines the workspace of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AttentionBackend {
    /// Headroom's own kernels, which store no scores.
    #[default]
    BuiltinKernels,
    /// cuDNN, with Headroom's own kernels for operations in which cuDNN is slower.
    Cudnn,
}

impl AttentionBackend {
    /// All attention backends, in the order of the command-line help.
    pub const ALL: [Self; 2] = [Self::BuiltinKernels, Self::Cudnn];

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BuiltinKernels => "own",
            Self::Cudnn => "cudnn",
        }
    }

    /// The attention backend with that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attention_backend| attention_backend.name() == name)
    }

    /// Sequences per group of cuDNN's backward: all, or a divisor of the batch size. `None` if Headroom's own kernels
    /// compute the backward because one sequence's scores exceed the maximum workspace.
    ///
    /// For a fixed summation order, cuDNN writes the gradient of every score in 16 bits and sums them in a second step.
    /// (cuDNN 9, "deterministic algorithm"; compared with the workspace of cuDNN 9.19 in `tests/golden/cudnn`.)
    #[must_use]
    pub fn cudnn_sequences(self, batch_size: u64, n_head: u64, block_size: u64) -> Option<u64> {
        let fits = |&n: &u64| cudnn_scores_bytes(n, n_head, block_size) <= CUDNN_BYTES_MAX;
        let most = CUDNN_BYTES_MAX / cudnn_scores_bytes(1, n_head, block_size).max(1);
        let divides = |n: &u64| batch_size.is_multiple_of(*n);
        (1..=batch_size.min(most)).rev().filter(|_| self == Self::Cudnn).filter(divides).find(fits)
    }

    /// Workspace of the backward, in bytes.
    #[must_use]
    pub fn backward_bytes(self, batch_size: u64, n_head: u64, block_size: u64) -> u64 {
        let sequences = self.cudnn_sequences(batch_size, n_head, block_size);
        sequences.map_or(0, |n| cudnn_scores_bytes(n, n_head, block_size) + CUDNN_MORE_BYTES)
    }

    /// Workspace of the forward, in bytes.
    #[must_use]
    pub const fn forward_bytes(self) -> u64 {
        match self {
            Self::BuiltinKernels => 0,
            Self::Cudnn => CUDNN_MORE_BYTES,
        }
    }
}

fn cudnn_scores_bytes(n: u64, n_head: u64, block_size: u64) -> u64 {
    let side = block_size.div_ceil(CUDNN_TILE).saturating_mul(CUDNN_TILE);
    n.saturating_mul(n_head).saturating_mul(side).saturating_mul(side).saturating_mul(2)
}

/// Backends that a run is planned with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Backends {
    /// GEMM backend.
    pub gemm_backend: GemmBackend,
    /// Attention backend.
    pub attention_backend: AttentionBackend,
}

impl Backends {
    /// No libraries: Headroom's own kernels compute everything.
    pub const NONE: Self =
        Self { gemm_backend: GemmBackend::BuiltinKernels, attention_backend: AttentionBackend::BuiltinKernels };
}

impl From<GemmBackend> for Backends {
    fn from(gemm_backend: GemmBackend) -> Self {
        Self { gemm_backend, attention_backend: AttentionBackend::BuiltinKernels }
    }
}

/// Rows per part of a weight's gradient for `n` rows; a multiple of [`DEPTH`].
#[must_use]
pub fn weight_part_rows(n: u64, c: u64, oc: u64) -> u64 {
    let tiles = c.div_ceil(TILE) * oc.div_ceil(TILE);
    let parts = (BLOCKS / tiles.max(1)).min(n / WEIGHT_ROWS);
    let rows = if parts > 1 { n.div_ceil(parts) } else { n };
    rows.next_multiple_of(DEPTH).max(DEPTH)
}

/// Elements of the parts of a weight's gradient; 0 for a single part, which is written in place.
#[must_use]
pub fn weight_parts_elements(n: u64, c: u64, oc: u64) -> u64 {
    let parts = n.div_ceil(weight_part_rows(n, c, oc));
    if parts > 1 { parts.saturating_mul(oc).saturating_mul(c) } else { 0 }
}

/// Rows per part of a bias gradient.
#[must_use]
pub fn bias_part_rows(n: u64, oc: u64) -> u64 {
    let parts = (BLOCKS / oc.div_ceil(BIAS_COLUMNS).max(1)).max(1);
    n.div_ceil(parts.min(n.div_ceil(BIAS_ROWS).max(1))).max(1)
}

/// Elements of the parts of a bias gradient.
#[must_use]
pub fn bias_parts_elements(n: u64, oc: u64) -> u64 {
    n.div_ceil(bias_part_rows(n, oc)).saturating_mul(oc)
}

/// Index in [`NORM_WARPS`] of the layer normalisation kernel for rows of `c` channels; `None` if no kernel supports
/// them.
#[must_use]
pub fn norm_kernel(c: u64) -> Option<usize> {
    NORM_WARPS.iter().position(|warps| (1..=warps * NORM_COLUMNS).contains(&c))
}

/// Rows that a block processes at once, by kernel.
#[must_use]
pub fn norm_block_rows(kernel: usize) -> u64 {
    NORM_THREADS / 32 / NORM_WARPS[kernel.min(NORM_WARPS.len() - 1)]
}

/// Number of blocks of layer normalisation's backward.
#[must_use]
pub fn norm_blocks(n: u64, kernel: usize) -> u64 {
    n.div_ceil(norm_block_rows(kernel)).min(BLOCKS)
}

/// Elements of the parts of a layer norm's gradients; 0 if no kernel supports such rows.
#[must_use]
pub fn norm_parts_elements(n: u64, c: u64) -> u64 {
    norm_kernel(c).map_or(0, |kernel| 2 * norm_blocks(n, kernel) * c)
}

/// Maximum number of floats of any of the trainer's partial sums, for `n` rows and `chunk_rows` rows of logits per
/// chunk.
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
        let of = |b, nh, t| AttentionBackend::Cudnn.cudnn_sequences(b, nh, t);
        // One sequence of GPT-2 124M has 24 MiB of score gradients.
        assert_eq!([of(64, 12, 1024), of(12, 12, 1024), of(7, 12, 1024)], [Some(8), Some(6), Some(7)]);
        assert_eq!([of(11, 12, 1024), of(1, 12, 8192), of(0, 12, 1024)], [Some(1), None, None]);
        assert_eq!(AttentionBackend::BuiltinKernels.cudnn_sequences(64, 12, 1024), None);
        assert_eq!(AttentionBackend::Cudnn.backward_bytes(64, 12, 1024), (192 << 20) + CUDNN_MORE_BYTES);
        assert_eq!(AttentionBackend::Cudnn.backward_bytes(1, 12, 8192), 0);
    }

    #[test]
    fn a_product_that_fills_a_gpu_is_not_cut() {
        assert_eq!(weight_parts_elements(4096, 768, 50_304), 0);
        assert!(weight_parts_elements(65_536, 768, 768) > 0);
    }
}
