//! Telemetry of a run: its GPUs, the memory of its processes there, and their energy.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use headroom_protocol::{SlowReadings, gpu::Gpu};

use super::prediction::PlannedGpu;
use headroom_agent_core::{
    ancestry::Ancestry,
    telemetry::{TelemetryEvent, energy::Energy},
};

/// Minimum increase of a reported peak. The history keeps every peak.
const PEAK_STEP_BYTES: u64 = 16 << 20;

/// Observations so far.
#[derive(Debug, Default)]
pub struct RunGpus {
    gpus: Vec<Gpu>,
    /// Energy of each GPU since telemetry began, together with the run.
    energy: Energy,
    /// Peaks by UUID: the highest observed memory of the run, and the last reported value.
    peaks: BTreeMap<String, Peak>,
    /// First recent driver error by UUID, and its time. Later errors are treated as its consequences.
    faults: BTreeMap<String, (u64, Instant)>,
}

/// A run that ends within this time after an error of its GPU is attributed to the error.
const FAULT_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    bytes: u64,
    reported_bytes: u64,
}

impl RunGpus {
    /// Processes a telemetry sample. `is_ours` selects the run's processes among all on a GPU.
    pub fn observe(&mut self, observed: &TelemetryEvent, is_ours: impl FnOnce(&BTreeSet<u32>) -> BTreeSet<u32>) {
        self.energy.observe(observed);
        match observed {
            TelemetryEvent::Inventory(gpus) => self.gpus.clone_from(gpus),
            TelemetryEvent::Slow(slow) => self.processes(slow, is_ours),
            TelemetryEvent::Xid { gpu, xid } => {
                let fault = self.faults.entry(gpu.clone()).or_insert((*xid, Instant::now()));
                if fault.1.elapsed() > FAULT_WITHIN {
                    *fault = (*xid, Instant::now());
                }
            }
            _ => {}
        }
    }

    fn processes(&mut self, slow: &SlowReadings, is_ours: impl FnOnce(&BTreeSet<u32>) -> BTreeSet<u32>) {
        let on_gpu =
            |gpu| slow.gpus.iter().filter(move |sample| sample.gpu == gpu).filter_map(|sample| sample.processes.get());
        let pids = slow.gpus.iter().filter_map(|sample| sample.processes.get()).flatten().map(|process| process.pid);
        let pids: BTreeSet<u32> = pids.collect();
        if pids.is_empty() {
            return;
        }
        let ours = is_ours(&pids);
        for gpu in &self.gpus {
            let mine: Vec<_> = on_gpu(gpu.index).flatten().filter(|process| ours.contains(&process.pid)).collect();
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

    /// Takes the new peaks since the last call: the UUID of a GPU, and the bytes.
    pub fn take_peaks(&mut self) -> Vec<(String, u64)> {
        let is_new =
            |peak: &Peak| peak.reported_bytes == 0 || peak.bytes >= peak.reported_bytes.saturating_add(PEAK_STEP_BYTES);
        let mut new = vec![];
        for (uuid, peak) in self.peaks.iter_mut().filter(|(_, peak)| peak.bytes > peak.reported_bytes && is_new(peak)) {
            peak.reported_bytes = peak.bytes;
            new.push((uuid.clone(), peak.bytes));
        }
        new
    }

    /// Energy of the run's GPUs since it began, in joules, including shares of other programs. `None` if the run was
    /// seen on no GPU, or no GPU reports power.
    pub fn energy_joules(&self) -> Option<f64> {
        let seen = self.gpus.iter().filter(|gpu| self.peaks.contains_key(&gpu.uuid));
        let joules: Vec<f64> = seen.filter_map(|gpu| self.energy.joules(gpu.index)).collect();
        (!joules.is_empty()).then(|| joules.iter().sum())
    }

    /// Whether the run was seen on a GPU.
    pub fn was_seen(&self) -> bool {
        !self.peaks.is_empty()
    }

    /// Recent driver error of a GPU on which the run was seen. Before that, the error of the GPU that `visible` names.
    pub fn fault(&self, visible: Option<&str>) -> Option<u64> {
        let is_new = |(_, (_, at)): &(&String, &(u64, Instant))| at.elapsed() <= FAULT_WITHIN;
        let named = visible.and_then(|visible| self.named(Some(visible))).map(|gpu| &gpu.uuid);
        let is_its = |uuid: &String| self.peaks.contains_key(uuid) || (!self.was_seen() && named == Some(uuid));
        let mut faults = self.faults.iter().filter(is_new);
        faults.find(|(uuid, _)| is_its(uuid)).map(|(_, (xid, _))| *xid)
    }

    /// GPU to plan for: the one on which the run was seen, else the one that `visible` (`CUDA_VISIBLE_DEVICES`) names.
    pub fn gpu(&self, visible: Option<&str>) -> Option<PlannedGpu> {
        let seen = self.gpus.iter().find(|gpu| self.peaks.contains_key(&gpu.uuid));
        let gpu = seen.or_else(|| self.named(visible))?;
        Some(PlannedGpu::Measured { name: gpu.name.clone(), total_bytes: gpu.memory_total_bytes.get().copied() })
    }

    /// First GPU that `CUDA_VISIBLE_DEVICES` names.
    fn named(&self, visible: Option<&str>) -> Option<&Gpu> {
        let first = visible.unwrap_or("0").split(',').next().unwrap_or_default().trim();
        let by_place = |gpu: &&Gpu| first.parse() == Ok(gpu.index);
        let by_uuid = |gpu: &&Gpu| first.starts_with("GPU-") && gpu.uuid.starts_with(first);
        self.gpus.iter().find(|gpu| by_place(gpu) || by_uuid(gpu))
    }
}

/// The processes among `pids` that are descendants of the process `of`.
pub fn descendants(of: u32, pids: &BTreeSet<u32>) -> BTreeSet<u32> {
    let mut ancestry = Ancestry::default();
    pids.iter().filter(|pid| ancestry.of(**pid).contains(&of)).copied().collect()
}
