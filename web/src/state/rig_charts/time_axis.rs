//! The time axis: ticks at round times of the local clock.

use super::{
    view::Range,
    zone::{DAY_MS, UtcOffset},
};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// The distances between ticks.
const STEPS_MS: [u64; 22] = [
    1000,
    2000,
    5000,
    10_000,
    15_000,
    30_000,
    MINUTE_MS,
    2 * MINUTE_MS,
    5 * MINUTE_MS,
    10 * MINUTE_MS,
    15 * MINUTE_MS,
    30 * MINUTE_MS,
    HOUR_MS,
    2 * HOUR_MS,
    3 * HOUR_MS,
    6 * HOUR_MS,
    12 * HOUR_MS,
    DAY_MS,
    2 * DAY_MS,
    5 * DAY_MS,
    7 * DAY_MS,
    10 * DAY_MS,
];
/// The width of a tick's label in pixels, with its margin.
const TICK_PX: f64 = 72.0;
/// The most ticks, whatever the screen's width.
const TICKS_MAX: u64 = 16;
/// A label within this share of the width from an end would extend beyond it.
const EDGE_SHARE: f64 = 0.03;

/// A tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// The position, as a share of the width.
    pub x: f64,
    /// The label.
    pub label: String,
    /// Whether it is a date among times of day.
    pub is_date: bool,
}

/// The ticks of a range on a plot of `width_px` pixels.
pub fn ticks(range: Range, width_px: f64, zone: UtcOffset) -> Vec<Tick> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let n_max = ((width_px / TICK_PX).clamp(0.0, TICKS_MAX as f64) as u64).max(2);
    let span_ms = range.span_ms();
    let last = STEPS_MS[STEPS_MS.len() - 1];
    // Beyond the table, a sufficient multiple of its last step.
    let beyond = last * (span_ms / last / n_max + 1);
    let step_ms = STEPS_MS.into_iter().find(|step_ms| span_ms / step_ms <= n_max).unwrap_or(beyond);
    let mut local_ms = zone.local_ms(range.from_ms).div_ceil(step_ms).saturating_mul(step_ms);
    let mut ticks = Vec::new();
    // One more than fits: a day on which summer time ends has an extra hour.
    for _ in 0..=n_max + 1 {
        let time_ms = zone.time_ms(local_ms);
        if time_ms >= range.to_ms {
            break;
        }
        let x = range.share(time_ms);
        let is_date = step_ms >= DAY_MS || local_ms.is_multiple_of(DAY_MS);
        if x >= 0.0 && (EDGE_SHARE..=1.0 - EDGE_SHARE).contains(&x) {
            let label = if is_date { zone.date(time_ms) } else { zone.clock(time_ms, step_ms < MINUTE_MS) };
            ticks.push(Tick { x, label, is_date: is_date && step_ms < DAY_MS });
        }
        local_ms = local_ms.saturating_add(step_ms);
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::{super::zone::tests::berlin, *};
    use proptest::prelude::*;

    #[track_caller]
    fn check(from_ms: u64, span_ms: u64, width_px: f64, expected: &[&str]) {
        let range = Range { from_ms, to_ms: from_ms + span_ms };
        let labels: Vec<String> =
            ticks(range, width_px, UtcOffset(berlin)).into_iter().map(|tick| tick.label).collect();
        assert_eq!(labels, expected);
    }

    #[test]
    fn ticks_are_at_round_local_times() {
        // 22 November 2026, 04:10:30 in Berlin.
        let time_ms = 1_795_317_030_000;
        check(time_ms, HOUR_MS, 360.0, &["04:15", "04:30", "04:45", "05:00"]);
        check(time_ms, DAY_MS, 360.0, &["06:00", "12:00", "18:00", "23 Nov"]);
        check(time_ms, 30_000, 360.0, &["04:10:40", "04:10:50"]);
        check(time_ms, 30 * DAY_MS, 360.0, &["26 Nov", "3 Dec", "10 Dec", "17 Dec"]);
    }

    #[test]
    fn a_day_that_is_an_hour_longer_keeps_its_ticks_at_round_hours() {
        // 24 October 2026, 22:00 UTC is midnight in Berlin; the day has 25 hours.
        check(1_792_879_200_000, 25 * HOUR_MS, 700.0, &["03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]);
    }

    proptest! {
        #[test]
        fn ticks_are_few_and_ascend(from_ms: u64, span_ms: u64, width_px in 0.0..10_000.0) {
            let range = Range { from_ms, to_ms: from_ms.saturating_add(span_ms) };
            let found = ticks(range, width_px, UtcOffset(berlin));
            prop_assert!(found.len() as u64 <= TICKS_MAX + 2);
            prop_assert!(found.windows(2).all(|two| two[0].x < two[1].x), "{:?}", found);
        }
    }
}
