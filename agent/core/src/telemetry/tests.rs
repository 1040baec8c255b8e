//! The real NVML wrapper with a library that plays scenarios: every state of driver and GPU, moment by moment.

mod driver;
mod energy;
mod gpus;
mod readings;
mod threads;

use std::{path::PathBuf, sync::Arc, time::Duration};

use headroom_fake_nvml::{FakeGpu, Scenario, Stage};
use headroom_protocol::{
    SlowReadings, Telemetry,
    gpu::Gpu,
    metric::{Sample, SlowSample},
    state::DriverState,
};
use tempfile::TempDir;

use crate::clock::Timestamp;

use super::{TelemetryEvent, host::Host, reader::Reader, shared::Shared, slow::SlowReader};

const START_MS: u64 = 1_795_000_000_000;

/// A machine with a scenario's GPUs and simulated time.
struct Rig {
    stage: Stage,
    shared: Arc<Shared>,
    reader: Reader,
    slow: SlowReader,
    now_ms: u64,
    _folder: TempDir,
}

impl Rig {
    fn new(scenario: &Scenario) -> Self {
        Self::without(&[], scenario)
    }

    /// Creates a rig with a library that lacks symbols.
    fn without(symbols: &[&str], scenario: &Scenario) -> Self {
        Self::in_folder("driver", symbols, scenario)
    }

    fn in_folder(name: &str, symbols: &[&str], scenario: &Scenario) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let stage = Stage::new(&folder.path().join(name), symbols, scenario).expect("a stage");
        let shared = Arc::new(Shared::default());
        let reader = Reader::new(Some(stage.library()), Arc::clone(&shared));
        let slow = SlowReader::new(Arc::clone(&shared), Host::new(PathBuf::from(folder.path())));
        Self { stage, shared, reader, slow, now_ms: 0, _folder: folder }
    }

    fn now(&self) -> Timestamp {
        Timestamp { wall_ms: START_MS + self.now_ms, since_start: Duration::from_millis(self.now_ms) }
    }

    /// Reads one moment and advances the time by a tenth of a second.
    fn read(&mut self) -> Vec<TelemetryEvent> {
        let events = self.reader.read(self.now());
        self.now_ms += 100;
        events
    }

    fn play(&mut self, scenario: &Scenario) {
        self.stage.play(scenario).expect("a scenario");
    }

    /// Returns the observations of some seconds, without telemetry.
    fn seconds(&mut self, seconds: u64) -> Vec<TelemetryEvent> {
        let events = (0..10 * seconds).flat_map(|_| self.read()).collect::<Vec<_>>();
        events.into_iter().filter(|events| !matches!(events, TelemetryEvent::Telemetry(_))).collect()
    }

    fn telemetry(&mut self) -> Telemetry {
        let events = self.read();
        events
            .into_iter()
            .find_map(|event| if let TelemetryEvent::Telemetry(it) = event { Some(it) } else { None })
            .map(Arc::unwrap_or_clone)
            .expect("some")
    }

    fn sample(&mut self) -> Sample {
        self.telemetry().gpus.remove(0)
    }

    fn slow(&mut self) -> SlowReadings {
        self.slow.read(self.now())
    }

    fn slow_sample(&mut self) -> SlowSample {
        self.read();
        self.slow().gpus.remove(0)
    }

    fn gpus(&mut self) -> Vec<Gpu> {
        inventory(&self.read()).expect("an inventory")
    }
}

fn inventory(events: &[TelemetryEvent]) -> Option<Vec<Gpu>> {
    events
        .iter()
        .rev()
        .find_map(|event| if let TelemetryEvent::Inventory(gpus) = event { Some(gpus.clone()) } else { None })
}

fn driver(events: &[TelemetryEvent]) -> Option<&DriverState> {
    events.iter().rev().find_map(|event| if let TelemetryEvent::Driver(state) = event { Some(state) } else { None })
}

fn ready() -> DriverState {
    DriverState::Ready { driver_version: "580.95.05".to_owned(), cuda_version: Some((13, 0)), windows: false }
}

fn uuid(number: usize) -> String {
    FakeGpu::numbered(number).uuid
}

fn lost(number: usize) -> TelemetryEvent {
    TelemetryEvent::GpuLost(uuid(number))
}

fn back(number: usize) -> TelemetryEvent {
    TelemetryEvent::GpuRecovered(uuid(number))
}
