//! What is read once a second, written: of each card, and of the machine. A reading that is missing is NULL.

use headroom_shared::protocol::{Slow, gpu::SlowSample, host::HostSample, reading::Reading};
use rusqlite::{Transaction, types::Value};

use super::samples::{Places, to_sql};

/// What the machine is called where a card has its row: no row has this number.
pub const HOST_ROW: i64 = 0;

const INSERT_CARD: &str = "INSERT OR REPLACE INTO slow_samples VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const INSERT_HOST: &str = "INSERT OR REPLACE INTO host_samples VALUES (?1, ?2, ?3, ?4, ?5)";

/// Keeps the slow readings of one moment; those of cards without a place are dropped, and what has no course in time,
/// as processes, too.
///
/// # Errors
/// What SQLite says.
pub fn insert(transaction: &Transaction<'_>, places: &Places, slow: &Slow) -> rusqlite::Result<()> {
    let time = Value::Integer(to_sql(slow.time_ms));
    let mut insert = transaction.prepare_cached(INSERT_CARD)?;
    for sample in &slow.gpus {
        let Some(gpu) = places.get(&sample.gpu) else { continue };
        let keys = [time.clone(), Value::Integer(*gpu)];
        insert.execute(rusqlite::params_from_iter(keys.into_iter().chain(of_card(sample))))?;
    }
    let keys = [time, Value::Integer(HOST_ROW)];
    let mut insert = transaction.prepare_cached(INSERT_HOST)?;
    insert.execute(rusqlite::params_from_iter(keys.into_iter().chain(of_host(&slow.host)))).map(|_| ())
}

/// In the order of the metrics of their group, which is that of the columns.
fn of_card(sample: &SlowSample) -> [Value; 6] {
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
