//! Full-rate samples: written and read. A missing reading is NULL, and its reason is in the column `missing`.

use std::{collections::HashMap, sync::LazyLock};

use headroom_protocol::{
    Telemetry,
    gpu::Gpu,
    metric::{Group, Metric, Number, Sample},
    reading::{MissingReason, Reading},
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, types::Value};

use super::{columns::single_names, resolution::Resolution};

/// Bits per reason in `missing`. The reasons are in the order of the fast readings, which never changes: a new reading is
/// the last. Rows from before it have no reason for it.
const WHY_BITS: usize = 3;
/// Reasons by number, starting at 1; 0 means a present reading or an unknown reason.
const WHYS: [MissingReason; 7] = [
    MissingReason::NotSupported,
    MissingReason::NoPermission,
    MissingReason::HiddenByWindows,
    MissingReason::GpuLost,
    MissingReason::OldDriver,
    MissingReason::NotYet,
    MissingReason::Failed,
];

/// The readings of a row, in the order of their reasons.
static READINGS: LazyLock<Vec<Metric>> = LazyLock::new(|| Resolution::Full.single(Group::Fast));
static INSERT: LazyLock<String> = LazyLock::new(|| {
    let (names, places) = (single_names(&READINGS), ", ?".repeat(READINGS.len()));
    format!("INSERT OR REPLACE INTO samples (time_ms, gpu, missing, {names}) VALUES (?, ?, ?{places})")
});
/// SQL that selects samples: time, the GPU's UUID, `missing` and the readings.
static SELECT: LazyLock<String> = LazyLock::new(|| {
    let names = single_names(&READINGS);
    format!(
        "SELECT s.time_ms, g.uuid, missing, {names} FROM samples s JOIN gpus g ON g.id = s.gpu WHERE s.time_ms > ?1 \
         ORDER BY s.time_ms, s.gpu"
    )
});

/// Row IDs of GPUs by index.
pub type Places = HashMap<u32, i64>;

/// Inserts missing GPUs and returns the row IDs of all.
///
/// # Errors
/// SQLite reports an error.
pub fn places(transaction: &Transaction<'_>, gpus: &[Gpu]) -> rusqlite::Result<Places> {
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO gpus (uuid, name) VALUES (?1, ?2) ON CONFLICT (uuid) DO UPDATE SET name = ?2 RETURNING id",
    )?;
    gpus.iter().map(|gpu| Ok((gpu.index, upsert.query_row((&gpu.uuid, &gpu.name), |row| row.get(0))?))).collect()
}

/// Returns the row ID of a GPU.
///
/// # Errors
/// SQLite reports an error.
pub fn gpu_row(connection: &Connection, uuid: &str) -> rusqlite::Result<Option<i64>> {
    connection.query_row("SELECT id FROM gpus WHERE uuid = ?1", [uuid], |row| row.get(0)).optional()
}

/// Inserts the samples of one moment. Samples of GPUs without a row are dropped.
///
/// # Errors
/// SQLite reports an error.
pub fn insert(transaction: &Transaction<'_>, places: &Places, telemetry: &Telemetry) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(&INSERT)?;
    for sample in &telemetry.gpus {
        let Some(gpu) = places.get(&sample.gpu) else { continue };
        let (readings, missing) = values(sample);
        let keys = [to_sql(telemetry.time_ms), *gpu, missing].map(Value::Integer);
        insert.execute(rusqlite::params_from_iter(keys.into_iter().chain(readings)))?;
    }
    Ok(())
}

/// Returns samples after a time, oldest first, at most `n_max` moments, for GPUs that have an index.
///
/// # Errors
/// SQLite reports an error.
pub fn after(
    connection: &Connection,
    place_of: impl Fn(&str) -> Option<u32>,
    time_ms: u64,
    n_max: usize,
) -> rusqlite::Result<Vec<Telemetry>> {
    let mut select = connection.prepare_cached(&SELECT)?;
    let mut rows = select.query([to_sql(time_ms)])?;
    let mut moments: Vec<Telemetry> = Vec::new();
    while let Some(row) = rows.next()? {
        let time_ms = from_sql(row.get(0)?);
        if moments.last().is_none_or(|last| last.time_ms != time_ms) {
            if moments.len() == n_max {
                break;
            }
            moments.push(Telemetry { seq: 0, time_ms, gpus: vec![] });
        }
        let place = place_of(row.get_ref(1)?.as_str()?);
        if let (Some(moment), Some(gpu)) = (moments.last_mut(), place) {
            moment.gpus.push(sample(row, gpu)?);
        }
    }
    Ok(moments)
}

/// Converts to SQLite's signed integers. Larger values are saturated; no GPU reading is that large.
pub fn to_sql(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Converts from SQLite's signed integers. Negative values become 0.
pub fn from_sql(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Returns a number as SQLite stores it.
pub fn value_of(number: Number) -> Value {
    match number {
        Number::Whole(value) => Value::Integer(to_sql(value)),
        Number::Real(value) => Value::Real(value),
    }
}

/// Returns the values of a sample's readings, and the reasons of missing ones.
fn values(sample: &Sample) -> (Vec<Value>, i64) {
    let mut missing = 0;
    let value = |(place, metric): (usize, &Metric)| match sample.reading(*metric) {
        Some(Reading::Is(number)) => value_of(number),
        Some(Reading::Missing { missing: why }) => {
            missing |= code(why) << (place * WHY_BITS);
            Value::Null
        }
        None => Value::Null,
    };
    let values = READINGS.iter().enumerate().map(value).collect();
    (values, missing)
}

fn sample(row: &Row<'_>, gpu: u32) -> rusqlite::Result<Sample> {
    let whys: i64 = row.get(2)?;
    let mut sample = Sample::missing(gpu, MissingReason::Failed);
    for (place, metric) in READINGS.iter().enumerate() {
        let column = 3 + place;
        let number = if metric.is_whole() {
            row.get::<_, Option<i64>>(column)?.map(|value| Number::Whole(from_sql(value)))
        } else {
            row.get::<_, Option<f64>>(column)?.map(Number::Real)
        };
        sample.set(*metric, number.ok_or_else(|| why(whys >> (place * WHY_BITS))).into());
    }
    Ok(sample)
}

fn code(why: MissingReason) -> i64 {
    WHYS.iter().zip(1..).find(|(known, _)| **known == why).map_or(0, |(_, code)| code)
}

fn why(code: i64) -> MissingReason {
    let code = usize::try_from(code & ((1 << WHY_BITS) - 1)).unwrap_or(0);
    code.checked_sub(1).and_then(|idx| WHYS.get(idx)).copied().unwrap_or(MissingReason::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_all_fast_readings_fit_a_column() {
        assert!(READINGS.len() * WHY_BITS < i64::BITS as usize);
    }
}
