//! Runs that the agent starts, as rows: the queue, its order, and stop requests. They are written with the events that
//! change them, so that a restarted agent finds the same queue. `archive/run_queue.rs` decides which changes are allowed.

use headroom_protocol::{
    event::EventKind,
    run::{Run, RunStatus},
};
use rusqlite::{Connection, OptionalExtension, Transaction};

use super::{
    rows::{process, run_with_current_status},
    samples::{from_sql, to_sql},
};
use crate::platform::Process;

/// SQL for the position after the end of the queue.
const NEXT: &str = "(SELECT ifnull(max(place), 0) + 1 FROM trainings)";

/// Applies an event of a run.
///
/// # Errors
/// SQLite reports an error.
pub fn apply(transaction: &Transaction<'_>, time_ms: u64, id: &str, what: &EventKind) -> rusqlite::Result<()> {
    match what {
        EventKind::RunStarted { run } if run.order.is_some() => {
            transaction.execute("INSERT OR IGNORE INTO trainings (run) VALUES (?1)", [id])?;
            if run.status == RunStatus::Queued { queue(transaction, id) } else { Ok(()) }
        }
        EventKind::RunStatus { status: RunStatus::Queued, .. } => queue(transaction, id),
        EventKind::RunResumed { .. } => leave(transaction, id),
        EventKind::RunStatus { status, .. } if status.has_ended() => leave(transaction, id),
        EventKind::RunStopping => {
            let sql = "UPDATE trainings SET stopping_ms = ifnull(stopping_ms, ?2) WHERE run = ?1";
            transaction.execute(sql, (id, to_sql(time_ms))).map(|_| ())
        }
        _ => Ok(()),
    }
}

fn queue(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    let sql = format!("UPDATE trainings SET place = {NEXT}, stopping_ms = NULL WHERE run = ?1 AND place IS NULL");
    transaction.execute(&sql, [id])?;
    // The watcher that will start the run is not known yet.
    transaction.execute("UPDATE runs SET watcher = NULL WHERE id = ?1", [id]).map(|_| ())
}

fn leave(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("UPDATE trainings SET place = NULL WHERE run = ?1", [id]).map(|_| ())
}

/// Removes a deleted run.
///
/// # Errors
/// SQLite reports an error.
pub fn forget(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM trainings WHERE run = ?1", [id]).map(|_| ())
}

/// Returns the queued runs in their order.
///
/// # Errors
/// SQLite reports an error.
pub fn queued(connection: &Connection) -> rusqlite::Result<Vec<Run>> {
    runs(connection, "place IS NOT NULL ORDER BY place")
}

/// Returns the runs that were started and have not ended.
///
/// # Errors
/// SQLite reports an error.
pub fn going_on(connection: &Connection) -> rusqlite::Result<Vec<Run>> {
    let mut runs = runs(connection, "place IS NULL AND ended = 0 ORDER BY started_ms")?;
    runs.retain(|run| !run.status.has_ended());
    Ok(runs)
}

fn runs(connection: &Connection, which: &str) -> rusqlite::Result<Vec<Run>> {
    let sql = format!("SELECT runs.run, seen_ms, watcher FROM trainings JOIN runs ON id = trainings.run WHERE {which}");
    let mut select = connection.prepare_cached(&sql)?;
    let runs = select.query_map([], run_with_current_status)?;
    Ok(runs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Returns the number of queued runs.
///
/// # Errors
/// SQLite reports an error.
pub fn n_queued(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT count(place) FROM trainings", [], |row| row.get(0)).map(from_sql)
}

/// Data of the agent's run in addition to its row in the table of runs.
#[derive(Debug)]
pub struct Training {
    /// Whether the run is queued.
    pub is_queued: bool,
    /// Time of the stop request, if there is one.
    pub stopping_ms: Option<u64>,
    /// Process of the watcher, if the system reports it.
    pub watcher: Option<Process>,
}

/// Returns the data of one run; `None` if the agent did not start it.
///
/// # Errors
/// SQLite reports an error.
pub fn training(connection: &Connection, id: &str) -> rusqlite::Result<Option<Training>> {
    let mut select = connection.prepare_cached(
        "SELECT place IS NOT NULL, stopping_ms, watcher FROM trainings JOIN runs ON id = trainings.run WHERE id = ?1",
    )?;
    let training = select.query_row([id], |row| {
        let stopping_ms: Option<i64> = row.get(1)?;
        Ok(Training { is_queued: row.get(0)?, stopping_ms: stopping_ms.map(from_sql), watcher: process(row.get(2)?) })
    });
    training.optional()
}

/// Removes a run from the queue for a watcher that is about to start it. Returns whether the run was still queued.
///
/// # Errors
/// SQLite reports an error.
pub fn claim(
    transaction: &Transaction<'_>,
    id: &str,
    watcher: Option<&Process>,
    now_ms: u64,
) -> rusqlite::Result<bool> {
    let sql = "UPDATE trainings SET place = NULL WHERE run = ?1 AND place IS NOT NULL";
    if transaction.execute(sql, [id])? == 0 {
        return Ok(false);
    }
    let watcher = watcher.map(Process::to_string);
    let sql = "UPDATE runs SET watcher = ?2, seen_ms = ?3 WHERE id = ?1";
    transaction.execute(sql, (id, watcher, to_sql(now_ms)))?;
    Ok(true)
}
