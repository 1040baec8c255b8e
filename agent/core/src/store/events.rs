//! Events and the runs that they produce. An event and its run are written in one transaction, so neither exists alone.

use std::collections::HashMap;

use headroom_protocol::{
    event::{Event, EventKind},
    run::{Run, RunStatus},
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::{
    alerts, printed,
    rows::{event, process, run_with_current_status, stored_run},
    run_queue,
    samples::{from_sql, to_sql},
};
use crate::platform::Process;

/// Maximum number of events that a search for listed events or for a run's last progress examines.
const NEWEST_LOOKED_AT_MAX: u64 = 200_000;
/// SQL condition that excludes frequent events that are not in the event list. The condition must equal that of the
/// index `events_reported`, because SQLite uses the index only then.
pub const HAS_LINE: &str = "kind NOT IN ('run_iteration', 'run_evaluation', 'run_saved', 'run_memory')";

/// A batch of events in one transaction.
#[derive(Debug)]
pub struct Batch<'a> {
    transaction: &'a Transaction<'a>,
    now_ms: u64,
    /// Whether this program is the watcher of the runs in the batch.
    watches: bool,
    /// Process of the watcher, if known.
    watcher: Option<String>,
    /// Current state of the runs that the batch changes; `None` for a run that does not exist.
    runs: HashMap<String, Option<Run>>,
}

impl<'a> Batch<'a> {
    /// Creates an empty batch.
    pub fn new(transaction: &'a Transaction<'a>, now_ms: u64) -> Self {
        Self { transaction, now_ms, watches: false, watcher: None, runs: HashMap::new() }
    }

    /// Marks the batch as written by a watcher. Each write is then also a heartbeat of this process.
    pub fn of_watcher(self, process: Option<&Process>) -> Self {
        Self { watches: true, watcher: process.map(Process::to_string), ..self }
    }

    /// Adds an event and returns its number.
    ///
    /// # Errors
    /// SQLite reports an error.
    pub fn add(&mut self, time_ms: u64, run: Option<&str>, what: &EventKind, json: &str) -> rusqlite::Result<u64> {
        let mut insert =
            self.transaction.prepare_cached("INSERT INTO events (time_ms, run, what) VALUES (?1, ?2, ?3)")?;
        insert.execute((to_sql(time_ms), run, json))?;
        let id = from_sql(self.transaction.last_insert_rowid());
        alerts::apply(self.transaction, id, time_ms, run, what)?;
        if let Some(run) = run {
            run_queue::apply(self.transaction, time_ms, run, what)?;
            self.apply(time_ms, run, what)?;
        }
        Ok(id)
    }

    fn apply(&mut self, time_ms: u64, id: &str, what: &EventKind) -> rusqlite::Result<()> {
        self.knows(id)?;
        match (self.runs.get_mut(id), what) {
            // The event's run ID takes precedence over the ID inside the run.
            (Some(kept), EventKind::RunStarted { run }) => *kept = Some(Run { id: id.to_owned(), ..(**run).clone() }),
            (Some(Some(run)), what) => run.apply(time_ms, what),
            // The run was deleted, or started in a file that was set aside.
            (Some(None) | None, _) => {}
        }
        Ok(())
    }

    /// Whether a run exists in the file or in the batch.
    ///
    /// # Errors
    /// SQLite reports an error.
    pub fn knows(&mut self, id: &str) -> rusqlite::Result<bool> {
        if !self.runs.contains_key(id) {
            self.runs.insert(id.to_owned(), run(self.transaction, id)?);
        }
        Ok(matches!(self.runs.get(id), Some(Some(_))))
    }

    /// Writes the changed runs.
    ///
    /// # Errors
    /// SQLite reports an error.
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

/// Records a watcher's heartbeat. Returns whether its run was marked as lost, or `None` if the run does not exist.
///
/// # Errors
/// SQLite reports an error.
pub fn seen(connection: &Connection, id: &str, now_ms: u64) -> rusqlite::Result<Option<bool>> {
    let mut update = connection.prepare_cached("UPDATE runs SET seen_ms = ?2 WHERE id = ?1")?;
    if update.execute((id, to_sql(now_ms)))? == 0 {
        return Ok(None);
    }
    Ok(run(connection, id)?.map(|run| run.status == RunStatus::Lost))
}

/// The watcher of a run that has not ended.
#[derive(Debug)]
pub struct RunWatcher {
    /// ID of the run.
    pub run: String,
    /// Time of the last heartbeat.
    pub seen_ms: u64,
    /// Process of the watcher, if the system reports it.
    pub process: Option<Process>,
}

/// Returns the watchers of all runs that have not ended, dead or alive. Queued runs have no watcher yet.
///
/// # Errors
/// SQLite reports an error.
pub fn watches(connection: &Connection) -> rusqlite::Result<Vec<RunWatcher>> {
    let mut select = connection.prepare_cached(
        "SELECT id, seen_ms, watcher FROM runs WHERE ended = 0 AND NOT EXISTS (SELECT 1 FROM trainings WHERE \
         trainings.run = id AND place IS NOT NULL)",
    )?;
    let watch = |row: &Row<'_>| {
        Ok(RunWatcher { run: row.get(0)?, seen_ms: from_sql(row.get(1)?), process: process(row.get(2)?) })
    };
    select.query_map([], watch)?.collect()
}

/// Whether the run is unchanged since its watcher was read.
///
/// # Errors
/// SQLite reports an error.
pub fn is_unchanged(connection: &Connection, watch: &RunWatcher) -> rusqlite::Result<bool> {
    let mut select = connection.prepare_cached("SELECT 1 FROM runs WHERE id = ?1 AND ended = 0 AND seen_ms = ?2")?;
    select.exists((&watch.run, to_sql(watch.seen_ms)))
}

/// Returns a run by its full ID, as stored.
///
/// # Errors
/// SQLite reports an error.
fn run(connection: &Connection, id: &str) -> rusqlite::Result<Option<Run>> {
    let mut select = connection.prepare_cached("SELECT run FROM runs WHERE id = ?1")?;
    Ok(select.query_row([id], stored_run).optional()?.flatten())
}

/// Returns a run by its full ID, with its current status.
///
/// # Errors
/// SQLite reports an error.
pub fn standing(connection: &Connection, id: &str) -> rusqlite::Result<Option<Run>> {
    let mut select = connection.prepare_cached("SELECT run, seen_ms, watcher FROM runs WHERE id = ?1")?;
    Ok(select.query_row([id], run_with_current_status).optional()?.flatten())
}

/// Returns at most `n_max` runs with their current status, newest first. Runs that have not ended are selected before
/// others.
///
/// # Errors
/// SQLite reports an error.
pub fn runs(connection: &Connection, n_max: usize) -> rusqlite::Result<Vec<Run>> {
    let mut select = connection.prepare_cached(
        "SELECT run, seen_ms, watcher FROM (SELECT * FROM runs ORDER BY ended, started_ms DESC LIMIT ?1) ORDER BY \
         started_ms DESC, id",
    )?;
    let runs = select.query_map([i64::try_from(n_max).unwrap_or(i64::MAX)], run_with_current_status)?;
    Ok(runs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Returns at most `n_max` IDs of runs with this prefix.
///
/// # Errors
/// SQLite reports an error.
pub fn beginning(connection: &Connection, id: &str, n_max: usize) -> rusqlite::Result<Vec<String>> {
    let mut select = connection.prepare_cached("SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 LIMIT ?2")?;
    select.query_map((id, i64::try_from(n_max).unwrap_or(i64::MAX)), |row| row.get(0))?.collect()
}

/// Returns at most `n_max` IDs of runs with this name.
///
/// # Errors
/// SQLite reports an error.
pub fn named(connection: &Connection, name: &str, n_max: usize) -> rusqlite::Result<Vec<String>> {
    // An unreadable run has no name.
    let sql = "SELECT id FROM runs WHERE CASE WHEN json_valid(run) THEN json_extract(run, '$.name') END = ?1 LIMIT ?2";
    let mut select = connection.prepare_cached(sql)?;
    select.query_map((name, i64::try_from(n_max).unwrap_or(i64::MAX)), |row| row.get(0))?.collect()
}

/// Returns at most `n_max` events after a number, of one run or of all, oldest first.
///
/// # Errors
/// SQLite reports an error.
pub fn after(connection: &Connection, run: Option<&str>, id: u64, n_max: usize) -> rusqlite::Result<Vec<Event>> {
    let which = if run.is_some() { "run = ?3" } else { "?3 IS NULL" };
    let sql = format!("SELECT id, time_ms, run, what FROM events WHERE {which} AND id > ?1 ORDER BY id LIMIT ?2");
    let mut select = connection.prepare_cached(&sql)?;
    let n_max = i64::try_from(n_max).unwrap_or(i64::MAX);
    select.query_map((to_sql(id), n_max, run), event)?.collect()
}

/// Returns the time of a run's last progress, from its newest events.
///
/// # Errors
/// SQLite reports an error.
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

/// Returns the newest events of the event list, up to a number and after a time, oldest first, at most `n_max`.
///
/// # Errors
/// SQLite reports an error.
pub fn newest(connection: &Connection, up_to: u64, after_ms: u64, n_max: usize) -> rusqlite::Result<Vec<Event>> {
    let sql =
        format!("SELECT id, time_ms, run, what FROM events WHERE {HAS_LINE} AND id <= ?1 ORDER BY id DESC LIMIT ?2");
    let mut select = connection.prepare_cached(&sql)?;
    let mut rows = select.query((to_sql(up_to), to_sql(NEWEST_LOOKED_AT_MAX)))?;
    let mut newest = Vec::new();
    while let Some(row) = rows.next()? {
        if from_sql(row.get(1)?) <= after_ms || newest.len() >= n_max {
            break;
        }
        let event = event(row)?;
        if event.what.has_line() {
            newest.push(event);
        }
    }
    newest.reverse();
    Ok(newest)
}

/// Deletes a run with its events and alerts. Only the event about the deletion remains.
///
/// # Errors
/// SQLite reports an error.
pub fn delete(transaction: &Transaction<'_>, id: &str, now_ms: u64) -> rusqlite::Result<()> {
    let name = run(transaction, id)?.map(|run| run.name);
    transaction.execute("DELETE FROM runs WHERE id = ?1", [id])?;
    transaction.execute("DELETE FROM events WHERE run = ?1", [id])?;
    printed::delete(transaction, id)?;
    alerts::forget_run(transaction, id)?;
    run_queue::forget(transaction, id)?;
    let Ok(json) = serde_json::to_string(&EventKind::RunDeleted { name }) else { return Ok(()) };
    let sql = "INSERT INTO events (time_ms, run, what) VALUES (?1, ?2, ?3)";
    transaction.execute(sql, (to_sql(now_ms), id, json)).map(|_| ())
}
