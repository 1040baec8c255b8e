//! One turn of the writer thread: opens the file, writes queued data, sends notifications, and limits the file's size.
//!
//! The time is an argument, and the thread is a loop around [`Writer::turn`]. A turn that fails leaves the data in the
//! queue and reports the reason; a later turn tries again.

mod lost;
mod state;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use headroom_protocol::{event::EventKind, gpu::Gpu, metric::Group, run::Run};
use rusqlite::{Connection, TransactionBehavior};

use super::{
    RetentionLimits, StoreEvent,
    error::FileUnusable,
    events::{self, Batch},
    file::{HistoryFile, Identity, Trust},
    printed::{self, PendingLine},
    queue::{Queue, Waits, WrittenCounts},
    rollup, rows,
    samples::{self, Places},
    slow,
    spans::{SampleTime, SpanWriter},
};
use crate::platform::Process;
use state::Health;

/// Interval between writes of telemetry. A killed process loses at most this much.
const TELEMETRY_EVERY_MS: u64 = 1000;
/// Interval between roll-ups, as long as the finest bucket.
const ROLL_UP_EVERY_MS: u64 = 10_000;
/// Interval between deletions of old data.
const TIDY_EVERY_MS: u64 = 60_000;
/// Interval between a watcher's heartbeats.
const SEEN_EVERY_MS: u64 = 5000;
/// Interval between checks for dead watchers, and so the maximum delay until such a run is marked as lost.
const LOOK_EVERY_MS: u64 = 2000;
/// A turn this late means that the machine slept, and the watchers with it.
const SLEPT_MS: u64 = 10_000;
/// Maximum number of events per transaction or notification pass, which takes a few milliseconds.
const EVENTS_PER_TURN: usize = 2000;
/// Maximum number of lines of figures per transaction. It takes a fraction of a second, in which other writers wait.
const PRINTED_PER_TURN: usize = 100_000;

/// The program that the thread belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Writes samples, maintains the file, and sends notifications about other programs' events.
    Agent,
    /// Writes the events of its run and its heartbeat.
    Watcher,
}

/// The open file.
#[derive(Debug)]
struct Open {
    connection: Connection,
    identity: Identity,
    /// SQLite's `data_version`, which changes when another connection writes.
    data_version: i64,
    /// The GPUs that have rows, and their row IDs.
    inventory: Arc<Vec<Gpu>>,
    places: Places,
    /// The span that samples are written in.
    writing: SpanWriter,
}

/// Times of the last actions.
#[derive(Clone, Copy, Debug, Default)]
struct ActionTimes {
    turn_ms: u64,
    telemetry_ms: u64,
    roll_up_ms: u64,
    tidy_ms: u64,
    look_ms: u64,
    seen_ms: u64,
}

/// State of the thread between turns.
#[derive(Debug)]
pub struct Writer {
    file: HistoryFile,
    keep: RetentionLimits,
    role: Role,
    open: Option<Open>,
    health: Health,
    done: ActionTimes,
    /// Times of the newest sample and of the newest slow reading.
    newest_ms: u64,
    newest_slow_ms: u64,
    /// Number of the newest event with a notification.
    last_reported: Option<u64>,
    /// Numbers of events whose notification was sent before they had a number.
    reported_before: HashSet<u64>,
    /// The watcher's runs.
    watched: HashMap<String, Run>,
    /// The watcher's process, if the system reports it.
    process: Option<Process>,
    /// Time since which the machine is awake, as observed by this program.
    awake_ms: u64,
}

/// Callback for notifications.
pub type NotifyCallback<'a> = &'a dyn Fn(StoreEvent);

impl Writer {
    /// Creates a writer. The first turn opens the file.
    pub fn new(file: HistoryFile, keep: RetentionLimits, role: Role) -> Self {
        let trust = if role == Role::Agent { Trust::Looked } else { Trust::Whole };
        Self {
            file,
            keep,
            role,
            open: None,
            health: Health::new(trust),
            done: ActionTimes::default(),
            newest_ms: 0,
            newest_slow_ms: 0,
            last_reported: None,
            reported_before: HashSet::new(),
            watched: HashMap::new(),
            process: None,
            awake_ms: 0,
        }
    }

    /// Sets the process by which others can check the watcher.
    pub fn watched_by(mut self, process: Option<Process>) -> Self {
        self.process = process;
        self
    }

    /// Adds a run that history already contains to the watched runs.
    pub fn watching(mut self, run: Option<Run>) -> Self {
        self.watched.extend(run.map(|run| (run.id.clone(), run)));
        self
    }

    /// Sets the number after which events cause notifications. By default, these are the events after the file is
    /// opened.
    pub fn reported_until(mut self, last_reported: Option<u64>) -> Self {
        self.last_reported = last_reported;
        self
    }

    /// Does all work that is due. `flush` marks the last turns, which ignore the intervals.
    pub fn turn(&mut self, queue: &Queue, now_ms: u64, flush: bool, tell: NotifyCallback<'_>) {
        if is_due(self.done.turn_ms, SLEPT_MS, now_ms) {
            self.awake_ms = now_ms;
        }
        if flush || self.health.may_try(now_ms) {
            match self.work(queue, now_ms, flush, tell) {
                Ok(()) => self.is_well(queue, now_ms, tell),
                Err(trouble) => self.is_ill(&trouble, queue, now_ms, tell),
            }
        }
        self.tell_unnumbered(queue, tell);
        self.done.turn_ms = now_ms;
    }

    /// Returns the open connection, for tests that limit its space.
    #[cfg(test)]
    pub fn connection(&self) -> Option<&Connection> {
        self.open.as_ref().map(|open| &open.connection)
    }

    fn work(&mut self, queue: &Queue, now_ms: u64, flush: bool, tell: NotifyCallback<'_>) -> Result<(), FileUnusable> {
        let mut open = self.opened(queue, now_ms)?;
        let worked = self.work_on(&mut open, queue, now_ms, flush, tell);
        // After a full disk the connection remains usable; after any other error it is reopened.
        if worked.as_ref().err().is_none_or(FileUnusable::keeps_open) {
            self.open = Some(open);
        }
        worked
    }

    fn work_on(
        &mut self,
        open: &mut Open,
        queue: &Queue,
        now_ms: u64,
        flush: bool,
        tell: NotifyCallback<'_>,
    ) -> Result<(), FileUnusable> {
        let mut wrote = self.write(open, queue, now_ms, flush)?;
        if self.role == Role::Watcher {
            return Ok(());
        }
        if is_due(self.done.roll_up_ms, ROLL_UP_EVERY_MS, now_ms) {
            let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for group in Group::ALL {
                let newest_ms = if group == Group::Fast { self.newest_ms } else { self.newest_slow_ms };
                rollup::roll_up(&transaction, group, newest_ms, now_ms)?;
            }
            transaction.commit()?;
            self.done.roll_up_ms = now_ms;
        }
        if is_due(self.done.tidy_ms, TIDY_EVERY_MS, now_ms) {
            self.tidy(open)?;
            self.done.tidy_ms = now_ms;
        }
        if is_due(self.done.look_ms, LOOK_EVERY_MS, now_ms) {
            wrote |= self.lose(open, now_ms)?;
            self.done.look_ms = now_ms;
        }
        self.tell_new(open, wrote, tell)
    }

    /// Returns the open file. Opens it if it is closed, or if its name now belongs to another file.
    fn opened(&mut self, queue: &Queue, now_ms: u64) -> Result<Open, FileUnusable> {
        let is_suspect = queue.take_suspicion();
        let is_named = |open: &Open| self.file.identity() == Some(open.identity);
        if let Some(open) = self.open.take()
            && !is_suspect
            && is_named(&open)
        {
            return Ok(open);
        }
        let trust = if is_suspect { Trust::Suspect } else { self.health.trust() };
        let opened = self.file.open(trust, now_ms)?;
        if self.last_reported.is_none() {
            // The event about a file that was set aside is the last one in the new file, and causes a notification.
            let n_new = u64::from(opened.is_salvaged);
            self.last_reported = Some(rows::last_event(&opened.connection)?.saturating_sub(n_new));
        }
        self.health.opened(opened.set_aside);
        Ok(Open {
            connection: opened.connection,
            identity: opened.identity,
            data_version: 0,
            inventory: Arc::default(),
            places: Places::new(),
            writing: SpanWriter::default(),
        })
    }

    /// Writes queued data in one transaction. Returns whether there were events.
    fn write(&mut self, open: &mut Open, queue: &Queue, now_ms: u64, flush: bool) -> Result<bool, FileUnusable> {
        let printed = queue.take_printed(PRINTED_PER_TURN);
        let written = self.write_with(open, queue, &printed, now_ms, flush);
        if written.is_err() {
            queue.put_back(printed);
        }
        written
    }

    fn write_with(
        &mut self,
        open: &mut Open,
        queue: &Queue,
        printed: &[PendingLine],
        now_ms: u64,
        flush: bool,
    ) -> Result<bool, FileUnusable> {
        let (events, next_event) = queue.events(EVENTS_PER_TURN);
        let is_time = flush || is_due(self.done.telemetry_ms, TELEMETRY_EVERY_MS, now_ms);
        let (telemetry, next_telemetry) = if is_time { queue.telemetry() } else { (vec![], 0) };
        let (slow, next_slow) = if is_time { queue.slow() } else { (vec![], 0) };
        let is_seen = is_due(self.done.seen_ms, SEEN_EVERY_MS, now_ms)
            && self.watched.values().any(|run| !run.status.has_ended());
        if events.is_empty() && printed.is_empty() && telemetry.is_empty() && slow.is_empty() && !is_seen {
            return Ok(false);
        }
        let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let inventory = queue.inventory();
        let places = if Arc::ptr_eq(&inventory, &open.inventory) {
            None
        } else {
            Some(samples::places(&transaction, &inventory)?)
        };
        let places_now = places.as_ref().unwrap_or(&open.places);
        let mut writing = open.writing;
        writing.begin(&transaction)?;
        let mut moments = Vec::with_capacity(telemetry.len() + slow.len());
        for Waits { read, since_start_ms } in &telemetry {
            samples::insert(&transaction, places_now, read)?;
            moments.push(SampleTime { time_ms: read.time_ms, since_start_ms: *since_start_ms });
        }
        for Waits { read, since_start_ms } in &slow {
            slow::insert(&transaction, places_now, read)?;
            moments.push(SampleTime { time_ms: read.time_ms, since_start_ms: *since_start_ms });
        }
        moments.sort_by_key(|moment| moment.since_start_ms);
        writing.take(&transaction, &moments, |end_ms, begin_ms| rollup::pass_on(&transaction, end_ms, begin_ms))?;
        let oldest_ms = telemetry.iter().map(|telemetry| telemetry.read.time_ms).min();
        let oldest_slow_ms = slow.iter().map(|slow| slow.read.time_ms).min();
        let of_groups = [(Group::Fast, oldest_ms), (Group::Slow, oldest_slow_ms), (Group::Host, oldest_slow_ms)];
        let oldest: Vec<_> = of_groups.into_iter().filter_map(|(group, time_ms)| Some((group, time_ms?))).collect();
        rollup::reopen(&transaction, &oldest)?;
        // Before the events: events of this version must follow the first line.
        printed::insert(&transaction, printed, printed::ROWS_MAX)?;
        let mut batch = Batch::new(&transaction, now_ms);
        if self.role == Role::Watcher {
            batch = batch.of_watcher(self.process.as_ref());
        }
        if is_seen {
            give_sign(&transaction, &mut batch, &self.watched, now_ms)?;
        }
        let mut reported_before = Vec::new();
        for event in &events {
            if let Some(watched) = event.run.as_ref().and_then(|run| self.watched.get(run)) {
                restore(&mut batch, watched, now_ms)?;
            }
            let id = batch.add(event.time_ms, event.run.as_deref(), &event.what, &event.json)?;
            if event.reported.load(Ordering::Relaxed) {
                reported_before.push(id);
            }
        }
        batch.finish()?;
        transaction.commit()?;

        open.writing = writing;
        queue.wrote(WrittenCounts { telemetry: next_telemetry, slow: next_slow, events: next_event });
        if let Some(places) = places {
            (open.inventory, open.places) = (inventory, places);
        }
        self.newest_ms = telemetry.last().map_or(self.newest_ms, |telemetry| telemetry.read.time_ms);
        self.newest_slow_ms = slow.last().map_or(self.newest_slow_ms, |slow| slow.read.time_ms);
        self.reported_before.extend(reported_before);
        if is_time {
            self.done.telemetry_ms = now_ms;
        }
        if is_seen {
            self.done.seen_ms = now_ms;
        }
        if self.role == Role::Watcher {
            for event in &events {
                watch(&mut self.watched, event.time_ms, event.run.as_deref(), &event.what);
            }
        }
        Ok(!events.is_empty())
    }

    /// Deletes old data.
    fn tidy(&self, open: &mut Open) -> Result<(), FileUnusable> {
        let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rollup::cut_old(&transaction, &self.keep)?;
        transaction.commit()?;
        rollup::bound(&mut open.connection, &self.keep)?;
        Ok(())
    }

    /// Sends notifications about new events in the file, in the order of their numbers.
    fn tell_new(&mut self, open: &mut Open, wrote: bool, tell: NotifyCallback<'_>) -> Result<(), FileUnusable> {
        // Cached, because each turn runs this statement.
        let mut select = open.connection.prepare_cached("PRAGMA data_version")?;
        let data_version = select.query_row([], |row| row.get(0))?;
        drop(select);
        if data_version == open.data_version && !wrote {
            return Ok(());
        }
        loop {
            let events = events::after(&open.connection, None, self.last_reported.unwrap_or(0), EVENTS_PER_TURN)?;
            let is_last = events.len() < EVENTS_PER_TURN;
            for event in events {
                self.last_reported = Some(event.id);
                if !self.reported_before.remove(&event.id) {
                    tell(StoreEvent::Event(event));
                }
            }
            if is_last {
                open.data_version = data_version;
                return Ok(());
            }
        }
    }
}

/// Whether an interval has passed; true if the clock was set back.
const fn is_due(last_ms: u64, every_ms: u64, now_ms: u64) -> bool {
    now_ms < last_ms || now_ms - last_ms >= every_ms
}

fn add(batch: &mut Batch<'_>, run: &str, time_ms: u64, what: &EventKind) -> Result<(), FileUnusable> {
    // Serialising our own types does not fail.
    if let Ok(json) = serde_json::to_string(what) {
        batch.add(time_ms, Some(run), what, &json)?;
    }
    Ok(())
}

/// Copies a run into the new file if its own file was set aside.
fn restore(batch: &mut Batch<'_>, run: &Run, now_ms: u64) -> Result<(), FileUnusable> {
    if !batch.knows(&run.id)? {
        add(batch, &run.id, now_ms, &EventKind::RunStarted { run: Box::new(run.clone()) })?;
    }
    Ok(())
}

/// Records a heartbeat for the watcher's runs. A run that was marked as lost becomes running again.
fn give_sign(
    connection: &Connection,
    batch: &mut Batch<'_>,
    watched: &HashMap<String, Run>,
    now_ms: u64,
) -> Result<(), FileUnusable> {
    for run in watched.values().filter(|run| !run.status.has_ended()) {
        match events::seen(connection, &run.id, now_ms)? {
            None => restore(batch, run, now_ms)?,
            Some(true) => {
                add(batch, &run.id, now_ms, &EventKind::RunStatus { status: run.status, energy_joules: None })?;
            }
            Some(false) => {}
        }
    }
    Ok(())
}

fn watch(watched: &mut HashMap<String, Run>, time_ms: u64, id: Option<&str>, what: &EventKind) {
    let Some(id) = id else { return };
    if let EventKind::RunStarted { run } = what {
        watched.insert(id.to_owned(), Run { id: id.to_owned(), ..(**run).clone() });
    } else if let Some(run) = watched.get_mut(id) {
        run.apply(time_ms, what);
    }
}
