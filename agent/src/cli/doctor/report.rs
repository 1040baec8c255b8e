//! The findings as text: a heading per item, a line per reading.

use headroom_protocol::{
    gpu::{Gpu, Process, Throttle},
    metric::{Group, HostSample, Metric, Number, Sample, SlowSample, Unit},
    reading::Reading,
    state::{DriverState, HistoryState},
};

use super::{
    Findings,
    reading::{decimal, size, unit, words},
};
use crate::cli::style::{Ink, Style};
use headroom_agent_core::telemetry::energy::JOULES_PER_KWH;
use headroom_text::units::human_size;

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
            DriverState::Starting => ("does not respond".to_owned(), "it may still be loading; ask again in a minute"),
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

    /// Writes a line per metric of a group.
    fn readings(&mut self, group: Group, reading: impl Fn(Metric) -> Option<Reading<Number>>) {
        for metric in group.readings() {
            if let Some(reading) = reading(metric) {
                self.line(metric.label(), &words(&reading, |value| with_unit(*value, metric.unit())));
            }
        }
    }

    fn sample(&mut self, gpu: &Gpu, sample: &Sample) {
        self.readings(Group::Fast, |metric| sample.reading(metric));
        self.line("power limit", &decimal(&gpu.power_limit_watts, " W"));
        self.line("power limit, highest", &decimal(&gpu.power_limit_max_watts, " W"));
        self.line("clock, highest", &unit(&gpu.clock_sm_max_mhz, " MHz"));
        self.line("memory clock, highest", &unit(&gpu.clock_memory_max_mhz, " MHz"));
    }

    fn slow(&mut self, slow: &SlowSample) {
        self.readings(Group::Slow, |metric| slow.reading(metric));
        let link = words(&slow.pcie_link, |(generation, lanes)| format!("generation {generation}, {lanes} lanes"));
        self.line("PCIe link", &link);
        let count = words(&slow.processes, |processes| processes.len().to_string());
        self.line("processes", &count);
        for process in slow.processes.get().into_iter().flatten().take(PROCESSES_MAX) {
            self.line(&format!("  {}", process.pid), &said(process));
        }
    }

    fn host(&mut self, host: &HostSample) {
        self.heading("This machine");
        self.readings(Group::Host, |metric| host.reading(metric));
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
            HistoryState::Kept { bytes, .. } => human_size(*bytes),
            HistoryState::Paused { reason, .. } => format!("cannot be used: {reason}"),
        };
        self.line("kept", &state);
    }
}

/// Formats a value with its unit.
fn with_unit(value: Number, unit: Unit) -> String {
    let number = |suffix: &str| match value {
        Number::Whole(value) => format!("{value}{suffix}"),
        Number::Real(value) => format!("{value:.1}{suffix}"),
    };
    match (unit, value) {
        (Unit::Bytes, Number::Whole(bytes)) => human_size(bytes),
        (Unit::ThrottleBits, Number::Whole(bits)) => throttle(bits),
        (Unit::BytesPerSecond, _) => format!("{:.1} MB/s", value.as_f64() / 1e6),
        (Unit::Joules, _) => format!("{:.3} kWh", value.as_f64() / JOULES_PER_KWH),
        (Unit::Percent, _) => number(" %"),
        (Unit::Watts, _) => number(" W"),
        (Unit::Celsius, _) => number(" °C"),
        (Unit::Megahertz, _) => number(" MHz"),
        (Unit::Bytes | Unit::Errors | Unit::ThrottleBits, _) => number(""),
    }
}

fn throttle(bits: u64) -> String {
    let reasons: Vec<_> = Throttle::of(bits)
        .map(|reason| match reason {
            Throttle::Idle => "no work",
            Throttle::ApplicationClocks => "application clocks",
            Throttle::PowerCap => "power limit",
            Throttle::HardwareSlowdown => "hardware slowdown",
            Throttle::SyncBoost => "sync boost",
            Throttle::SoftwareThermal => "temperature (driver limit)",
            Throttle::HardwareThermal => "temperature (hardware limit)",
            Throttle::HardwarePowerBrake => "power brake",
            Throttle::DisplayClocks => "display clocks",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_have_their_units() {
        for (unit, value, expected) in [
            (Unit::Bytes, Number::Whole(3 << 29), "1.50 GiB"),
            (Unit::BytesPerSecond, Number::Whole(1_250_000), "1.2 MB/s"),
            (Unit::Percent, Number::Whole(45), "45 %"),
            (Unit::Percent, Number::Real(12.34), "12.3 %"),
            (Unit::Watts, Number::Real(71.25), "71.2 W"),
            (Unit::Joules, Number::Real(7.2e6), "2.000 kWh"),
            (Unit::Celsius, Number::Whole(61), "61 °C"),
            (Unit::Megahertz, Number::Whole(2475), "2475 MHz"),
            (Unit::Errors, Number::Whole(2), "2"),
            (Unit::ThrottleBits, Number::Whole(0), "nothing"),
        ] {
            assert_eq!(with_unit(value, unit), expected);
        }
    }
}
