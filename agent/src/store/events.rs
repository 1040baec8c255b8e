//! Events and the runs that they make: each is written with its run in one transaction, so that neither is there alone.

use std::collections::HashMap;

use headroom_shared::protocol::{
    event::{Event, What},
    run::{Cause, Run, RunStatus},
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::{
    alerts, printed,
    samples::{from_sql, to_sql},
    trainings,
};
use crate::platform::Process;

/// Events that are looked at for the newest that have a line: of those that have none and are not iterations, such as
/// evaluations, a small model makes two a second, which is as many in a day.
const NEWEST_LOOKED_AT_MAX: u64 = 200_000;
/// How events begin of which a run has many and none has a line: passed over before they are read.
const WITHOUT_LINE: [&str; 3] = ["{\"kind\":\"run_evaluation\"", "{\"kind\":\"run_saved\"", "{\"kind\":\"run_memory\""];

/// A batch of events on its way into the file.
#[derive(Debug)]
pub struct Batch<'a> {
    transaction: &'a Transaction<'a>,
    now_ms: u64,
    /// Whether this program is the watcher of the runs it writes of.
    watches: bool,
    /// As which process, where that is known.
    watcher: Option<String>,
    /// Runs that the batch changes, as they stand; none where there is no such run.
    runs: HashMap<String, Option<Run>>,
}

impl<'a> Batch<'a> {
    /// An empty one.
    pub fn new(transaction: &'a Transaction<'a>, now_ms: u64) -> Self {
        Self { transaction, now_ms, watches: false, watcher: None, runs: HashMap::new() }
    }

    /// Of runs that this program watches, as this process: what it writes is a sign of its life.
    pub fn of_watcher(self, process: Option<&Process>) -> Self {
        Self { watches: true, watcher: process.map(Process::to_string), ..self }
    }

    /// Adds an event and gives its number.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn add(&mut self, time_ms: u64, run: Option<&str>, what: &What, json: &str) -> rusqlite::Result<u64> {
        let mut insert =
            self.transaction.prepare_cached("INSERT INTO events (time_ms, run, what) VALUES (?1, ?2, ?3)")?;
        insert.execute((to_sql(time_ms), run, json))?;
        let id = from_sql(self.transaction.last_insert_rowid());
        alerts::apply(self.transaction, id, time_ms, run, what)?;
        if let Some(run) = run {
            trainings::apply(self.transaction, time_ms, run, what)?;
            self.apply(time_ms, run, what)?;
        }
        Ok(id)
    }

    fn apply(&mut self, time_ms: u64, id: &str, what: &What) -> rusqlite::Result<()> {
        self.knows(id)?;
        match (self.runs.get_mut(id), what) {
            // The number in the event is the run's own.
            (Some(kept), What::RunStarted { run }) => *kept = Some(Run { id: id.to_owned(), ..(**run).clone() }),
            (Some(Some(run)), what) => run.apply(time_ms, what),
            // Of a run that was deleted, or that began in a file that was set aside.
            (Some(None) | None, _) => {}
        }
        Ok(())
    }

    /// Whether there is such a run, in the file or in the batch.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn knows(&mut self, id: &str) -> rusqlite::Result<bool> {
        if !self.runs.contains_key(id) {
            self.runs.insert(id.to_owned(), run(self.transaction, id)?);
        }
        Ok(matches!(self.runs.get(id), Some(Some(_))))
    }

    /// Writes the runs as they stand now.
    ///
    /// # Errors
    /// What SQLite says.
    pub fn finish(self) -> rusqlite::Result<()> {
        let mut upsert = self.transaction.prepare_cached(
            "INSERT INTO runs (id, started_ms, ended, seen_ms, run, watcher) VALUES (?1, ?2, ?3, ?4, ?5, ?7) ON CONFLICT \
             (id) DO UPDATE SET started_ms = ?2, ended = ?3, seen_ms = iif(?6, ?4, seen_ms), run = ?5, \
             watcher = iif(?6, ?7, watcher)",
        )?;
        for run in self.runs.values().flatten() {
            let Ok(json) = serde_json::to_string(run) else { continue };
            let (started_ms, ended) = (to_sql(run.started_ms), run.status.has_ended());
            let (now_ms, watcher) = (to_sql(self.now_ms), self.watcher.as_deref());
            upsert.execute((&run.id, started_ms, ended, now_ms, json, self.watches, watcher))?;
        }
        Ok(())
    }
}

/// A watcher's sign of life; gives whether its run was taken for lost meanwhile, and none where it is not there.
///
/// # Errors
/// What SQLite says.
pub fn seen(connection: &Connection, id: &str, now_ms: u64) -> rusqlite::Result<Option<bool>> {
    let mut update = connection.prepare_cached("UPDATE runs SET seen_ms = ?2 WHERE id = ?1")?;
    if update.execute((id, to_sql(now_ms)))? == 0 {
        return Ok(None);
    }
    Ok(run(connection, id)?.map(|run| run.status == RunStatus::Lost))
}

/// What is known of the watcher of a run that has not ended.
#[derive(Debug)]
pub struct Watch {
    /// The run.
    pub run: String,
    /// Its last sign of life.
    pub seen_ms: u64,
    /// Its process, where the system told it.
    pub process: Option<Process>,
}

/// The watches of all runs that have not ended: what a machine has going on, and what died since it was looked for.
/// One that waits has none yet.
///
/// # Errors
/// What SQLite says.
pub fn watches(connection: &Connection) -> rusqlite::Result<Vec<Watch>> {
    let mut select = connection.prepare_cached(
        "SELECT id, seen_ms, watcher FROM runs WHERE ended = 0 AND NOT EXISTS (SELECT 1 FROM trainings WHERE \
         trainings.run = id AND place IS NOT NULL)",
    )?;
    let watch =
        |row: &Row<'_>| Ok(Watch { run: row.get(0)?, seen_ms: from_sql(row.get(1)?), process: process(row.get(2)?) });
    select.query_map([], watch)?.collect()
}

/// Whether a run still stands as when its watch was looked for.
///
/// # Errors
/// What SQLite says.
pub fn is_unchanged(connection: &Connection, watch: &Watch) -> rusqlite::Result<bool> {
    let mut select = connection.prepare_cached("SELECT 1 FROM runs WHERE id = ?1 AND ended = 0 AND seen_ms = ?2")?;
    select.exists((&watch.run, to_sql(watch.seen_ms)))
}

/// One run as it is kept, by its whole number.
///
/// # Errors
/// What SQLite says.
fn run(connection: &Connection, id: &str) -> rusqlite::Result<Option<Run>> {
    let mut select = connection.prepare_cached("SELECT run FROM runs WHERE id = ?1")?;
    Ok(select.query_row([id], of_json).optional()?.flatten())
}

/// One run as it stands, by its whole number.
///
/// # Errors
/// What SQLite says.
pub fn standing(connection: &Connection, id: &str) -> rusqlite::Result<Option<Run>> {
    let mut select = connection.prepare_cached("SELECT run, seen_ms, watcher FROM runs WHERE id = ?1")?;
    Ok(select.query_row([id], as_it_stands).optional()?.flatten())
}

/// Runs as they stand, newest first, at most so many; those that have not ended before others.
///
/// # Errors
/// What SQLite says.
pub fn runs(connection: &Connection, n_max: usize) -> rusqlite::Result<Vec<Run>> {
    let mut select = connection.prepare_cached(
        "SELECT run, seen_ms, watcher FROM (SELECT * FROM runs ORDER BY ended, started_ms DESC LIMIT ?1) ORDER BY \
         started_ms DESC, id",
    )?;
    let runs = select.query_map([i64::try_from(n_max).unwrap_or(i64::MAX)], as_it_stands)?;
    Ok(runs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Numbers of runs that begin so, at most so many.
///
/// # Errors
/// What SQLite says.
pub fn beginning(connection: &Connection, id: &str, n_max: usize) -> rusqlite::Result<Vec<String>> {
    let mut select = connection.prepare_cached("SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 LIMIT ?2")?;
    select.query_map((id, i64::try_from(n_max).unwrap_or(i64::MAX)), |row| row.get(0))?.collect()
}

/// Numbers of runs of that name, at most so many.
///
/// # Errors
/// What SQLite says.
pub fn named(connection: &Connection, name: &str, n_max: usize) -> rusqlite::Result<Vec<String>> {
    // A run that cannot be read has no name.
    let sql = "SELECT id FROM runs WHERE CASE WHEN json_valid(run) THEN json_extract(run, '$.name') END = ?1 LIMIT ?2";
    let mut select = connection.prepare_cached(sql)?;
    select.query_map((name, i64::try_from(n_max).unwrap_or(i64::MAX)), |row| row.get(0))?.collect()
}

/// Events after a number, of one run or of all, oldest first, at most so many.
///
/// # Errors
/// What SQLite says.
pub fn after(connection: &Connection, run: Option<&str>, id: u64, n_max: usize) -> rusqlite::Result<Vec<Event>> {
    let which = if run.is_some() { "run = ?3" } else { "?3 IS NULL" };
    let sql = format!("SELECT id, time_ms, run, what FROM events WHERE {which} AND id > ?1 ORDER BY id LIMIT ?2");
    let mut select = connection.prepare_cached(&sql)?;
    let n_max = i64::try_from(n_max).unwrap_or(i64::MAX);
    select.query_map((to_sql(id), n_max, run), event)?.collect()
}

/// When a run last made progress, by the newest of its events.
///
/// # Errors
/// What SQLite says.
pub fn last_progress(connection: &Connection, run: &str) -> rusqlite::Result<Option<u64>> {
    let mut select = connection.prepare_cached(
        "SELECT id, time_ms, run, what FROM events WHERE run IS NOT NULL AND run = ?1 ORDER BY id DESC LIMIT ?2",
    )?;
    let newest = select.query_map((run, to_sql(NEWEST_LOOKED_AT_MAX)), event)?;
    for event in newest {
        let event = event?;
        if event.what.is_progress() {
            return Ok(Some(event.time_ms));
        }
    }
    Ok(None)
}

/// Number of the newest event, 0 where there is none.
///
/// # Errors
/// What SQLite says.
pub fn last(connection: &Connection) -> rusqlite::Result<u64> {
    let last: Option<i64> = connection.query_row("SELECT max(id) FROM events", [], |row| row.get(0))?;
    Ok(last.map_or(0, from_sql))
}

/// The newest events that have a line among what happened, up to a number and after a time, oldest first, at most so
/// many.
///
/// # Errors
/// What SQLite says.
pub fn newest(connection: &Connection, up_to: u64, after_ms: u64, n_max: usize) -> rusqlite::Result<Vec<Event>> {
    // The words are the index's own, or it is not used.
    let mut select = connection.prepare_cached(
        "SELECT id, time_ms, run, what FROM events WHERE substr(what, 1, 23) <> '{\"kind\":\"run_iteration\"' \
         AND id <= ?1 ORDER BY id DESC LIMIT ?2",
    )?;
    let mut rows = select.query((to_sql(up_to), to_sql(NEWEST_LOOKED_AT_MAX)))?;
    let mut newest = Vec::new();
    while let Some(row) = rows.next()? {
        if from_sql(row.get(1)?) <= after_ms || newest.len() >= n_max {
            break;
        }
        let what = row.get_ref(3)?.as_str()?;
        if WITHOUT_LINE.iter().any(|kind| what.starts_with(kind)) {
            continue;
        }
        let event = event(row)?;
        if event.what.has_line() {
            newest.push(event);
        }
    }
    newest.reverse();
    Ok(newest)
}

/// Takes a run away with its events and alerts; what is left of it is the event that says so.
///
/// # Errors
/// What SQLite says.
pub fn delete(transaction: &Transaction<'_>, id: &str, now_ms: u64) -> rusqlite::Result<()> {
    let name = run(transaction, id)?.map(|run| run.name);
    transaction.execute("DELETE FROM runs WHERE id = ?1", [id])?;
    transaction.execute("DELETE FROM events WHERE run = ?1", [id])?;
    printed::delete(transaction, id)?;
    alerts::forget_run(transaction, id)?;
    trainings::forget(transaction, id)?;
    let Ok(json) = serde_json::to_string(&What::RunDeleted { name }) else { return Ok(()) };
    let sql = "INSERT INTO events (time_ms, run, what) VALUES (?1, ?2, ?3)";
    transaction.execute(sql, (to_sql(now_ms), id, json)).map(|_| ())
}

pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let what = row.get_ref(3)?.as_str()?;
    Ok(Event {
        id: from_sql(row.get(0)?),
        time_ms: from_sql(row.get(1)?),
        run: row.get(2)?,
        // A later version's event has a kind of its own; what is no event at all says as little.
        what: serde_json::from_str(what).unwrap_or(What::Unknown),
    })
}

/// A run that cannot be read is passed over, so that the others can.
fn of_json(row: &Row<'_>) -> rusqlite::Result<Option<Run>> {
    let mut run: Option<Run> = serde_json::from_str(row.get_ref(0)?.as_str()?).ok();
    if let Some(run) = &mut run {
        // One that an earlier version kept says it by the message alone.
        run.status = run.status.because(run.oom.as_ref().map(|_| Cause::OutOfGpuMemory));
    }
    Ok(run)
}

/// Its watcher may have been killed since an agent looked, or with none there to look.
pub(super) fn as_it_stands(row: &Row<'_>) -> rusqlite::Result<Option<Run>> {
    let Some(mut run) = of_json(row)? else { return Ok(None) };
    if !run.status.has_ended() && process(row.get(2)?).and_then(|watcher| watcher.lives()) == Some(false) {
        run.apply(from_sql(row.get(1)?), &What::RunStatus { status: RunStatus::Lost, energy_joules: None });
    }
    Ok(Some(run))
}

/// A watcher's process, as it is written.
pub(super) fn process(text: Option<String>) -> Option<Process> {
    text.and_then(|text| text.parse().ok())
}
