//! How finely samples are kept: at full rate, rolled up to 10 seconds, and to a minute.

use headroom_shared::protocol::history::Metric;

/// Where samples of one width are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// As they were read.
    Full,
    /// Least, mean and greatest of 10 seconds.
    TenSeconds,
    /// And of a minute.
    Minute,
}

/// Everything is cut at whole minutes, so that what a table has is whole at every resolution.
pub const CUT_MS: u64 = 60_000;

impl Resolution {
    /// All, finest first.
    pub const ALL: [Self; 3] = [Self::Full, Self::TenSeconds, Self::Minute];
    /// Those that are made of the first.
    pub const ROLLED: [Self; 2] = [Self::TenSeconds, Self::Minute];

    /// Width of a row.
    pub const fn step_ms(self) -> u64 {
        match self {
            Self::Full => 100,
            Self::TenSeconds => 10_000,
            Self::Minute => 60_000,
        }
    }

    /// Its table.
    pub const fn table(self) -> &'static str {
        match self {
            Self::Full => "samples",
            Self::TenSeconds => "samples_10s",
            Self::Minute => "samples_1min",
        }
    }

    /// How many readings a group of its rows has, and their least, mean and greatest, as SQL.
    pub fn aggregates(self, metric: Metric) -> String {
        // A metric's column, or the beginning of its four.
        let column = metric.name();
        match self {
            Self::Full => format!("count({column}), min({column}), avg({column}), max({column})"),
            Self::TenSeconds | Self::Minute => format!(
                "sum({column}_n), min({column}_min), sum({column}_mean * {column}_n) / sum({column}_n), \
                 max({column}_max)"
            ),
        }
    }
}
