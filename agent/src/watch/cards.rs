//! What telemetry says of a run: which cards it is on, the memory of its processes there, and the energy they took.

use std::collections::{BTreeMap, BTreeSet};

use headroom_shared::protocol::{Slow, Telemetry, gpu::Gpu};

use super::planned::Card;
use crate::{ancestry::Ancestry, telemetry::Observed};

/// Samples further apart than this have no power between them: the machine slept, or the driver was gone.
const GAP_MAX_MS: u64 = 5_000;
/// A peak that is higher by less than this is not told: history keeps every one.
const PEAK_STEP_BYTES: u64 = 16 << 20;

/// What was observed so far.
#[derive(Debug, Default)]
pub struct Cards {
    gpus: Vec<Gpu>,
    /// By a card's place: when its power was read last, the watts, and the joules so far.
    energy: BTreeMap<u32, Energy>,
    /// By UUID: what the run was seen to have there at most, and what of that was told.
    peaks: BTreeMap<String, Peak>,
}

#[derive(Clone, Copy, Debug)]
struct Energy {
    time_ms: u64,
    watts: f64,
    joules: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    bytes: u64,
    told_bytes: u64,
}

impl Cards {
    /// Takes what telemetry tells. `is_ours` says whether a process is the run's, of all that are on a card.
    pub fn observe(&mut self, observed: &Observed, is_ours: impl FnOnce(&BTreeSet<u32>) -> BTreeSet<u32>) {
        match observed {
            Observed::Driver(_) | Observed::CardLost(_) | Observed::CardBack(_) => {}
            Observed::Inventory(gpus) => self.gpus.clone_from(gpus),
            Observed::Telemetry(telemetry) => self.power(telemetry),
            Observed::Slow(slow) => self.processes(slow, is_ours),
        }
    }

    fn power(&mut self, telemetry: &Telemetry) {
        let time_ms = telemetry.time_ms;
        for sample in &telemetry.gpus {
            let Some(watts) = sample.power_watts.get().copied().filter(|watts| watts.is_finite()) else { continue };
            let energy = self.energy.entry(sample.gpu).or_insert(Energy { time_ms, watts, joules: 0.0 });
            let since_ms = time_ms.saturating_sub(energy.time_ms);
            if since_ms <= GAP_MAX_MS {
                energy.joules += (energy.watts + watts) / 2.0 * since_ms as f64 / 1000.0;
            }
            (energy.time_ms, energy.watts) = (time_ms, watts);
        }
    }

    fn processes(&mut self, slow: &Slow, is_ours: impl FnOnce(&BTreeSet<u32>) -> BTreeSet<u32>) {
        let on_card =
            |gpu| slow.gpus.iter().filter(move |card| card.gpu == gpu).filter_map(|card| card.processes.get());
        let pids = slow.gpus.iter().filter_map(|card| card.processes.get()).flatten().map(|process| process.pid);
        let pids: BTreeSet<u32> = pids.collect();
        if pids.is_empty() {
            return;
        }
        let ours = is_ours(&pids);
        for gpu in &self.gpus {
            let mine: Vec<_> = on_card(gpu.index).flatten().filter(|process| ours.contains(&process.pid)).collect();
            if mine.is_empty() {
                continue;
            }
            let bytes = mine
                .iter()
                .filter_map(|process| process.memory_used_bytes.get())
                .fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
            let peak = self.peaks.entry(gpu.uuid.clone()).or_default();
            peak.bytes = peak.bytes.max(bytes);
        }
    }

    /// Peaks that are new since they were last taken: a card's UUID, and the bytes.
    pub fn take_peaks(&mut self) -> Vec<(String, u64)> {
        let is_new =
            |peak: &Peak| peak.told_bytes == 0 || peak.bytes >= peak.told_bytes.saturating_add(PEAK_STEP_BYTES);
        let mut new = vec![];
        for (uuid, peak) in self.peaks.iter_mut().filter(|(_, peak)| peak.bytes > peak.told_bytes && is_new(peak)) {
            peak.told_bytes = peak.bytes;
            new.push((uuid.clone(), peak.bytes));
        }
        new
    }

    /// What the cards that the run was seen on took since it began, shares of other programs included; `None` where it was
    /// seen on none, or none says its power.
    pub fn energy_joules(&self) -> Option<f64> {
        let seen = self.gpus.iter().filter(|gpu| self.peaks.contains_key(&gpu.uuid));
        let joules: Vec<f64> = seen.filter_map(|gpu| self.energy.get(&gpu.index)).map(|energy| energy.joules).collect();
        (!joules.is_empty()).then(|| joules.iter().sum())
    }

    /// The card to plan for, as far as is known: the one that the run was seen on, else the one that it will be seen on by
    /// `visible`, which is CUDA's variable.
    pub fn card(&self, visible: Option<&str>) -> Option<Card> {
        let seen = self.gpus.iter().find(|gpu| self.peaks.contains_key(&gpu.uuid));
        let first = visible.unwrap_or("0").split(',').next().unwrap_or_default().trim().to_owned();
        let named = || {
            let by_place = |gpu: &&Gpu| first.parse() == Ok(gpu.index);
            let by_uuid = |gpu: &&Gpu| first.starts_with("GPU-") && gpu.uuid.starts_with(&first);
            self.gpus.iter().find(|gpu| by_place(gpu) || by_uuid(gpu))
        };
        let gpu = seen.or_else(named)?;
        Some(Card::Measured { name: gpu.name.clone(), total_bytes: gpu.memory_total_bytes.get().copied() })
    }
}

/// Of these processes, the ones that a process started, or that those started, and so on.
pub fn descendants(of: u32, pids: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut ancestry = Ancestry::default();
    pids.iter().filter(|pid| ancestry.of(**pid).contains(&of)).copied().collect()
}
