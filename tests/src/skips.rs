//! A test that finds this machine lacking something says so, and is counted as skipped rather than passed.

use std::{env, fs::OpenOptions, io::Write};

/// Writes down that a test did not run. `cargo xtask test` names the list in `HEADROOM_SKIPS`.
///
/// # Panics
///
/// Where that list cannot be written: a skip that nobody counts would look like a pass.
#[expect(clippy::print_stderr, reason = "a test tells a person who runs it alone")]
pub fn skip(test: &str, reason: &str) {
    eprintln!("skipped {test}: {reason}");
    if let Some(list) = env::var_os("HEADROOM_SKIPS") {
        let mut list = OpenOptions::new().append(true).create(true).open(list).expect("a writable list");
        writeln!(list, "{test}: {reason}").expect("a writable list");
    }
}
