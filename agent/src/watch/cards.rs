//! What telemetry says of a run: which cards it is on, the memory of its processes there, and the energy they took.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use headroom_shared::protocol::{Slow, gpu::Gpu};

use super::planned::Card;
use crate::{
    ancestry::Ancestry,
    telemetry::{Observed, energy::Energy},
};

/// A peak that is higher by less than this is not told: history keeps every one.
const PEAK_STEP_BYTES: u64 = 16 << 20;

/// What was observed so far.
#[derive(Debug, Default)]
pub struct Cards {
    gpus: Vec<Gpu>,
    /// What each card took since telemetry began, with the run.
    energy: Energy,
    /// By UUID: what the run was seen to have there at most, and what of that was told.
    peaks: BTreeMap<String, Peak>,
    /// By UUID: the driver's first error since a while, and when it came. What follows it follows from it.
    faults: BTreeMap<String, (u64, Instant)>,
}

/// A run that ends so soon after an error of its card ended by it.
const FAULT_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    bytes: u64,
    told_bytes: u64,
}

impl Cards {
    /// Takes what telemetry tells. `is_ours` says whether a process is the run's, of all that are on a card.
    pub fn observe(&mut self, observed: &Observed, is_ours: impl FnOnce(&BTreeSet<u32>) -> BTreeSet<u32>) {
        self.energy.observe(observed);
        match observed {
            Observed::Inventory(gpus) => self.gpus.clone_from(gpus),
            Observed::Slow(slow) => self.processes(slow, is_ours),
            Observed::Xid { gpu, xid } => {
                let fault = self.faults.entry(gpu.clone()).or_insert((*xid, Instant::now()));
                if fault.1.elapsed() > FAULT_WITHIN {
                    *fault = (*xid, Instant::now());
                }
            }
            _ => {}
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
        let joules: Vec<f64> = seen.filter_map(|gpu| self.energy.joules(gpu.index)).collect();
        (!joules.is_empty()).then(|| joules.iter().sum())
    }

    /// Whether the run was seen on a card.
    pub fn was_seen(&self) -> bool {
        !self.peaks.is_empty()
    }

    /// The error that the driver reported just now of a card that the run was seen on, or of the one that it would have
    /// been seen on, where that is known.
    pub fn fault(&self, visible: Option<&str>) -> Option<u64> {
        let is_new = |(_, (_, at)): &(&String, &(u64, Instant))| at.elapsed() <= FAULT_WITHIN;
        let named = visible.and_then(|visible| self.named(Some(visible))).map(|gpu| &gpu.uuid);
        let is_its = |uuid: &String| self.peaks.contains_key(uuid) || (!self.was_seen() && named == Some(uuid));
        let mut faults = self.faults.iter().filter(is_new);
        faults.find(|(uuid, _)| is_its(uuid)).map(|(_, (xid, _))| *xid)
    }

    /// The card to plan for, as far as is known: the one that the run was seen on, else the one that it will be seen on by
    /// `visible`, which is CUDA's variable.
    pub fn card(&self, visible: Option<&str>) -> Option<Card> {
        let seen = self.gpus.iter().find(|gpu| self.peaks.contains_key(&gpu.uuid));
        let gpu = seen.or_else(|| self.named(visible))?;
        Some(Card::Measured { name: gpu.name.clone(), total_bytes: gpu.memory_total_bytes.get().copied() })
    }

    /// The first card that CUDA's variable names.
    fn named(&self, visible: Option<&str>) -> Option<&Gpu> {
        let first = visible.unwrap_or("0").split(',').next().unwrap_or_default().trim();
        let by_place = |gpu: &&Gpu| first.parse() == Ok(gpu.index);
        let by_uuid = |gpu: &&Gpu| first.starts_with("GPU-") && gpu.uuid.starts_with(first);
        self.gpus.iter().find(|gpu| by_place(gpu) || by_uuid(gpu))
    }
}

/// Of these processes, the ones that a process started, or that those started, and so on.
pub fn descendants(of: u32, pids: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut ancestry = Ancestry::default();
    pids.iter().filter(|pid| ancestry.of(**pid).contains(&of)).copied().collect()
}
