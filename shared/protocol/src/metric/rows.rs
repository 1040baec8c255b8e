//! The rows of the registry. Columns after `unit` are optional.

use headroom_text::{self as text, Key};
use serde::{Deserialize, Serialize};

use super::{
    Chart, FamilyKind, Group, Number, PrometheusFamily, Scalar, Unit,
    declare::{optional, readings},
};
use crate::{
    gpu::Process,
    reading::{MissingReason, Reading},
};

readings! {
    /// Readings of a GPU at one moment, ten times per second.
    struct Sample in Fast, names "",
    /// The GPU's [`Gpu::index`](super::super::gpu::Gpu::index).
    key gpu: u32 {
        /// Used memory of the whole device, including every process and CUDA context.
        memory_used_bytes: u64 => MemoryUsed {
            label: "memory used",
            unit: Bytes,
            series: 0,
            chart: Memory HISTORY_OF_MEMORY,
            prometheus: Gauge "headroom_gpu_memory_used_bytes" "Used memory of a GPU: all processes and CUDA contexts.",
            nvidia_smi: "memory.used",
        },
        /// Free memory.
        memory_free_bytes: u64 => MemoryFree {
            label: "memory free",
            unit: Bytes,
            prometheus: Gauge "headroom_gpu_memory_free_bytes" "Free memory of a GPU.",
            nvidia_smi: "memory.free",
        },
        /// Memory that the driver reserves for itself.
        memory_reserved_bytes: u64 => MemoryReserved {
            label: "memory of the driver",
            unit: Bytes,
            prometheus: Gauge "headroom_gpu_memory_reserved_bytes" "Memory that the driver reserves.",
            nvidia_smi: "memory.reserved",
        },
        /// Share of time in which a kernel ran.
        utilization_percent: u64 => Utilization {
            label: "utilization",
            unit: Percent,
            series: 1,
            chart: Utilization HISTORY_OF_UTILIZATION,
            prometheus: Gauge "headroom_gpu_utilization_ratio" "Share of time in which a kernel ran.",
            nvidia_smi: "utilization.gpu",
        },
        /// Share of time in which memory was read or written.
        memory_utilization_percent: u64 => MemoryUtilization {
            label: "memory utilization",
            unit: Percent,
            series: 2,
            chart: Utilization HISTORY_OF_MEMORY_UTILIZATION,
            prometheus: Gauge "headroom_gpu_memory_utilization_ratio"
                "Share of time in which memory was read or written. It is not the used share of memory.",
            nvidia_smi: "utilization.memory",
        },
        /// Power draw.
        power_watts: f64 => Power {
            label: "power",
            unit: Watts,
            series: 3,
            chart: Power HISTORY_OF_POWER,
            prometheus: Gauge "headroom_gpu_power_watts" "Power draw of a GPU.",
            nvidia_smi: "power.draw",
        },
        /// Clock of the multiprocessors.
        clock_sm_mhz: u64 => ClockSm {
            label: "clock",
            unit: Megahertz,
            series: 5,
            chart: Clocks HISTORY_OF_CLOCK,
            prometheus: Gauge "headroom_gpu_clock_sm_hertz" "Clock of the streaming multiprocessors.",
            nvidia_smi: "clocks.sm",
        },
        /// Memory clock.
        clock_memory_mhz: u64 => ClockMemory {
            label: "memory clock",
            unit: Megahertz,
            series: 6,
            chart: Clocks HISTORY_OF_MEMORY_CLOCK,
            prometheus: Gauge "headroom_gpu_clock_memory_hertz" "Memory clock.",
            nvidia_smi: "clocks.mem",
        },
        /// Temperature of the chip.
        temperature_celsius: u64 => Temperature {
            label: "temperature",
            unit: Celsius,
            series: 4,
            chart: Temperature HISTORY_OF_TEMPERATURE,
            prometheus: Gauge "headroom_gpu_temperature_celsius" "Temperature of the GPU chip.",
            nvidia_smi: "temperature.gpu",
        },
        /// NVML's bit mask of reasons for reduced clocks: [`Throttle`](super::super::gpu::Throttle).
        throttle: u64 => Throttle {
            label: "clocks are low for",
            unit: ThrottleBits,
        },
    }

    /// Readings of a GPU at one moment, once per second.
    struct SlowSample in Slow, names "",
    /// The GPU's [`Gpu::index`](super::super::gpu::Gpu::index).
    key gpu: u32 {
        /// Speed of the first fan, as a percentage of its maximum.
        fan_percent: u64 => Fan {
            label: "fan",
            unit: Percent,
            series: 0,
            chart: Fan HISTORY_OF_FAN,
            prometheus: Gauge "headroom_gpu_fan_ratio" "Speed of the first fan, as a share of its maximum.",
            nvidia_smi: "fan.speed",
        },
        /// Energy since the driver was loaded.
        energy_joules: f64 => Energy {
            label: "energy",
            unit: Joules,
            series: 3,
            prometheus: Counter "headroom_gpu_energy_joules_total"
                "Energy that a GPU used since its driver was loaded.",
        },
        /// PCIe throughput to the GPU.
        pcie_receive_bytes_per_second: u64 => PcieReceive {
            label: "PCIe to the GPU",
            unit: BytesPerSecond,
            series: 1,
            chart: Pcie HISTORY_OF_PCIE_RECEIVE,
            prometheus: Gauge "headroom_gpu_pcie_receive_bytes_per_second"
                "PCIe throughput to the GPU, measured by the driver over a few milliseconds.",
        },
        /// PCIe throughput from the GPU.
        pcie_send_bytes_per_second: u64 => PcieSend {
            label: "PCIe from the GPU",
            unit: BytesPerSecond,
            series: 2,
            chart: Pcie HISTORY_OF_PCIE_SEND,
            prometheus: Gauge "headroom_gpu_pcie_send_bytes_per_second"
                "PCIe throughput from the GPU, measured by the driver over a few milliseconds.",
        },
        /// Current PCIe generation and lane count.
        pcie_link: (u32, u32),
        /// Corrected memory errors since the driver was loaded.
        ecc_corrected: u64 => EccCorrected {
            label: "ECC errors, corrected",
            unit: Errors,
            series: 4,
            prometheus: Counter "headroom_gpu_ecc_errors_total" (kind "corrected")
                "ECC memory errors since the driver was loaded.",
            nvidia_smi: "ecc.errors.corrected.volatile.total",
        },
        /// Uncorrected memory errors since the driver was loaded.
        ecc_uncorrected: u64 => EccUncorrected {
            label: "ECC errors, uncorrected",
            unit: Errors,
            series: 5,
            prometheus: Counter "headroom_gpu_ecc_errors_total" (kind "uncorrected")
                "ECC memory errors since the driver was loaded.",
            nvidia_smi: "ecc.errors.uncorrected.volatile.total",
        },
        /// Processes on the GPU by memory, largest first; processes with hidden memory come last.
        processes: Vec<Process>,
    }

    /// Readings of the machine that contains the GPUs at one moment, once per second.
    struct HostSample in Host, names "host_" {
        /// CPU utilization over all cores; 100 if all are busy.
        cpu_percent: f64 => HostCpu {
            label: "CPU",
            unit: Percent,
            series: 0,
            chart: Cpu HISTORY_CPU,
            prometheus: Gauge "headroom_host_cpu_utilization_ratio"
                "CPU utilization of all cores together; 1 if all are busy.",
        },
        /// Memory used by programs.
        memory_used_bytes: u64 => HostMemoryUsed {
            label: "memory used",
            unit: Bytes,
            series: 1,
            chart: HostMemory HISTORY_HOST_MEMORY,
            prometheus: Gauge "headroom_host_memory_used_bytes" "Used memory of the machine.",
        },
        /// Total memory.
        memory_total_bytes: u64 => HostMemoryTotal {
            label: "memory",
            unit: Bytes,
            prometheus: Gauge "headroom_host_memory_total_bytes" "Total memory of the machine.",
        },
        /// Free space on the disk that holds the history file.
        disk_free_bytes: u64 => HostDiskFree {
            label: "history disk, free",
            unit: Bytes,
            series: 2,
            prometheus: Gauge "headroom_host_disk_free_bytes" "Free space on the disk of the history file.",
        },
        /// Size of that disk.
        disk_total_bytes: u64 => HostDiskTotal {
            label: "history disk",
            unit: Bytes,
            prometheus: Gauge "headroom_host_disk_total_bytes" "Size of the disk of the history file.",
        },
    }
}
