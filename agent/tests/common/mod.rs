//! Helpers of several test programs.

use std::{
    ffi::OsString,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Timeout for any step on a busy machine. Most take a hundredth of it.
const DEADLINE: Duration = Duration::from_secs(60);

/// The binary to test: that of `HEADROOM_BIN`, or this build's.
pub fn headroom() -> OsString {
    std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into())
}

/// A temporary directory.
pub fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Polls `has_come` until it is true. Panics after [`DEADLINE`].
#[track_caller]
pub fn eventually(what: &str, mut has_come: impl FnMut() -> bool) {
    let start = Instant::now();
    while !has_come() {
        assert!(start.elapsed() < DEADLINE, "{what} does not arrive");
        thread::sleep(Duration::from_millis(5));
    }
}
