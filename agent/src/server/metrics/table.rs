//! Table of the metrics: name, kind, help, and where the value comes from.

use headroom_shared::protocol::{gpu::Throttle, host::HostSample, reading::Reading, run::Run};

use super::Card;

/// What Prometheus does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows, or begins anew.
    Counter,
}

impl Kind {
    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// Values of one name.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// With its unit.
    pub name: &'static str,
    /// What is done with it.
    pub kind: Kind,
    /// A sentence.
    pub help: &'static str,
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, help }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, help }
}

pub const AGENT: Family = gauge("headroom_build_info", "The agent's version; always 1.");
pub const VIEWERS: Family = gauge("headroom_viewers", "Pages that watch.");
pub const READY: Family = gauge("headroom_driver_ready", "Whether the driver answers.");
pub const HISTORY_KEPT: Family = gauge("headroom_history_kept", "Whether history is written.");
pub const HISTORY_BYTES: Family = gauge("headroom_history_bytes", "Size of the history's file.");
pub const PRESENT: Family = gauge("headroom_gpu_present", "Whether the card answers.");
pub const PROCESSES: Family = gauge("headroom_gpu_processes", "Processes that use the card.");
pub const THROTTLED: Family = gauge("headroom_gpu_throttled", "Whether the card is slowed down for that reason.");

/// A card's value.
type OfCard = fn(&Card<'_>) -> Option<f64>;

fn number(reading: &Reading<u64>) -> Option<f64> {
    reading.get().map(|value| *value as f64)
}

fn ratio(reading: &Reading<u64>) -> Option<f64> {
    number(reading).map(|percent| percent / 100.0)
}

fn hertz(reading: &Reading<u64>) -> Option<f64> {
    number(reading).map(|mhz| mhz * 1e6)
}

/// Of each card; labels `gpu`, `uuid` and `name`.
pub const GPU: &[(Family, OfCard)] = &[
    (gauge("headroom_gpu_memory_total_bytes", "The whole of the card's memory."), |card| {
        number(&card.gpu.memory_total_bytes)
    }),
    (gauge("headroom_gpu_memory_used_bytes", "Memory in use, by every process and CUDA's contexts."), |card| {
        number(&card.sample?.memory_used_bytes)
    }),
    (gauge("headroom_gpu_memory_free_bytes", "Memory that is left."), |card| number(&card.sample?.memory_free_bytes)),
    (gauge("headroom_gpu_memory_reserved_bytes", "Memory that the driver keeps for itself."), |card| {
        number(&card.sample?.memory_reserved_bytes)
    }),
    (gauge("headroom_gpu_utilization_ratio", "Share of the time in which a kernel ran."), |card| {
        ratio(&card.sample?.utilization_percent)
    }),
    (
        gauge("headroom_gpu_memory_utilization_ratio", "Share of the time in which memory was read or written."),
        |card| ratio(&card.sample?.memory_utilization_percent),
    ),
    (gauge("headroom_gpu_power_watts", "What the card takes."), |card| card.sample?.power_watts.get().copied()),
    (gauge("headroom_gpu_power_limit_watts", "What the card may take."), |card| {
        card.gpu.power_limit_watts.get().copied()
    }),
    (gauge("headroom_gpu_temperature_celsius", "Temperature of the chip."), |card| {
        number(&card.sample?.temperature_celsius)
    }),
    (gauge("headroom_gpu_sm_clock_hertz", "Clock of the multiprocessors."), |card| hertz(&card.sample?.clock_sm_mhz)),
    (gauge("headroom_gpu_memory_clock_hertz", "Clock of the memory."), |card| hertz(&card.sample?.clock_memory_mhz)),
    (gauge("headroom_gpu_fan_ratio", "Speed of the first fan, of what it can do."), |card| {
        ratio(&card.slow?.fan_percent)
    }),
    (counter("headroom_gpu_energy_joules_total", "Energy since the driver was loaded."), |card| {
        card.slow?.energy_joules.get().copied()
    }),
    (gauge("headroom_gpu_pcie_receive_bytes_per_second", "What comes to the card over PCIe."), |card| {
        number(&card.slow?.pcie_receive_bytes_per_second)
    }),
    (gauge("headroom_gpu_pcie_send_bytes_per_second", "What leaves the card over PCIe."), |card| {
        number(&card.slow?.pcie_send_bytes_per_second)
    }),
    (counter("headroom_gpu_ecc_corrected_errors_total", "Errors of memory that were mended."), |card| {
        number(&card.slow?.ecc_corrected)
    }),
    (counter("headroom_gpu_ecc_uncorrected_errors_total", "Errors of memory that were not mended."), |card| {
        number(&card.slow?.ecc_uncorrected)
    }),
];

/// The machine's value.
type OfHost = fn(&HostSample) -> Option<f64>;

/// Of the machine.
pub const HOST: &[(Family, OfHost)] = &[
    (gauge("headroom_host_cpu_ratio", "Share of the time in which all cores were busy."), |host| {
        host.cpu_percent.get().map(|percent| percent / 100.0)
    }),
    (gauge("headroom_host_memory_used_bytes", "Memory that programs use."), |host| number(&host.memory_used_bytes)),
    (gauge("headroom_host_memory_total_bytes", "All of the machine's memory."), |host| {
        number(&host.memory_total_bytes)
    }),
    (gauge("headroom_host_disk_free_bytes", "What is left on the disk of the history."), |host| {
        number(&host.disk_free_bytes)
    }),
    (gauge("headroom_host_disk_total_bytes", "The whole disk of the history."), |host| number(&host.disk_total_bytes)),
];

/// A run's value.
type OfRun = fn(&Run) -> Option<f64>;

/// Of each run that goes on; labels `run` and `name`.
pub const RUN: &[(Family, OfRun)] = &[
    (gauge("headroom_run_start_time_seconds", "When the run began, since 1970."), |run| {
        Some(run.started_ms as f64 / 1000.0)
    }),
    (gauge("headroom_run_iteration", "The newest iteration."), |run| Some(run.last?.iter as f64)),
    (gauge("headroom_run_loss", "Loss of the newest iteration."), |run| run.last?.loss),
    (gauge("headroom_run_iteration_seconds", "What the newest iteration took."), |run| {
        Some(run.last?.time_ms / 1000.0)
    }),
    (gauge("headroom_run_tokens_per_second", "Tokens a second."), |run| run.last?.tokens_per_second),
    (gauge("headroom_run_mfu_ratio", "Model FLOPs utilisation of the card that it runs on."), |run| {
        run.last?.mfu_percent.map(|percent| percent / 100.0)
    }),
    (gauge("headroom_run_train_loss", "Loss of the newest evaluation on training data."), |run| {
        run.last_evaluation?.train_loss
    }),
    (gauge("headroom_run_val_loss", "Loss of the newest evaluation on data held back."), |run| {
        run.last_evaluation?.val_loss
    }),
    (gauge("headroom_run_gpu_memory_peak_bytes", "Most that its processes had on one card."), |run| {
        run.gpu_memory_peak_bytes.map(|bytes| bytes as f64)
    }),
    (gauge("headroom_run_energy_joules", "What its cards took while it ran."), |run| run.energy_joules),
    (gauge("headroom_run_predicted_peak_bytes", "What the plan of its config says it takes of a card."), |run| {
        run.plan.as_ref().map(|plan| plan.peak_bytes as f64)
    }),
];

/// A reason's label.
pub const fn reason(reason: Throttle) -> &'static str {
    match reason {
        Throttle::Idle => "idle",
        Throttle::ApplicationClocks => "application_clocks",
        Throttle::PowerCap => "power_cap",
        Throttle::HardwareSlowdown => "hardware_slowdown",
        Throttle::SyncBoost => "sync_boost",
        Throttle::SoftwareThermal => "software_thermal",
        Throttle::HardwareThermal => "hardware_thermal",
        Throttle::HardwarePowerBrake => "hardware_power_brake",
        Throttle::DisplayClocks => "display_clocks",
    }
}
