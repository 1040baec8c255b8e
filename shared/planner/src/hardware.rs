//! NVIDIA GPUs: total memory as CUDA reports it, peak rates, and the source of each figure.
//!
//! The rows are data (`architecture`, `geforce`, `geforce_recent`, `professional`, `datacenter`); [`devices`], [`find()`] and
//! [`reported`] return them. [`context`] estimates the size of a CUDA context. This module does not query hardware. A
//! program on the machine with the GPU should prefer the driver's values and build a [`Device::custom`].

use std::borrow::Cow;
use std::sync::LazyLock;

use serde::Serialize;

use crate::dtype::Dtype;
use headroom_text::units::human_size;

/// Source of a figure. No page shows sources, so the WebAssembly build omits them to reduce its size.
macro_rules! cite {
    ($source:literal) => {
        if cfg!(target_arch = "wasm32") { "" } else { $source }
    };
}

mod architecture;
mod capability;
mod cloud;
pub mod context;
mod datacenter;
mod find;
mod geforce;
mod geforce_recent;
mod popularity;
mod power;
mod professional;
mod row;
mod search;
#[cfg(test)]
mod tests;

pub use architecture::{Architecture, FusedAttention};
pub use capability::{ComputeCapability, ParseComputeCapabilityError};
pub use cloud::{CLOUD_GPUS, CloudGpu};
pub use find::{UnknownDevice, find, reported};
pub use popularity::{Segment, by_popularity};
pub use power::BoardPower;
pub use row::ESTIMATE_RULE;
pub use search::{search, search_cloud};

/// Variation of one GPU's `total_bytes` between drivers, in percent, in either direction.
///
/// An RTX 3060 printed 12,045 MiB under old drivers and 11,910 MiB under new ones (1.1 %), an RTX 3070 7,967 and 7,753
/// (2.7 %). Windows prints more than Linux: nearly the nominal size.
pub const TOTAL_DRIVER_SPREAD_PERCENT: u64 = 3;

/// Source of `total_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// CUDA or PyTorch printed the value on such a GPU. It is exact for the driver of that message (Linux unless
    /// noted).
    Measured {
        /// Thread or log with the value.
        source: &'static str,
    },
    /// Computed from the nominal size.
    Estimated {
        /// The rule used.
        rule: &'static str,
    },
    /// The caller supplied the value.
    Given,
}

/// Peak dense rates in FLOP/s at boost clock. `None` if the hardware has no such unit.
///
/// Tensor-core rates are without sparsity and **with float32 accumulation**, which training uses. GeForce GPUs run this
/// mode at half the rate advertised for float16 accumulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// float32 on the CUDA cores. `None` only for a custom device.
    pub fp32: Option<u64>,
    /// TF32 on tensor cores; from compute capability 8.0.
    pub tf32: Option<u64>,
    /// float16 on tensor cores; from compute capability 7.0, without the GTX 16 series.
    pub fp16: Option<u64>,
    /// bfloat16 on tensor cores; from compute capability 8.0.
    pub bf16: Option<u64>,
}

/// One GPU model, or one memory size of a model sold with several.
///
/// Serializes as `{name, total_bytes, compute_capability}`, the `device` object of `headroom plan --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Name, unique in the table: `reported_name`, with the memory size added if GPUs with different memory report one
    /// name.
    pub name: Cow<'static, str>,
    /// Name that nvidia-smi and `torch.cuda.get_device_name` print, without the leading "NVIDIA ".
    #[serde(skip)]
    pub reported_name: Cow<'static, str>,
    /// Other spellings in use; [`find()`] accepts these and many more.
    #[serde(skip)]
    pub aliases: &'static [&'static str],
    /// Advertised memory in bytes, with "GB" read as GiB.
    #[serde(skip)]
    pub vram_bytes_nominal: u64,
    /// Total memory that CUDA reports, in bytes. An out-of-memory message prints it as total capacity.
    pub total_bytes: u64,
    /// Source of `total_bytes`.
    #[serde(skip)]
    pub total_provenance: Provenance,
    /// CUDA compute capability.
    pub compute_capability: ComputeCapability,
    /// Number of streaming multiprocessors. `None` for a custom device.
    #[serde(skip)]
    pub sm_count: Option<u32>,
    /// Peak memory bandwidth in bytes per second. `None` for a custom device.
    #[serde(skip)]
    pub memory_bandwidth: Option<u64>,
    /// Peak arithmetic rates.
    #[serde(skip)]
    pub rates: Rates,
    /// Data sheet behind all values except `total_bytes`.
    #[serde(skip)]
    pub source: &'static str,
}

impl Device {
    /// A GPU described only by the user's values, as with `--vram 11.69GiB`.
    #[must_use]
    pub fn custom(total_bytes: u64, compute_capability: ComputeCapability) -> Self {
        let name = format!("{} GPU ({compute_capability})", human_size(total_bytes));
        Self {
            name: Cow::Owned(name.clone()),
            reported_name: Cow::Owned(name),
            aliases: &[],
            vram_bytes_nominal: total_bytes,
            total_bytes,
            total_provenance: Provenance::Given,
            compute_capability,
            sm_count: None,
            memory_bandwidth: None,
            rates: Rates::default(),
            source: "given by the caller",
        }
    }

    /// Whether the hardware supports bfloat16.
    #[must_use]
    pub const fn supports_bfloat16(&self) -> bool {
        self.compute_capability.architecture().has_bfloat16
    }

    /// Peak rate of matrix products in `dtype`, in FLOP/s; `None` if the GPU has no fast path for it.
    ///
    /// float32 means the CUDA cores. A program that allows TF32, as nanoGPT does, reads `rates.tf32` first.
    #[must_use]
    pub const fn peak_flops(&self, dtype: Dtype) -> Option<u64> {
        match dtype {
            Dtype::Float32 => self.rates.fp32,
            Dtype::Float16 => self.rates.fp16,
            Dtype::Bfloat16 => self.rates.bf16,
            Dtype::Float64
            | Dtype::Int64
            | Dtype::Int32
            | Dtype::Int16
            | Dtype::Int8
            | Dtype::Uint8
            | Dtype::Uint64
            | Dtype::Bool => None,
        }
    }

    /// `total_bytes` in GiB, as PyTorch prints it.
    #[must_use]
    pub fn total_gib(&self) -> f64 {
        gib_from_bytes(self.total_bytes)
    }

    /// Memory bandwidth in GB (10⁹ bytes) per second, as data sheets print it.
    #[must_use]
    pub fn bandwidth_gb_per_second(&self) -> Option<f64> {
        self.memory_bandwidth.map(|bytes| bytes as f64 / 1e9)
    }

    /// Lowest and highest expected `total_bytes` over driver versions; equal for a custom device.
    #[must_use]
    pub fn total_bytes_band(&self) -> [u64; 2] {
        if self.total_provenance == Provenance::Given {
            return [self.total_bytes; 2];
        }
        let spread = self.total_bytes / 100 * TOTAL_DRIVER_SPREAD_PERCENT;
        [self.total_bytes.saturating_sub(spread), (self.total_bytes + spread).min(self.vram_bytes_nominal)]
    }

    /// Estimated size of a CUDA context on this GPU, outside PyTorch's figures.
    ///
    /// A custom device uses the multiprocessor count of the row with the nearest memory size among its architecture.
    #[must_use]
    pub fn context(&self, loading: context::ModuleLoading) -> context::Estimate {
        let sm_count = self.sm_count.or_else(|| self.nearest_sm_count());
        context::context_bytes(self.compute_capability, sm_count, loading)
    }

    fn nearest_sm_count(&self) -> Option<u32> {
        devices()
            .iter()
            .filter(|row| row.compute_capability == self.compute_capability)
            .min_by_key(|row| row.total_bytes.abs_diff(self.total_bytes))
            .and_then(|row| row.sm_count)
    }
}

/// All GPUs of the table, by ascending compute capability.
///
/// Within one capability: GeForce, then workstation, then data centre, each by generation and size.
#[must_use]
pub fn devices() -> &'static [Device] {
    static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
        let parts = [geforce::ROWS, geforce_recent::ROWS, professional::ROWS, datacenter::ROWS];
        let mut rows: Vec<Device> = Vec::new();
        for row in parts.into_iter().flatten().map(row::Row::device) {
            // Insert after equal capabilities: `find` relies on the order of the source within one capability.
            let at = rows.partition_point(|before| before.compute_capability <= row.compute_capability);
            rows.insert(at, row);
        }
        rows
    });
    &DEVICES
}

fn gib_from_bytes(bytes: u64) -> f64 {
    bytes as f64 / (1_u64 << 30) as f64
}
