//! What changes slowly, or costs more to ask: once a second, in a thread of its own, as PCIe's counters alone take 20 ms
//! each.

use std::sync::Arc;

use headroom_shared::protocol::{
    Slow,
    gpu::SlowSample,
    reading::{Reading, Why},
};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{EccCounter, MemoryError, PcieUtilCounter},
    error::NvmlError,
};

use crate::clock::Moment;

use super::{
    answers::{Answers, most, plausible},
    clock::{Step, Times},
    host::Host,
    names::Names,
    processes::{User, users},
    shared::{Attached, Shared},
};

/// Reads moments.
#[derive(Debug)]
pub struct SlowReader {
    shared: Arc<Shared>,
    host: Host,
    names: Names,
    times: Times,
}

impl SlowReader {
    /// Reads the cards that the other thread sees, and the machine around them.
    pub fn new(shared: Arc<Shared>, host: Host) -> Self {
        Self { shared, host, names: Names::default(), times: Times::default() }
    }

    /// The step of the machine's clock before the last moment, once.
    pub const fn take_step(&mut self) -> Option<Step> {
        self.times.take_step()
    }

    /// What is to be told of this moment. A card that does not answer is left out; the other thread tells of it.
    pub fn read(&mut self, now: Moment) -> Slow {
        let mut read = Vec::new();
        if let Some(Attached { library, targets }) = self.shared.get() {
            read.extend(targets.iter().filter_map(|target| {
                let device = target.address.device(&library.nvml).ok()?;
                let mut answers = Answers::default();
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
        Slow { time_ms: self.times.time_ms(now), gpus, host: self.host.read() }
    }
}

/// Reads a card, all but its processes.
fn sample(device: &Device<'_>, gpu: u32, answers: &mut Answers) -> SlowSample {
    let mut pcie = |counter| {
        answers.bounded(device.pcie_throughput(counter), most::PCIE_KILOBYTES_PER_SECOND).map(bytes_per_second)
    };
    let (pcie_receive, pcie_send) = (pcie(PcieUtilCounter::Receive), pcie(PcieUtilCounter::Send));
    let mut ecc = |error| answers.bounded(device.total_ecc_errors(error, EccCounter::Volatile), most::ECC_ERRORS);
    let (ecc_corrected, ecc_uncorrected) = (ecc(MemoryError::Corrected), ecc(MemoryError::Uncorrected));
    SlowSample {
        gpu,
        fan_percent: answers.bounded(device.fan_speed(0), most::FAN_PERCENT).map(u64::from),
        // NVML's millijoules.
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
        processes: Reading::missing(Why::NotYet),
    }
}

/// NVML's KB, which are thousands.
fn bytes_per_second(kilobytes: u32) -> u64 {
    1000 * u64::from(kilobytes)
}

fn pcie_link(device: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    Ok((device.current_pcie_link_gen()?, device.current_pcie_link_width()?))
}
