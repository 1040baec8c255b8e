//! The real NVML wrapper over a library that plays scenarios: every state of driver and card, moment by moment.

mod cards;
mod driver;
mod energy;
mod readings;
mod threads;

use std::{path::PathBuf, sync::Arc, time::Duration};

use headroom_fake_nvml::{Card, Scenario, Stage};
use headroom_shared::protocol::{
    Slow, Telemetry,
    gpu::{Gpu, Sample, SlowSample},
    state::DriverState,
};
use tempfile::TempDir;

use crate::clock::Moment;

use super::{Observed, host::Host, reader::Reader, shared::Shared, slow::SlowReader};

const START_MS: u64 = 1_795_000_000_000;

/// A machine whose cards are a scenario, and whose time is the test's.
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

    /// A library that lacks symbols.
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

    fn now(&self) -> Moment {
        Moment { wall_ms: START_MS + self.now_ms, since_start: Duration::from_millis(self.now_ms) }
    }

    /// One moment, and a tenth of a second passes.
    fn read(&mut self) -> Vec<Observed> {
        let told = self.reader.read(self.now());
        self.now_ms += 100;
        told
    }

    fn play(&mut self, scenario: &Scenario) {
        self.stage.play(scenario).expect("a scenario");
    }

    /// What is told while seconds pass, but for telemetry.
    fn seconds(&mut self, seconds: u64) -> Vec<Observed> {
        let told = (0..10 * seconds).flat_map(|_| self.read()).collect::<Vec<_>>();
        told.into_iter().filter(|told| !matches!(told, Observed::Telemetry(_))).collect()
    }

    fn telemetry(&mut self) -> Telemetry {
        let told = self.read();
        told.into_iter()
            .find_map(|told| if let Observed::Telemetry(it) = told { Some(it) } else { None })
            .map(Arc::unwrap_or_clone)
            .expect("some")
    }

    fn sample(&mut self) -> Sample {
        self.telemetry().gpus.remove(0)
    }

    fn slow(&mut self) -> Slow {
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

fn inventory(told: &[Observed]) -> Option<Vec<Gpu>> {
    told.iter().rev().find_map(|told| if let Observed::Inventory(gpus) = told { Some(gpus.clone()) } else { None })
}

fn driver(told: &[Observed]) -> Option<&DriverState> {
    told.iter().rev().find_map(|told| if let Observed::Driver(state) = told { Some(state) } else { None })
}

fn ready() -> DriverState {
    DriverState::Ready { driver_version: "580.95.05".to_owned(), cuda_version: Some((13, 0)), windows: false }
}

fn uuid(number: usize) -> String {
    Card::numbered(number).uuid
}

fn lost(number: usize) -> Observed {
    Observed::CardLost(uuid(number))
}

fn back(number: usize) -> Observed {
    Observed::CardBack(uuid(number))
}
