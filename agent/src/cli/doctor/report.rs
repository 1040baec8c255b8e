//! The findings as text: a heading per item, a line per reading.

use headroom_protocol::{
    gpu::{Gpu, Process, Throttle},
    metric::{HostSample, Sample, SlowSample},
    reading::Reading,
    state::{DriverState, HistoryState},
};

use super::{
    Findings,
    reading::{decimal, size, unit, words},
};
use crate::cli::style::{Ink, Style};
use headroom_agent_core::telemetry::energy::JOULES_PER_KWH;

/// Width of the left column.
const LABEL_COLUMNS: usize = 24;
/// Upper bound of the processes listed per GPU.
const PROCESSES_MAX: usize = 10;

/// Returns the whole report.
pub fn report(findings: &Findings, style: &Style) -> String {
    let mut report = Report { text: String::new(), style };
    report.driver(&findings.driver);
    for gpu in &findings.gpus {
        let sample = findings.telemetry.iter().flat_map(|moment| &moment.gpus).find(|sample| sample.gpu == gpu.index);
        let slow = findings.slow.iter().flat_map(|moment| &moment.gpus).find(|sample| sample.gpu == gpu.index);
        report.gpu(gpu, sample, slow);
    }
    if let Some(slow) = &findings.slow {
        report.host(&slow.host);
    }
    report.folder(findings);
    report.text
}

struct Report<'a> {
    text: String,
    style: &'a Style,
}

impl Report<'_> {
    fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&self.style.paint(Ink::Heading, text));
        self.text.push('\n');
    }

    fn line(&mut self, label: &str, value: &str) {
        self.text.push_str(&format!("  {label:LABEL_COLUMNS$}{value}\n"));
    }

    fn driver(&mut self, driver: &DriverState) {
        self.heading("NVIDIA driver");
        let (state, advice) = match driver {
            DriverState::Starting => ("does not answer".to_owned(), "it may still be loading; ask again in a minute"),
            DriverState::NoLibrary => (
                "none: NVML's library is not on this machine".to_owned(),
                "install NVIDIA's driver; in a container, start it with access to the GPU",
            ),
            DriverState::NoDriver { reason } => (
                format!("not usable: {reason}"),
                "`nvidia-smi` should say the same; after an update of the driver restart the machine",
            ),
            DriverState::Gone { reason } => {
                (format!("gone: {reason}"), "the system's log says why; the agent goes on looking for it")
            }
            DriverState::Ready { driver_version, cuda_version, windows } => {
                let cuda = cuda_version.map_or_else(String::new, |(major, minor)| format!(", CUDA {major}.{minor}"));
                let windows = if *windows { ", managed by Windows" } else { "" };
                (format!("{driver_version}{cuda}{windows}"), "")
            }
        };
        self.line("state", &state);
        if !advice.is_empty() {
            self.line("what to do", advice);
        }
    }

    fn gpu(&mut self, gpu: &Gpu, sample: Option<&Sample>, slow: Option<&SlowSample>) {
        self.heading(&format!("GPU {}: {}", gpu.index, gpu.name));
        self.line("UUID", &gpu.uuid);
        if !gpu.present {
            self.line("state", "lost: it does not answer");
        }
        self.line("PCI", &words(&gpu.pci_bus_id, Clone::clone));
        self.line("compute capability", &words(&gpu.compute_capability, |(major, minor)| format!("{major}.{minor}")));
        self.line("memory", &size(&gpu.memory_total_bytes));
        if let Some(sample) = sample {
            self.sample(gpu, sample);
        }
        self.line("MIG", &words(&gpu.mig_enabled, |on| if *on { "on" } else { "off" }.to_owned()));
        self.line("NVLinks up", &unit(&gpu.nvlinks_active, ""));
        self.line("slows down at", &unit(&gpu.temperature_slowdown_celsius, " °C"));
        self.line("turns off at", &unit(&gpu.temperature_shutdown_celsius, " °C"));
        if let Some(slow) = slow {
            self.slow(slow);
        }
    }

    fn sample(&mut self, gpu: &Gpu, sample: &Sample) {
        self.line("  used", &size(&sample.memory_used_bytes));
        self.line("  free", &size(&sample.memory_free_bytes));
        self.line("  kept by the driver", &size(&sample.memory_reserved_bytes));
        self.line("utilisation", &unit(&sample.utilization_percent, " %"));
        self.line("  of its memory", &unit(&sample.memory_utilization_percent, " %"));
        let limit = |watts: &Reading<f64>| decimal(watts, " W");
        self.line("power", &decimal(&sample.power_watts, " W"));
        self.line("  limit", &limit(&gpu.power_limit_watts));
        self.line("  limit at most", &limit(&gpu.power_limit_max_watts));
        self.line("temperature", &unit(&sample.temperature_celsius, " °C"));
        self.line("clock", &unit(&sample.clock_sm_mhz, " MHz"));
        self.line("  at most", &unit(&gpu.clock_sm_max_mhz, " MHz"));
        self.line("clock of its memory", &unit(&sample.clock_memory_mhz, " MHz"));
        self.line("  at most", &unit(&gpu.clock_memory_max_mhz, " MHz"));
        self.line("clocks are low for", &words(&sample.throttle, |bits| throttle(*bits)));
    }

    fn slow(&mut self, slow: &SlowSample) {
        self.line("fan", &unit(&slow.fan_percent, " %"));
        self.line("energy", &words(&slow.energy_joules, |joules| format!("{:.3} kWh", joules / JOULES_PER_KWH)));
        let link = words(&slow.pcie_link, |(generation, lanes)| format!("generation {generation}, {lanes} lanes"));
        self.line("PCIe", &link);
        let rate = |reading: &Reading<u64>| words(reading, |bytes| format!("{:.1} MB/s", *bytes as f64 / 1e6));
        self.line("  to the GPU", &rate(&slow.pcie_receive_bytes_per_second));
        self.line("  from the GPU", &rate(&slow.pcie_send_bytes_per_second));
        self.line("errors mended", &unit(&slow.ecc_corrected, ""));
        self.line("errors not mended", &unit(&slow.ecc_uncorrected, ""));
        let count = words(&slow.processes, |processes| processes.len().to_string());
        self.line("processes", &count);
        for process in slow.processes.get().into_iter().flatten().take(PROCESSES_MAX) {
            self.line(&format!("  {}", process.pid), &said(process));
        }
    }

    fn host(&mut self, host: &HostSample) {
        self.heading("This machine");
        self.line("CPU", &decimal(&host.cpu_percent, " %"));
        self.line("memory used", &size(&host.memory_used_bytes));
        self.line("  of", &size(&host.memory_total_bytes));
        self.line("disk of history, free", &size(&host.disk_free_bytes));
        self.line("  of", &size(&host.disk_total_bytes));
    }

    fn folder(&mut self, findings: &Findings) {
        self.heading("History");
        if let Some(folder) = &findings.data_folder {
            self.line("folder", &folder.display().to_string());
        }
        let state = match &findings.history {
            HistoryState::Kept { bytes: 0, .. } => {
                "none yet: `headroom serve` and `headroom watch` begin it".to_owned()
            }
            HistoryState::Kept { bytes, .. } => headroom_text::units::human_size(*bytes),
            HistoryState::Paused { reason, .. } => format!("cannot be used: {reason}"),
        };
        self.line("kept", &state);
    }
}

fn throttle(bits: u64) -> String {
    let reasons: Vec<_> = Throttle::of(bits)
        .map(|reason| match reason {
            Throttle::Idle => "no work",
            Throttle::ApplicationClocks => "clocks that its owner set",
            Throttle::PowerCap => "the limit of power",
            Throttle::HardwareSlowdown => "the hardware's slowdown",
            Throttle::SyncBoost => "sync boost of several GPUs",
            Throttle::SoftwareThermal => "heat (driver)",
            Throttle::HardwareThermal => "heat (hardware)",
            Throttle::HardwarePowerBrake => "the power supply's brake",
            Throttle::DisplayClocks => "a display",
        })
        .collect();
    if reasons.is_empty() { "nothing".to_owned() } else { reasons.join(", ") }
}

fn said(process: &Process) -> String {
    format!(
        "{}, {}, {}",
        words(&process.name, Clone::clone),
        words(&process.user, Clone::clone),
        size(&process.memory_used_bytes)
    )
}
