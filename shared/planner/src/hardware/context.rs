//! Estimated GPU memory of a CUDA context, outside PyTorch's figures.
//!
//! A process that uses CUDA holds memory that `torch.cuda.memory_reserved` never shows: page tables, loaded kernels,
//! and a stack for every resident thread. Out-of-memory messages since PyTorch 2.1 reveal it: "this process has" minus
//! allocated minus reserved-but-unallocated. [`OBSERVATIONS`] collects such messages. A linear function of resident
//! threads fits them, from a 24-SM laptop GPU to a 188-SM workstation GPU. NCCL, CUDA graphs, a profiler or a second
//! library take additional memory, which is not modelled.

use super::ComputeCapability;

/// An estimated number of bytes with its band.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Best estimate in bytes.
    pub bytes: u64,
    /// Lower end of the band in bytes.
    pub band_low: u64,
    /// Upper end of the band in bytes.
    pub band_high: u64,
    /// Source of the estimate.
    pub source: &'static str,
}

impl Estimate {
    /// A value that the user measured; the band has zero width.
    #[must_use]
    pub const fn given(bytes: u64) -> Self {
        Self { bytes, band_low: bytes, band_high: bytes, source: "given by the caller" }
    }
}

/// When CUDA loads kernels into GPU memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModuleLoading {
    /// At first use: PyTorch's choice since its CUDA 11.7 builds, and CUDA's default on Linux since 12.2.
    #[default]
    Lazy,
    /// All at startup: older builds, or `CUDA_MODULE_LOADING=EAGER`.
    Eager,
}

/// One public out-of-memory message, reduced to the process's memory outside PyTorch's allocator.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The GPU, as the reporter names it.
    pub device: &'static str,
    /// Compute capability of the GPU.
    pub capability: ComputeCapability,
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// Process minus allocated minus reserved-but-unallocated, in MiB. Accurate to about ±10, since messages round to
    /// 0.01 GiB.
    pub mib: u32,
    /// Thread or document with the message.
    pub source: &'static str,
}

const fn seen(device: &'static str, cc: [u8; 2], sm_count: u32, mib: u32, source: &'static str) -> Observation {
    let [major, minor] = cc;
    Observation { device, capability: ComputeCapability::new(major, minor), sm_count, mib, source }
}

/// The messages behind [`context_bytes`]: Linux, lazy loading, and a GPU that is named or evident from its total
/// memory.
///
/// Excluded: programs that hold additional memory (vLLM, NCCL, tiny-cuda-nn), and two unexplained outliers:
/// ali-vilab/VGen#104 (2.1 GiB on an RTX 4090) and QwenAudio/SenseVoice#28 (0.96 GiB on a V100).
pub const OBSERVATIONS: &[Observation] = &[
    seen("V100 32GB (by its 31.73 GiB)", [7, 0], 80, 399, "nanoporetech/dorado README, troubleshooting (libtorch)"),
    seen("Tesla T4", [7, 5], 40, 135, "Zheng-Chong/CatVTON#133"),
    seen("11 GB Turing (RTX 2080 Ti by its 10.74 GiB)", [7, 5], 68, 197, "lllyasviel/FramePack#369"),
    seen("A100 40GB", [8, 0], 108, 501, "TianheWu/CoSeR#10"),
    seen("A100 80GB", [8, 0], 108, 503, "lianqi1008/Control-GIC#6"),
    seen("RTX 3070", [8, 6], 46, 179, "meta-llama/codellama#82"),
    seen("RTX A4000", [8, 6], 48, 210, "DengKaiCQ/VGGT-Long#6"),
    seen("RTX 3080 10GB (by its 9.77 GiB)", [8, 6], 68, 257, "bcmi/libcom#54"),
    seen("A10", [8, 6], 72, 225, "zai-org/CogVLM#236"),
    seen("RTX 3090", [8, 6], 82, 256, "invoke-ai/InvokeAI#9413"),
    seen("RTX 4060 Laptop", [8, 9], 24, 115, "ESRSchao/EdgeRegNet#2"),
    seen(
        "12 GB Ada GPU (RTX 4070 by its 11.69 GiB)",
        [8, 9],
        46,
        225,
        "a nanoGPT user's message, kept with the project",
    ),
    seen("L4", [8, 9], 58, 236, "ArcInstitute/evo2#190"),
    seen("RTX 4090", [8, 9], 128, 473, "pinokiofactory/flux-webui#11"),
    seen("RTX 4090", [8, 9], 128, 504, "3DTopia/Phidias-Diffusion#8"),
    seen("RTX 4090", [8, 9], 128, 416, "eosphoros-ai/DB-GPT-Hub#248"),
    seen("RTX 6000 Ada", [8, 9], 142, 429, "DINGYANB/MTVCrafter#21"),
    seen("L40", [8, 9], 142, 507, "QwenLM/Qwen3-VL#2097"),
    seen("H200", [9, 0], 132, 767, "measured after two nanoGPT iterations, tests/golden/measured"),
    seen("B200 (by its 178.35 GiB)", [10, 0], 148, 712, "stas00/ml-engineering, CUDA out-of-memory demonstration"),
    seen("RTX 5090", [12, 0], 170, 595, "Wan-Video/Wan2.1#465"),
    seen("RTX 5090", [12, 0], 170, 619, "TrajectoryCrafter/TrajectoryCrafter#20"),
];

/// Constant part of the estimate in bytes. Fitted to [`OBSERVATIONS`].
const BASE_BYTES: u64 = 30 << 20;
/// Bytes per resident thread. Fitted to [`OBSERVATIONS`]; 1,024 of them are the default stack.
const BYTES_PER_RESIDENT_THREAD: u64 = 2_307;
/// Band around the fitted line, in percent of it; the observations span 82 to 123.
const BAND_PERCENT: [u64; 2] = [70, 130];
/// Multiprocessors assumed for a GPU of unknown size: between an RTX 3060 and an RTX 3080.
const TYPICAL_SM_COUNT: u32 = 48;
/// Additional bytes for PyTorch's kernels under eager loading: lazy loading reduced contexts from "over 1 GB" to about
/// 300 MB.
const EAGER_BYTES: u64 = 768 << 20;

/// Estimates the size of a CUDA context on a GPU of that architecture and size.
///
/// `None` for `sm_count` assumes a mid-range GPU and widens the band to cover small and large ones.
#[must_use]
pub fn context_bytes(capability: ComputeCapability, sm_count: Option<u32>, loading: ModuleLoading) -> Estimate {
    let threads_per_sm = u64::from(capability.architecture().threads_per_sm);
    let line = |sm: u32| BASE_BYTES + u64::from(sm) * threads_per_sm * BYTES_PER_RESIDENT_THREAD;
    let [low_percent, high_percent] = BAND_PERCENT;
    let (bytes, smallest, largest) = match sm_count {
        Some(sm) => (line(sm), line(sm), line(sm)),
        None => (line(TYPICAL_SM_COUNT), line(20), line(170)),
    };
    let lazy = Estimate {
        bytes,
        band_low: smallest / 100 * low_percent,
        band_high: largest / 100 * high_percent,
        source: "estimate: 30 MiB + 2,307 B per resident thread, fitted to public out-of-memory messages (±30 %)",
    };
    match loading {
        ModuleLoading::Lazy => lazy,
        ModuleLoading::Eager => Estimate {
            bytes: lazy.bytes + EAGER_BYTES,
            band_low: lazy.band_low + EAGER_BYTES / 2,
            band_high: lazy.band_high + EAGER_BYTES * 3 / 2,
            source: "estimate: as with lazy loading, plus 768 MiB for kernels loaded at start (pytorch/pytorch#107667)",
        },
    }
}
