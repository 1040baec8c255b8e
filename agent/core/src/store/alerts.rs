//! Active alerts. Each change is written in the transaction of the event that fires, ends or dismisses the alert.

use headroom_protocol::{
    alert::{Alert, FiredAlert},
    event::EventKind,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::samples::{from_sql, to_sql};

/// Maximum number of stored active alerts; beyond it, the oldest are deleted. Only failed runs that are never dismissed
/// come close.
const KEPT_MAX: u64 = 1000;

const SELECT: &str = "SELECT event, time_ms, run, gpu, name, alert, value, dismissed FROM alerts \
                      LEFT JOIN gpus ON gpus.uuid = alerts.gpu";

/// A stored alert.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAlert {
    /// The active alert.
    pub fired: FiredAlert,
    /// Whether a user dismissed the alert. It is then hidden, and cannot fire again until it is over.
    pub is_dismissed: bool,
}

/// Applies an event that has just got its number.
///
/// # Errors
/// SQLite reports an error.
pub fn apply(
    transaction: &Transaction<'_>,
    id: u64,
    time_ms: u64,
    run: Option<&str>,
    what: &EventKind,
) -> rusqlite::Result<()> {
    match what {
        EventKind::Alert { alert, gpu, value, .. } => {
            let Ok(json) = serde_json::to_string(alert) else { return Ok(()) };
            end(transaction, &json, gpu.as_deref(), run)?;
            let mut insert = transaction.prepare_cached(
                "INSERT INTO alerts (event, time_ms, run, gpu, alert, value, dismissed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)",
            )?;
            insert.execute((to_sql(id), to_sql(time_ms), run, gpu, json, value))?;
            let mut forget = transaction.prepare_cached(
                "DELETE FROM alerts WHERE event <= (SELECT event FROM alerts ORDER BY event DESC LIMIT 1 OFFSET ?1)",
            )?;
            forget.execute([to_sql(KEPT_MAX)])?;
        }
        EventKind::AlertOver { alert, gpu } => {
            let Ok(json) = serde_json::to_string(alert) else { return Ok(()) };
            end(transaction, &json, gpu.as_deref(), run)?;
        }
        // A failed run causes no further events.
        EventKind::AlertDismissed { alert: alert @ Alert::RunFailed, gpu } => {
            let Ok(json) = serde_json::to_string(alert) else { return Ok(()) };
            end(transaction, &json, gpu.as_deref(), run)?;
        }
        EventKind::AlertDismissed { alert, gpu } => {
            let Ok(json) = serde_json::to_string(alert) else { return Ok(()) };
            let sql =
                "UPDATE alerts SET dismissed = 1 WHERE alert = ?1 AND gpu IS ?2 AND (gpu IS NOT NULL OR run IS ?3)";
            transaction.prepare_cached(sql)?.execute((json, gpu, run))?;
        }
        _ => {}
    }
    Ok(())
}

/// Deletes an alert, with the same criteria as [`FiredAlert::is`].
fn end(transaction: &Transaction<'_>, alert: &str, gpu: Option<&str>, run: Option<&str>) -> rusqlite::Result<()> {
    let sql = "DELETE FROM alerts WHERE alert = ?1 AND gpu IS ?2 AND (gpu IS NOT NULL OR run IS ?3)";
    transaction.prepare_cached(sql)?.execute((alert, gpu, run)).map(|_| ())
}

/// Deletes the alerts of a run that is deleted.
///
/// # Errors
/// SQLite reports an error.
pub fn forget_run(transaction: &Transaction<'_>, run: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM alerts WHERE run = ?1", [run]).map(|_| ())
}

/// Returns all active alerts, newest first.
///
/// # Errors
/// SQLite reports an error.
pub fn all(connection: &Connection) -> rusqlite::Result<Vec<StoredAlert>> {
    let mut select = connection.prepare_cached(&format!("{SELECT} ORDER BY event DESC LIMIT ?1"))?;
    let all = select.query_map([to_sql(KEPT_MAX)], kept)?;
    Ok(all.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Returns an active alert that was not dismissed, by the number of its event.
///
/// # Errors
/// SQLite reports an error.
pub fn one(connection: &Connection, event: u64) -> rusqlite::Result<Option<FiredAlert>> {
    // A number outside SQLite's range has no alert.
    let Ok(event) = i64::try_from(event) else { return Ok(None) };
    let mut select = connection.prepare_cached(&format!("{SELECT} WHERE event = ?1 AND dismissed = 0"))?;
    Ok(select.query_row([event], kept).optional()?.flatten().map(|kept| kept.fired))
}

/// Parses a stored alert; `None` for a rule of a later version, so that other alerts remain readable.
fn kept(row: &Row<'_>) -> rusqlite::Result<Option<StoredAlert>> {
    let Ok(alert) = serde_json::from_str(row.get_ref(5)?.as_str()?) else { return Ok(None) };
    let fired = FiredAlert {
        event: from_sql(row.get(0)?),
        time_ms: from_sql(row.get(1)?),
        run: row.get(2)?,
        gpu: row.get(3)?,
        gpu_name: row.get(4)?,
        alert,
        value: row.get(6)?,
    };
    Ok(Some(StoredAlert { fired, is_dismissed: row.get(7)? }))
}
