//! How finely samples are kept: at full rate, rolled up to 10 seconds, and to a minute.

use headroom_shared::protocol::history::{Group, Metric};

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
    pub const fn step_ms(self, group: Group) -> u64 {
        match (self, group) {
            (Self::Full, Group::Fast) => 100,
            (Self::Full, Group::Slow | Group::Host) => 1000,
            (Self::TenSeconds, _) => 10_000,
            (Self::Minute, _) => 60_000,
        }
    }

    /// Its table of a group.
    pub const fn table(self, group: Group) -> &'static str {
        match (group, self) {
            (Group::Fast, Self::Full) => "samples",
            (Group::Fast, Self::TenSeconds) => "samples_10s",
            (Group::Fast, Self::Minute) => "samples_1min",
            (Group::Slow, Self::Full) => "slow_samples",
            (Group::Slow, Self::TenSeconds) => "slow_samples_10s",
            (Group::Slow, Self::Minute) => "slow_samples_1min",
            (Group::Host, Self::Full) => "host_samples",
            (Group::Host, Self::TenSeconds) => "host_samples_10s",
            (Group::Host, Self::Minute) => "host_samples_1min",
        }
    }

    /// What is read of each group of its rows, as SQL: of every metric of the group, in their order.
    pub fn all_aggregates(self, group: Group) -> String {
        let all: Vec<String> = group.metrics().iter().map(|metric| self.aggregates(*metric)).collect();
        all.join(", ")
    }

    /// How many readings a group of its rows has, and their least, mean and greatest, as SQL.
    fn aggregates(self, metric: Metric) -> String {
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
