//! History: samples, runs and events in one SQLite file of the user's data folder.
//!
//! Nobody above sees SQLite. Writing never waits for the disk and never fails: where nothing can be written the state
//! says so, and what is told live goes on. Several programs write to one file: the agent its samples and alerts, each
//! `headroom watch` its run.

mod alerts;
mod archive;
mod backup;
pub mod calendar;
mod events;
mod file;
pub mod keep;
pub mod measure;
pub mod printed;
mod queue;
mod range;
mod resolution;
mod rollup;
mod samples;
mod schema;
mod slow;
mod spans;
#[cfg(test)]
mod tests;
mod thread;
mod trainings;
mod writer;

use std::{path::Path, sync::Arc};

use headroom_shared::{
    protocol::{
        Slow, Telemetry,
        alert::{FIRED_MAX, Fired, Settings},
        event::{Event, What},
        gpu::Gpu,
        history::History,
        run::Run,
        state::HistoryState,
    },
    text,
};

use crate::{
    clock::{now_ms, since_start},
    platform::Process,
};
pub use alerts::Kept;
pub use archive::{Archive, Asked, Card};
pub use backup::BackupError;
use file::HistoryFile;
use keep::FULL_MS;
pub use keep::{BYTES_MIN, DAYS_MAX, Keep};
use printed::Figures;
use queue::Queue;
pub use range::Subject;
use thread::Thread;
use writer::{Role, Writer};

/// What the store tells while it works.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// Its state changed.
    State(HistoryState),
    /// An event was written, by this program or another, and has its number; or it could not be, and its number is 0.
    /// One that was told with 0 is written later where it can be, and not told again.
    Event(Event),
}

/// The agent's side: a thread that writes, and readers. A clone is the same store.
#[derive(Clone, Debug)]
pub struct Store {
    queue: Arc<Queue>,
    archive: Archive,
    thread: Arc<Thread>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No run of that number.
    #[error("{}", text::run_none(.0.as_str()))]
    NoRun(String),
    /// Several runs' numbers begin so, or several are called so: these among them.
    #[error("several runs are called {0}, or their numbers begin so: {1}")]
    Ambiguous(String, String),
    /// A run that goes on is not deleted, and does not begin anew.
    #[error("{}", text::run_not_ended(.0.as_str()))]
    NotEnded(String),
    /// A run that has ended is not stopped.
    #[error("{}", text::run_has_ended(.0.as_str()))]
    HasEnded(String),
    /// A run that somebody started by himself.
    #[error("{}", text::run_not_ours(.0.as_str()))]
    NotOurs(String),
    /// As many runs wait as may.
    #[error("{}", text::queue_full(*.0))]
    QueueFull(u64),
    /// No alert went off by that event, or none that is on.
    #[error("{}", text::no_such_alert(*.0))]
    NoAlert(u64),
    /// The settings are others than those that were to be changed.
    #[error("the settings were changed elsewhere meanwhile")]
    Changed,
    /// The file cannot be read or written.
    #[error("{}", text::history_unusable(.0.as_str()))]
    Unusable(String),
}

impl Store {
    /// Opens the history of a folder, or begins one, and keeps as much as its owner allows; a damaged one is set aside.
    /// What happens is told on the store's thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(folder: &Path, keep: Keep, tell: impl Fn(Told) + Send + Sync + 'static) -> std::io::Result<Self> {
        let file = HistoryFile::new(folder);
        let queue = Arc::new(Queue::new().with_clock(since_start));
        let archive = Archive::beside(file.clone(), Arc::clone(&queue));
        // Read here: whoever asks once this returns has all events up to one, and is told all after it.
        let last_told = archive.last_event().ok();
        let writer = Writer::new(file, keep, Role::Agent).told_until(last_told);
        let thread = Thread::start(writer, Arc::clone(&queue), tell)?;
        Ok(Self { queue, archive, thread: Arc::new(thread) })
    }

    /// Writes what waits, for some seconds at most, and ends the thread; what comes later is not kept. The last clone
    /// does it too, which may never go where what is told holds one.
    pub fn close(&self) {
        self.thread.end();
    }

    /// The cards that samples are of, by their places.
    pub fn inventory(&self, gpus: &[Gpu]) {
        self.queue.set_inventory(gpus.to_vec());
    }

    /// Keeps samples; drops them where the disk is too slow.
    pub fn telemetry(&self, telemetry: Arc<Telemetry>) {
        self.queue.push_telemetry(telemetry);
    }

    /// Keeps what is read once a second, and has a course in time; drops it where the disk is too slow.
    pub fn slow(&self, slow: Arc<Slow>) {
        self.queue.push_slow(slow);
    }

    /// Keeps an event; it is told when it has its number.
    pub fn append(&self, run: Option<&str>, what: What) {
        self.queue.push_event(now_ms(), run, what);
    }

    /// Runs, newest first, at most so many; those that have not ended come whatever their age.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error> {
        self.archive.runs(n_max)
    }

    /// One run.
    ///
    /// # Errors
    /// There is none, or history cannot be read.
    pub fn run(&self, id: &str) -> Result<Run, Error> {
        self.archive.run(id)
    }

    /// Events after a number, of one run or of all, oldest first, at most so many.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.archive.events(run, after, n_max)
    }

    /// Number of the newest event.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn last_event(&self) -> Result<u64, Error> {
        self.archive.last_event()
    }

    /// Deletes a run that has ended, and all that is kept of it.
    ///
    /// # Errors
    /// There is none, it has not ended, or history cannot be written.
    pub fn delete_run(&self, id: &str) -> Result<(), Error> {
        self.archive.delete_run(id, now_ms())
    }

    /// Samples at full rate after a time, oldest first, at most so many moments; places are those of the last
    /// [`Store::inventory`]. Those of the last minute are among them whether they are written or not. Their numbers
    /// are 0: a number is of the live stream alone.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn telemetry_after(&self, time_ms: u64, n_max: usize) -> Result<Vec<Telemetry>, Error> {
        let inventory = self.queue.inventory();
        let place_of = |uuid: &str| inventory.iter().find(|gpu| gpu.uuid == uuid).map(|gpu| gpu.index);
        // Taken first: what is written in between is in both, and counts once.
        let recent = self.queue.recent_after(time_ms);
        let mut moments = match self.archive.telemetry_after(place_of, time_ms, n_max) {
            // While the file cannot be used, the last minute is there all the same.
            Err(_) if !recent.is_empty() => vec![],
            moments => moments?,
        };
        if let Some(newest) = recent.last() {
            // What is yet to come was told by a clock that was set back since.
            moments.retain(|moment| moment.time_ms <= newest.time_ms);
        }
        let last_ms = moments.last().map_or(time_ms, |moment| moment.time_ms);
        let room = n_max.saturating_sub(moments.len());
        let unwritten = recent.iter().filter(|moment| moment.time_ms > last_ms).take(room);
        moments.extend(unwritten.map(|moment| Telemetry { seq: 0, ..(**moment).clone() }));
        Ok(moments)
    }

    /// A card or the machine over a range of time, as [`Archive::history`].
    ///
    /// # Errors
    /// History cannot be read.
    pub fn history(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64, n_points: u64) -> Result<History, Error> {
        self.archive.history(subject, from_ms, to_ms, n_points)
    }

    /// What the owner set.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn settings(&self) -> Result<Settings, Error> {
        self.archive.settings()
    }

    /// Keeps what the owner set, if what is kept is still what is expected; all are told of it.
    ///
    /// # Errors
    /// They are others meanwhile, or history cannot be written.
    pub fn set_settings(
        &self,
        settings: &Settings,
        is_expected: impl FnOnce(Option<&Settings>) -> bool,
    ) -> Result<(), Error> {
        self.archive.set_settings(settings, is_expected, now_ms())
    }

    /// Alerts that are on and were not dismissed, newest first; those that cannot be written yet are among them, with
    /// the number 0.
    ///
    /// # Errors
    /// History cannot be read, and nothing waits to be written.
    pub fn alerts(&self) -> Result<Vec<Fired>, Error> {
        // Taken first: what is written in between is in both, and counts once.
        let waiting = self.queue.alerts();
        let kept = match self.archive.alerts() {
            Err(_) if !waiting.is_empty() => vec![],
            kept => kept?,
        };
        let mut fired: Vec<Fired> =
            kept.into_iter().filter(|kept| !kept.is_dismissed).map(|kept| kept.fired).take(FIRED_MAX).collect();
        for event in waiting {
            let is_written = Fired::of(&event).is_some_and(|new| {
                let is_it = |kept: &Fired| kept.is(&new.alert, new.gpu.as_deref(), new.run.as_deref());
                fired.iter().any(|kept| is_it(kept) && kept.time_ms == new.time_ms)
            });
            if !is_written {
                Fired::take(&mut fired, &event);
            }
        }
        Ok(fired)
    }

    /// The same as they are kept, with those that were dismissed: what they are when the agent starts.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn kept_alerts(&self) -> Result<Vec<Kept>, Error> {
        self.archive.alerts()
    }

    /// Dismisses an alert that is on, by the number of its event; all are told of it.
    ///
    /// # Errors
    /// There is none, or history cannot be written.
    pub fn dismiss(&self, event: u64) -> Result<(), Error> {
        self.archive.dismiss(event, now_ms())
    }

    /// What was, for those that ask it themselves.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// The newest events that have a line among what happened, up to a number and after a time, oldest first, at most
    /// so many.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn newest(&self, up_to: u64, after_ms: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.archive.newest(up_to, after_ms, n_max)
    }
}

/// The side of a program that writes one run and lives as long as it: `headroom watch`. It works with or without an
/// agent, writes on a thread of its own, and keeps what cannot be written yet, within a bound.
#[derive(Debug)]
pub struct Recorder {
    queue: Arc<Queue>,
    thread: Thread,
}

impl Recorder {
    /// Opens the history of a folder for writing one run's events.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        Self::go_on(folder, None)
    }

    /// The same for a run that history has already.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn go_on(folder: &Path, run: Option<Run>) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new());
        let writer = Writer::new(HistoryFile::new(folder), Keep::default(), Role::Watcher);
        let writer = writer.watched_by(Process::this()).watching(run);
        let thread = Thread::start(writer, Arc::clone(&queue), |_| {})?;
        Ok(Self { queue, thread })
    }

    /// Keeps an event of a run.
    pub fn append(&self, run: &str, what: What) {
        self.queue.push_event(now_ms(), Some(run), what);
    }

    /// Keeps a line of figures that a run printed.
    pub fn printed(&self, run: &Arc<str>, figures: Figures) {
        self.queue.push_printed(now_ms(), run, figures);
    }

    /// Waits until everything is written, or as long as it takes to give up, some seconds: how many events are lost then.
    pub fn finish(self) -> u64 {
        self.thread.end();
        self.queue.n_unwritten()
    }
}
