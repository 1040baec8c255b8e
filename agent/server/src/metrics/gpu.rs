//! Metrics of GPUs and the processes on them.

use headroom_protocol::gpu::Throttle;

use super::{
    Family, GPU_LABELS,
    Kind::{Counter, Gauge},
    Value, labels_of,
    text::{hertz, real, seconds, whole},
};

/// The maximum number of processes per GPU, largest first. Each is a separate series for as long as Prometheus keeps
/// it.
pub(super) const PROCESSES_MAX: usize = 64;

/// The labels of GPU errors.
const FAULT_LABELS: &[&str] = &["gpu", "uuid", "name", "xid"];

/// The families in the order of the text.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "headroom_gpu_info",
        kind: Gauge,
        help: "Identity of a GPU; always 1. A label is empty if the GPU does not report it.",
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
        help: "1 if a GPU responds. A lost GPU that was present since the agent started has 0 here and no readings.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| Some(gpu.present.into())),
    },
    Family {
        name: "headroom_gpu_memory_total_bytes",
        kind: Gauge,
        help: "Total memory of a GPU.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| whole(&gpu.memory_total_bytes)),
    },
    Family {
        name: "headroom_gpu_power_limit_watts",
        kind: Gauge,
        help: "Current power limit of a GPU.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| real(&gpu.power_limit_watts)),
    },
    Family {
        name: "headroom_gpu_power_limit_max_watts",
        kind: Gauge,
        help: "Highest power limit that can be set.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| real(&gpu.power_limit_max_watts)),
    },
    Family {
        name: "headroom_gpu_temperature_slowdown_celsius",
        kind: Gauge,
        help: "Temperature at which a GPU slows down.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| whole(&gpu.temperature_slowdown_celsius)),
    },
    Family {
        name: "headroom_gpu_temperature_shutdown_celsius",
        kind: Gauge,
        help: "Temperature at which a GPU shuts down.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| whole(&gpu.temperature_shutdown_celsius)),
    },
    Family {
        name: "headroom_gpu_clock_sm_max_hertz",
        kind: Gauge,
        help: "Highest clock of the streaming multiprocessors.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| hertz(&gpu.clock_sm_max_mhz)),
    },
    Family {
        name: "headroom_gpu_clock_memory_max_hertz",
        kind: Gauge,
        help: "Highest memory clock.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| hertz(&gpu.clock_memory_max_mhz)),
    },
    Family {
        name: "headroom_gpu_throttled",
        kind: Gauge,
        help: "1 if this reason lowers the clocks. Idle GPUs and clocks set by the user do not count.",
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
        name: "headroom_gpu_pcie_link_generation",
        kind: Gauge,
        help: "Current PCIe generation of the link. Idle GPUs lower it.",
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
        help: "Current number of PCIe lanes.",
        labels: GPU_LABELS,
        collect: |at, samples| {
            at.each_slow(samples, |slow| slow.pcie_link.get().map(|(_, lanes)| Value::Whole((*lanes).into())));
        },
    },
    Family {
        name: "headroom_gpu_nvlinks_active",
        kind: Gauge,
        help: "Active NVLinks.",
        labels: GPU_LABELS,
        collect: |at, samples| {
            at.each_gpu(samples, |gpu| gpu.nvlinks_active.get().map(|links| Value::Whole((*links).into())));
        },
    },
    Family {
        name: "headroom_gpu_mig_enabled",
        kind: Gauge,
        help: "1 if a GPU is split into MIG instances.",
        labels: GPU_LABELS,
        collect: |at, samples| at.each_gpu(samples, |gpu| gpu.mig_enabled.get().map(|enabled| (*enabled).into())),
    },
    Family {
        name: "headroom_gpu_xid_errors_total",
        kind: Counter,
        help: "GPU errors that the driver reported since the agent started, by Xid. Absent if there were none.",
        labels: FAULT_LABELS,
        collect: |at, samples| at.each_fault(samples, |fault| Value::Whole(fault.n)),
    },
    Family {
        name: "headroom_gpu_xid_error_timestamp_seconds",
        kind: Gauge,
        help: "Time of the last such error, in seconds since 1970.",
        labels: FAULT_LABELS,
        collect: |at, samples| at.each_fault(samples, |fault| seconds(fault.last_ms)),
    },
    Family {
        name: "headroom_gpu_processes",
        kind: Gauge,
        help: "Processes that use a GPU.",
        labels: GPU_LABELS,
        collect: |at, samples| {
            at.each_slow(samples, |slow| slow.processes.get().map(|all| Value::Whole(all.len() as u64)));
        },
    },
    Family {
        name: "headroom_gpu_process_memory_used_bytes",
        kind: Gauge,
        help: "GPU memory of a process, for the 64 largest. Absent if the system hides it. An unknown label is \
               empty. The label run is the run of the process.",
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

/// Returns the label of a throttle reason.
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
