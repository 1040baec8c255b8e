//! Benchmark of history with eight GPUs, for `headroom bench`. It works in a temporary directory. The results include
//! the disk and the machine's other load.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use headroom_protocol::{
    SlowReadings, Telemetry,
    gpu::Gpu,
    history::POINTS_MAX,
    metric::{Group, HostSample, Sample, SlowSample, Unit},
    reading::{MissingReason, Reading},
};
use rusqlite::Connection;
use serde::Serialize;

use super::{
    Archive, RetentionLimits, Subject,
    columns::rolled_names,
    error::FileUnusable,
    file::{HistoryFile, NAME},
    queue::Queue,
    resolution::Resolution,
    samples::to_sql,
    writer::{Role, Writer},
};
use crate::random;

/// Number of GPUs, as in a large machine.
const N_GPUS: u32 = 8;
/// Start time: a whole day, so minutes and hours are whole as well.
const START_MS: u64 = 1_794_960_000_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Number of unmeasured seconds at the start: one hour, so that the measured turns also cut full-rate samples.
const SECONDS_BEFORE: u64 = 3600;
/// Number of requests per range; the result is their median.
const ROUNDS: usize = 11;
/// Ranges that the page requests.
const RANGES: [(&str, u64); 3] = [("1 h", HOUR_MS), ("24 h", DAY_MS), ("30 d", 30 * DAY_MS)];

/// Cost of recording on this machine.
#[derive(Debug, Serialize)]
pub struct Figures {
    #[serde(rename = "cards")]
    gpus: u32,
    /// Time to write, roll up and cut one second of all GPUs at full rate: median, mean and 99th percentile.
    second_millis: f64,
    second_millis_mean: f64,
    second_millis_p99: f64,
    /// The mean as a percentage of one core, assuming that the time contains no waiting.
    core_percent: f64,
    /// Size of the file with one hour at full rate, and with everything retained after 30 days.
    hour_bytes: u64,
    month_bytes: u64,
    /// Requests for ranges of one GPU in that file.
    ranges: Vec<Range>,
    /// Time to copy the file.
    backup_millis: f64,
}

/// Time of a range request.
#[derive(Debug, Serialize)]
struct Range {
    range: &'static str,
    group: Group,
    points: usize,
    millis: f64,
}

/// Runs the benchmark over `n_seconds` seconds of simulated time.
///
/// # Errors
/// The temporary directory cannot be created, or SQLite fails in it; the error contains the reason.
pub fn measure(n_seconds: u64) -> Result<Figures, String> {
    let folder = Folder::new()?;
    let (mut seconds, hour_bytes) = seconds(&folder.0.join("hour"), n_seconds)?;
    seconds.sort_by(f64::total_cmp);
    let mean = seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
    let at = |percent: usize| seconds.get(seconds.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0.0);
    let month = folder.0.join("month");
    fill_month(&month)?;
    let archive = Archive::new(&month);
    let ranges = RANGES.into_iter().flat_map(|range| Group::ALL.map(|group| (range, group)));
    let ranges = ranges.map(|(range, group)| of_range(&archive, range, group)).collect::<Result<_, _>>()?;
    let begin = Instant::now();
    archive.backup(&month.join("copy")).map_err(|error| error.to_string())?;
    Ok(Figures {
        gpus: N_GPUS,
        second_millis: at(50),
        second_millis_mean: mean,
        second_millis_p99: at(99),
        core_percent: mean / 10.0,
        hour_bytes,
        month_bytes: HistoryFile::new(&month).bytes(),
        ranges,
        backup_millis: millis(begin),
    })
}

/// A temporary directory, which is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let name = random::hex(8).map_err(|error| error.to_string())?;
        let folder = std::env::temp_dir().join(format!("headroom-bench-{name}"));
        let make = || ["hour", "month"].iter().try_for_each(|part| fs::create_dir_all(folder.join(part)));
        make().map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Leftovers are in the system's temporary directory, which the system cleans up.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

fn uuid(index: u32) -> String {
    format!("GPU-{index}")
}

/// Returns the milliseconds of each second, and the file size in bytes.
fn seconds(folder: &Path, n_seconds: u64) -> Result<(Vec<f64>, u64), String> {
    let file = HistoryFile::new(folder);
    let queue = Queue::new();
    queue.set_inventory((0..N_GPUS).map(gpu).collect());
    let mut writer = Writer::new(file.clone(), RetentionLimits::default(), Role::Agent);
    let mut times = Vec::new();
    for second in 0..SECONDS_BEFORE + n_seconds.max(1) {
        let time_ms = START_MS + second * 1000;
        for moment in 0..10 {
            queue.push_telemetry(telemetry(time_ms + moment * 100));
        }
        queue.push_slow(slow(time_ms));
        let begin = Instant::now();
        writer.turn(&queue, time_ms + 1000, false, &|_| {});
        if second >= SECONDS_BEFORE {
            times.push(millis(begin));
        }
    }
    if queue.is_empty() { Ok((times, file.bytes())) } else { Err("history cannot be written there".to_owned()) }
}

/// Returns varying figures, like those of a GPU.
fn wave(time_ms: u64, gpu: u32) -> u64 {
    (time_ms / 100 * 7919 + u64::from(gpu) * 104_729) % 1009
}

fn telemetry(time_ms: u64) -> Arc<Telemetry> {
    let gpu_sample = |gpu| Sample::example(gpu, wave(time_ms, gpu));
    Arc::new(Telemetry { seq: 0, time_ms, gpus: (0..N_GPUS).map(gpu_sample).collect() })
}

fn slow(time_ms: u64) -> Arc<SlowReadings> {
    let gpu_sample = |gpu| SlowSample {
        pcie_link: Reading::Is((5, 16)),
        processes: Reading::Is(vec![]),
        ..SlowSample::example(gpu, wave(time_ms, gpu))
    };
    let host = HostSample::example(wave(time_ms, 0));
    Arc::new(SlowReadings { time_ms, gpus: (0..N_GPUS).map(gpu_sample).collect(), host })
}

fn gpu(index: u32) -> Gpu {
    let missing = || Reading::missing(MissingReason::NotYet);
    Gpu {
        index,
        listed_as: None,
        uuid: uuid(index),
        name: "made up".to_owned(),
        present: true,
        memory_total_bytes: Reading::missing(MissingReason::NotYet),
        compute_capability: Reading::missing(MissingReason::NotYet),
        power_limit_watts: Reading::missing(MissingReason::NotYet),
        power_limit_max_watts: Reading::missing(MissingReason::NotYet),
        temperature_slowdown_celsius: missing(),
        temperature_shutdown_celsius: missing(),
        clock_sm_max_mhz: missing(),
        clock_memory_max_mhz: missing(),
        mig_enabled: Reading::missing(MissingReason::NotYet),
        nvlinks_active: Reading::missing(MissingReason::NotYet),
        pci_bus_id: Reading::missing(MissingReason::NotYet),
    }
}

/// Creates a month of retained data: minutes for all of it, 10 seconds for two days, full rate for one hour.
fn fill_month(folder: &Path) -> Result<(), String> {
    let queue = Queue::new();
    queue.set_inventory((0..N_GPUS).map(gpu).collect());
    queue.push_telemetry(telemetry(START_MS));
    Writer::new(HistoryFile::new(folder), RetentionLimits::default(), Role::Agent).turn(
        &queue,
        START_MS,
        true,
        &|_| {},
    );
    fill(folder).map_err(|error| FileUnusable::from(error).to_string())
}

fn fill(folder: &Path) -> rusqlite::Result<()> {
    let end_ms = START_MS + 30 * DAY_MS;
    let connection = Connection::open(folder.join(NAME))?;
    // Inserted in key order, as during recording. A table that is written in another order is larger.
    connection.execute_batch("BEGIN; DELETE FROM samples; CREATE TEMP TABLE t (x INTEGER PRIMARY KEY)")?;
    for group in Group::ALL {
        let gpus = if group == Group::Host { "(SELECT 0 AS id)" } else { "gpus" };
        for resolution in Resolution::ALL {
            let from_ms = end_ms - RetentionLimits::default().of(resolution).min(30 * DAY_MS);
            let step_ms = resolution.step_ms(group);
            connection.execute("DELETE FROM t", [])?;
            connection.execute(
                "INSERT INTO t WITH RECURSIVE r(x) AS (SELECT ?1 UNION ALL SELECT x + ?3 FROM r WHERE x + ?3 < ?2) SELECT x FROM r",
                [from_ms, end_ms, step_ms].map(to_sql),
            )?;
            connection.execute(
                "INSERT OR REPLACE INTO facts VALUES ('cut_' || ?1, ?2)",
                (resolution.table(group), to_sql(from_ms - START_MS)),
            )?;
            let (table, is_full) = (resolution.table(group), resolution == Resolution::Full);
            let (keys, order) = if is_full { ("x, c.id", "x, c.id") } else { ("c.id, x", "c.id, x") };
            let key_names = if is_full { "time_ms, gpu" } else { "gpu, time_ms" };
            let (names, values) = columns(group, resolution);
            connection.execute_batch(&format!(
                "INSERT OR REPLACE INTO {table} ({key_names}, {names}) SELECT {keys}, {values} FROM t, {gpus} c \
                 ORDER BY {order}"
            ))?;
        }
    }
    connection.execute("UPDATE spans SET end_ms = ?1", [to_sql(end_ms - 1)])?;
    connection.execute_batch("COMMIT")
}

/// Returns the names of a table's columns, and SQL for random readings of realistic size.
fn columns(group: Group, resolution: Resolution) -> (String, String) {
    let n = resolution.step_ms(group) / Resolution::Full.step_ms(group);
    let (mut names, mut values): (Vec<String>, Vec<String>) = (vec![], vec![]);
    for metric in resolution.rolled(group) {
        names.extend(rolled_names(*metric));
        let value = random_value(metric.unit());
        values.extend([n.to_string(), value.clone(), format!("({value}) / 7.0"), value]);
    }
    for metric in resolution.single(group) {
        names.push(metric.name().to_owned());
        values.push(random_value(metric.unit()));
    }
    if (group, resolution) == (Group::Fast, Resolution::Full) {
        names.push("missing".to_owned());
        values.push("0".to_owned());
    }
    (names.join(", "), values.join(", "))
}

fn random_value(unit: Unit) -> String {
    let below = match unit {
        Unit::Percent | Unit::Celsius => 100,
        Unit::Megahertz => 10_000,
        Unit::Watts => return "abs(random()) % 100000 / 7.0".to_owned(),
        Unit::Joules => return "abs(random()) % 1000000000 / 7.0".to_owned(),
        Unit::Errors => 3,
        Unit::BytesPerSecond => 10_000_000_000_u64,
        Unit::Bytes => 100_000_000_000,
        Unit::ThrottleBits => return "4".to_owned(),
    };
    format!("abs(random()) % {below}")
}

fn of_range(archive: &Archive, (range, range_ms): (&'static str, u64), group: Group) -> Result<Range, String> {
    let end_ms = START_MS + 30 * DAY_MS;
    let gpu = uuid(3);
    let mut points = 0;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let history = archive.history(Subject { group, gpu: &gpu }, end_ms - range_ms, end_ms, POINTS_MAX);
        points = history.map_err(|error| error.to_string())?.times_ms.len();
        times.push(millis(begin));
    }
    times.sort_by(f64::total_cmp);
    Ok(Range { range, group, points, millis: times.get(ROUNDS / 2).copied().unwrap_or(0.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_filled_as_it_would_be_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        fill_month(folder.path()).expect("it is filled");
        let connection = Connection::open(folder.path().join(NAME)).expect("the file");
        let count = |table: &str| -> u64 {
            let n: u32 =
                connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("rows");
            n.into()
        };
        let gpus = u64::from(N_GPUS);
        assert_eq!(count("samples"), gpus * 36_000);
        assert_eq!(count("slow_samples"), gpus * 3600);
        assert_eq!(count("slow_samples_10s"), gpus * 2 * 8640);
        assert_eq!(count("samples_1min"), gpus * 30 * 1440);
        assert_eq!(count("host_samples_1min"), 30 * 1440);
        let archive = Archive::new(folder.path());
        for group in Group::ALL {
            let range = of_range(&archive, RANGES[2], group).expect("a range");
            assert!(range.points >= 1440, "{range:?}");
        }
        let bytes = HistoryFile::new(folder.path()).bytes();
        assert!(bytes < RetentionLimits::default().bytes_max / 4, "{bytes} bytes of 30 days and eight GPUs");
    }
}
