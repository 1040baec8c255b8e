//! When things are read: times that never go back, and ticks that do not drift.

use std::time::{Duration, Instant};

/// A moment, by both of the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970: what a person sets, forward and back.
    pub wall_ms: u64,
    /// Since reading began, by the clock that only goes on.
    pub since_start: Duration,
}

/// Times of one session: the wall's, except where that would go back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    last: Option<Moment>,
}

impl Times {
    /// The time of a moment: always later than the one before.
    pub fn time_ms(&mut self, now: Moment) -> u64 {
        let time_ms = self.last.map_or(now.wall_ms, |last| {
            let passed = now.since_start.saturating_sub(last.since_start).as_millis();
            let passed_ms = u64::try_from(passed).unwrap_or(u64::MAX).max(1);
            // Forward at once, as after a night asleep, in which the other clock stood still.
            now.wall_ms.max(last.wall_ms.saturating_add(passed_ms))
        });
        self.last = Some(Moment { wall_ms: time_ms, since_start: now.since_start });
        time_ms
    }
}

/// Moments at whole multiples of a period.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    next: Instant,
    period: Duration,
}

impl Ticks {
    /// The first tick is now.
    pub fn new(now: Instant, period: Duration) -> Self {
        Self { next: now, period }
    }

    /// How long it is to the next tick; what was missed is not made up.
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

    #[test]
    fn time_never_goes_back_and_never_stands() {
        let mut times = Times::default();
        let mut at =
            |wall_ms, since_ms| times.time_ms(Moment { wall_ms, since_start: Duration::from_millis(since_ms) });
        assert_eq!(at(10_000, 0), 10_000);
        assert_eq!(at(10_100, 100), 10_100);
        assert_eq!(at(3_000, 200), 10_200, "somebody set the clock back");
        assert_eq!(at(3_000, 200), 10_201);
        assert_eq!(at(90_000, 300), 90_000, "the machine slept");
    }

    #[test]
    fn a_late_tick_is_skipped_and_the_next_is_in_step() {
        let start = Instant::now();
        let mut ticks = Ticks::new(start, SECOND);
        let mut wait = |ms| ticks.wait(start + Duration::from_millis(ms)).as_millis();
        assert_eq!(wait(0), 1000);
        assert_eq!(wait(1300), 700, "what is read takes its time, and the ticks do not drift");
        assert_eq!(wait(5400), 600, "the ticks at 3, 4 and 5 s are gone");
        assert_eq!(wait(7000), 0, "and one that is just now is not");
        assert_eq!(wait(7001), 999);
    }
}
