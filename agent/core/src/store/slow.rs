//! Slow readings of the GPUs and the machine: written once per second. A missing reading is NULL.

use std::sync::LazyLock;

use headroom_protocol::{
    SlowReadings,
    metric::{Group, Metric, Number},
    reading::Reading,
};
use rusqlite::{Transaction, types::Value};

use super::{
    columns::single_names,
    resolution::Resolution,
    samples::{Places, to_sql, value_of},
};

/// Row ID of the machine, used instead of a GPU's. No GPU has this row ID.
pub const HOST_ROW: i64 = 0;

static INSERT_GPU: LazyLock<String> = LazyLock::new(|| insert_sql(Group::Slow));
static INSERT_HOST: LazyLock<String> = LazyLock::new(|| insert_sql(Group::Host));

/// Inserts the slow readings of one moment. Readings of GPUs without a row are dropped, as are readings without a time
/// series, such as processes.
///
/// # Errors
/// SQLite reports an error.
pub fn insert(transaction: &Transaction<'_>, places: &Places, slow: &SlowReadings) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(&INSERT_GPU)?;
    for sample in &slow.gpus {
        let Some(gpu) = places.get(&sample.gpu) else { continue };
        let row = row(Group::Slow, slow.time_ms, *gpu, |metric| sample.reading(metric));
        insert.execute(rusqlite::params_from_iter(row))?;
    }
    let mut insert = transaction.prepare_cached(&INSERT_HOST)?;
    let row = row(Group::Host, slow.time_ms, HOST_ROW, |metric| slow.host.reading(metric));
    insert.execute(rusqlite::params_from_iter(row)).map(|_| ())
}

fn insert_sql(group: Group) -> String {
    let metrics = Resolution::Full.single(group);
    let (table, names, places) = (Resolution::Full.table(group), single_names(&metrics), ", ?".repeat(metrics.len()));
    format!("INSERT OR REPLACE INTO {table} (time_ms, gpu, {names}) VALUES (?, ?{places})")
}

/// Returns the values of a row for [`insert_sql`].
fn row(
    group: Group,
    time_ms: u64,
    gpu: i64,
    reading: impl Fn(Metric) -> Option<Reading<Number>>,
) -> impl Iterator<Item = Value> {
    let value = move |metric| match reading(metric) {
        Some(Reading::Is(number)) => value_of(number),
        _ => Value::Null,
    };
    let keys = [Value::Integer(to_sql(time_ms)), Value::Integer(gpu)];
    keys.into_iter().chain(Resolution::Full.single(group).into_iter().map(value))
}
