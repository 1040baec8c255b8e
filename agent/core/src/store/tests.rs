//! Tests of history through its interface, with a simulated clock.

mod alerts;
mod clock;
mod damage;
mod kill;
mod printed;
mod rolling;
mod runs;
mod salvage;
mod slow;
#[cfg(target_os = "linux")]
mod small_disk;
mod stop;
mod threads;
mod version_7;

use std::{cell::RefCell, path::PathBuf, sync::Arc};

use headroom_protocol::{
    metric::{Group, Sample},
    reading::{MissingReason, Reading},
    run::{Iteration, RunStatus},
};
use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

/// A whole day, so minutes and hours are whole as well.
const START_MS: u64 = 1_794_960_000_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A writer without its thread.
struct Rig {
    folder: Arc<TempDir>,
    writer: Writer,
    queue: Arc<Queue>,
    archive: Archive,
    now_ms: u64,
    reports: RefCell<Vec<StoreEvent>>,
}

impl Rig {
    fn new() -> Self {
        Self::on(&Arc::new(tempfile::tempdir().expect("a folder")), Role::Agent)
    }

    fn on(folder: &Arc<TempDir>, role: Role) -> Self {
        let file = HistoryFile::new(folder.path());
        let queue = Arc::new(Queue::new());
        queue.set_inventory(vec![gpu(0), gpu(1)]);
        Self {
            folder: Arc::clone(folder),
            writer: Writer::new(file.clone(), RetentionLimits::default(), role),
            archive: Archive::beside(file, Arc::clone(&queue)),
            queue,
            now_ms: START_MS,
            reports: RefCell::default(),
        }
    }

    /// Returns another program on the same directory, at the same time.
    fn beside(&self, role: Role) -> Self {
        Self { now_ms: self.now_ms, ..Self::on(&self.folder, role) }
    }

    /// Sets the process by which others can check the watcher.
    #[cfg(target_os = "linux")]
    fn watched_by(self, process: Process) -> Self {
        Self { writer: self.writer.watched_by(Some(process)), ..self }
    }

    fn turn(&mut self) {
        let Self { writer, queue, now_ms, reports, .. } = self;
        writer.turn(queue, *now_ms, false, &|news| reports.borrow_mut().push(news));
    }

    /// Takes a turn after `ms` milliseconds.
    fn turn_after(&mut self, ms: u64) {
        self.now_ms += ms;
        self.turn();
    }

    fn append(&self, run: Option<&str>, what: EventKind) {
        self.queue.push_event(self.now_ms, run, what);
    }

    fn begin(&self, id: &str) {
        self.append(Some(id), EventKind::RunStarted { run: Box::new(run(id, self.now_ms)) });
    }

    /// Returns the notifications since the previous call.
    fn reports(&self) -> Vec<StoreEvent> {
        self.reports.take()
    }

    fn reported_events(&self) -> Vec<Event> {
        let news = self.reports().into_iter();
        news.filter_map(|event| if let StoreEvent::Event(event) = event { Some(event) } else { None }).collect()
    }

    fn reported_states(&self) -> Vec<HistoryState> {
        let news = self.reports().into_iter();
        news.filter_map(|event| if let StoreEvent::State(state) = event { Some(state) } else { None }).collect()
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(file::NAME)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).expect("the folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn count(&self, table: &str) -> i64 {
        let connection = Connection::open(self.path()).expect("the file");
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a table")
    }
}

fn gpu(index: u32) -> Gpu {
    Gpu {
        index,
        uuid: uuid(index),
        name: "NVIDIA H200".to_owned(),
        present: true,
        memory_total_bytes: Reading::Is(141 << 30),
        compute_capability: Reading::Is((9, 0)),
        power_limit_watts: Reading::Is(700.0),
        power_limit_max_watts: Reading::Is(700.0),
        temperature_slowdown_celsius: Reading::Is(90),
        temperature_shutdown_celsius: Reading::missing(MissingReason::NotSupported),
        clock_sm_max_mhz: Reading::Is(1980),
        clock_memory_max_mhz: Reading::Is(3201),
        mig_enabled: Reading::Is(false),
        nvlinks_active: Reading::Is(0),
        pci_bus_id: Reading::Is("0000:01:00.0".to_owned()),
        listed_as: None,
    }
}

fn uuid(index: u32) -> String {
    format!("GPU-{index}")
}

/// The fast readings of a GPU.
fn fast(gpu: &str) -> Subject<'_> {
    Subject { group: Group::Fast, gpu }
}

fn sample(gpu: u32, memory_used_bytes: u64) -> Sample {
    Sample {
        memory_used_bytes: Reading::Is(memory_used_bytes),
        memory_free_bytes: Reading::Is(1 << 30),
        utilization_percent: Reading::Is(97),
        memory_utilization_percent: Reading::Is(42),
        power_watts: Reading::Is(650.5),
        clock_sm_mhz: Reading::Is(1980),
        clock_memory_mhz: Reading::Is(3201),
        temperature_celsius: Reading::Is(61),
        throttle: Reading::Is(4),
        ..Sample::missing(gpu, MissingReason::OldDriver)
    }
}

/// Samples of both GPUs at one moment.
fn telemetry(time_ms: u64, memory_used_bytes: u64) -> Arc<Telemetry> {
    Arc::new(Telemetry { seq: 0, time_ms, gpus: vec![sample(0, memory_used_bytes), sample(1, 2 * memory_used_bytes)] })
}

fn run(id: &str, started_ms: u64) -> Run {
    Run { id: id.to_owned(), name: "shakespeare-char".to_owned(), started_ms, pid: Some(4242), ..Run::default() }
}

fn iteration(iter: u64) -> EventKind {
    EventKind::RunIteration(Iteration {
        iter,
        loss: Some(2.5),
        time_ms: 120.0,
        tokens_per_second: None,
        mfu_printed_percent: None,
        mfu_percent: None,
        ..Iteration::default()
    })
}

fn status(status: RunStatus) -> EventKind {
    EventKind::RunStatus { status, energy_joules: None }
}

const DONE: RunStatus = RunStatus::exited(0);
