//! Runs that the agent starts itself: which of them wait for their device, in their order, and which were asked to end.
//! Written with the events that change it, so that a restarted agent finds its queue as it was.

use headroom_shared::protocol::{
    event::What,
    run::{Run, RunStatus},
};
use rusqlite::{Connection, OptionalExtension, Transaction};

use super::{
    events::{as_it_stands, process},
    samples::{from_sql, to_sql},
};
use crate::platform::Process;

/// The end of the queue.
const NEXT: &str = "(SELECT ifnull(max(place), 0) + 1 FROM trainings)";

/// Takes in what happened to a run.
///
/// # Errors
/// What SQLite says.
pub fn apply(transaction: &Transaction<'_>, time_ms: u64, id: &str, what: &What) -> rusqlite::Result<()> {
    match what {
        What::RunStarted { run } if run.order.is_some() => {
            transaction.execute("INSERT OR IGNORE INTO trainings (run) VALUES (?1)", [id])?;
            if run.status == RunStatus::Queued { queue(transaction, id) } else { Ok(()) }
        }
        What::RunStatus { status: RunStatus::Queued, .. } => queue(transaction, id),
        What::RunResumed { .. } => leave(transaction, id),
        What::RunStatus { status, .. } if status.has_ended() => leave(transaction, id),
        What::RunStopping => {
            let sql = "UPDATE trainings SET stopping_ms = ifnull(stopping_ms, ?2) WHERE run = ?1";
            transaction.execute(sql, (id, to_sql(time_ms))).map(|_| ())
        }
        _ => Ok(()),
    }
}

fn queue(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    let sql = format!("UPDATE trainings SET place = {NEXT}, stopping_ms = NULL WHERE run = ?1 AND place IS NULL");
    transaction.execute(&sql, [id])?;
    // Its watcher is one that is to come.
    transaction.execute("UPDATE runs SET watcher = NULL WHERE id = ?1", [id]).map(|_| ())
}

fn leave(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("UPDATE trainings SET place = NULL WHERE run = ?1", [id]).map(|_| ())
}

/// Forgets a run that is deleted.
///
/// # Errors
/// What SQLite says.
pub fn forget(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM trainings WHERE run = ?1", [id]).map(|_| ())
}

/// Runs that wait, in their order.
///
/// # Errors
/// What SQLite says.
pub fn queued(connection: &Connection) -> rusqlite::Result<Vec<Run>> {
    runs(connection, "place IS NOT NULL ORDER BY place")
}

/// Runs that were started and have not ended.
///
/// # Errors
/// What SQLite says.
pub fn going_on(connection: &Connection) -> rusqlite::Result<Vec<Run>> {
    let mut runs = runs(connection, "place IS NULL AND ended = 0 ORDER BY started_ms")?;
    runs.retain(|run| !run.status.has_ended());
    Ok(runs)
}

fn runs(connection: &Connection, which: &str) -> rusqlite::Result<Vec<Run>> {
    let sql = format!("SELECT runs.run, seen_ms, watcher FROM trainings JOIN runs ON id = trainings.run WHERE {which}");
    let mut select = connection.prepare_cached(&sql)?;
    let runs = select.query_map([], as_it_stands)?;
    Ok(runs.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// How many wait.
///
/// # Errors
/// What SQLite says.
pub fn n_queued(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT count(place) FROM trainings", [], |row| row.get(0)).map(from_sql)
}

/// A run of the agent's, beside what its row says.
#[derive(Debug)]
pub struct Training {
    /// It waits.
    pub is_queued: bool,
    /// Since when it is asked to end.
    pub stopping_ms: Option<u64>,
    /// Who watches it, where the system told that.
    pub watcher: Option<Process>,
}

/// One of them; none where the run is not the agent's.
///
/// # Errors
/// What SQLite says.
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

/// Takes a run out of the queue for a watcher, which is about to start it; gives whether it still waited.
///
/// # Errors
/// What SQLite says.
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
