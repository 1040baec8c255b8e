//! Local time: dates and times of day in the current language.

use crate::text::{self, say, t};

/// Milliseconds per day.
pub const DAY_MS: u64 = 86_400_000;

/// The offset of local time from UTC in minutes, as a function of the time, because summer time changes it.
#[derive(Clone, Copy)]
pub struct UtcOffset(pub fn(u64) -> i64);

/// A moment in a local calendar and clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The year.
    pub year: i64,
    /// The month, from 1.
    pub month: u64,
    /// The day of the month, from 1.
    pub day: u64,
    /// Seconds since midnight.
    pub seconds: u64,
}

impl UtcOffset {
    /// Milliseconds since 1970 by the local clock.
    pub fn local_ms(self, time_ms: u64) -> u64 {
        time_ms.saturating_add_signed((self.0)(time_ms) * 60_000)
    }

    /// The moment at which the local clock shows a time.
    pub fn time_ms(self, local_ms: u64) -> u64 {
        // The offset depends on the result. The second iteration is exact except within the hour of a change of the
        // offset.
        let near = local_ms.saturating_add_signed((self.0)(local_ms) * -60_000);
        local_ms.saturating_add_signed((self.0)(near) * -60_000)
    }

    /// The local calendar date and time of a moment.
    pub fn local(self, time_ms: u64) -> Local {
        let local_ms = self.local_ms(time_ms);
        let (year, month, day) = civil(local_ms / DAY_MS);
        Local { year, month, day, seconds: local_ms % DAY_MS / 1000 }
    }

    /// A date: `22 Nov`.
    pub fn date(self, time_ms: u64) -> String {
        let Local { month, day, .. } = self.local(time_ms);
        let months = t(text::HISTORY_MONTHS);
        let month = months.split(' ').nth(usize::try_from(month).unwrap_or(0).saturating_sub(1)).unwrap_or_default();
        say(&text::history_date(day, month))
    }

    /// A time of day: `14:05`, with seconds `14:05:30`.
    pub fn clock(self, time_ms: u64, with_seconds: bool) -> String {
        let seconds = self.local(time_ms).seconds;
        let minutes = format!("{:02}:{:02}", seconds / 3600, seconds / 60 % 60);
        if with_seconds { format!("{minutes}:{:02}", seconds % 60) } else { minutes }
    }

    /// Date and time of day.
    pub fn moment(self, time_ms: u64, with_seconds: bool) -> String {
        say(&text::history_moment(self.date(time_ms), self.clock(time_ms, with_seconds)))
    }

    /// A range between two moments. The date is written once if it is the same.
    pub fn range(self, from_ms: u64, to_ms: u64) -> String {
        let with_seconds = to_ms.saturating_sub(from_ms) < 10 * 60_000;
        let is_one_day = self.local_ms(from_ms) / DAY_MS == self.local_ms(to_ms) / DAY_MS;
        let to = if is_one_day { self.clock(to_ms, with_seconds) } else { self.moment(to_ms, with_seconds) };
        say(&text::history_from_to(self.moment(from_ms, with_seconds), to))
    }
}

/// Converts days since 1970 to year, month and day, with eras of 400 years and years that begin in March.
fn civil(days: u64) -> (i64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (i64::try_from(year).unwrap_or(i64::MAX), month, day)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Berlin in 2026: an hour ahead, two from 29 March 01:00 to 25 October 01:00 UTC.
    pub fn berlin(time_ms: u64) -> i64 {
        if (1_774_746_000_000..1_792_890_000_000).contains(&time_ms) { 120 } else { 60 }
    }

    const UTC: UtcOffset = UtcOffset(|_| 0);

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (789, (1972, 2, 29)),
            (11_016, (2000, 2, 29)),
            (20_779, (2026, 11, 22)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(civil(days), date, "day {days}");
        }
        // The largest time has a date and does not panic.
        assert!(civil(u64::MAX / DAY_MS).0 > 500_000_000);
    }

    #[test]
    fn every_day_follows_the_day_before() {
        let mut before = civil(0);
        for days in 1..100_000 {
            let (year, month, day) = civil(days);
            let next = (year, month, day) == (before.0, before.1, before.2 + 1);
            let first = day == 1 && ((year, month) == (before.0, before.1 + 1) || (year, month) == (before.0 + 1, 1));
            assert!(next || first, "{before:?}, then {year}-{month}-{day}");
            before = (year, month, day);
        }
    }

    #[test]
    fn moments_are_said_in_local_time() {
        let zone = UtcOffset(berlin);
        // 22 November 2026, 03:10:30 UTC.
        let time_ms = 1_795_317_030_000;
        assert_eq!(zone.moment(time_ms, true), "22 Nov, 04:10:30");
        assert_eq!(zone.range(time_ms - 3_600_000, time_ms), "22 Nov, 03:10 to 04:10");
        assert_eq!(UTC.range(time_ms - DAY_MS, time_ms), "21 Nov, 03:10 to 22 Nov, 03:10");
        assert!(!zone.range(0, u64::MAX).is_empty());
    }

    #[test]
    fn summer_time_comes_and_goes() {
        let zone = UtcOffset(berlin);
        assert_eq!(zone.clock(1_774_745_999_000, true), "01:59:59");
        assert_eq!(zone.clock(1_774_746_000_000, true), "03:00:00");
        for time_ms in [1_774_740_000_000, 1_774_760_000_000, 1_792_880_000_000, 1_792_900_000_000] {
            assert_eq!(zone.time_ms(zone.local_ms(time_ms)), time_ms);
        }
    }
}
