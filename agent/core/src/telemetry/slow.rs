//! Readings that change slowly or cost more, once per second in a thread of their own: PCIe's counters alone take 20 ms
//! each.

use std::sync::Arc;

use headroom_protocol::{
    SlowReadings,
    metric::SlowSample,
    reading::{MissingReason, Reading},
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{EccCounter, MemoryError, PcieUtilCounter},
    error::NvmlError,
};

use crate::clock::Timestamp;

use super::{
    call::{Call, call},
    clock::{Step, Times},
    host::Host,
    names::Names,
    nvml_errors::{NvmlErrors, most, plausible},
    processes::{User, users},
    shared::{AttachedGpus, Shared},
};

/// The calls, with the IDs of their metrics.
pub const CALLS: &[Call] = &[
    call("fan", |gpu| gpu.fan_speed(0).map(drop)),
    call("energy", |gpu| gpu.total_energy_consumption().map(drop)),
    Call { name: "pcie_receive", is_slow: true, make: |gpu| gpu.pcie_throughput(PcieUtilCounter::Receive).map(drop) },
    Call { name: "pcie_send", is_slow: true, make: |gpu| gpu.pcie_throughput(PcieUtilCounter::Send).map(drop) },
    call("pcie_generation", |gpu| gpu.current_pcie_link_gen().map(drop)),
    call("pcie_lanes", |gpu| gpu.current_pcie_link_width().map(drop)),
    call("ecc_corrected", |gpu| gpu.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile).map(drop)),
    call("ecc_uncorrected", |gpu| gpu.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).map(drop)),
    call("compute_processes", |gpu| gpu.running_compute_processes().map(drop)),
    call("graphics_processes", |gpu| gpu.running_graphics_processes().map(drop)),
];

/// Reads the slow readings, one moment per call.
#[derive(Debug)]
pub struct SlowReader {
    shared: Arc<Shared>,
    host: Host,
    names: Names,
    times: Times,
}

impl SlowReader {
    /// Creates a reader of the GPUs in `shared`, and of the machine.
    pub fn new(shared: Arc<Shared>, host: Host) -> Self {
        Self { shared, host, names: Names::default(), times: Times::default() }
    }

    /// Returns the clock step before the last moment, and clears it.
    pub const fn take_step(&mut self) -> Option<Step> {
        self.times.take_step()
    }

    /// Reads one moment. GPUs that do not respond are omitted; the other thread reports them.
    pub fn read(&mut self, now: Timestamp) -> SlowReadings {
        let mut read = Vec::new();
        if let Some(AttachedGpus { library, targets }) = self.shared.get() {
            read.extend(targets.iter().filter_map(|target| {
                let device = target.address.device(&library.nvml).ok()?;
                let mut answers = NvmlErrors::default();
                let sample = sample(&device, target.gpu, &mut answers);
                Some((sample, users(&device, library.windows, target.split, &mut answers)))
            }));
        }
        self.names.refresh(read.iter().flat_map(|(_, users)| users.get().into_iter().flatten()).map(|user| user.pid));
        let named = |(sample, users): (SlowSample, Reading<Vec<User>>)| SlowSample {
            processes: users.map(|users| self.names.tell(users)),
            ..sample
        };
        let gpus = read.into_iter().map(named).collect();
        SlowReadings { time_ms: self.times.time_ms(now), gpus, host: self.host.read() }
    }
}

/// Reads a GPU, except its processes.
fn sample(device: &Device<'_>, gpu: u32, answers: &mut NvmlErrors) -> SlowSample {
    let mut pcie = |counter| {
        answers.bounded(device.pcie_throughput(counter), most::PCIE_KILOBYTES_PER_SECOND).map(bytes_per_second)
    };
    let (pcie_receive, pcie_send) = (pcie(PcieUtilCounter::Receive), pcie(PcieUtilCounter::Send));
    let mut ecc = |error| answers.bounded(device.total_ecc_errors(error, EccCounter::Volatile), most::ECC_ERRORS);
    let (ecc_corrected, ecc_uncorrected) = (ecc(MemoryError::Corrected), ecc(MemoryError::Uncorrected));
    SlowSample {
        gpu,
        fan_percent: answers.bounded(device.fan_speed(0), most::FAN_PERCENT).map(u64::from),
        // NVML counts millijoules.
        energy_joules: answers
            .bounded(device.total_energy_consumption(), most::MILLIJOULES)
            .map(|millijoules| millijoules as f64 / 1000.0),
        pcie_receive_bytes_per_second: pcie_receive,
        pcie_send_bytes_per_second: pcie_send,
        pcie_link: answers.reading(pcie_link(device)).and_then(|(generation, lanes)| {
            let generation = plausible(generation, most::PCIE_GENERATION);
            generation.and_then(|generation| plausible(lanes, most::PCIE_LANES).map(|lanes| (generation, lanes)))
        }),
        ecc_corrected,
        ecc_uncorrected,
        processes: Reading::missing(MissingReason::NotYet),
    }
}

/// Converts NVML's kilobytes, which are 1,000 bytes.
fn bytes_per_second(kilobytes: u32) -> u64 {
    1000 * u64::from(kilobytes)
}

fn pcie_link(device: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    Ok((device.current_pcie_link_gen()?, device.current_pcie_link_width()?))
}
