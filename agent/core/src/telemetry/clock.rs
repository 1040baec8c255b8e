//! Times of readings that follow the wall clock, and periodic ticks without drift.

use std::time::{Duration, Instant};

use crate::clock::Timestamp;

/// The smallest backward step of the wall clock that is followed at once, and the smallest step reported as an event,
/// in milliseconds. Smaller steps are corrections of time servers. After a smaller step back, times run at half speed
/// until the clock has caught up.
pub const STEP_MS: u64 = 5000;

/// The wall clock was set, forward or back, by [`STEP_MS`] or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The time without the step, in milliseconds.
    pub from_ms: u64,
    /// The time after the step, in milliseconds.
    pub to_ms: u64,
}

/// The times of one thread's readings, from the wall clock. They decrease only if the clock was set back by [`STEP_MS`]
/// or more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    last: Option<LastReading>,
    step: Option<Step>,
}

#[derive(Clone, Copy, Debug)]
struct LastReading {
    wall_ms: u64,
    since_start: Duration,
    time_ms: u64,
}

impl Times {
    /// Returns the time of a moment: later than the previous one, unless the clock was set back.
    pub fn time_ms(&mut self, now: Timestamp) -> u64 {
        let mut time_ms = now.wall_ms;
        if let Some(last) = self.last {
            let passed = now.since_start.saturating_sub(last.since_start).as_millis();
            let passed_ms = u64::try_from(passed).unwrap_or(u64::MAX);
            let expected_ms = last.wall_ms.saturating_add(passed_ms);
            // Several small steps back can add up to a large one.
            let is_set_back = last.time_ms.saturating_sub(now.wall_ms) >= STEP_MS;
            if is_set_back || now.wall_ms.abs_diff(expected_ms) >= STEP_MS {
                self.step = Some(Step {
                    from_ms: if is_set_back { expected_ms.max(last.time_ms) } else { expected_ms },
                    to_ms: now.wall_ms,
                });
            }
            if !is_set_back && time_ms <= last.time_ms {
                time_ms = last.time_ms.saturating_add((passed_ms / 2).max(1));
            }
        }
        self.last = Some(LastReading { wall_ms: now.wall_ms, since_start: now.since_start, time_ms });
        time_ms
    }

    /// Returns the step before the last moment, and clears it.
    pub const fn take_step(&mut self) -> Option<Step> {
        self.step.take()
    }
}

/// Periodic ticks at whole multiples of a period.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    next: Instant,
    period: Duration,
}

impl Ticks {
    /// Creates ticks of which the first is now.
    pub fn new(now: Instant, period: Duration) -> Self {
        Self { next: now, period }
    }

    /// Returns the time to the next tick. Missed ticks are skipped.
    pub fn wait(&mut self, now: Instant) -> Duration {
        self.next += self.period;
        let late = now.saturating_duration_since(self.next);
        let missed = late.as_nanos().div_ceil(self.period.as_nanos().max(1));
        self.next += self.period.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX));
        self.next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const T: u64 = 1_795_000_000_000;
    const YEAR_MS: u64 = 365 * 24 * 3_600_000;

    /// Computes the times and the steps of moments, each given as wall clock and uptime in milliseconds.
    fn times(moments: &[(u64, u64)]) -> (Vec<u64>, Vec<Step>) {
        let (mut times, mut steps) = (Times::default(), Vec::new());
        let all = moments.iter().map(|&(wall_ms, since_ms)| {
            let time_ms = times.time_ms(Timestamp { wall_ms, since_start: Duration::from_millis(since_ms) });
            steps.extend(times.take_step());
            time_ms
        });
        (all.collect(), steps)
    }

    #[test]
    fn telemetry_time_follows_wall_clock_and_advances() {
        let (all, steps) = times(&[(T, 0), (T + 100, 100), (T + 100, 100), (T + 300, 300)]);
        assert_eq!(all, [T, T + 100, T + 101, T + 300]);
        assert_eq!(steps, []);
    }

    #[test]
    fn a_small_step_back_slows_time_down_until_the_clock_has_caught_up() {
        let moments: Vec<(u64, u64)> =
            (0..100).map(|n| (T + 100 * n - if n < 3 { 0 } else { 2000 }, 100 * n)).collect();
        let (all, steps) = times(&moments);
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        assert_eq!(all.last(), moments.last().map(|(wall_ms, _)| wall_ms), "it caught up");
        assert_eq!(all.iter().zip(&moments).filter(|(time_ms, (wall_ms, _))| *time_ms != wall_ms).count(), 39);
        assert_eq!(steps, []);
    }

    #[test]
    fn a_clock_that_was_set_is_followed_at_once_both_ways() {
        let (all, steps) =
            times(&[(T, 0), (T + YEAR_MS + 100, 100), (T + YEAR_MS + 200, 200), (T + 300, 300), (T + 400, 400)]);
        assert_eq!(all, [T, T + YEAR_MS + 100, T + YEAR_MS + 200, T + 300, T + 400]);
        let forward = Step { from_ms: T + 100, to_ms: T + YEAR_MS + 100 };
        let back = Step { from_ms: T + YEAR_MS + 300, to_ms: T + 300 };
        assert_eq!(steps, [forward, back]);
    }

    #[test]
    fn a_late_tick_is_skipped_and_the_next_is_in_step() {
        let start = Instant::now();
        let mut ticks = Ticks::new(start, SECOND);
        let mut wait = |ms| ticks.wait(start + Duration::from_millis(ms)).as_millis();
        assert_eq!(wait(0), 1000);
        assert_eq!(wait(1300), 700, "reading takes time, but the ticks do not drift");
        assert_eq!(wait(5400), 600, "the ticks at 3, 4 and 5 s are gone");
        assert_eq!(wait(7000), 0, "and one that is just now is not");
        assert_eq!(wait(7001), 999);
    }
}
