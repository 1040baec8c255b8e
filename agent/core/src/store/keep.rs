//! Retention: how long samples are kept, and the maximum size of the file.

use super::resolution::Resolution;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Retention of full-rate samples, for observing current events.
pub const FULL_MS: u64 = HOUR_MS;
/// Retention of 10-second rows: a run of the previous day, at a few pixels per row.
const TEN_SECONDS_MS: u64 = 2 * DAY_MS;
/// Maximum retention in days: fifty years, which prevents overflow of milliseconds.
pub const DAYS_MAX: u64 = 18_250;
/// Minimum file size in bytes: runs and one hour of eight GPUs.
pub const BYTES_MIN: u64 = 64 << 20;

/// The owner's limits for samples. Runs and events remain until they are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Retention of minute rows in days, at most [`DAYS_MAX`].
    pub days: u64,
    /// Maximum file size in bytes, at least [`BYTES_MIN`]. Beyond it, the oldest samples are deleted, except for the
    /// newest hour.
    pub bytes_max: u64,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        Self { days: 30, bytes_max: 1 << 30 }
    }
}

impl RetentionLimits {
    /// Returns the maximum age of a resolution's rows.
    pub fn of(&self, resolution: Resolution) -> u64 {
        let days_ms = self.days.clamp(1, DAYS_MAX) * DAY_MS;
        match resolution {
            Resolution::Full => FULL_MS,
            Resolution::TenSeconds => TEN_SECONDS_MS.min(days_ms),
            Resolution::Minute => days_ms,
        }
    }
}
