//! Scratch memory of memory-efficient attention's backward, which PyTorch's dispatcher does not show.
//!
//! Source: `_efficient_attention_backward` in aten/src/ATen/native/transformers/cuda/attention_backward.cu,
//! `AttentionBackwardKernel` in mem_eff_attention/kernel_backward.h beside it, and the order of the kernels by
//! mem_eff_attention/kernels/generate_kernels.py (PyTorch 2.11). The sizes of shared memory are those of the kernels'
//! `SharedStorage`, as PyTorch 2.11.0's libtorch_cuda.so compares them with the GPU's.

use super::program::ProgramBuilder;
use crate::{gpt::tensors::Tensor, hardware::Architecture};

/// `kBlockSizeJ`: keys per block.
const BLOCK_KEYS: u64 = 64;
/// `kBlockSizeI` of the two kernel sizes: queries per block.
const BLOCK_QUERIES: [u64; 2] = [64, 128];
/// Shared memory of the float32 kernels for sm_80 with 128 queries per block.
const WIDE_FLOAT32_SHARED_BYTES: u64 = 121_344;
/// Floats before the buffer in `GradQTempStorage`: a lock, a counter and padding.
const GRADIENT_HEADER: u64 = 4;

/// The backward kernel that PyTorch selects: the first that supports the head size and fits in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EfficientBackward {
    is_half: bool,
    /// `kBlockSizeI`.
    block_queries: u64,
    /// `kOutputInRF`: registers hold the gradients of k and v until they are complete.
    in_registers: bool,
    /// `kEnableSplitKeys`: several blocks share the keys of a head and accumulate the gradient of q in memory.
    splits_keys: bool,
    /// `kKernelComputesDelta`.
    computes_delta: bool,
}

impl EfficientBackward {
    /// The kernel for heads of that size. PyTorch uses this backward in half precision from sm_80 on only for heads
    /// above 192.
    pub(crate) fn new(head_size: u64, is_half: bool, architecture: &Architecture) -> Self {
        let compiled_for = architecture.efficient_attention;
        let has_wide = compiled_for >= if is_half { 70 } else { 80 };
        let wide_shared_bytes = if is_half { 0 } else { WIDE_FLOAT32_SHARED_BYTES };
        let is_wide = has_wide && head_size > 64 && wide_shared_bytes <= architecture.shared_kib << 10;
        let block_queries = BLOCK_QUERIES[usize::from(is_wide)];
        // `kMaxK`, the maximum head size of a kernel, is 32, 64, 128 or unlimited.
        let in_registers = is_half && head_size <= block_queries;
        Self {
            is_half,
            block_queries,
            in_registers,
            splits_keys: compiled_for >= 70,
            computes_delta: is_half && (in_registers || compiled_for != 70),
        }
    }

    /// Bytes of `workspace`; 0 if the kernel needs none.
    ///
    /// `heads` is the number of heads of all sequences.
    pub(crate) fn workspace_bytes(self, heads: u64, tokens: u64, head_size: u64) -> u64 {
        let adds_keys = self.is_half && !self.in_registers;
        let adds_queries = self.is_half || self.splits_keys;
        let of_keys = if adds_keys {
            let channels = head_size.div_ceil(self.block_queries).saturating_mul(self.block_queries);
            self.key_splits(heads, tokens).saturating_mul(BLOCK_KEYS).saturating_mul(channels)
        } else {
            0
        };
        let of_queries = if adds_queries {
            let blocks = tokens.div_ceil(self.block_queries).saturating_mul(head_size.div_ceil(BLOCK_KEYS));
            blocks.saturating_mul(GRADIENT_HEADER + self.block_queries * BLOCK_KEYS)
        } else {
            0
        };
        let floats = of_keys.saturating_mul(2).saturating_add(of_queries).div_ceil(4).saturating_mul(4);
        heads.saturating_mul(floats.saturating_mul(4))
    }

    /// Whether the kernel computes the row sums of `grad_out * out`; otherwise, separate operations do.
    pub(crate) const fn computes_delta(self) -> bool {
        self.computes_delta
    }

    /// `num_splits_key`: parts of the keys, each with an accumulator if the gradients of k and v are accumulated in
    /// memory.
    fn key_splits(self, heads: u64, tokens: u64) -> u64 {
        if !self.splits_keys || heads >= 256 && tokens <= 2 * BLOCK_KEYS {
            return 1;
        }
        tokens.div_ceil(BLOCK_KEYS).min(200 / heads.max(1)).max(1)
    }
}

impl EfficientBackward {
    /// Allocates and frees the kernel's scratch memory, besides the gradients.
    pub(super) fn write_scratch(
        self,
        w: &mut ProgramBuilder,
        layer: Option<u64>,
        (one_head, has_workspace): (bool, bool),
    ) {
        let delta = if self.computes_delta {
            w.alloc(Tensor::EffDelta, layer)
        } else {
            // `(grad_out.to(kFloat) * out.to(kFloat)).sum(-1).transpose(-2, -1).contiguous()`.
            let casts = [(); 2].map(|()| self.is_half.then(|| w.alloc(Tensor::EffCast, layer)));
            let products = w.alloc(Tensor::EffProducts, layer);
            let sums = w.alloc(Tensor::EffRowSums, layer);
            let delta = if one_head {
                sums
            } else {
                let delta = w.alloc(Tensor::EffDelta, layer);
                w.free(sums);
                delta
            };
            w.free(products);
            w.free_all(casts.into_iter().flatten());
            delta
        };
        let workspace = has_workspace.then(|| w.alloc(Tensor::EffWorkspace, layer));
        w.free(delta);
        w.free_some(workspace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::ComputeCapability;

    fn workspace(n_head: u64, head_size: u64, tokens: u64, batch_size: u64, half: bool, capability: (u8, u8)) -> u64 {
        let capability = ComputeCapability::new(capability.0, capability.1);
        EfficientBackward::new(head_size, half, capability.architecture()).workspace_bytes(
            n_head * batch_size,
            tokens,
            head_size,
        )
    }

    /// A tile of the gradient of q: `sizeof(GradQTempStorage)`.
    const fn tile(queries: u64) -> u64 {
        16 + 4 * queries * 64
    }

    #[test]
    fn float32_adds_up_the_gradient_of_q() {
        // 12 heads of 64 in 4 sequences of 1024: 16 tiles of 64 queries each.
        assert_eq!(workspace(12, 64, 1024, 4, false, (8, 9)), 48 * 16 * tile(64));
        assert_eq!(workspace(12, 64, 1024, 4, false, (8, 0)), 48 * 16 * tile(64));
        assert_eq!(workspace(12, 64, 1024, 4, false, (6, 1)), 0, "sm_50 kernels add nothing in memory");
    }

    #[test]
    fn long_heads_take_wide_blocks_where_shared_memory_suffices() {
        // 200 tokens are 2 blocks of 128 queries or 4 of 64; 80 channels are 2 columns.
        for capability in [(8, 0), (9, 0)] {
            assert_eq!(workspace(3, 80, 200, 2, false, capability), 6 * 2 * 2 * tile(128));
        }
        for capability in [(8, 6), (8, 9), (12, 0)] {
            assert_eq!(workspace(3, 80, 200, 2, false, capability), 6 * 4 * 2 * tile(64));
        }
        assert_eq!(workspace(3, 80, 200, 2, false, (7, 5)), 6 * 4 * 2 * tile(64));
    }

    #[test]
    fn half_precision_adds_up_all_gradients_of_long_heads() {
        // 208 channels take 256 in k's accumulator and 4 columns in q's; 512 tokens are 8 blocks of keys.
        let expected = |splits: u64| 4 * (2 * splits * 64 * 256) + 4 * 4 * tile(128);
        assert_eq!(workspace(4, 208, 512, 3, true, (8, 9)), 12 * expected(8));
        assert_eq!(workspace(4, 208, 512, 8, true, (8, 9)), 32 * expected(6), "200 parts in all");
        assert_eq!(workspace(4, 208, 512, 64, true, (8, 9)), 256 * expected(1));
        // On sm_75, heads up to 128 keep the gradients of k and v in registers.
        assert_eq!(workspace(4, 128, 512, 3, true, (7, 5)), 12 * 4 * 2 * tile(128));
        assert_eq!(workspace(4, 64, 512, 3, true, (7, 5)), 12 * 8 * tile(64));
    }
}
