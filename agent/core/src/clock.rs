//! The machine's two clocks: the wall clock, used in everything that is stored or sent, and a monotonic clock.

use std::{
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    /// The wall clock in milliseconds since 1970, which users may set forward or back.
    pub wall_ms: u64,
    /// The monotonic time since the first call in this process.
    pub since_start: Duration,
}

impl Timestamp {
    /// Returns the current moment.
    pub fn now() -> Self {
        Self { wall_ms: now_ms(), since_start: since_start() }
    }
}

/// Returns the wall clock in milliseconds since 1970; 0 if the clock is set to an earlier time.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the monotonic time since the first call in this process.
pub fn since_start() -> Duration {
    static START: OnceLock<Duration> = OnceLock::new();
    let now = monotonic();
    now.saturating_sub(*START.get_or_init(|| now))
}

/// Returns Linux's time since boot, which includes suspension. A wake-up therefore does not look like a clock that was
/// set forward.
#[cfg(target_os = "linux")]
fn monotonic() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::Boottime).try_into().unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn monotonic() -> Duration {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}
