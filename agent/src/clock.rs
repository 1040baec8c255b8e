//! The time of day, as everything that is kept and sent states it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 on a machine whose clock stands before it.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
