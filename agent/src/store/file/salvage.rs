//! What can still be read of a damaged file comes along into the new one: what the owner set, runs with their events, the
//! queue, and which alerts are on. Samples stay behind: they are most of the file, and the least of a loss.

use std::path::Path;

use headroom_shared::protocol::{alert::Settings, event::What, run::Run};
use rusqlite::{Connection, OpenFlags, Row, Transaction, TransactionBehavior, types::Value};
use serde_json::Value as Json;

use crate::store::samples::to_sql;

/// Events that come along at most, newest first: weeks of runs, in seconds. A damaged tree may also give the same pages for
/// ever.
const EVENTS_MAX: usize = 1_000_000;
/// Rows of any other table: more than a rig has runs in its life.
const ROWS_MAX: usize = 100_000;
/// The fact that says what was set aside last.
pub const FACT: &str = "set_aside";

/// One table of what comes along.
struct Table {
    name: &'static str,
    /// Columns as the new file has them, the key first.
    columns: &'static str,
    /// The same as a file of the first version has them.
    older: &'static str,
    n_max: usize,
    /// Whether a row is one of ours, as far as it is read: a damaged page has any bytes.
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
        is_whole: |row| json::<What>(&row[3]).is_some() && matches!(row[2], Value::Text(_) | Value::Null),
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

/// Takes into a new file what can be read of one that was set aside under a name, and says so in an event of the new one.
/// Where nothing can be read, or the disk takes no more, the old file is there for a person all the same.
///
/// # Errors
/// The new file cannot be written.
pub fn salvage(folder: &Path, name: &str, new: &mut Connection, now_ms: u64) -> rusqlite::Result<()> {
    let transaction = new.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (mut runs, mut settings) = (0, false);
    if let Ok(old) = open(&folder.join(name)) {
        settings = take_settings(&old, &transaction)?;
        for table in &TABLES {
            let n = take(&old, &transaction, table)?;
            runs = if table.name == "runs" { n } else { runs };
        }
        // A run that waits, and whose row is lost, is nothing to start.
        transaction.execute("DELETE FROM trainings WHERE run NOT IN (SELECT id FROM runs)", [])?;
        transaction.execute("DELETE FROM printed WHERE run NOT IN (SELECT key FROM printed_runs)", [])?;
    }
    // A value of ours has a text.
    if let Ok(said) = serde_json::to_string(&What::HistorySetAside { file: name.to_owned(), runs, settings }) {
        transaction.execute("INSERT INTO events (time_ms, what) VALUES (?1, ?2)", (to_sql(now_ms), &said))?;
        transaction.execute("INSERT OR REPLACE INTO facts VALUES (?1, ?2)", (FACT, &said))?;
    }
    transaction.commit()
}

/// Opens it to read alone, with the log beside it: it stays as it is.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Gives whether nothing of what the owner set is lost.
fn take_settings(old: &Connection, new: &Transaction<'_>) -> rusqlite::Result<bool> {
    let kept = old.query_row("SELECT value FROM facts WHERE name = 'settings'", [], |row| row.get::<_, Value>(0));
    match kept {
        Ok(kept) if json::<Settings>(&kept).is_some() => {
            new.execute("INSERT OR REPLACE INTO facts VALUES ('settings', ?1)", [kept])?;
            Ok(true)
        }
        // Nobody had set anything.
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(true),
        Ok(_) | Err(_) => Ok(false),
    }
}

/// Copies rows from the end of a table up to where it cannot be read, and then from its beginning; gives how many.
fn take(old: &Connection, new: &Transaction<'_>, table: &Table) -> rusqlite::Result<u64> {
    let Table { name, columns, older, .. } = table;
    let n_columns = columns.split(',').count();
    let key = columns.split(',').next().unwrap_or(columns);
    let places = vec!["?"; n_columns].join(", ");
    let mut insert = new.prepare(&format!("INSERT OR IGNORE INTO {name} ({columns}) VALUES ({places})"))?;
    let mut n_taken = 0;
    for order in ["DESC", "ASC"] {
        let select = |columns| old.prepare(&format!("SELECT {columns} FROM {name} ORDER BY {key} {order}"));
        let Ok(mut select) = select(columns).or_else(|_| select(older)) else { return Ok(n_taken) };
        let values = |row: &Row<'_>| (0..n_columns).map(|idx| row.get(idx)).collect::<rusqlite::Result<Vec<Value>>>();
        let Ok(rows) = select.query_map([], values) else { continue };
        let mut is_read = true;
        for row in rows.take(table.n_max) {
            let Ok(row) = row else {
                is_read = false;
                break;
            };
            if (table.is_whole)(&row) {
                // A row that the new table does not take is damaged in its own way.
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
