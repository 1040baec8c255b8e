//! Alerts that are on: each is written in the transaction of the event that sets it off, ends it or dismisses it.

use headroom_shared::protocol::{
    alert::{Alert, Fired},
    event::What,
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::samples::{from_sql, to_sql};

/// Alerts that are kept as being on; of more, the oldest are forgotten. Only failed runs that nobody dismisses get near.
const KEPT_MAX: u64 = 1000;

const SELECT: &str = "SELECT event, time_ms, run, gpu, name, alert, value, dismissed FROM alerts \
                      LEFT JOIN gpus ON gpus.uuid = alerts.gpu";

/// An alert as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// What is on.
    pub fired: Fired,
    /// Somebody dismissed it: nobody is shown it, and it does not go off again before it was over.
    pub is_dismissed: bool,
}

/// Takes an event that has just got its number.
///
/// # Errors
/// What SQLite says.
pub fn apply(
    transaction: &Transaction<'_>,
    id: u64,
    time_ms: u64,
    run: Option<&str>,
    what: &What,
) -> rusqlite::Result<()> {
    match what {
        What::Alert { alert, gpu, value, .. } => {
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
        What::AlertOver { alert, gpu } => {
            let Ok(json) = serde_json::to_string(alert) else { return Ok(()) };
            end(transaction, &json, gpu.as_deref(), run)?;
        }
        // Of a run that failed nothing more will come.
        What::AlertDismissed { alert: alert @ Alert::RunFailed, gpu } => {
            let Ok(json) = serde_json::to_string(alert) else { return Ok(()) };
            end(transaction, &json, gpu.as_deref(), run)?;
        }
        What::AlertDismissed { alert, gpu } => {
            let Ok(json) = serde_json::to_string(alert) else { return Ok(()) };
            let sql =
                "UPDATE alerts SET dismissed = 1 WHERE alert = ?1 AND gpu IS ?2 AND (gpu IS NOT NULL OR run IS ?3)";
            transaction.prepare_cached(sql)?.execute((json, gpu, run))?;
        }
        _ => {}
    }
    Ok(())
}

/// As [`Fired::is`].
fn end(transaction: &Transaction<'_>, alert: &str, gpu: Option<&str>, run: Option<&str>) -> rusqlite::Result<()> {
    let sql = "DELETE FROM alerts WHERE alert = ?1 AND gpu IS ?2 AND (gpu IS NOT NULL OR run IS ?3)";
    transaction.prepare_cached(sql)?.execute((alert, gpu, run)).map(|_| ())
}

/// Those of a run that is deleted are over with it.
///
/// # Errors
/// What SQLite says.
pub fn forget_run(transaction: &Transaction<'_>, run: &str) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM alerts WHERE run = ?1", [run]).map(|_| ())
}

/// All that are on, newest first.
///
/// # Errors
/// What SQLite says.
pub fn all(connection: &Connection) -> rusqlite::Result<Vec<Kept>> {
    let mut select = connection.prepare_cached(&format!("{SELECT} ORDER BY event DESC LIMIT ?1"))?;
    let all = select.query_map([to_sql(KEPT_MAX)], kept)?;
    Ok(all.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// One that is on and was not dismissed, by the number of its event.
///
/// # Errors
/// What SQLite says.
pub fn one(connection: &Connection, event: u64) -> rusqlite::Result<Option<Fired>> {
    // A number beyond SQLite's is nobody's.
    let Ok(event) = i64::try_from(event) else { return Ok(None) };
    let mut select = connection.prepare_cached(&format!("{SELECT} WHERE event = ?1 AND dismissed = 0"))?;
    Ok(select.query_row([event], kept).optional()?.flatten().map(|kept| kept.fired))
}

/// A rule of a later version is passed over, so that the others can be read.
fn kept(row: &Row<'_>) -> rusqlite::Result<Option<Kept>> {
    let Ok(alert) = serde_json::from_str(row.get_ref(5)?.as_str()?) else { return Ok(None) };
    let fired = Fired {
        event: from_sql(row.get(0)?),
        time_ms: from_sql(row.get(1)?),
        run: row.get(2)?,
        gpu: row.get(3)?,
        gpu_name: row.get(4)?,
        alert,
        value: row.get(6)?,
    };
    Ok(Some(Kept { fired, is_dismissed: row.get(7)? }))
}
