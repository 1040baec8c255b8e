//! A wall clock that is wrong and then corrected: nothing is deleted because of the step, and ranges are correct.

use std::{cell::Cell, time::Duration};

use super::*;

const YEAR_MS: i64 = 365 * 24 * 3_600_000;
const MINUTE_MS: u64 = 60_000;

thread_local! {
    /// Simulated time since the start of the program, in milliseconds.
    static SINCE_START_MS: Cell<u64> = const { Cell::new(0) };
}

fn since_start() -> Duration {
    Duration::from_millis(SINCE_START_MS.get())
}

/// Returns the wall-clock time for a clock that is ahead by `ahead_ms`.
fn wall_ms(ahead_ms: i64) -> u64 {
    (START_MS + SINCE_START_MS.get()).saturating_add_signed(ahead_ms)
}

fn clocked() -> Rig {
    SINCE_START_MS.set(0);
    let mut rig = Rig::new();
    let queue = Queue::new().with_clock(since_start);
    queue.set_inventory(vec![gpu(0), gpu(1)]);
    rig.queue = Arc::new(queue);
    rig
}

impl Rig {
    /// Records one sample per second for `ms` milliseconds, with a clock that is ahead by `ahead_ms`.
    fn record(&mut self, ms: u64, ahead_ms: i64) {
        let until_ms = SINCE_START_MS.get() + ms;
        while SINCE_START_MS.get() < until_ms {
            for _ in 0..60 {
                self.queue.push_telemetry(rolling::pushed(wall_ms(ahead_ms)));
                SINCE_START_MS.set(SINCE_START_MS.get() + 1000);
            }
            self.now_ms = wall_ms(ahead_ms);
            self.turn();
        }
    }

    fn restart(&mut self) {
        self.writer = Writer::new(HistoryFile::new(self.folder.path()), RetentionLimits::default(), Role::Agent);
    }

    fn rows(&self, sql: &str) -> i64 {
        let connection = Connection::open(self.path()).expect("the file");
        connection.query_row(sql, [], |row| row.get(0)).expect("a number")
    }
}

#[test]
fn a_clock_a_year_ahead_deletes_nothing() {
    let mut rig = clocked();
    rig.record(3 * HOUR_MS, 0);
    let wrong_ms = wall_ms(YEAR_MS);
    rig.record(10 * MINUTE_MS, YEAR_MS);
    let check_before = |rig: &Rig| {
        rig.check(START_MS, START_MS + 3 * HOUR_MS, POINTS, 10_000, 1000);
        rig.check(START_MS, START_MS + 3 * HOUR_MS, 180, 60_000, 1000);
    };
    check_before(&rig);
    rig.check(wrong_ms, wrong_ms + 10 * MINUTE_MS, 600, 1000, 1000);
    // The same after a start with the wrong clock, and after the correction.
    rig.restart();
    rig.record(10 * MINUTE_MS, YEAR_MS);
    check_before(&rig);
    let right_ms = wall_ms(0);
    rig.record(10 * MINUTE_MS, 0);
    check_before(&rig);
    rig.check(right_ms, right_ms + 10 * MINUTE_MS, 600, 1000, 1000);
    rig.check(wrong_ms, wrong_ms + 20 * MINUTE_MS, POINTS, 1000, 1000);
    rig.restart();
    rig.record(10 * MINUTE_MS, 0);
    check_before(&rig);
    // Samples recorded in the wrong year are rolled up and deleted like all others.
    rig.record(3 * HOUR_MS, 0);
    assert!(rig.rows("SELECT count(*) FROM samples") < 2 * 3700, "an hour of two GPUs");
    rig.check(wrong_ms, wrong_ms + 20 * MINUTE_MS, POINTS, 10_000, 1000);
    rig.check(right_ms, right_ms + 3 * HOUR_MS, POINTS, 10_000, 1000);
}

/// More points than any range in these tests has.
const POINTS: u64 = headroom_protocol::history::POINTS_MAX;

#[test]
fn a_clock_years_behind_is_corrected_and_nothing_is_deleted() {
    let mut rig = clocked();
    let wrong_ms = wall_ms(-6 * YEAR_MS);
    rig.record(90 * MINUTE_MS, -6 * YEAR_MS);
    let right_ms = wall_ms(0);
    rig.record(20 * MINUTE_MS, 0);
    rig.check(wrong_ms, wrong_ms + 90 * MINUTE_MS, POINTS, 10_000, 1000);
    rig.check(right_ms, right_ms + 20 * MINUTE_MS, 1200, 1000, 1000);
    // One hour at full rate is one hour of recorded time. The older part was recorded with the wrong clock.
    rig.check(wrong_ms + 80 * MINUTE_MS, wrong_ms + 90 * MINUTE_MS, 600, 1000, 1000);
}

#[test]
fn overlapping_recordings_are_both_kept() {
    let mut rig = clocked();
    rig.record(3 * HOUR_MS, 0);
    // Between the earlier seconds, starting one hour after the beginning; the newest of these are available at full
    // rate.
    rig.record(90 * MINUTE_MS, -2 * 3_600_000 + 500);
    let range = |begin_ms, end_ms| format!("gpu = 2 AND time_ms >= {begin_ms} AND time_ms < {end_ms}");
    let both = range(START_MS + HOUR_MS, START_MS + HOUR_MS + 85 * MINUTE_MS);
    for table in ["samples_10s", "samples_1min"] {
        let n = rig.rows(&format!("SELECT sum(power_watts_n) FROM {table} WHERE {both}"));
        assert_eq!(n, 2 * 85 * 60, "{table}");
    }
    let once = range(START_MS, START_MS + HOUR_MS);
    assert_eq!(rig.rows(&format!("SELECT sum(power_watts_n) FROM samples_10s WHERE {once}")), 3600);
    let twice =
        rig.archive.history(fast(&uuid(0)), START_MS + HOUR_MS, START_MS + 2 * HOUR_MS, POINTS).expect("a range");
    assert_eq!((twice.step_ms, twice.times_ms.len()), (10_000, 360), "a table that has both");
}

#[test]
fn time_without_an_agent_makes_nothing_old() {
    let mut rig = clocked();
    rig.record(2 * HOUR_MS, 0);
    rig.restart();
    // By the clock of this start, which cannot be distinguished from a wrong one, all samples exceed the retention
    // period.
    rig.record(10 * MINUTE_MS, 40 * 24 * 3_600_000);
    rig.check(START_MS, START_MS + 2 * HOUR_MS, POINTS, 10_000, 1000);
}

#[test]
fn steps_of_the_clock_are_bounded() {
    let mut rig = clocked();
    for n in 0..spans::SPANS_MAX + 10 {
        rig.record(1000, if n % 2 == 0 { 0 } else { 3_600_000 });
    }
    rig.turn_after(120_000);
    let n_spans = rig.rows("SELECT count(*) FROM spans").unsigned_abs();
    assert!((spans::SPANS_MAX..=spans::SPANS_MAX + 2).contains(&n_spans), "{n_spans} spans");
}
