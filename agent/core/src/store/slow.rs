//! Slow readings of the GPUs and the machine: written once per second. A missing reading is NULL.

use headroom_protocol::{
    SlowReadings,
    metric::{HostSample, SlowSample},
    reading::Reading,
};
use rusqlite::{Transaction, types::Value};

use super::samples::{Places, to_sql};

/// Row ID of the machine, used instead of a GPU's. No GPU has this row ID.
pub const HOST_ROW: i64 = 0;

const INSERT_GPU: &str = "INSERT OR REPLACE INTO slow_samples VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const INSERT_HOST: &str = "INSERT OR REPLACE INTO host_samples VALUES (?1, ?2, ?3, ?4, ?5)";

/// Inserts the slow readings of one moment. Readings of GPUs without a row are dropped, as are readings without a time
/// series, such as processes.
///
/// # Errors
/// SQLite reports an error.
pub fn insert(transaction: &Transaction<'_>, places: &Places, slow: &SlowReadings) -> rusqlite::Result<()> {
    let time = Value::Integer(to_sql(slow.time_ms));
    let mut insert = transaction.prepare_cached(INSERT_GPU)?;
    for sample in &slow.gpus {
        let Some(gpu) = places.get(&sample.gpu) else { continue };
        let keys = [time.clone(), Value::Integer(*gpu)];
        insert.execute(rusqlite::params_from_iter(keys.into_iter().chain(of_gpu(sample))))?;
    }
    let keys = [time, Value::Integer(HOST_ROW)];
    let mut insert = transaction.prepare_cached(INSERT_HOST)?;
    insert.execute(rusqlite::params_from_iter(keys.into_iter().chain(of_host(&slow.host)))).map(|_| ())
}

/// Returns the columns of a GPU's readings, in the order of the group's metrics.
fn of_gpu(sample: &SlowSample) -> [Value; 6] {
    [
        whole(&sample.fan_percent),
        whole(&sample.pcie_receive_bytes_per_second),
        whole(&sample.pcie_send_bytes_per_second),
        real(&sample.energy_joules),
        whole(&sample.ecc_corrected),
        whole(&sample.ecc_uncorrected),
    ]
}

fn of_host(host: &HostSample) -> [Value; 3] {
    [real(&host.cpu_percent), whole(&host.memory_used_bytes), whole(&host.disk_free_bytes)]
}

fn whole(reading: &Reading<u64>) -> Value {
    reading.get().map_or(Value::Null, |value| Value::Integer(to_sql(*value)))
}

fn real(reading: &Reading<f64>) -> Value {
    reading.get().map_or(Value::Null, |value| Value::Real(*value))
}
