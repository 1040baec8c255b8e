//! A card: what it is, and what it is doing.

use serde::{Deserialize, Serialize};

use super::reading::Reading;

/// What a card is; read once, and anew when the driver or the card comes back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its place in the list, the same as long as the agent runs; what samples call it.
    pub index: u32,
    /// NVML's, as `GPU-8d3f…`: the same on this and every other start.
    pub uuid: String,
    /// As NVML has it: `NVIDIA GeForce RTX 4070`.
    pub name: String,
    /// Whether it answers.
    pub present: bool,
    /// The whole of its memory.
    pub memory_total_bytes: Reading<u64>,
    /// `CUDA` compute capability, as (8, 9).
    pub compute_capability: Reading<(u32, u32)>,
    /// What it may take now.
    pub power_limit_watts: Reading<f64>,
    /// What the owner could allow at most.
    pub power_limit_max_watts: Reading<f64>,
    /// Where it slows down.
    pub temperature_slowdown_celsius: Reading<u64>,
    /// Where it turns itself off.
    pub temperature_shutdown_celsius: Reading<u64>,
    /// Highest clock of the multiprocessors.
    pub clock_sm_max_mhz: Reading<u64>,
    /// Highest clock of the memory.
    pub clock_memory_max_mhz: Reading<u64>,
    /// Whether it is split into instances.
    pub mig_enabled: Reading<bool>,
    /// Links to other cards that are up.
    pub nvlinks_active: Reading<u32>,
    /// Where it is, as `0000:01:00.0`.
    pub pci_bus_id: Reading<String>,
    /// What the calculator's table of cards calls it; none where it has no such card. The page has no table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_as: Option<String>,
}

/// A card at one moment, ten times a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Which card: [`Gpu::index`].
    pub gpu: u32,
    /// Of the whole device, every process and CUDA's contexts included.
    pub memory_used_bytes: Reading<u64>,
    /// What is left.
    pub memory_free_bytes: Reading<u64>,
    /// What the driver keeps for itself.
    pub memory_reserved_bytes: Reading<u64>,
    /// Share of the time in which a kernel ran.
    pub utilization_percent: Reading<u64>,
    /// Share of the time in which memory was read or written.
    pub memory_utilization_percent: Reading<u64>,
    /// What it takes.
    pub power_watts: Reading<f64>,
    /// Of the multiprocessors.
    pub clock_sm_mhz: Reading<u64>,
    /// Of the memory.
    pub clock_memory_mhz: Reading<u64>,
    /// Of the chip.
    pub temperature_celsius: Reading<u64>,
    /// NVML's bits of why its clocks are low: [`Throttle`].
    pub throttle: Reading<u64>,
}

/// A card at one moment, once a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowSample {
    /// Which card: [`Gpu::index`].
    pub gpu: u32,
    /// Of the first fan, of what it can do.
    pub fan_percent: Reading<u64>,
    /// Since the driver was loaded.
    pub energy_joules: Reading<f64>,
    /// To the card, over PCIe.
    pub pcie_receive_bytes_per_second: Reading<u64>,
    /// From the card, over PCIe.
    pub pcie_send_bytes_per_second: Reading<u64>,
    /// Generation and lanes of PCIe now.
    pub pcie_link: Reading<(u32, u32)>,
    /// Errors of memory since the driver was loaded that were mended.
    pub ecc_corrected: Reading<u64>,
    /// And that were not.
    pub ecc_uncorrected: Reading<u64>,
    /// Who uses it, by memory, largest first; those whose memory is hidden last.
    pub processes: Reading<Vec<Process>>,
}

/// A process that uses a card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// As the host counts them.
    pub pid: u32,
    /// Of its program; of a Python program, the script's as well.
    pub name: Reading<String>,
    /// Whose it is.
    pub user: Reading<String>,
    /// What it has of the card.
    pub memory_used_bytes: Reading<u64>,
    /// The run that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// Why clocks are low: one of the bits of [`Sample::throttle`], as in nvml.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// Nothing to do.
    Idle,
    /// The owner set them so.
    ApplicationClocks,
    /// The limit of power.
    PowerCap,
    /// The hardware slows down: heat, power brake.
    HardwareSlowdown,
    /// Cards that are to run alike.
    SyncBoost,
    /// The driver slows down for heat.
    SoftwareThermal,
    /// The hardware slows down for heat.
    HardwareThermal,
    /// The power supply asks for it.
    HardwarePowerBrake,
    /// A display's clocks.
    DisplayClocks,
}

impl Throttle {
    /// All, from the lowest bit.
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

    /// Its bit, `nvmlClocksEventReason…` in nvml.h.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << (self as u64)
    }

    /// Those that are set.
    pub fn of(bits: u64) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |reason| bits & reason.bit() != 0)
    }

    /// Whether the card would be faster without: no work and the owner's own choice are no trouble.
    #[must_use]
    pub const fn slows(self) -> bool {
        !matches!(self, Self::Idle | Self::ApplicationClocks | Self::DisplayClocks)
    }
}
