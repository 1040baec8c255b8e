//! Table of families about cards and the processes on them.

use headroom_shared::protocol::gpu::Throttle;

use super::{
    Family, GPU_LABELS,
    Kind::{Counter, Gauge},
    labels_of,
    text::{Value, hertz, ratio, real, seconds, whole},
};

/// Processes of a card at most, largest first: each is a series of its own for as long as Prometheus keeps them.
pub(super) const PROCESSES_MAX: usize = 64;

/// Labels of an error of a card.
const FAULT_LABELS: &[&str] = &["gpu", "uuid", "name", "xid"];

/// In the order of the text.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "headroom_gpu_info",
        kind: Gauge,
        help: "What a card is; always 1. A label is empty where the card does not tell.",
        labels: &["gpu", "uuid", "name", "pci_bus_id", "compute_capability"],
        collect: |at, samples| {
            for gpu in at.gpus {
                let [index, uuid, name] = labels_of(gpu);
                let bus = gpu.pci_bus_id.get().cloned().unwrap_or_default();
                let capability = gpu.compute_capability.get();
                let capability = capability.map_or_else(String::new, |(major, minor)| format!("{major}.{minor}"));
                samples.add(&[index, uuid, name, bus, capability], Some(Value::Whole(1)));
            }
        },
    },
    Family {
        name: "headroom_gpu_present",
        kind: Gauge,
        help: "Whether a card answers; one that was seen since the agent started and is lost has 0 here and nothing \
               elsewhere that is read.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| Some(gpu.present.into())),
    },
    Family {
        name: "headroom_gpu_memory_total_bytes",
        kind: Gauge,
        help: "The whole of a card's memory.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| whole(&gpu.memory_total_bytes)),
    },
    Family {
        name: "headroom_gpu_memory_used_bytes",
        kind: Gauge,
        help: "Of the whole device, every process and the CUDA contexts included.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| whole(&sample.memory_used_bytes)),
    },
    Family {
        name: "headroom_gpu_memory_free_bytes",
        kind: Gauge,
        help: "What is left of a card's memory.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| whole(&sample.memory_free_bytes)),
    },
    Family {
        name: "headroom_gpu_memory_reserved_bytes",
        kind: Gauge,
        help: "What the driver keeps of a card's memory for itself.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| whole(&sample.memory_reserved_bytes)),
    },
    Family {
        name: "headroom_gpu_utilization_ratio",
        kind: Gauge,
        help: "Share of the time in which a kernel ran.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| ratio(&sample.utilization_percent)),
    },
    Family {
        name: "headroom_gpu_memory_utilization_ratio",
        kind: Gauge,
        help: "Share of the time in which memory was read or written; not how much of it is used.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| ratio(&sample.memory_utilization_percent)),
    },
    Family {
        name: "headroom_gpu_power_watts",
        kind: Gauge,
        help: "What a card takes.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| real(&sample.power_watts)),
    },
    Family {
        name: "headroom_gpu_power_limit_watts",
        kind: Gauge,
        help: "What a card may take now.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| real(&gpu.power_limit_watts)),
    },
    Family {
        name: "headroom_gpu_power_limit_max_watts",
        kind: Gauge,
        help: "What the owner could allow a card at most.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| real(&gpu.power_limit_max_watts)),
    },
    Family {
        name: "headroom_gpu_energy_joules_total",
        kind: Counter,
        help: "What a card took since its driver was loaded.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_slow(samples, |slow| real(&slow.energy_joules)),
    },
    Family {
        name: "headroom_gpu_temperature_celsius",
        kind: Gauge,
        help: "Of the chip.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| whole(&sample.temperature_celsius)),
    },
    Family {
        name: "headroom_gpu_temperature_slowdown_celsius",
        kind: Gauge,
        help: "Where a card slows down.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| whole(&gpu.temperature_slowdown_celsius)),
    },
    Family {
        name: "headroom_gpu_temperature_shutdown_celsius",
        kind: Gauge,
        help: "Where a card turns itself off.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| whole(&gpu.temperature_shutdown_celsius)),
    },
    Family {
        name: "headroom_gpu_fan_ratio",
        kind: Gauge,
        help: "Of the first fan, of what it can do.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_slow(samples, |slow| ratio(&slow.fan_percent)),
    },
    Family {
        name: "headroom_gpu_clock_sm_hertz",
        kind: Gauge,
        help: "Clock of the multiprocessors.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| hertz(&sample.clock_sm_mhz)),
    },
    Family {
        name: "headroom_gpu_clock_sm_max_hertz",
        kind: Gauge,
        help: "Highest clock of the multiprocessors.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| hertz(&gpu.clock_sm_max_mhz)),
    },
    Family {
        name: "headroom_gpu_clock_memory_hertz",
        kind: Gauge,
        help: "Clock of the memory.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_sample(samples, |sample| hertz(&sample.clock_memory_mhz)),
    },
    Family {
        name: "headroom_gpu_clock_memory_max_hertz",
        kind: Gauge,
        help: "Highest clock of the memory.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| hertz(&gpu.clock_memory_max_mhz)),
    },
    Family {
        name: "headroom_gpu_throttled",
        kind: Gauge,
        help: "Whether clocks are low for a reason that slows work down; having no work, and clocks that the owner set, \
               are none.",
        labels: &["gpu", "uuid", "name", "reason"],
        collect: |at, samples| {
            for (gpu, sample) in at.sampled() {
                let Some(bits) = sample.throttle.get() else { continue };
                let [index, uuid, name] = labels_of(gpu);
                for reason in Throttle::ALL.into_iter().filter(|reason| reason.slows()) {
                    let labels = [&*index, &*uuid, &*name, reason_name(reason)];
                    samples.add(&labels, Some((bits & reason.bit() != 0).into()));
                }
            }
        },
    },
    Family {
        name: "headroom_gpu_pcie_receive_bytes_per_second",
        kind: Gauge,
        help: "To the card, over PCIe, as the driver measured it over a few milliseconds.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_slow(samples, |slow| whole(&slow.pcie_receive_bytes_per_second)),
    },
    Family {
        name: "headroom_gpu_pcie_send_bytes_per_second",
        kind: Gauge,
        help: "From the card, over PCIe, as the driver measured it over a few milliseconds.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_slow(samples, |slow| whole(&slow.pcie_send_bytes_per_second)),
    },
    Family {
        name: "headroom_gpu_pcie_link_generation",
        kind: Gauge,
        help: "Generation of PCIe that the link runs at now; cards lower it where they have nothing to do.",
        labels: GPU_LABELS,
        collect: |at, samples| {
            at.each_slow(samples, |slow| {
                slow.pcie_link.get().map(|(generation, _)| Value::Whole((*generation).into()))
            });
        },
    },
    Family {
        name: "headroom_gpu_pcie_link_lanes",
        kind: Gauge,
        help: "Lanes of the PCIe link now.",
        labels: GPU_LABELS,
        collect: |at, samples| {
            at.each_slow(samples, |slow| slow.pcie_link.get().map(|(_, lanes)| Value::Whole((*lanes).into())));
        },
    },
    Family {
        name: "headroom_gpu_nvlinks_active",
        kind: Gauge,
        help: "Links to other cards that are up.",
        labels: GPU_LABELS,
        collect: |at, samples| {
            at.each_gpu(samples, |gpu| gpu.nvlinks_active.get().map(|links| Value::Whole((*links).into())));
        },
    },
    Family {
        name: "headroom_gpu_mig_enabled",
        kind: Gauge,
        help: "Whether a card is split into instances.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| gpu.mig_enabled.get().map(|enabled| (*enabled).into())),
    },
    Family {
        name: "headroom_gpu_ecc_errors_total",
        kind: Counter,
        help: "Errors of memory since the driver was loaded, corrected or uncorrected.",
        labels: &["gpu", "uuid", "name", "kind"],
        collect: |at, samples| {
            for (gpu, slow) in at.slow_sampled() {
                let [index, uuid, name] = labels_of(gpu);
                for (kind, errors) in [("corrected", &slow.ecc_corrected), ("uncorrected", &slow.ecc_uncorrected)] {
                    samples.add(&[&*index, &*uuid, &*name, kind], whole(errors));
                }
            }
        },
    },
    Family {
        name: "headroom_gpu_xid_errors_total",
        kind: Counter,
        help: "Errors of a card that the driver reported since the agent started, by NVIDIA's number; absent where there \
               were none.",
        labels: FAULT_LABELS,
        collect: |at, samples| at.each_fault(samples, |fault| Value::Whole(fault.n)),
    },
    Family {
        name: "headroom_gpu_xid_error_timestamp_seconds",
        kind: Gauge,
        help: "When the driver reported such an error last, in seconds since 1970.",
        labels: FAULT_LABELS,
        collect: |at, samples| at.each_fault(samples, |fault| seconds(fault.last_ms)),
    },
    Family {
        name: "headroom_gpu_processes",
        kind: Gauge,
        help: "Processes that use a card.",
        labels: GPU_LABELS,
        collect: |at, samples| {
            at.each_slow(samples, |slow| slow.processes.get().map(|all| Value::Whole(all.len() as u64)));
        },
    },
    Family {
        name: "headroom_gpu_process_memory_used_bytes",
        kind: Gauge,
        help: "What a process has of a card, the 64 largest; absent where the system hides it. A label is empty where \
               it is not known; run is the run that the process belongs to.",
        labels: &["gpu", "uuid", "name", "pid", "process", "user", "run"],
        collect: |at, samples| {
            for (gpu, slow) in at.slow_sampled() {
                let [index, uuid, name] = labels_of(gpu);
                let processes = slow.processes.get().map_or(&[][..], Vec::as_slice);
                for process in processes.iter().take(PROCESSES_MAX) {
                    let pid = process.pid.to_string();
                    let program = process.name.get().map_or("", String::as_str);
                    let user = process.user.get().map_or("", String::as_str);
                    let run = process.run.as_deref().unwrap_or("");
                    let labels = [&*index, &*uuid, &*name, &*pid, program, user, run];
                    samples.add(&labels, whole(&process.memory_used_bytes));
                }
            }
        },
    },
];

/// A reason as a label says it.
const fn reason_name(reason: Throttle) -> &'static str {
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
