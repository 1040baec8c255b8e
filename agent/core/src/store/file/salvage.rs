//! Copies readable data of a damaged file into the new one: settings, runs with their events, the queue and active
//! alerts. Samples are not copied; they are most of the file and the least loss.

use std::path::Path;

use headroom_protocol::{alert::Settings, event::EventKind, run::Run};
use rusqlite::{Connection, OpenFlags, Row, Transaction, TransactionBehavior, types::Value};
use serde_json::Value as Json;

use crate::{logging::HISTORY, store::samples::to_sql};

/// Maximum number of copied events, newest first: weeks of runs, in seconds. A damaged B-tree may also return the same
/// pages endlessly.
const EVENTS_MAX: usize = 1_000_000;
/// Maximum number of rows of any other table, more than a rig has runs in its life.
const ROWS_MAX: usize = 100_000;
/// Name of the fact about the last file that was set aside.
pub const FACT: &str = "set_aside";

/// A table that is copied.
struct Table {
    name: &'static str,
    /// Columns in the new file, the key first.
    columns: &'static str,
    /// The same columns in a file of the first version.
    older: &'static str,
    n_max: usize,
    /// Validates a row as far as it was read. A damaged page may contain any bytes.
    is_whole: fn(&[Value]) -> bool,
}

const TABLES: [Table; 6] = [
    Table {
        name: "runs",
        columns: "id, started_ms, ended, seen_ms, run, watcher",
        older: "id, started_ms, ended, seen_ms, run, NULL",
        n_max: ROWS_MAX,
        is_whole: |row| json(&row[4]).is_some_and(|run: Run| row[0] == Value::Text(run.id)),
    },
    Table {
        name: "events",
        columns: "id, time_ms, run, what",
        older: "id, time_ms, run, what",
        n_max: EVENTS_MAX,
        is_whole: |row| json::<EventKind>(&row[3]).is_some() && matches!(row[2], Value::Text(_) | Value::Null),
    },
    Table {
        name: "printed_runs",
        columns: "key, run, n, since_event",
        older: "key, run, n, since_event",
        n_max: ROWS_MAX,
        is_whole: |row| matches!(row, [Value::Integer(_), Value::Text(_), Value::Integer(_), Value::Integer(_)]),
    },
    Table {
        name: "printed",
        columns: "run, seq, printed_ms, left_out, iter, loss, time_ms, tokens_per_second, mfu_printed_percent, \
                  mfu_percent, learning_rate, gradient_norm, train_loss, val_loss",
        older: "run, seq, printed_ms, left_out, iter, loss, time_ms, tokens_per_second, mfu_printed_percent, \
                mfu_percent, learning_rate, gradient_norm, train_loss, val_loss",
        n_max: EVENTS_MAX,
        is_whole: |row| {
            let is_number = |value: &Value| matches!(value, Value::Integer(_) | Value::Real(_) | Value::Null);
            row.iter().all(is_number) && row[..3].iter().all(|value| matches!(value, Value::Integer(_)))
        },
    },
    Table {
        name: "trainings",
        columns: "run, place, stopping_ms",
        older: "run, place, stopping_ms",
        n_max: ROWS_MAX,
        is_whole: |row| matches!(row[0], Value::Text(_)),
    },
    Table {
        name: "alerts",
        columns: "event, time_ms, run, gpu, alert, value, dismissed",
        older: "event, time_ms, run, gpu, alert, value, dismissed",
        n_max: ROWS_MAX,
        is_whole: |row| json::<Json>(&row[4]).is_some(),
    },
];

/// Copies the readable data of a set-aside file into a new one, and records an event about it. If nothing can be read
/// or the disk is full, the old file still exists.
///
/// # Errors
/// The new file cannot be written.
pub fn salvage(folder: &Path, name: &str, new: &mut Connection, now_ms: u64) -> rusqlite::Result<()> {
    let transaction = new.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut runs, mut settings) = (0, false);
    let opened = open(&folder.join(name));
    if let Err(error) = &opened {
        tracing::warn!(target: HISTORY, %error, "cannot open the damaged file: nothing is recovered");
    }
    if let Ok(old) = opened {
        settings = take_settings(&old, &transaction)?;
        if !settings {
            tracing::warn!(target: HISTORY, "cannot recover the settings");
        }
        for table in &TABLES {
            let n = take(&old, &transaction, table)?;
            tracing::info!(target: HISTORY, table = table.name, rows = n, "rows were recovered");
            runs = if table.name == "runs" { n } else { runs };
        }
        // A queued run whose row is lost cannot be started.
        transaction.execute("DELETE FROM trainings WHERE run NOT IN (SELECT id FROM runs)", [])?;
        transaction.execute("DELETE FROM printed WHERE run NOT IN (SELECT key FROM printed_runs)", [])?;
    }
    // Serialising our own types does not fail.
    if let Ok(said) = serde_json::to_string(&EventKind::HistorySetAside { file: name.to_owned(), runs, settings }) {
        transaction.execute("INSERT INTO events (time_ms, what) VALUES (?1, ?2)", (to_sql(now_ms), &said))?;
        transaction.execute("INSERT OR REPLACE INTO facts VALUES (?1, ?2)", (FACT, &said))?;
    }
    transaction.commit()
}

/// Opens the damaged file read-only, with its write-ahead log.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Copies the settings. Returns whether no settings were lost.
fn take_settings(old: &Connection, new: &Transaction<'_>) -> rusqlite::Result<bool> {
    let kept = old.query_row("SELECT value FROM facts WHERE name = 'settings'", [], |row| row.get::<_, Value>(0));
    match kept {
        Ok(kept) if json::<Settings>(&kept).is_some() => {
            new.execute("INSERT OR REPLACE INTO facts VALUES ('settings', ?1)", [kept])?;
            Ok(true)
        }
        // There were no settings.
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(true),
        Ok(_) | Err(_) => Ok(false),
    }
}

/// Copies rows from the end of a table until an error, then from its beginning. Returns the number of copied rows.
fn take(old: &Connection, new: &Transaction<'_>, table: &Table) -> rusqlite::Result<u64> {
    let Table { name, columns, older, .. } = table;
    let n_columns = columns.split(',').count();
    let key = columns.split(',').next().unwrap_or(columns);
    let places = vec!["?"; n_columns].join(", ");
    let mut insert = new.prepare(&format!("INSERT OR IGNORE INTO {name} ({columns}) VALUES ({places})"))?;
    let mut n_taken = 0;
    for order in ["DESC", "ASC"] {
        let select = |columns| old.prepare(&format!("SELECT {columns} FROM {name} ORDER BY {key} {order}"));
        let mut select = match select(columns).or_else(|_| select(older)) {
            Ok(select) => select,
            Err(error) => {
                tracing::warn!(target: HISTORY, table = name, %error, "cannot read a table of the damaged file");
                return Ok(n_taken);
            }
        };
        let values = |row: &Row<'_>| (0..n_columns).map(|idx| row.get(idx)).collect::<rusqlite::Result<Vec<Value>>>();
        let Ok(rows) = select.query_map([], values) else { continue };
        let mut is_read = true;
        for row in rows.take(table.n_max) {
            let row = match row {
                Ok(row) => row,
                Err(error) => {
                    tracing::warn!(target: HISTORY, table = name, order, %error, "cannot read a row of the damaged file");
                    is_read = false;
                    break;
                }
            };
            if (table.is_whole)(&row) {
                // A row that violates the new table's constraints is damaged.
                n_taken += insert.execute(rusqlite::params_from_iter(row)).unwrap_or(0) as u64;
            }
        }
        if is_read {
            break;
        }
    }
    Ok(n_taken)
}

fn json<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    if let Value::Text(text) = value { serde_json::from_str(text).ok() } else { None }
}
