//! History: samples, runs and events in one SQLite file in the user's data directory.
//!
//! Only this module uses SQLite. Writers never wait for the disk and never fail. If nothing can be written, the
//! reported state contains the reason, and live messages continue. Several programs write to one file: the agent writes
//! samples and alerts, and each `headroom watch` writes its run.

mod alerts;
mod archive;
mod backup;
pub mod calendar;
mod columns;
mod error;
mod events;
mod file;
pub mod keep;
pub mod measure;
pub mod printed;
mod queue;
mod range;
mod resolution;
mod rollup;
mod rows;
mod run_queue;
mod samples;
mod schema;
mod slow;
mod spans;
#[cfg(test)]
mod tests;
mod thread;
mod writer;

use std::{path::Path, sync::Arc};

use headroom_protocol::{
    SlowReadings, Telemetry,
    alert::{FIRED_MAX, FiredAlert, Settings},
    event::{Event, EventKind},
    gpu::Gpu,
    history::History,
    run::Run,
    state::HistoryState,
};

use crate::{
    clock::{now_ms, since_start},
    platform::Process,
};
pub use alerts::StoredAlert;
pub use archive::{Archive, ArchivedGpu, StopOutcome, StopRequest};
pub use backup::BackupError;
pub use error::Error;
use file::HistoryFile;
use keep::FULL_MS;
pub use keep::{BYTES_MIN, DAYS_MAX, RetentionLimits};
use printed::Figures;
use queue::Queue;
pub use queue::{Dropped, Mark};
pub use range::Subject;
use thread::Thread;
use writer::{Role, Writer};

/// A notification from the store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreEvent {
    /// The store's state changed.
    State(HistoryState),
    /// This or another program wrote an event, which now has its number. If the event could not be written, its number
    /// is 0. Such an event is written later if possible, without a second notification.
    Event(Event),
}

/// The agent's interface: a writer thread and readers. Clones share the same store.
#[derive(Clone, Debug)]
pub struct Store {
    queue: Arc<Queue>,
    archive: Archive,
    thread: Arc<Thread>,
}

impl Store {
    /// Opens or creates the history in a directory, with the owner's retention limits. A damaged file is renamed and
    /// replaced. Notifications come from the store's thread.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn open(
        folder: &Path,
        keep: RetentionLimits,
        tell: impl Fn(StoreEvent) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let file = HistoryFile::new(folder);
        let queue = Arc::new(Queue::new().with_clock(since_start));
        let archive = Archive::beside(file.clone(), Arc::clone(&queue));
        // Read before the thread starts: the caller has all events up to this one, and is notified of all later events.
        let last_reported = archive.last_event().ok();
        let writer = Writer::new(file, keep, Role::Agent).reported_until(last_reported);
        let thread = Thread::start(writer, Arc::clone(&queue), tell)?;
        Ok(Self { queue, archive, thread: Arc::new(thread) })
    }

    /// Writes the queued data, for a few seconds at most, and ends the thread. Later data is discarded. Dropping the
    /// last clone has the same effect, but that drop may never happen if the notification callback owns a clone.
    pub fn close(&self) {
        self.thread.end();
    }

    /// Sets the GPUs that samples refer to, by index.
    pub fn inventory(&self, gpus: &[Gpu]) {
        self.queue.set_inventory(gpus.to_vec());
    }

    /// Records samples; drops them if the disk is too slow.
    pub fn telemetry(&self, telemetry: Arc<Telemetry>) {
        self.queue.push_telemetry(telemetry);
    }

    /// Records the slow readings that have a time series; drops them if the disk is too slow.
    pub fn slow(&self, slow: Arc<SlowReadings>) {
        self.queue.push_slow(slow);
    }

    /// Records an event, and notifies when the event has its number.
    pub fn append(&self, run: Option<&str>, what: EventKind) {
        self.queue.push_event(now_ms(), run, what);
    }

    /// Returns at most `n_max` runs, newest first. Runs that have not ended are included whatever their age.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn runs(&self, n_max: usize) -> Result<Vec<Run>, Error> {
        self.archive.runs(n_max)
    }

    /// Returns one run.
    ///
    /// # Errors
    /// The run does not exist, or history cannot be read.
    pub fn run(&self, id: &str) -> Result<Run, Error> {
        self.archive.run(id)
    }

    /// Returns at most `n_max` events after a number, of one run or of all, oldest first.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn events(&self, run: Option<&str>, after: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.archive.events(run, after, n_max)
    }

    /// Returns the number of the newest event.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn last_event(&self) -> Result<u64, Error> {
        self.archive.last_event()
    }

    /// Deletes a run that has ended, with all its data.
    ///
    /// # Errors
    /// The run does not exist or has not ended, or history cannot be written.
    pub fn delete_run(&self, id: &str) -> Result<(), Error> {
        self.archive.delete_run(id, now_ms())
    }

    /// Returns full-rate samples after a time, oldest first, at most `n_max` moments. GPU indices are those of the last
    /// [`Store::inventory`]. Samples of the last minute are included whether they are written or not. Their sequence
    /// numbers are 0, because only the live stream has sequence numbers.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn telemetry_after(&self, time_ms: u64, n_max: usize) -> Result<Vec<Telemetry>, Error> {
        let inventory = self.queue.inventory();
        let place_of = |uuid: &str| inventory.iter().find(|gpu| gpu.uuid == uuid).map(|gpu| gpu.index);
        // Read the memory first: a sample that is written in between is in both sources, and counts once.
        let recent = self.queue.recent_after(time_ms);
        let mut moments = match self.archive.telemetry_after(place_of, time_ms, n_max) {
            // If the file is unusable, the last minute is still in memory.
            Err(_) if !recent.is_empty() => vec![],
            moments => moments?,
        };
        if let Some(newest) = recent.last() {
            // Samples in the future come from before the clock was set back.
            moments.retain(|moment| moment.time_ms <= newest.time_ms);
        }
        let last_ms = moments.last().map_or(time_ms, |moment| moment.time_ms);
        let room = n_max.saturating_sub(moments.len());
        let unwritten = recent.iter().filter(|moment| moment.time_ms > last_ms).take(room);
        moments.extend(unwritten.map(|moment| Telemetry { seq: 0, ..(**moment).clone() }));
        Ok(moments)
    }

    /// Returns the readings of a GPU or of the machine over a range of time, as [`Archive::history`].
    ///
    /// # Errors
    /// History cannot be read.
    pub fn history(&self, subject: Subject<'_>, from_ms: u64, to_ms: u64, n_points: u64) -> Result<History, Error> {
        self.archive.history(subject, from_ms, to_ms, n_points)
    }

    /// Returns the owner's settings.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn settings(&self) -> Result<Settings, Error> {
        self.archive.settings()
    }

    /// Stores the owner's settings if the stored ones are as expected, and notifies all viewers.
    ///
    /// # Errors
    /// The settings changed in the meantime, or history cannot be written.
    pub fn set_settings(
        &self,
        settings: &Settings,
        is_expected: impl FnOnce(Option<&Settings>) -> bool,
    ) -> Result<(), Error> {
        self.archive.set_settings(settings, is_expected, now_ms())
    }

    /// Returns the active alerts that were not dismissed, newest first. Alerts that are not yet written are included,
    /// with the number 0.
    ///
    /// # Errors
    /// History cannot be read, and no alert is queued.
    pub fn alerts(&self) -> Result<Vec<FiredAlert>, Error> {
        // Read the queue first: an alert that is written in between is in both sources, and counts once.
        let waiting = self.queue.alerts();
        let kept = match self.archive.alerts() {
            Err(_) if !waiting.is_empty() => vec![],
            kept => kept?,
        };
        let mut fired: Vec<FiredAlert> =
            kept.into_iter().filter(|kept| !kept.is_dismissed).map(|kept| kept.fired).take(FIRED_MAX).collect();
        for event in waiting {
            let is_written = FiredAlert::of(&event).is_some_and(|new| {
                let is_it = |kept: &FiredAlert| kept.is(&new.alert, new.gpu.as_deref(), new.run.as_deref());
                fired.iter().any(|kept| is_it(kept) && kept.time_ms == new.time_ms)
            });
            if !is_written {
                FiredAlert::take(&mut fired, &event);
            }
        }
        Ok(fired)
    }

    /// Returns the stored active alerts, including dismissed ones, to restore them when the agent starts.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn kept_alerts(&self) -> Result<Vec<StoredAlert>, Error> {
        self.archive.alerts()
    }

    /// Dismisses an active alert by the number of its event, and notifies all viewers.
    ///
    /// # Errors
    /// The alert does not exist, or history cannot be written.
    pub fn dismiss(&self, event: u64) -> Result<(), Error> {
        self.archive.dismiss(event, now_ms())
    }

    /// Returns the numbers of items that were dropped before they were written.
    pub fn dropped(&self) -> Dropped {
        self.queue.dropped()
    }

    /// Returns the archive, which answers requests.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Returns the newest events of the event list, up to a number and after a time, oldest first, at most `n_max`.
    ///
    /// # Errors
    /// History cannot be read.
    pub fn newest(&self, up_to: u64, after_ms: u64, n_max: usize) -> Result<Vec<Event>, Error> {
        self.archive.newest(up_to, after_ms, n_max)
    }
}

/// The interface of `headroom watch`, which writes one run and lives as long as that run. It works with and without an
/// agent, writes on its own thread, and buffers a bounded amount of unwritten data.
#[derive(Debug)]
pub struct Recorder {
    queue: Arc<Queue>,
    thread: Thread,
}

impl Recorder {
    /// Opens the history in a directory to write the events of one run.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        Self::go_on(folder, None)
    }

    /// Opens the history for a run that it already contains.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn go_on(folder: &Path, run: Option<Run>) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::new());
        let writer = Writer::new(HistoryFile::new(folder), RetentionLimits::default(), Role::Watcher);
        let writer = writer.watched_by(Process::this()).watching(run);
        let thread = Thread::start(writer, Arc::clone(&queue), |_| {})?;
        Ok(Self { queue, thread })
    }

    /// Records an event of a run at a time.
    pub fn append(&self, time_ms: u64, run: &str, what: EventKind) {
        self.queue.push_event(time_ms, Some(run), what);
    }

    /// Records a line of figures that a run printed at a time.
    pub fn printed(&self, time_ms: u64, run: &Arc<str>, figures: Figures) {
        self.queue.push_printed(time_ms, run, figures);
    }

    /// Returns how much was recorded so far.
    pub fn mark(&self) -> Mark {
        self.queue.mark()
    }

    /// Whether everything up to a mark is written.
    pub fn has_kept(&self, mark: &Mark) -> bool {
        self.queue.has_written(mark)
    }

    /// Waits a few seconds at most until everything is written. Returns the number of lost events.
    pub fn finish(self) -> u64 {
        self.thread.end();
        self.queue.n_unwritten()
    }
}
