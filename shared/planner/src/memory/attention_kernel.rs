//! Selection of the kernel by PyTorch's `scaled_dot_product_attention`.
//!
//! Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch 2.11.

use crate::{
    dtype::Dtype,
    gpt::GptConfig,
    hardware::{Architecture, FusedAttention},
    train_config::{Attention, TrainConfig},
};

/// Kernel that computes attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionKernel {
    /// FlashAttention 2: half precision on sm_80 and later.
    Flash,
    /// The memory-efficient kernel of xFormers: float32, or float16 on older GPUs.
    Efficient,
    /// cuDNN's kernel, preferred on sm_90 and later.
    Cudnn,
    /// nanoGPT's own implementation: separate products and softmax.
    Math,
    /// PyTorch's math path, if no fused kernel supports the dtype or the head size; always in float32.
    Composite,
}

/// Maximum head size of flash attention.
const FLASH_MAX_HEAD_SIZE: u64 = 256;
/// Maximum head size of cuDNN's attention.
const CUDNN_MAX_HEAD_SIZE: u64 = 128;

/// Whether autograd records a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Under `no_grad`.
    Evaluation,
    /// With autograd, and its backward.
    Training,
}

/// The kernel of a pass, in PyTorch's order of preference: cuDNN on sm_90 and later, then flash, then memory-efficient,
/// then math.
pub(crate) fn attention_kernel(
    config: &GptConfig,
    train: &TrainConfig,
    architecture: &Architecture,
    pass: Pass,
) -> AttentionKernel {
    let head_size = config.head_size();
    let fused = architecture.fused_attention;
    if train.attention == Attention::Math {
        AttentionKernel::Math
    } else if train.is_half()
        && fused == FusedAttention::Cudnn
        && head_size.is_multiple_of(8)
        && head_size <= CUDNN_MAX_HEAD_SIZE
    {
        AttentionKernel::Cudnn
    } else if train.is_half()
        && fused != FusedAttention::Efficient
        && head_size <= FLASH_MAX_HEAD_SIZE
        && (train.compile || pass == Pass::Evaluation || flash_can_train(config, architecture))
    {
        AttentionKernel::Flash
    } else if train.compile || takes_memory_efficient(head_size, train, architecture) {
        // Compiled graphs keep the fused kernels: their fallback is not modelled.
        AttentionKernel::Efficient
    } else {
        AttentionKernel::Composite
    }
}

/// Whether flash attention has a backward for the head size. Where it is limited, it has none for sizes above 192,
/// except above 224 without dropout.
fn flash_can_train(config: &GptConfig, architecture: &Architecture) -> bool {
    let head_size = config.head_size();
    !architecture.limits_flash_backward || head_size <= 192 || head_size > 224 && config.dropout() == 0.0
}

/// Whether the memory-efficient kernel supports the dtype and the head size.
///
/// Source: `check_head_dim_size_mem_efficient`, which requires a multiple of `minimum_gemm_alignment`, and the list of
/// dtypes in `use_mem_efficient_attention`: below sm_80 it excludes bfloat16.
fn takes_memory_efficient(head_size: u64, train: &TrainConfig, architecture: &Architecture) -> bool {
    let alignment = match (architecture.efficient_attention, train.is_half()) {
        (80.., false) => 4,
        (70.., true) => 8,
        _ => 1,
    };
    (train.dtype != Dtype::Bfloat16 || architecture.has_bfloat16) && head_size.is_multiple_of(alignment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gpt::GptShape, hardware::ComputeCapability};

    /// The kernel that trains one head of that size without dropout.
    fn kernel(head_size: u64, dtype: Dtype, capability: (u8, u8)) -> AttentionKernel {
        kernel_of(head_size, 0.0, dtype, capability, Pass::Training)
    }

    fn kernel_of(head_size: u64, dropout: f64, dtype: Dtype, capability: (u8, u8), pass: Pass) -> AttentionKernel {
        let shape =
            GptShape { n_layer: 1, n_head: 1, n_embd: head_size, block_size: 64, vocab_size: 64, dropout, bias: false };
        let config = GptConfig::new(shape).expect("a small model");
        let train = TrainConfig { dtype, compile: false, ..TrainConfig::default() };
        let capability = ComputeCapability::new(capability.0, capability.1);
        attention_kernel(&config, &train, capability.architecture(), pass)
    }

    #[test]
    fn memory_efficient_needs_aligned_heads() {
        use AttentionKernel::{Composite, Efficient};
        let float32 = |head_size, capability| kernel(head_size, Dtype::Float32, capability);
        assert_eq!(float32(64, (8, 9)), Efficient);
        assert_eq!(float32(52, (8, 9)), Efficient);
        assert_eq!(float32(50, (8, 9)), Composite);
        assert_eq!(float32(33, (9, 0)), Composite);
        assert_eq!(float32(33, (7, 5)), Efficient, "no tensor cores for float32 before sm_80");
        let float16 = |head_size, capability| kernel(head_size, Dtype::Float16, capability);
        assert_eq!(float16(264, (8, 0)), Efficient);
        assert_eq!(float16(260, (8, 0)), Composite);
        assert_eq!(float16(36, (7, 5)), Composite);
        assert_eq!(float16(36, (6, 1)), Efficient);
        assert_eq!(kernel(64, Dtype::Bfloat16, (7, 5)), Composite, "no bfloat16 before sm_80");
    }

    #[test]
    fn flash_does_not_train_long_heads_on_small_gpus() {
        use AttentionKernel::{Composite, Efficient, Flash};
        let bfloat16 = |head_size, capability| kernel(head_size, Dtype::Bfloat16, capability);
        for capability in [(8, 6), (8, 9), (12, 0)] {
            assert_eq!(bfloat16(192, capability), Flash);
            assert_eq!(bfloat16(200, capability), Efficient);
            assert_eq!(bfloat16(203, capability), Composite, "nor has the memory-efficient kernel that size");
            assert_eq!(bfloat16(225, capability), Flash);
            assert_eq!(kernel_of(225, 0.1, Dtype::Bfloat16, capability, Pass::Training), Composite);
            assert_eq!(kernel_of(256, 0.1, Dtype::Bfloat16, capability, Pass::Training), Efficient);
            assert_eq!(kernel_of(200, 0.1, Dtype::Bfloat16, capability, Pass::Evaluation), Flash);
        }
        for capability in [(8, 0), (9, 0)] {
            assert_eq!(kernel_of(200, 0.1, Dtype::Bfloat16, capability, Pass::Training), Flash);
        }
    }
}
