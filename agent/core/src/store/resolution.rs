//! Resolutions of stored samples: full rate, 10 seconds and one minute.

use headroom_protocol::metric::{Group, Metric};

/// A resolution of stored samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Samples as they were read.
    Full,
    /// Minimum, mean and maximum of 10 seconds.
    TenSeconds,
    /// Minimum, mean and maximum of one minute.
    Minute,
}

/// Tables are cut only at whole minutes, so the remaining buckets are complete at every resolution.
pub const CUT_MS: u64 = 60_000;

impl Resolution {
    /// All resolutions, finest first.
    pub const ALL: [Self; 3] = [Self::Full, Self::TenSeconds, Self::Minute];
    /// Resolutions that are rolled up from finer samples.
    pub const ROLLED: [Self; 2] = [Self::TenSeconds, Self::Minute];

    /// Returns the width of a row.
    pub const fn step_ms(self, group: Group) -> u64 {
        match (self, group) {
            (Self::Full, Group::Fast) => 100,
            (Self::Full, Group::Slow | Group::Host) => 1000,
            (Self::TenSeconds, _) => 10_000,
            (Self::Minute, _) => 60_000,
        }
    }

    /// Returns the name of a group's table.
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

    /// Returns SQL that aggregates rows for every metric of the group, in their order.
    pub fn all_aggregates(self, group: Group) -> String {
        let all: Vec<String> = group.metrics().iter().map(|metric| self.aggregates(*metric)).collect();
        all.join(", ")
    }

    /// Returns SQL for a metric's number of readings, minimum, mean and maximum over several rows.
    fn aggregates(self, metric: Metric) -> String {
        // The metric's column, or the prefix of its four columns.
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

/// Returns the start of the bucket that contains a time.
pub const fn floor(time_ms: u64, step_ms: u64) -> u64 {
    time_ms - time_ms % step_ms
}
