//! GPU architectures: what follows from the compute capability alone, one row each.

use super::ComputeCapability;

/// Facts about an architecture.
#[derive(Clone, Copy, Debug)]
pub struct Architecture {
    /// Lowest compute capability of the row. It extends to that of the next row.
    pub since: ComputeCapability,
    /// Memory that driver and firmware reserve, in MiB: the fixed part of [`super::ESTIMATE_RULE`].
    pub reserve_mib: u64,
    /// Maximum resident threads per multiprocessor. They determine the size of a CUDA context, and Inductor's split
    /// reductions. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    pub threads_per_sm: u32,
    /// `sharedMemPerBlockOptin` in KiB. Source: the same table, less the kilobyte that the driver reserves.
    pub shared_kib: u64,
    /// Default size of a cuBLAS workspace in PyTorch. Source: `getChosenWorkspaceSize`, `:4096:2:16:8`.
    pub cublas_workspace_bytes: u64,
    /// cuBLASLt workspace that NVIDIA recommends. Source: cuBLAS library, `cublasSetWorkspace`.
    pub cublaslt_workspace_bytes: u64,
    /// Whether bfloat16 and TF32 have tensor cores.
    pub has_bfloat16: bool,
    /// Whether Triton generates code, which `torch.compile` needs.
    pub has_triton: bool,
    /// Fused attention kernel that PyTorch prefers in half precision.
    pub fused_attention: FusedAttention,
    /// Maximum head size of cuDNN's attention. Source: `check_cudnn_tensor_shapes` with cuDNN 9.10 or later.
    pub cudnn_max_head_size: u64,
    /// Whether flash attention has no backward for long heads. Source:
    /// `check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120`.
    pub limits_flash_backward: bool,
    /// Capability, times 10, that the memory-efficient attention kernels were compiled for: 50, 70, 75 or 80.
    pub efficient_attention: u8,
    /// Whether recorded runs confirm the allocations of its kernels.
    pub is_recorded: bool,
}

/// A fused attention kernel of PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedAttention {
    /// The memory-efficient kernel.
    Efficient,
    /// FlashAttention 2.
    Flash,
    /// cuDNN's kernel, and FlashAttention 2 for what cuDNN does not support.
    Cudnn,
}

const PASCAL: Architecture = Architecture {
    since: ComputeCapability::new(6, 0),
    reserve_mib: 20,
    threads_per_sm: 2048,
    shared_kib: 48,
    cublas_workspace_bytes: 8_519_680,
    cublaslt_workspace_bytes: 4 << 20,
    has_bfloat16: false,
    has_triton: false,
    fused_attention: FusedAttention::Efficient,
    cudnn_max_head_size: 128,
    limits_flash_backward: false,
    efficient_attention: 50,
    is_recorded: false,
};
const VOLTA: Architecture = Architecture {
    since: ComputeCapability::new(7, 0),
    reserve_mib: 100,
    shared_kib: 96,
    has_triton: true,
    efficient_attention: 70,
    ..PASCAL
};
const TURING: Architecture = Architecture {
    since: ComputeCapability::new(7, 5),
    reserve_mib: 160,
    threads_per_sm: 1024,
    shared_kib: 64,
    efficient_attention: 75,
    ..VOLTA
};
const GA100: Architecture = Architecture {
    since: ComputeCapability::new(8, 0),
    reserve_mib: 150,
    shared_kib: 163,
    has_bfloat16: true,
    fused_attention: FusedAttention::Flash,
    efficient_attention: 80,
    is_recorded: true,
    ..VOLTA
};
const AMPERE: Architecture = Architecture {
    since: ComputeCapability::new(8, 6),
    threads_per_sm: 1536,
    shared_kib: 99,
    limits_flash_backward: true,
    ..GA100
};
const ADA: Architecture = Architecture { since: ComputeCapability::new(8, 9), reserve_mib: 210, ..AMPERE };
const HOPPER: Architecture = Architecture {
    since: ComputeCapability::new(9, 0),
    shared_kib: 227,
    cublas_workspace_bytes: 32 << 20,
    cublaslt_workspace_bytes: 32 << 20,
    fused_attention: FusedAttention::Cudnn,
    cudnn_max_head_size: 256,
    ..GA100
};
const B200: Architecture = Architecture {
    since: ComputeCapability::new(10, 0),
    reserve_mib: 500,
    cublas_workspace_bytes: PASCAL.cublas_workspace_bytes,
    cudnn_max_head_size: PASCAL.cudnn_max_head_size,
    ..HOPPER
};
const BLACKWELL: Architecture = Architecture {
    since: ComputeCapability::new(12, 0),
    reserve_mib: 440,
    cublaslt_workspace_bytes: HOPPER.cublaslt_workspace_bytes,
    ..ADA
};

/// All architectures, by ascending compute capability.
static ARCHITECTURES: [Architecture; 9] = [PASCAL, VOLTA, TURING, GA100, AMPERE, ADA, HOPPER, B200, BLACKWELL];

impl ComputeCapability {
    /// The architecture. An older one than those of the table counts as the first, a newer one as the last.
    #[must_use]
    pub const fn architecture(self) -> &'static Architecture {
        let mut at = ARCHITECTURES.len() - 1;
        while at > 0 {
            let since = ARCHITECTURES[at].since;
            if self.major > since.major || self.major == since.major && self.minor >= since.minor {
                break;
            }
            at -= 1;
        }
        &ARCHITECTURES[at]
    }
}
