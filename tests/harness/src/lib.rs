//! Shared by the tests of several packages: skips, repetitions, child processes, and hangs.

mod watchdog;

use std::{env, fs::OpenOptions, io::Write, process::Command};

pub use watchdog::Watchdog;

/// Environment variable with the list of skipped tests, which `cargo xtask test` counts.
const SKIPS: &str = "HEADROOM_SKIPS";
/// Environment variable with the extent of the run. `cargo xtask test --full` sets it to [`FULL`].
const EXTENT: &str = "HEADROOM_TESTS";
const FULL: &str = "full";

/// Records that this machine lacks something that a test needs. The test counts as skipped rather than passed.
///
/// # Panics
///
/// If the list cannot be written, because an uncounted skip would look like a pass.
#[expect(clippy::print_stderr, reason = "shown if the test runs alone")]
pub fn skip(test: &str, reason: &str) {
    eprintln!("skipped {test}: {reason}");
    if let Some(list) = env::var_os(SKIPS) {
        let mut list = OpenOptions::new().append(true).create(true).open(list).expect("a writable list");
        writeln!(list, "{test}: {reason}").expect("a writable list");
    }
}

/// Returns how often a test repeats: `normal`, or `full` in a run of `cargo xtask test --full`.
#[must_use]
pub fn repetitions(normal: u32, full: u32) -> u32 {
    if env::var_os(EXTENT).is_some_and(|extent| extent == FULL) { full } else { normal }
}

/// Returns a command that runs the body of a child process: a function of the calling test's program with
/// `#[ignore = "the child process of …"]`, so that it does not count as a test. `module` is `module_path!()`.
///
/// # Panics
///
/// If the path of this program is unknown.
#[must_use]
pub fn child_process(module: &str, function: &str) -> Command {
    let test = match module.split_once("::") {
        Some((_, module)) => format!("{module}::{function}"),
        None => function.to_owned(),
    };
    let mut command = Command::new(env::current_exe().expect("the test's program"));
    command.args([test.as_str(), "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn child_process_is_one_function_of_this_program() {
        let output = child_process(module_path!(), "child").output().expect("a process");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("\nchild of a test\n"), "{text}");
        assert!(text.contains("1 passed"), "{text}");
    }

    #[test]
    #[ignore = "the child process of child_process_is_one_function_of_this_program"]
    fn child() {
        println!("\nchild of a test");
    }

    #[test]
    fn repetitions_are_normal_unless_the_run_is_full() {
        let full = env::var_os(EXTENT).is_some_and(|extent| extent == FULL);
        assert_eq!(repetitions(3, 30), if full { 30 } else { 3 });
    }
}
