//! What a card does for one kind of run: the roofs that each part of a step is held against.

use super::constants::{
    EAGER_FLOAT_BANDWIDTH, EAGER_HALF_BANDWIDTH, EMULATED, FULL_RATE, FUSED_BANDWIDTH, Fractions, GEFORCE,
    NVLINK_BYTES_PER_SECOND, PCIE_BYTES_PER_SECOND, PIPELINE_K, PLAIN_FLOAT, PLAIN_HALF, SPLIT_K, TILE,
};
use crate::{
    dtype::Dtype,
    hardware::{ComputeCapability, Device},
    memory::run::{AttentionKernel, Pass, attention_kernel},
    plan::Request,
    train_config::TrainConfig,
};

/// Achievable rates of a card for a run.
pub(super) struct Roofs {
    /// FLOP/s of large matrix products.
    products: f64,
    /// FLOP/s of the attention kernel; of slow attention, those of its products.
    pub attention: f64,
    pub kernel: AttentionKernel,
    /// Bytes a second of fused kernels.
    pub fused: f64,
    /// Bytes a second of elementwise work: fused where the model is compiled, else eager.
    pub elementwise: f64,
    /// Elements of the output that half a wave of tiles would have made.
    idle_tiles: f64,
    /// Bytes a second between cards.
    pub link: f64,
    /// Whether `torch.compile` has an effect.
    pub compiled: bool,
}

impl Roofs {
    /// `None` where the table does not know the card's rates.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let Request { gpt, train, device, .. } = request;
        let (peak, fractions) = peak(device, train.dtype)?;
        let bandwidth = device.memory_bandwidth? as f64;
        // Triton starts at sm_70, and Inductor leaves bfloat16 alone where it is not native.
        let compiled = train.compile
            && device.compute_capability >= ComputeCapability::new(7, 0)
            && (train.dtype != Dtype::Bfloat16 || device.supports_bfloat16());
        // What Inductor leaves alone runs as eager code does.
        // PyTorch chooses the attention backend by shape, dtype and GPU, compiled or not.
        let eager = TrainConfig { compile: false, ..train.clone() };
        let kernel = attention_kernel(gpt, &eager, device.compute_capability, Pass::Training);
        let (kernel, attention) = match kernel {
            AttentionKernel::Flash => (kernel, fractions.flash),
            AttentionKernel::Cudnn => (kernel, fractions.cudnn),
            AttentionKernel::Efficient => (kernel, fractions.efficient),
            // The same products one by one. That PyTorch's own are in float32 is within what is not known of such cards.
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

    /// Seconds of a product of (m, k) and (k, n), `bytes` an element.
    ///
    /// The last wave of tiles is charged as half idle, and each tile for its pipeline; so small products are slow, and
    /// the time is smooth, grows with each dimension, and never shrinks when a product is cut in two.
    pub(super) fn product(&self, m: f64, n: f64, k: f64, bytes: f64) -> f64 {
        let tail = self.idle_tiles * (k.min(SPLIT_K) + PIPELINE_K);
        let arithmetic = 2.0 * (m * n * (k + PIPELINE_K) + tail) / self.products;
        let traffic = (m * k + k * n + m * n) * bytes / self.fused;
        arithmetic.max(traffic)
    }
}

/// The peak that a dtype's products run against, and what of it is achievable. nanoGPT allows TF32.
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

/// Whether cards of that kind come on boards with NVLink between all of them.
fn has_nvlink(device: &Device) -> bool {
    let name = &*device.name;
    name.contains("SXM") || name.contains("HBM3") || ["H200", "B200", "GB200"].contains(&name)
}
