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

/// Whether autograd records a forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Under `no_grad`.
    Evaluation,
    /// With autograd, and its backward.
    Training,
}

/// The heads of an attention, as far as they determine its kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    /// Head size.
    pub(crate) size: u64,
    /// Element type of q, k and v.
    pub(crate) dtype: Dtype,
    /// Whether the attention has dropout.
    pub(crate) drops: bool,
    /// Whether the attention has a mask of its own, which flash attention does not support.
    pub(crate) has_mask: bool,
}

/// The kernel of a pass in nanoGPT.
pub(crate) fn attention_kernel(
    config: &GptConfig,
    train: &TrainConfig,
    architecture: &Architecture,
    pass: Pass,
) -> AttentionKernel {
    let heads = Heads { size: config.head_size(), dtype: train.dtype, drops: config.dropout() > 0.0, has_mask: false };
    // Compiled graphs keep the fused kernels: their fallback is not modelled.
    let compiled = |pass| if train.compile { Pass::Evaluation } else { pass };
    match fused_kernel(heads, architecture, compiled(pass)) {
        _ if train.attention == Attention::Math => AttentionKernel::Math,
        AttentionKernel::Composite if train.compile => AttentionKernel::Efficient,
        kernel => kernel,
    }
}

/// The kernel of `scaled_dot_product_attention`, in PyTorch's order of preference: cuDNN on sm_90 and later, then flash,
/// then memory-efficient, then the composite path.
pub(crate) fn fused_kernel(heads: Heads, architecture: &Architecture, pass: Pass) -> AttentionKernel {
    let is_half = heads.dtype != Dtype::Float32;
    let fused = architecture.fused_attention;
    if is_half
        && fused == FusedAttention::Cudnn
        && heads.size.is_multiple_of(8)
        && heads.size <= architecture.cudnn_max_head_size
    {
        AttentionKernel::Cudnn
    } else if is_half
        && fused != FusedAttention::Efficient
        && heads.size <= FLASH_MAX_HEAD_SIZE
        && !heads.has_mask
        && (pass == Pass::Evaluation || flash_can_train(heads, architecture))
    {
        AttentionKernel::Flash
    } else if takes_memory_efficient(heads, architecture) {
        AttentionKernel::Efficient
    } else {
        AttentionKernel::Composite
    }
}

/// Whether flash attention has a backward for the head size. Where it is limited, it has none for sizes above 192,
/// except above 224 without dropout.
fn flash_can_train(heads: Heads, architecture: &Architecture) -> bool {
    !architecture.limits_flash_backward || heads.size <= 192 || heads.size > 224 && !heads.drops
}

/// Whether the memory-efficient kernel supports the dtype and the head size.
///
/// Source: `check_head_dim_size_mem_efficient`, which requires a multiple of `minimum_gemm_alignment`, and the list of
/// dtypes in `use_mem_efficient_attention`: below sm_80 it excludes bfloat16.
fn takes_memory_efficient(heads: Heads, architecture: &Architecture) -> bool {
    let alignment = match (architecture.efficient_attention, heads.dtype != Dtype::Float32) {
        (80.., false) => 4,
        (70.., true) => 8,
        _ => 1,
    };
    (heads.dtype != Dtype::Bfloat16 || architecture.has_bfloat16) && heads.size.is_multiple_of(alignment)
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
        assert_eq!(kernel_of(200, 0.1, Dtype::Bfloat16, (8, 0), Pass::Training), Flash);
    }

    #[test]
    fn cudnn_has_long_heads_on_hopper_only() {
        use AttentionKernel::{Cudnn, Efficient, Flash};
        let bfloat16 = |head_size, capability| kernel(head_size, Dtype::Bfloat16, capability);
        assert_eq!([(9, 0), (10, 0)].map(|capability| bfloat16(128, capability)), [Cudnn, Cudnn]);
        assert_eq!([(9, 0), (10, 0)].map(|capability| bfloat16(256, capability)), [Cudnn, Flash]);
        assert_eq!(bfloat16(252, (9, 0)), Flash, "no multiple of 8");
        assert_eq!(bfloat16(264, (9, 0)), Efficient);
    }
}
