//! A GPU: its properties and its processes. Its readings are in [`metric`](super::metric).

use serde::{Deserialize, Serialize};

use super::reading::Reading;

/// Static properties of a GPU, read once and again when the driver or the GPU comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Index in the inventory, constant while the agent runs. Samples refer to it.
    pub index: u32,
    /// NVML's UUID, such as `GPU-8d3f…`, constant across restarts.
    pub uuid: String,
    /// NVML's product name, such as `NVIDIA GeForce RTX 4070`.
    pub name: String,
    /// Whether the GPU responds.
    pub present: bool,
    /// Total memory.
    pub memory_total_bytes: Reading<u64>,
    /// `CUDA` compute capability, such as (8, 9).
    pub compute_capability: Reading<(u32, u32)>,
    /// Current power limit.
    pub power_limit_watts: Reading<f64>,
    /// Maximum power limit that can be set.
    pub power_limit_max_watts: Reading<f64>,
    /// Temperature at which the GPU slows down.
    pub temperature_slowdown_celsius: Reading<u64>,
    /// Temperature at which the GPU shuts down.
    pub temperature_shutdown_celsius: Reading<u64>,
    /// Maximum clock of the multiprocessors.
    pub clock_sm_max_mhz: Reading<u64>,
    /// Maximum memory clock.
    pub clock_memory_max_mhz: Reading<u64>,
    /// Whether the GPU is partitioned into MIG instances.
    pub mig_enabled: Reading<bool>,
    /// Number of active NVLink links.
    pub nvlinks_active: Reading<u32>,
    /// PCI bus ID, such as `0000:01:00.0`.
    pub pci_bus_id: Reading<String>,
    /// Name in the calculator's GPU table; `None` if the table does not list the GPU. The page has no such table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_as: Option<String>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Process ID on the host.
    pub pid: u32,
    /// Name of the program; for a Python program, also the script's name.
    pub name: Reading<String>,
    /// User who owns the process.
    pub user: Reading<String>,
    /// GPU memory of the process.
    pub memory_used_bytes: Reading<u64>,
    /// ID of the run that the process belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// A reason for reduced clocks: one bit of [`Sample::throttle`](super::metric::Sample::throttle), as in nvml.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// The GPU is idle.
    Idle,
    /// The owner set the application clocks.
    ApplicationClocks,
    /// The power limit is reached.
    PowerCap,
    /// Hardware slowdown: heat or power brake.
    HardwareSlowdown,
    /// Clocks are synchronised with other GPUs.
    SyncBoost,
    /// The driver slows the GPU down because of heat.
    SoftwareThermal,
    /// The hardware slows the GPU down because of heat.
    HardwareThermal,
    /// The power supply requests a slowdown.
    HardwarePowerBrake,
    /// A display limits the clocks.
    DisplayClocks,
}

impl Throttle {
    /// All reasons, lowest bit first.
    pub const ALL: [Self; 9] = [
        Self::Idle,
        Self::ApplicationClocks,
        Self::PowerCap,
        Self::HardwareSlowdown,
        Self::SyncBoost,
        Self::SoftwareThermal,
        Self::HardwareThermal,
        Self::HardwarePowerBrake,
        Self::DisplayClocks,
    ];

    /// Returns the reason's bit, `nvmlClocksEventReason…` in nvml.h.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << (self as u64)
    }

    /// Returns the reasons that are set in a bit mask.
    pub fn of(bits: u64) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |reason| bits & reason.bit() != 0)
    }

    /// Whether the reason slows the GPU down. An idle GPU and clocks that the owner chose do not count.
    #[must_use]
    pub const fn slows(self) -> bool {
        !matches!(self, Self::Idle | Self::ApplicationClocks | Self::DisplayClocks)
    }
}
