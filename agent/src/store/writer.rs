//! What the thread does at each of its turns: open the file, write what waits, tell what came, keep the file small.
//!
//! The time is an argument, and the thread a loop around [`Writer::turn`]. A turn that fails leaves what waits in the
//! queue and says why; a later one tries again.

mod lost;
mod state;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use headroom_shared::protocol::{event::What, gpu::Gpu, history::Group, run::Run};
use rusqlite::{Connection, TransactionBehavior};

use super::{
    Keep, Told,
    events::{self, Batch},
    file::{HistoryFile, Identity, Trouble, Trust},
    printed::{self, Unwritten},
    queue::{Queue, Waits, Written},
    rollup,
    samples::{self, Places},
    slow,
    spans::{Recorded, Writing},
};
use crate::platform::Process;
use state::Health;

/// Telemetry is written together; a kill takes at most this much of it.
const TELEMETRY_EVERY_MS: u64 = 1000;
/// Samples are rolled up as often as the finest bucket ends.
const ROLL_UP_EVERY_MS: u64 = 10_000;
/// What is old is cut off.
const TIDY_EVERY_MS: u64 = 60_000;
/// A watcher's sign of life.
const SEEN_EVERY_MS: u64 = 5000;
/// Runs without a watcher are looked for: one whose process is gone is lost after no more than this.
const LOOK_EVERY_MS: u64 = 2000;
/// A turn that comes so late comes after a sleep of the machine, and watchers slept as well.
const SLEPT_MS: u64 = 10_000;
/// Events that are written in one transaction, or told in one go, at most: a few milliseconds.
const EVENTS_PER_TURN: usize = 2000;
/// Lines of figures that are written in one transaction at most: a fraction of a second, in which others wait.
const PRINTED_PER_TURN: usize = 100_000;

/// Whose thread it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Keeps samples and the file in order, and tells what others write.
    Agent,
    /// Writes the events of its run, and that it is there.
    Watcher,
}

/// The file, open.
#[derive(Debug)]
struct Open {
    connection: Connection,
    identity: Identity,
    /// SQLite's number that changes when another connection writes.
    data_version: i64,
    /// The cards that have rows, and these.
    inventory: Arc<Vec<Gpu>>,
    places: Places,
    /// The span that samples are written in.
    writing: Writing,
}

/// When something was done last.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    turn_ms: u64,
    telemetry_ms: u64,
    roll_up_ms: u64,
    tidy_ms: u64,
    look_ms: u64,
    seen_ms: u64,
}

/// What the thread knows between its turns.
#[derive(Debug)]
pub struct Writer {
    file: HistoryFile,
    keep: Keep,
    role: Role,
    open: Option<Open>,
    health: Health,
    done: Done,
    /// Time of the newest sample, and of the newest slow one.
    newest_ms: u64,
    newest_slow_ms: u64,
    /// Number of the newest event that was told.
    last_told: Option<u64>,
    /// Numbers of events that were told while they had none.
    told_before: HashSet<u64>,
    /// A watcher's runs.
    watched: HashMap<String, Run>,
    /// And its process, where the system tells it.
    process: Option<Process>,
    /// Since when the machine is awake, as far as this program saw.
    awake_ms: u64,
}

/// Where news go.
pub type Tell<'a> = &'a dyn Fn(Told);

impl Writer {
    /// Of a file that is opened at the first turn.
    pub fn new(file: HistoryFile, keep: Keep, role: Role) -> Self {
        let trust = if role == Role::Agent { Trust::Looked } else { Trust::Whole };
        Self {
            file,
            keep,
            role,
            open: None,
            health: Health::new(trust),
            done: Done::default(),
            newest_ms: 0,
            newest_slow_ms: 0,
            last_told: None,
            told_before: HashSet::new(),
            watched: HashMap::new(),
            process: None,
            awake_ms: 0,
        }
    }

    /// The watcher can be asked for as this process.
    pub fn watched_by(mut self, process: Option<Process>) -> Self {
        self.process = process;
        self
    }

    /// It watches a run that history has already.
    pub fn watching(mut self, run: Option<Run>) -> Self {
        self.watched.extend(run.map(|run| (run.id.clone(), run)));
        self
    }

    /// Events after this number are news; without one, those are that come once the file is open.
    pub fn told_until(mut self, last_told: Option<u64>) -> Self {
        self.last_told = last_told;
        self
    }

    /// Does what is due. `flush` is the last turn, or one of the last: nothing waits for its time.
    pub fn turn(&mut self, queue: &Queue, now_ms: u64, flush: bool, tell: Tell<'_>) {
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

    /// The file as it is open, for tests that take its space away.
    #[cfg(test)]
    pub fn connection(&self) -> Option<&Connection> {
        self.open.as_ref().map(|open| &open.connection)
    }

    fn work(&mut self, queue: &Queue, now_ms: u64, flush: bool, tell: Tell<'_>) -> Result<(), Trouble> {
        let mut open = self.opened(queue, now_ms)?;
        let worked = self.work_on(&mut open, queue, now_ms, flush, tell);
        // A full disk says nothing against the connection; after anything else it is opened again.
        if worked.as_ref().err().is_none_or(Trouble::keeps_open) {
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
        tell: Tell<'_>,
    ) -> Result<(), Trouble> {
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

    /// The open file: it is opened where it is not, and again where its name stands for another one now.
    fn opened(&mut self, queue: &Queue, now_ms: u64) -> Result<Open, Trouble> {
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
        if self.last_told.is_none() {
            // That a file was set aside is the new one's last event, and news.
            let n_new = u64::from(opened.is_salvaged);
            self.last_told = Some(events::last(&opened.connection)?.saturating_sub(n_new));
        }
        self.health.opened(opened.set_aside);
        Ok(Open {
            connection: opened.connection,
            identity: opened.identity,
            data_version: 0,
            inventory: Arc::default(),
            places: Places::new(),
            writing: Writing::default(),
        })
    }

    /// Writes what waits in one transaction; gives whether there were events among it.
    fn write(&mut self, open: &mut Open, queue: &Queue, now_ms: u64, flush: bool) -> Result<bool, Trouble> {
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
        printed: &[Unwritten],
        now_ms: u64,
        flush: bool,
    ) -> Result<bool, Trouble> {
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
            moments.push(Recorded { time_ms: read.time_ms, since_start_ms: *since_start_ms });
        }
        for Waits { read, since_start_ms } in &slow {
            slow::insert(&transaction, places_now, read)?;
            moments.push(Recorded { time_ms: read.time_ms, since_start_ms: *since_start_ms });
        }
        moments.sort_by_key(|moment| moment.since_start_ms);
        writing.take(&transaction, &moments, |end_ms, begin_ms| rollup::pass_on(&transaction, end_ms, begin_ms))?;
        let oldest_ms = telemetry.iter().map(|telemetry| telemetry.read.time_ms).min();
        let oldest_slow_ms = slow.iter().map(|slow| slow.read.time_ms).min();
        let of_groups = [(Group::Fast, oldest_ms), (Group::Slow, oldest_slow_ms), (Group::Host, oldest_slow_ms)];
        let oldest: Vec<_> = of_groups.into_iter().filter_map(|(group, time_ms)| Some((group, time_ms?))).collect();
        rollup::reopen(&transaction, &oldest)?;
        // Before the events: those of this version come behind the first line.
        printed::insert(&transaction, printed, printed::ROWS_MAX)?;
        let mut batch = Batch::new(&transaction, now_ms);
        if self.role == Role::Watcher {
            batch = batch.of_watcher(self.process.as_ref());
        }
        if is_seen {
            give_sign(&transaction, &mut batch, &self.watched, now_ms)?;
        }
        let mut told_before = Vec::new();
        for event in &events {
            if let Some(watched) = event.run.as_ref().and_then(|run| self.watched.get(run)) {
                restore(&mut batch, watched, now_ms)?;
            }
            let id = batch.add(event.time_ms, event.run.as_deref(), &event.what, &event.json)?;
            if event.told.load(Ordering::Relaxed) {
                told_before.push(id);
            }
        }
        batch.finish()?;
        transaction.commit()?;

        open.writing = writing;
        queue.wrote(Written { telemetry: next_telemetry, slow: next_slow, events: next_event });
        if let Some(places) = places {
            (open.inventory, open.places) = (inventory, places);
        }
        self.newest_ms = telemetry.last().map_or(self.newest_ms, |telemetry| telemetry.read.time_ms);
        self.newest_slow_ms = slow.last().map_or(self.newest_slow_ms, |slow| slow.read.time_ms);
        self.told_before.extend(told_before);
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

    /// Cuts off what is old.
    fn tidy(&self, open: &mut Open) -> Result<(), Trouble> {
        let transaction = open.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rollup::cut_old(&transaction, &self.keep)?;
        transaction.commit()?;
        rollup::bound(&mut open.connection, &self.keep)?;
        Ok(())
    }

    /// Tells events that are new in the file, in the order of their numbers.
    fn tell_new(&mut self, open: &mut Open, wrote: bool, tell: Tell<'_>) -> Result<(), Trouble> {
        // At every turn, so that it is not read as SQL each time.
        let mut select = open.connection.prepare_cached("PRAGMA data_version")?;
        let data_version = select.query_row([], |row| row.get(0))?;
        drop(select);
        if data_version == open.data_version && !wrote {
            return Ok(());
        }
        loop {
            let events = events::after(&open.connection, None, self.last_told.unwrap_or(0), EVENTS_PER_TURN)?;
            let is_last = events.len() < EVENTS_PER_TURN;
            for event in events {
                self.last_told = Some(event.id);
                if !self.told_before.remove(&event.id) {
                    tell(Told::Event(event));
                }
            }
            if is_last {
                open.data_version = data_version;
                return Ok(());
            }
        }
    }
}

/// Whether so much time has passed; where the clock was put back, it has.
const fn is_due(last_ms: u64, every_ms: u64, now_ms: u64) -> bool {
    now_ms < last_ms || now_ms - last_ms >= every_ms
}

fn add(batch: &mut Batch<'_>, run: &str, time_ms: u64, what: &What) -> Result<(), Trouble> {
    // A value of ours has a text.
    if let Ok(json) = serde_json::to_string(what) {
        batch.add(time_ms, Some(run), what, &json)?;
    }
    Ok(())
}

/// A run whose file was set aside begins in the new one as it stands.
fn restore(batch: &mut Batch<'_>, run: &Run, now_ms: u64) -> Result<(), Trouble> {
    if !batch.knows(&run.id)? {
        add(batch, &run.id, now_ms, &What::RunStarted { run: Box::new(run.clone()) })?;
    }
    Ok(())
}

/// Says of the runs that their watcher is there; one that was taken for lost runs again.
fn give_sign(
    connection: &Connection,
    batch: &mut Batch<'_>,
    watched: &HashMap<String, Run>,
    now_ms: u64,
) -> Result<(), Trouble> {
    for run in watched.values().filter(|run| !run.status.has_ended()) {
        match events::seen(connection, &run.id, now_ms)? {
            None => restore(batch, run, now_ms)?,
            Some(true) => {
                add(batch, &run.id, now_ms, &What::RunStatus { status: run.status, energy_joules: None })?;
            }
            Some(false) => {}
        }
    }
    Ok(())
}

fn watch(watched: &mut HashMap<String, Run>, time_ms: u64, id: Option<&str>, what: &What) {
    let Some(id) = id else { return };
    if let What::RunStarted { run } = what {
        watched.insert(id.to_owned(), Run { id: id.to_owned(), ..(**run).clone() });
    } else if let Some(run) = watched.get_mut(id) {
        run.apply(time_ms, what);
    }
}
