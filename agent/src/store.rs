//! History: samples, runs and events in one SQLite file of the user's data folder.
//!
//! Nobody above sees SQLite. Writing never waits for the disk and never fails: where nothing can be written the state
//! says so, and what is told live goes on. Several programs write to one file: the agent its samples and alerts, each
//! `headroom watch` its run.

use std::{path::Path, sync::Arc};

use headroom_shared::protocol::{
    Telemetry,
    alert::Settings,
    event::{Event, What},
    gpu::Gpu,
    history::History,
    run::Run,
    state::HistoryState,
};

/// What the store tells while it works.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// Its state changed.
    State(HistoryState),
    /// An event was written, by this program or another, and has its number; or it could not be, and its number is 0.
    Event(Event),
}

/// The agent's side: a thread that writes, and readers. A clone is the same store.
#[derive(Clone, Debug)]
pub struct Store {}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No run of that number.
    #[error("there is no run {0}")]
    NoRun(String),
    /// The file cannot be read or written.
    #[error("history cannot be used: {0}")]
    Unusable(String),
}

impl Store {
    /// Opens the history of a folder, or begins one; a damaged one is set aside. What happens is told on the store's
    /// thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(folder: &Path, tell: impl Fn(Told) + Send + Sync + 'static) -> std::io::Result<Self> {
        let _ = folder;
        tell(Told::State(HistoryState::Paused { reason: "not built yet".to_owned(), since_ms: 0 }));
        Ok(Self {})
    }

    /// The cards that samples are of, by their places.
    pub fn inventory(&self, gpus: &[Gpu]) {
        let _ = gpus;
    }

    /// Keeps samples; drops them where the disk is too slow.
    pub fn telemetry(&self, telemetry: Arc<Telemetry>) {
        let _ = telemetry;
    }

    /// Keeps an event; it is told when it has its number.
    pub fn append(&self, run: Option<&str>, what: What) {
        let _ = (run, what);
    }

    /// Runs, newest first, at most so many; those that have not ended come whatever their age.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error> {
        let _ = n_max;
        Ok(vec![])
    }

    /// One run.
    ///
    /// # Errors
    /// There is none, or history cannot be read.
    pub fn run(&self, id: &str) -> Result<Run, Error> {
        Err(Error::NoRun(id.to_owned()))
    }

    /// Events after a number, of one run or of all, oldest first, at most so many.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        let _ = (run, after, n_max);
        Ok(vec![])
    }

    /// Number of the newest event.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn last_event(&self) -> Result<u64, Error> {
        Ok(0)
    }

    /// Deletes a run that has ended, and all that is kept of it.
    ///
    /// # Errors
    /// There is none, it has not ended, or history cannot be written.
    pub fn delete_run(&self, id: &str) -> Result<(), Error> {
        Err(Error::NoRun(id.to_owned()))
    }

    /// Samples at full rate after a time, oldest first, at most so many moments; places are those of the last
    /// [`Store::inventory`].
    ///
    /// # Errors
    /// History cannot be read.
    pub fn telemetry_after(&self, time_ms: u64, n_max: usize) -> Result<Vec<Telemetry>, Error> {
        let _ = (time_ms, n_max);
        Ok(vec![])
    }

    /// A card over a range of time, in about so many points.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn history(&self, gpu: &str, from_ms: u64, to_ms: u64, n_points: u64) -> Result<History, Error> {
        let _ = n_points;
        Ok(History { gpu: gpu.to_owned(), from_ms, to_ms, step_ms: 100, times_ms: vec![], series: vec![] })
    }

    /// What the owner set.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn settings(&self) -> Result<Settings, Error> {
        Ok(Settings::default())
    }

    /// Keeps what the owner set.
    ///
    /// # Errors
    /// History cannot be written.
    pub fn set_settings(&self, settings: &Settings) -> Result<(), Error> {
        let _ = settings;
        Ok(())
    }
}

/// The side of a program that writes one run and lives as long as it: `headroom watch`. It works with or without an
/// agent, writes on a thread of its own, and keeps what cannot be written yet, within a bound.
#[derive(Debug)]
pub struct Recorder {}

impl Recorder {
    /// Opens the history of a folder for writing one run's events.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        let _ = folder;
        Ok(Self {})
    }

    /// Keeps an event of a run.
    pub fn append(&self, run: &str, what: What) {
        let _ = (run, what);
    }

    /// Waits until everything is written, or as long as it takes to give up: what is lost then.
    pub fn finish(self) -> u64 {
        0
    }
}
