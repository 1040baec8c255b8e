//! Scenarios: the driver, its GPUs, and their values over time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::code;

const GIB: f64 = (1_u64 << 30) as f64;

/// A machine. The default has an RTX 4070 that trains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The driver's version, such as `580.95.05`.
    pub driver_version: String,
    /// The CUDA version, such as 13000 for 13.0.
    pub cuda_version: i32,
    /// The code that `nvmlInit` returns.
    pub init: u32,
    /// The code that every other call returns, for example for an unloaded driver.
    pub every_call: Option<u32>,
    /// A fixed time; without it the time since the file was written.
    pub time_s: Option<f64>,
    /// Delay of a symbol in milliseconds, by its name.
    pub slow_ms: BTreeMap<String, u64>,
    pub gpus: Vec<FakeGpu>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            driver_version: "580.95.05".to_owned(),
            cuda_version: 13_000,
            init: code::SUCCESS,
            every_call: None,
            time_s: None,
            slow_ms: BTreeMap::new(),
            gpus: vec![],
        }
    }
}

impl Scenario {
    /// Creates a scenario with identical GPUs.
    #[must_use]
    pub fn of_gpus(n_gpus: usize) -> Self {
        Self { gpus: (0..n_gpus).map(FakeGpu::numbered).collect(), ..Self::default() }
    }
}

/// A GPU or a MIG instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FakeGpu {
    /// The product name, as NVML reports it.
    pub name: String,
    /// The UUID, in the form `GPU-…`.
    pub uuid: String,
    /// The PCI address, in the form `00000000:01:00.0`.
    pub pci_bus_id: String,
    pub memory_total_bytes: u64,
    /// Memory reserved by the driver, in bytes.
    pub memory_reserved_bytes: u64,
    /// Memory of processes, in bytes.
    pub memory_used_bytes: Course,
    /// Percentage of time during which a kernel ran.
    pub utilization_percent: Course,
    /// Percentage of time during which memory was accessed.
    pub memory_utilization_percent: Course,
    /// Power draw in watts.
    pub power_watts: Course,
    /// Energy since the driver was loaded, in joules.
    pub energy_joules: Course,
    /// Temperature of the chip, in degrees Celsius.
    pub temperature_celsius: Course,
    /// Clock rate of the multiprocessors, in megahertz.
    pub clock_sm_mhz: Course,
    /// Clock rate of the memory, in megahertz.
    pub clock_memory_mhz: Course,
    /// NVML's bits of throttle reasons.
    pub throttle: u64,
    /// Speed of the first fan, in percent.
    pub fan_percent: Course,
    /// Number of active NVLinks, and of all NVLinks.
    pub nvlinks: (u32, u32),
    /// Number of corrected and of uncorrected ECC errors.
    pub ecc: (u64, u64),
    /// The processes on the GPU.
    pub processes: Vec<Process>,
    /// Error codes of symbols for this GPU, by symbol; `*` matches every symbol that takes a device handle.
    pub errors: BTreeMap<String, u32>,
    /// Critical errors of the driver: the time in seconds, and NVIDIA's number.
    pub xids: Vec<(f64, u64)>,
    /// Intervals in seconds during which the GPU does not respond.
    pub lost_s: Vec<(f64, f64)>,
    /// Intervals in seconds during which the GPU is not even counted.
    pub uncounted_s: Vec<(f64, f64)>,
    /// The MIG instances, if the GPU is in MIG mode.
    pub mig: Option<Vec<FakeGpu>>,
}

impl Default for FakeGpu {
    fn default() -> Self {
        Self {
            name: "NVIDIA GeForce RTX 4070".to_owned(),
            uuid: "GPU-00000000-0000-4000-8000-000000000000".to_owned(),
            pci_bus_id: "00000000:01:00.0".to_owned(),
            memory_total_bytes: 12 << 30,
            memory_reserved_bytes: 300 << 20,
            memory_used_bytes: Course::Stays(7.0 * GIB),
            utilization_percent: Course::Stays(97.0),
            memory_utilization_percent: Course::Stays(42.0),
            power_watts: Course::Stays(199.5),
            energy_joules: Course::Goes(vec![(0.0, 1000.0), (1e6, 1000.0 + 199.5e6)]),
            temperature_celsius: Course::Stays(61.0),
            clock_sm_mhz: Course::Stays(2475.0),
            clock_memory_mhz: Course::Stays(10_501.0),
            throttle: 4,
            fan_percent: Course::Stays(38.0),
            nvlinks: (0, 0),
            ecc: (0, 0),
            processes: vec![],
            errors: BTreeMap::new(),
            xids: vec![],
            lost_s: vec![],
            uncounted_s: vec![],
            mig: None,
        }
    }
}

impl FakeGpu {
    /// Creates a GPU with a unique UUID and PCI address.
    #[must_use]
    pub fn numbered(number: usize) -> Self {
        Self {
            uuid: format!("GPU-00000000-0000-4000-8000-{number:012x}"),
            pci_bus_id: format!("00000000:{:02X}:00.0", number + 1),
            ..Self::default()
        }
    }

    /// Lets a symbol fail with a code for this GPU.
    #[must_use]
    pub fn without(mut self, symbol: &str, code: u32) -> Self {
        self.errors.insert(symbol.to_owned(), code);
        self
    }

    pub(crate) fn is_lost(&self, time_s: f64) -> bool {
        is_within(&self.lost_s, time_s)
    }

    pub(crate) fn is_counted(&self, time_s: f64) -> bool {
        !is_within(&self.uncounted_s, time_s)
    }
}

fn is_within(spans: &[(f64, f64)], time_s: f64) -> bool {
    spans.iter().any(|&(from, to)| (from..to).contains(&time_s))
}

/// A process on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// The process id in the host's namespace.
    pub pid: u32,
    /// Its memory on the GPU in bytes; `None` if Windows hides it.
    pub memory_used_bytes: Option<u64>,
    /// Whether it is a graphics process; otherwise it is a compute process.
    pub graphics: bool,
}

/// A value over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Course {
    /// A constant.
    Stays(f64),
    /// Linear interpolation between points of seconds and values, constant outside of them.
    Goes(Vec<(f64, f64)>),
}

impl Course {
    pub(crate) fn at(&self, time_s: f64) -> f64 {
        let points = match self {
            Self::Stays(value) => return *value,
            Self::Goes(points) => points,
        };
        let next = points.iter().position(|(from, _)| *from > time_s);
        match next {
            None => points.last().map_or(0.0, |(_, value)| *value),
            Some(0) => points[0].1,
            Some(next) => {
                let ((from, before), (to, after)) = (points[next - 1], points[next]);
                before + (after - before) * (time_s - from) / (to - from)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_straight_from_point_to_point() {
        let course = Course::Goes(vec![(1.0, 10.0), (3.0, 20.0), (3.0, 50.0)]);
        let values = [0.0, 1.0, 2.0, 3.0, 9.0].map(|time_s| course.at(time_s));
        assert_eq!(values.map(|value| format!("{value:.0}")), ["10", "10", "15", "50", "50"]);
        assert!((Course::Goes(vec![]).at(1.0)).abs() < 1e-9);
    }

    #[test]
    fn missing_scenario_fields_take_defaults() {
        let read = |text: &str| serde_json::from_str::<Scenario>(text).expect("a scenario");
        assert_eq!(read("{}"), Scenario::default());
        let gpu = &read(r#"{"gpus": [{"temperature_celsius": [[0, 50], [10, 90]]}]}"#).gpus[0];
        assert!((gpu.temperature_celsius.at(5.0) - 70.0).abs() < 1e-9);
        assert_eq!(gpu.name, FakeGpu::default().name);
        serde_json::from_str::<Scenario>(r#"{"gpu": []}"#).expect_err("a typing error is reported");
    }
}
