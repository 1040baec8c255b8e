//! The machine's two clocks: the time of day, as everything that is kept and sent states it, and the time that passes,
//! which nobody can set.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A moment, by both of the machine's clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since 1970: what a person sets, forward and back.
    pub wall_ms: u64,
    /// Since this program first looked, by the clock that only goes on.
    pub since_start: Duration,
}

impl Moment {
    /// This moment.
    pub fn now() -> Self {
        Self { wall_ms: now_ms(), since_start: since_start() }
    }
}

/// Milliseconds since 1970; 0 on a machine whose clock stands before it.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Time since the first call in this process; never goes back.
pub fn since_start() -> Duration {
    static START: OnceLock<Duration> = OnceLock::new();
    let now = monotonic();
    now.saturating_sub(*START.get_or_init(|| now))
}

/// Linux's clock since boot counts the time that the machine sleeps, so that waking up does not look like a clock that
/// was set forward.
#[cfg(target_os = "linux")]
fn monotonic() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::Boottime).try_into().unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn monotonic() -> Duration {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}
