//! Samples are stored completely, rolled up without duplicate points, and deleted when they are too old or too many.

use headroom_protocol::{history::POINTS_MAX, metric::Metric};

use super::*;

const GIB: u64 = 1 << 30;

/// Returns the memory use of the first GPU at a time; `None` if the reading is missing.
fn memory(time_ms: u64) -> Option<u64> {
    let second = time_ms / 1000;
    (second % 7 != 3).then_some((second * 2_654_435_761) % 1000 * GIB / 100)
}

pub fn pushed(time_ms: u64) -> Arc<Telemetry> {
    let mut telemetry = (*telemetry(time_ms, 0)).clone();
    telemetry.gpus[0].memory_used_bytes = memory(time_ms).ok_or(MissingReason::Failed).into();
    Arc::new(telemetry)
}

impl Rig {
    /// Records samples at each multiple of `every_ms`, up to `until_ms` exclusive.
    fn sample_until(&mut self, until_ms: u64, every_ms: u64) {
        while self.now_ms < until_ms {
            // At least one minute per turn, within the limit of the queue.
            let end_ms = (self.now_ms + (10 * every_ms).max(60_000)).min(until_ms);
            for time_ms in (self.now_ms..end_ms).step_by(usize::try_from(every_ms).expect("small")) {
                self.queue.push_telemetry(pushed(time_ms));
            }
            self.now_ms = end_ms;
            self.turn();
        }
    }

    fn memory_history(&self, from_ms: u64, to_ms: u64, n_points: u64) -> History {
        let history = self.archive.history(fast(&uuid(0)), from_ms, to_ms, n_points).expect("a range");
        let n = history.times_ms.len();
        assert!(u64::try_from(n).expect("few") <= n_points, "{n} points instead of at most {n_points}");
        assert!(history.times_ms.is_sorted_by(|a, b| a < b), "a point comes twice");
        assert_eq!(history.series.len(), Metric::FAST.len());
        for series in &history.series {
            assert_eq!([series.min.len(), series.mean.len(), series.max.len()], [n; 3]);
        }
        history
    }

    /// Compares a range with the samples.
    #[track_caller]
    pub fn check(&self, from_ms: u64, to_ms: u64, n_points: u64, step_ms: u64, every_ms: u64) {
        let history = self.memory_history(from_ms, to_ms, n_points);
        assert_eq!(history.step_ms, step_ms);
        let first_ms = from_ms - from_ms % step_ms;
        let all = (first_ms..to_ms).step_by(usize::try_from(step_ms).expect("small"));
        assert_eq!(history.times_ms, all.collect::<Vec<_>>());
        for (idx, time_ms) in history.times_ms.iter().enumerate() {
            let within = (time_ms.max(&from_ms).next_multiple_of(every_ms)..to_ms.min(time_ms + step_ms))
                .step_by(usize::try_from(every_ms).expect("small"));
            let values: Vec<f64> = within.filter_map(memory).map(|bytes| bytes as f64).collect();
            let series = &history.series[0];
            let (min, mean, max) = (series.min[idx], series.mean[idx], series.max[idx]);
            if values.is_empty() {
                assert_eq!((min, mean, max), (None, None, None), "{time_ms}: a missing reading is not 0");
                continue;
            }
            assert_eq!(min, values.iter().copied().reduce(f64::min), "{time_ms}");
            assert_eq!(max, values.iter().copied().reduce(f64::max), "{time_ms}");
            let expected = values.iter().sum::<f64>() / values.len() as f64;
            let mean = mean.expect("a mean");
            assert!((mean - expected).abs() <= 1e-12 * expected.max(1.0), "{time_ms}: {mean}, and not {expected}");
        }
    }
}

#[test]
fn samples_come_back_as_they_were_given() {
    let mut rig = Rig::new();
    let mut first = (*telemetry(START_MS, 5)).clone();
    first.seq = 77;
    first.gpus[0].power_watts = Reading::missing(MissingReason::NoPermission);
    first.gpus[0].throttle = Reading::missing(MissingReason::Failed);
    first.gpus[1].memory_used_bytes = Reading::missing(MissingReason::HiddenByWindows);
    first.gpus[1].utilization_percent = Reading::Is(0);
    rig.queue.push_telemetry(Arc::new(first.clone()));
    // A GPU outside the inventory has no row.
    rig.queue
        .push_telemetry(Arc::new(Telemetry { gpus: vec![sample(5, 1)], ..(*telemetry(START_MS + 50, 1)).clone() }));
    for time_ms in [START_MS + 100, START_MS + 200] {
        rig.queue.push_telemetry(telemetry(time_ms, 6));
    }
    rig.turn();
    let place_of = |of: &str| [0, 1].into_iter().find(|index| uuid(*index) == of);
    let read = rig.archive.telemetry_after(place_of, START_MS - 1, 10).expect("samples");
    first.seq = 0;
    assert_eq!(read, [first.clone(), (*telemetry(START_MS + 100, 6)).clone(), (*telemetry(START_MS + 200, 6)).clone()]);
    assert_eq!(rig.archive.telemetry_after(place_of, START_MS - 1, 2).expect("samples"), read[..2]);
    assert_eq!(rig.archive.telemetry_after(place_of, START_MS + 100, 9).expect("samples"), read[2..]);
    // After a restart, the second GPU is the first in the inventory, and the other GPU is gone.
    let moved = rig.archive.telemetry_after(|of| (of == uuid(1)).then_some(0), START_MS - 1, 1).expect("samples");
    assert_eq!(moved[0].gpus, [Sample { gpu: 0, ..first.gpus[1].clone() }]);
}

#[test]
fn every_reason_reads_back() {
    let mut rig = Rig::new();
    let whys = [
        MissingReason::NotSupported,
        MissingReason::NoPermission,
        MissingReason::HiddenByWindows,
        MissingReason::GpuLost,
        MissingReason::OldDriver,
        MissingReason::NotYet,
        MissingReason::Failed,
    ];
    let mut all = Vec::new();
    for (time_ms, why) in (START_MS..).zip(whys) {
        let mut one = (*telemetry(time_ms, 1)).clone();
        one.gpus[0].memory_used_bytes = Reading::missing(why);
        one.gpus[0].throttle = Reading::missing(why);
        rig.queue.push_telemetry(Arc::new(one.clone()));
        all.push(one);
    }
    rig.turn();
    let place_of = |of: &str| [0, 1].into_iter().find(|index| uuid(*index) == of);
    assert_eq!(rig.archive.telemetry_after(place_of, 0, 10).expect("samples"), all);
}

#[test]
fn each_part_of_a_range_comes_from_the_finest_that_is_left() {
    let mut rig = Rig::new();
    rig.sample_until(START_MS + 4 * HOUR_MS, 1000);
    let end_ms = rig.now_ms;
    assert!(rig.count("samples") < 2 * 3700, "an hour of two GPUs");
    assert!(rig.count("samples_10s") > 2 * 4 * 350, "all four hours");
    let full = |history: &History| (history.step_ms, history.times_ms.len());
    // The newest hour is available at full rate, even where it is rolled up.
    assert_eq!(full(&rig.memory_history(end_ms - 50_000, end_ms, 2000)), (100, 50));
    assert_eq!(full(&rig.memory_history(end_ms - 50_000 - 2 * HOUR_MS, end_ms - 2 * HOUR_MS, 2000)), (10_000, 5));
}

#[test]
fn ranges_agree_with_the_samples() {
    let mut rig = Rig::new();
    rig.sample_until(START_MS + 4 * HOUR_MS, 1000);
    let (begin_ms, end_ms) = (START_MS, rig.now_ms);
    rig.check(end_ms - HOUR_MS / 2, end_ms, 2000, 1000, 1000);
    rig.check(end_ms - HOUR_MS / 2 + 345, end_ms - 777, 1000, 2000, 1000);
    rig.check(end_ms - HOUR_MS / 2, end_ms, 100, 20_000, 1000);
    rig.check(end_ms - 2 * HOUR_MS, end_ms, POINTS_MAX, 10_000, 1000);
    rig.check(begin_ms, end_ms, POINTS_MAX, 10_000, 1000);
    rig.check(begin_ms, end_ms, 300, 60_000, 1000);
    rig.check(begin_ms, end_ms, 100, 5 * 60_000, 1000);
    rig.check(begin_ms, end_ms, 7, HOUR_MS, 1000);
    rig.check(begin_ms, end_ms, 1, 6 * HOUR_MS, 1000);
    // Beyond both ends there are no points, and an empty range has no point.
    assert_eq!(rig.memory_history(0, begin_ms, 100).times_ms, [0; 0]);
    assert_eq!(rig.memory_history(end_ms, u64::MAX, 100).times_ms, [0; 0]);
    assert_eq!(rig.memory_history(end_ms - 5, end_ms - 5, 100).times_ms, [0; 0]);
    assert_eq!(rig.memory_history(end_ms - 5, begin_ms, 100).times_ms, [0; 0]);
    assert!(!rig.memory_history(0, u64::MAX, POINTS_MAX).times_ms.is_empty());
    assert!(rig.archive.history(fast("GPU-none"), 0, u64::MAX, 10).expect("a range").times_ms.is_empty());
}

#[test]
fn rolling_up_goes_on_where_it_was_left() {
    let mut rig = Rig::new();
    // Restarts at irregular moments, without notice to the writer.
    for part in 1..=40 {
        rig.sample_until(START_MS + part * 277_000, 1000);
        let writer = Writer::new(HistoryFile::new(rig.folder.path()), RetentionLimits::default(), Role::Agent);
        rig.writer = writer;
    }
    assert!(rig.now_ms > START_MS + 3 * HOUR_MS);
    rig.check(START_MS, START_MS + 3 * HOUR_MS, 300, 60_000, 1000);
    rig.check(START_MS, START_MS + 3 * HOUR_MS, 1100, 10_000, 1000);
}

#[test]
fn every_bit_of_throttle_is_kept() {
    let mut rig = Rig::new();
    for (time_ms, bits) in (START_MS..).step_by(1000).zip([1, 4, 0x40, 0x100, 4]) {
        let mut one = (*telemetry(time_ms, 1)).clone();
        one.gpus[0].throttle = Reading::Is(bits);
        one.gpus[1].throttle = Reading::missing(MissingReason::NotSupported);
        rig.queue.push_telemetry(Arc::new(one));
    }
    rig.turn_after(3 * 60_000);
    let connection = Connection::open(rig.path()).expect("the file");
    for table in ["samples_10s", "samples_1min"] {
        let mut select = connection.prepare(&format!("SELECT throttle FROM {table} ORDER BY gpu")).expect("a table");
        let kept: Vec<Option<i64>> =
            select.query_map([], |row| row.get(0)).expect("rows").collect::<Result<_, _>>().expect("bits");
        assert_eq!(kept, [Some(0x145), None], "{table}");
    }
}

#[test]
fn samples_of_a_clock_that_was_put_back_count_once() {
    let mut rig = Rig::new();
    rig.sample_until(START_MS + 10 * 60_000, 1000);
    // Set the clock back by five and a half minutes, to moments between the seconds.
    rig.now_ms -= 330_000 - 500;
    let back_ms = rig.now_ms;
    rig.sample_until(back_ms + 10 * 60_000, 1000);
    let n = |table: &str, column: &str| {
        let connection = Connection::open(rig.path()).expect("the file");
        let sql = format!("SELECT sum({column}) FROM {table} WHERE gpu = 2 AND time_ms < ?1");
        let until_ms = i64::try_from(START_MS + 9 * 60_000).expect("a time");
        connection.query_row(&sql, [until_ms], |row| row.get::<_, i64>(0)).expect("a sum")
    };
    let n_full = n("samples", "power_watts IS NOT NULL");
    assert!(n_full > 9 * 60, "{n_full}");
    assert_eq!(n("samples_10s", "power_watts_n"), n_full);
    assert_eq!(n("samples_1min", "power_watts_n"), n_full);
}

#[test]
fn old_rows_are_deleted() {
    let mut rig = Rig::new();
    rig.sample_until(START_MS + 33 * DAY_MS, 600_000);
    let oldest = |table: &str| {
        let connection = Connection::open(rig.path()).expect("the file");
        let oldest: i64 =
            connection.query_row(&format!("SELECT min(time_ms) FROM {table}"), [], |row| row.get(0)).expect("a time");
        // Ages are measured from the newest sample, because the time after it is not recorded time yet.
        rig.now_ms - 600_000 - u64::try_from(oldest).expect("a time")
    };
    let about = |age_ms: u64, kept_ms: u64| (kept_ms - 600_000..=kept_ms + 120_000).contains(&age_ms);
    assert!(about(oldest("samples"), HOUR_MS), "{}", oldest("samples"));
    assert!(about(oldest("samples_10s"), 2 * DAY_MS), "{}", oldest("samples_10s"));
    assert!(about(oldest("samples_1min"), 30 * DAY_MS), "{}", oldest("samples_1min"));
    let month = rig.memory_history(rig.now_ms - 30 * DAY_MS, rig.now_ms, POINTS_MAX);
    assert_eq!(month.step_ms, 30 * 60_000);
    assert!(month.times_ms.len() >= 30 * 48 - 1, "{} points", month.times_ms.len());
}

#[test]
fn a_file_that_is_too_large_loses_its_oldest_samples_and_no_event() {
    let mut rig = Rig::new();
    let keep = RetentionLimits { bytes_max: 1 << 20, ..RetentionLimits::default() };
    rig.writer = Writer::new(HistoryFile::new(rig.folder.path()), keep, Role::Agent);
    rig.begin("a1");
    for day in 1..=10 {
        rig.append(Some("a1"), iteration(day));
        rig.sample_until(START_MS + day * DAY_MS, 60_000);
    }
    let bytes = std::fs::metadata(rig.path()).expect("the file").len();
    assert!(bytes <= (1 << 20) + (5 << 20), "{bytes} bytes, and at most 4 MiB are free");
    let connection = Connection::open(rig.path()).expect("the file");
    let pragma = |name| -> i64 { connection.pragma_query_value(None, name, |row| row.get(0)).expect("a pragma") };
    assert!((pragma("page_count") - pragma("freelist_count")) * 4096 <= (1 << 20) + 65_536);
    assert_eq!(rig.archive.events(Some("a1"), 0, 100).expect("events").len(), 11);
    let kept = rig.memory_history(START_MS, rig.now_ms, POINTS_MAX);
    let first_ms = kept.times_ms[0];
    assert!(first_ms > START_MS + DAY_MS && first_ms < rig.now_ms - DAY_MS, "{first_ms}");
    assert!(kept.times_ms.last().expect("points") + 10 * 60_000 >= rig.now_ms, "the newest are there");
}
