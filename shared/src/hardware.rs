//! NVIDIA cards: how much memory CUDA reports, how fast they are, and what a row rests on.
//!
//! The rows are data (`geforce`, `geforce_recent`, `professional`, `datacenter`), read with [`devices`], [`find()`] and [`reported`];
//! [`context`] estimates what a CUDA context takes. What a running card says about itself is not here: a program on the
//! machine with the card should prefer that and build a [`Device::custom`].

use std::borrow::Cow;
use std::sync::LazyLock;

use serde::Serialize;

use crate::{dtype::Dtype, units::human_size};

/// Where a figure comes from. No page shows it, and a first load is to be small: there it stays out of the program.
macro_rules! cite {
    ($source:literal) => {
        if cfg!(target_arch = "wasm32") { "" } else { $source }
    };
}

mod capability;
pub mod context;
mod datacenter;
mod find;
mod geforce;
mod geforce_recent;
mod popularity;
mod professional;
mod row;
#[cfg(test)]
mod tests;

pub use capability::{ComputeCapability, ParseComputeCapabilityError};
pub use find::{UnknownDevice, find, reported};
pub use popularity::{Segment, by_popularity};
pub use row::ESTIMATE_RULE;

/// How far `total_bytes` of one card was seen to move between drivers, in percent of it, either way.
///
/// An RTX 3060 printed 12,045 MiB under old drivers and 11,910 MiB under new ones (1.1 %), an RTX 3070 7,967 and 7,753
/// (2.7 %). Windows prints more than Linux: nearly the nominal size.
pub const TOTAL_DRIVER_SPREAD_PERCENT: u64 = 3;

/// Where `total_bytes` comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// CUDA or PyTorch printed it on such a card; exact for the driver of that message, Linux unless it says otherwise.
    Measured {
        /// The thread or log that prints it.
        source: &'static str,
    },
    /// Computed from the nominal size.
    Estimated {
        /// The rule it was computed with.
        rule: &'static str,
    },
    /// The caller said so.
    Given,
}

/// Peak dense rates in FLOP/s at boost clock. `None` where the hardware has no such unit.
///
/// Tensor-core rates are without sparsity and **with float32 accumulation**, which is what training uses; GeForce cards
/// run that at half the rate their boxes advertise for float16 accumulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// float32 on the ordinary cores. `None` only for a custom device.
    pub fp32: Option<u64>,
    /// TF32 on tensor cores; from compute capability 8.0.
    pub tf32: Option<u64>,
    /// float16 on tensor cores; from compute capability 7.0, without the GTX 16 series.
    pub fp16: Option<u64>,
    /// bfloat16 on tensor cores; from compute capability 8.0.
    pub bf16: Option<u64>,
}

/// One card, or one memory size of a card that was sold with several.
///
/// Serializes as `{name, total_bytes, compute_capability}`, the `device` object of `headroom plan --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Unique in the table: `reported_name`, with the size added where cards with different memory report one name.
    pub name: Cow<'static, str>,
    /// What nvidia-smi and `torch.cuda.get_device_name` print, without the leading "NVIDIA ".
    #[serde(skip)]
    pub reported_name: Cow<'static, str>,
    /// Other spellings people use; [`find()`] takes them and many more.
    #[serde(skip)]
    pub aliases: &'static [&'static str],
    /// The size on the box, its "GB" read as GiB.
    #[serde(skip)]
    pub vram_bytes_nominal: u64,
    /// What CUDA reports as total memory, and what an out-of-memory message prints as total capacity.
    pub total_bytes: u64,
    /// What `total_bytes` rests on.
    #[serde(skip)]
    pub total_provenance: Provenance,
    /// The architecture, as CUDA counts it.
    pub compute_capability: ComputeCapability,
    /// Streaming multiprocessors. `None` for a custom device.
    #[serde(skip)]
    pub sm_count: Option<u32>,
    /// Peak memory bandwidth in bytes a second. `None` for a custom device.
    #[serde(skip)]
    pub memory_bandwidth: Option<u64>,
    /// Peak arithmetic rates.
    #[serde(skip)]
    pub rates: Rates,
    /// The data sheet behind everything except `total_bytes`.
    #[serde(skip)]
    pub source: &'static str,
}

impl Device {
    /// A card that is known only by what the user says of it, as with `--vram 11.69GiB`.
    #[must_use]
    pub fn custom(total_bytes: u64, compute_capability: ComputeCapability) -> Self {
        let name = format!("{} card ({compute_capability})", human_size(total_bytes));
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

    /// Whether bfloat16 runs in hardware: compute capability 8.0 and later.
    #[must_use]
    pub fn supports_bfloat16(&self) -> bool {
        self.compute_capability >= ComputeCapability::new(8, 0)
    }

    /// The peak rate of matrix products in `dtype`, in FLOP/s; `None` where the card has no fast path for it.
    ///
    /// float32 means the ordinary cores: a program that allows TF32, as nanoGPT does, reads `rates.tf32` first.
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

    /// Memory bandwidth in GB (10⁹ bytes) a second, as data sheets print it.
    #[must_use]
    pub fn bandwidth_gb_per_second(&self) -> Option<f64> {
        self.memory_bandwidth.map(|bytes| bytes as f64 / 1e9)
    }

    /// The lowest and the highest `total_bytes` to expect of such a card, over drivers; equal for a custom device.
    #[must_use]
    pub fn total_bytes_band(&self) -> [u64; 2] {
        if self.total_provenance == Provenance::Given {
            return [self.total_bytes; 2];
        }
        let spread = self.total_bytes / 100 * TOTAL_DRIVER_SPREAD_PERCENT;
        [self.total_bytes.saturating_sub(spread), (self.total_bytes + spread).min(self.vram_bytes_nominal)]
    }

    /// What a CUDA context takes on this card, beside everything PyTorch counts.
    ///
    /// A custom device borrows the multiprocessor count of the row nearest in memory among its own architecture.
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

/// Every card of the table, by rising compute capability.
///
/// Among cards of one capability: GeForce, then workstation, then data centre, each by generation and size.
#[must_use]
pub fn devices() -> &'static [Device] {
    static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
        let parts = [geforce::ROWS, geforce_recent::ROWS, professional::ROWS, datacenter::ROWS];
        let mut rows: Vec<Device> = Vec::new();
        for row in parts.concat() {
            // Behind its equals, so that the order of the source stays within one capability; `find` leans on it.
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
