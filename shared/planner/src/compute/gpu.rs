//! Achievable rates of a GPU for one run: the roofs of the roofline estimate.

use super::constants::{
    EAGER_FLOAT_BANDWIDTH, EAGER_HALF_BANDWIDTH, EMULATED, FULL_RATE, FUSED_BANDWIDTH, Fractions, GEFORCE,
    NVLINK_BYTES_PER_SECOND, PCIE_BYTES_PER_SECOND, PIPELINE_K, PLAIN_FLOAT, PLAIN_HALF, SPLIT_K, TILE,
};
use crate::{
    dtype::Dtype,
    hardware::Device,
    memory::attention_kernel::{AttentionKernel, Pass, attention_kernel},
    request::Request,
    train_config::TrainConfig,
};

/// Achievable rates of a GPU for a run.
pub(super) struct Roofline {
    /// FLOP/s of large matrix products.
    products: f64,
    /// FLOP/s of the attention kernel; for math attention, of its matrix products.
    pub attention: f64,
    pub kernel: AttentionKernel,
    /// Bytes per second of fused kernels.
    pub fused: f64,
    /// Bytes per second of elementwise work: fused if the model is compiled, else eager.
    pub elementwise: f64,
    /// Output elements that half a wave of tiles could have computed.
    idle_tiles: f64,
    /// Bytes per second between GPUs.
    pub link: f64,
    /// Whether `torch.compile` has an effect.
    pub compiled: bool,
}

impl Roofline {
    /// Computes the rates; `None` if the table has no rates for the GPU.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let Request { gpt, train, machine, .. } = request;
        let device = &machine.device;
        let (peak, fractions) = peak(device, train.dtype)?;
        let bandwidth = device.memory_bandwidth? as f64;
        // Inductor does not compile bfloat16 on GPUs without native support.
        let compiled = train.compile
            && device.compute_capability.architecture().has_triton
            && (train.dtype != Dtype::Bfloat16 || device.supports_bfloat16());
        // If Inductor does not compile, the model runs as eager code. PyTorch chooses the attention backend by shape,
        // dtype and GPU, compiled or not.
        let eager = TrainConfig { compile: false, ..train.clone() };
        let kernel = attention_kernel(gpt, &eager, device.compute_capability.architecture(), Pass::Training);
        let (kernel, attention) = match kernel {
            AttentionKernel::Flash => (kernel, fractions.flash),
            AttentionKernel::Cudnn => (kernel, fractions.cudnn),
            AttentionKernel::Efficient => (kernel, fractions.efficient),
            // The same products one by one. PyTorch's math attention uses float32 products; the difference is within
            // the uncertainty for such GPUs.
            AttentionKernel::Math | AttentionKernel::Composite => (AttentionKernel::Math, fractions.products),
        };
        let elementwise = match (compiled, train.is_half()) {
            (true, _) => FUSED_BANDWIDTH,
            (false, true) => EAGER_HALF_BANDWIDTH,
            (false, false) => EAGER_FLOAT_BANDWIDTH,
        };
        Some(Self {
            products: peak * fractions.products,
            attention: peak * attention,
            kernel,
            fused: bandwidth * FUSED_BANDWIDTH,
            elementwise: bandwidth * elementwise,
            idle_tiles: 0.5 * f64::from(device.sm_count?) * TILE * TILE,
            link: if has_nvlink(device) { NVLINK_BYTES_PER_SECOND } else { PCIE_BYTES_PER_SECOND },
            compiled,
        })
    }

    /// Seconds of a product of (m, k) and (k, n), with `bytes` per element.
    ///
    /// The model counts the last wave of tiles as half idle and adds each tile's pipeline cost, so small products are
    /// slow. The time is smooth, increases with each dimension, and never decreases when a product is split in two.
    pub(super) fn product(&self, m: f64, n: f64, k: f64, bytes: f64) -> f64 {
        let tail = self.idle_tiles * (k.min(SPLIT_K) + PIPELINE_K);
        let arithmetic = 2.0 * (m * n * (k + PIPELINE_K) + tail) / self.products;
        let traffic = (m * k + k * n + m * n) * bytes / self.fused;
        arithmetic.max(traffic)
    }
}

/// Peak rate of a dtype's products, and its achievable fractions. nanoGPT allows TF32.
fn peak(device: &Device, dtype: Dtype) -> Option<(f64, &'static Fractions)> {
    let (tensor, plain) = match dtype {
        Dtype::Float16 => (device.rates.fp16, &PLAIN_HALF),
        Dtype::Bfloat16 => (device.rates.bf16, &EMULATED),
        Dtype::Float32 => (device.rates.tf32, &PLAIN_FLOAT),
        _ => return None,
    };
    match tensor {
        Some(rate) if device.name.starts_with("GeForce") => Some((rate as f64, &GEFORCE)),
        Some(rate) => Some((rate as f64, &FULL_RATE)),
        None => Some((device.rates.fp32? as f64, plain)),
    }
}

/// Whether boards with such GPUs connect all of them with NVLink.
fn has_nvlink(device: &Device) -> bool {
    let name = &*device.name;
    name.contains("SXM") || name.contains("HBM3") || ["H200", "B200", "GB200"].contains(&name)
}
