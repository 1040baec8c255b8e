//! How long samples are kept, and how large the file may become.

use super::resolution::Resolution;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Full rate: what a person looks at while something happens.
pub const FULL_MS: u64 = HOUR_MS;
/// Rows of 10 seconds: yesterday's run, at a few pixels a row.
const TEN_SECONDS_MS: u64 = 2 * DAY_MS;
/// Days at most: fifty years, which no sum of milliseconds minds.
pub const DAYS_MAX: u64 = 18_250;
/// Bytes at least: runs, and an hour of eight cards.
pub const BYTES_MIN: u64 = 64 << 20;

/// What the owner allows history; runs and events stay until they are deleted, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Days that minutes are kept, [`DAYS_MAX`] at most.
    pub days: u64,
    /// Bytes of the file, [`BYTES_MIN`] at least; where it has more, the oldest samples go, the newest hour apart.
    pub bytes_max: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { days: 30, bytes_max: 1 << 30 }
    }
}

impl Keep {
    /// How old a row of a resolution gets.
    pub fn of(&self, resolution: Resolution) -> u64 {
        let days_ms = self.days.clamp(1, DAYS_MAX) * DAY_MS;
        match resolution {
            Resolution::Full => FULL_MS,
            Resolution::TenSeconds => TEN_SECONDS_MS.min(days_ms),
            Resolution::Minute => days_ms,
        }
    }
}
