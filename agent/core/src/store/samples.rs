//! Full-rate samples: written and read. A missing reading is NULL, and its reason is in the column `missing`.

use std::collections::HashMap;

use headroom_protocol::{
    Telemetry,
    gpu::Gpu,
    metric::Sample,
    reading::{MissingReason, Reading},
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, types::Value};

/// Number of readings per sample, in the order of the reasons in `missing`.
const N_READINGS: usize = 10;
/// Bits per reason in `missing`.
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

const INSERT: &str = "INSERT OR REPLACE INTO samples VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
const SELECT: &str = "SELECT s.time_ms, g.uuid, memory_used_bytes, memory_free_bytes, memory_reserved_bytes, \
                      utilization_percent, memory_utilization_percent, power_watts, clock_sm_mhz, clock_memory_mhz, \
                      temperature_celsius, throttle, missing FROM samples s JOIN gpus g ON g.id = s.gpu";

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
    let mut insert = transaction.prepare_cached(INSERT)?;
    for sample in &telemetry.gpus {
        let Some(gpu) = places.get(&sample.gpu) else { continue };
        let (readings, missing) = values(sample);
        let keys = [Value::Integer(to_sql(telemetry.time_ms)), Value::Integer(*gpu)];
        insert
            .execute(rusqlite::params_from_iter(keys.into_iter().chain(readings).chain([Value::Integer(missing)])))?;
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
    let mut select = connection.prepare_cached(&format!("{SELECT} WHERE s.time_ms > ?1 ORDER BY s.time_ms, s.gpu"))?;
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

fn values(sample: &Sample) -> ([Value; N_READINGS], i64) {
    let mut missing = 0;
    let mut place = 0;
    let mut value = |value: Result<Value, MissingReason>| {
        let shift = place * WHY_BITS;
        place += 1;
        value.unwrap_or_else(|why| {
            missing |= code(why) << shift;
            Value::Null
        })
    };
    let int = |reading: &Reading<u64>| match reading {
        Reading::Is(value) => Ok(Value::Integer(to_sql(*value))),
        Reading::Missing { missing } => Err(*missing),
    };
    let real = |reading: &Reading<f64>| match reading {
        Reading::Is(value) => Ok(Value::Real(*value)),
        Reading::Missing { missing } => Err(*missing),
    };
    let readings = [
        value(int(&sample.memory_used_bytes)),
        value(int(&sample.memory_free_bytes)),
        value(int(&sample.memory_reserved_bytes)),
        value(int(&sample.utilization_percent)),
        value(int(&sample.memory_utilization_percent)),
        value(real(&sample.power_watts)),
        value(int(&sample.clock_sm_mhz)),
        value(int(&sample.clock_memory_mhz)),
        value(int(&sample.temperature_celsius)),
        value(int(&sample.throttle)),
    ];
    (readings, missing)
}

fn sample(row: &Row<'_>, gpu: u32) -> rusqlite::Result<Sample> {
    const FIRST: usize = 2;
    let whys: i64 = row.get(FIRST + N_READINGS)?;
    let why = |place: usize| why(whys >> (place * WHY_BITS));
    let int = |place: usize| -> rusqlite::Result<Reading<u64>> {
        let value: Option<i64> = row.get(FIRST + place)?;
        Ok(value.map(from_sql).ok_or_else(|| why(place)).into())
    };
    let real = |place: usize| -> rusqlite::Result<Reading<f64>> {
        let value: Option<f64> = row.get(FIRST + place)?;
        Ok(value.ok_or_else(|| why(place)).into())
    };
    Ok(Sample {
        gpu,
        memory_used_bytes: int(0)?,
        memory_free_bytes: int(1)?,
        memory_reserved_bytes: int(2)?,
        utilization_percent: int(3)?,
        memory_utilization_percent: int(4)?,
        power_watts: real(5)?,
        clock_sm_mhz: int(6)?,
        clock_memory_mhz: int(7)?,
        temperature_celsius: int(8)?,
        throttle: int(9)?,
    })
}

fn code(why: MissingReason) -> i64 {
    WHYS.iter().zip(1..).find(|(known, _)| **known == why).map_or(0, |(_, code)| code)
}

fn why(code: i64) -> MissingReason {
    let code = usize::try_from(code & ((1 << WHY_BITS) - 1)).unwrap_or(0);
    code.checked_sub(1).and_then(|idx| WHYS.get(idx)).copied().unwrap_or(MissingReason::Failed)
}
