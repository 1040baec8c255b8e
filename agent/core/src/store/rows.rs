//! Rows of events and runs as the protocol's values.

use headroom_protocol::{
    event::{Event, EventKind},
    run::{Cause, Run, RunStatus},
};
use rusqlite::{Connection, Row};

use super::samples::from_sql;
use crate::platform::Process;

/// Returns the number of the newest event, or 0 without events.
///
/// # Errors
/// SQLite reports an error.
pub fn last_event(connection: &Connection) -> rusqlite::Result<u64> {
    let last: Option<i64> = connection.query_row("SELECT max(id) FROM events", [], |row| row.get(0))?;
    Ok(last.map_or(0, from_sql))
}

/// Parses an event.
pub fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let what = row.get_ref(3)?.as_str()?;
    Ok(Event {
        id: from_sql(row.get(0)?),
        time_ms: from_sql(row.get(1)?),
        run: row.get(2)?,
        // An event of a later version has an unknown kind. Invalid JSON is treated in the same way.
        what: serde_json::from_str(what).unwrap_or(EventKind::Unknown),
    })
}

/// Parses a stored run; `None` if it is unreadable, so that other runs remain readable.
pub fn stored_run(row: &Row<'_>) -> rusqlite::Result<Option<Run>> {
    let mut run: Option<Run> = serde_json::from_str(row.get_ref(0)?.as_str()?).ok();
    if let Some(run) = &mut run {
        // A run from an earlier version has the cause only in its out-of-memory message.
        run.status = run.status.because(run.oom.as_ref().map(|_| Cause::OutOfGpuMemory));
    }
    Ok(run)
}

/// Parses a stored run with its current status. Its watcher may have died since an agent last checked, or without an
/// agent to check.
pub fn run_with_current_status(row: &Row<'_>) -> rusqlite::Result<Option<Run>> {
    let Some(mut run) = stored_run(row)? else { return Ok(None) };
    if !run.status.has_ended() && process(row.get(2)?).and_then(|watcher| watcher.lives()) == Some(false) {
        run.apply(from_sql(row.get(1)?), &EventKind::RunStatus { status: RunStatus::Lost, energy_joules: None });
    }
    Ok(Some(run))
}

/// Parses a watcher's process as it is stored.
pub fn process(text: Option<String>) -> Option<Process> {
    text.and_then(|text| text.parse().ok())
}
