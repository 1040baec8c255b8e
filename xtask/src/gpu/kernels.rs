//! Tests of every kernel against the reference: the op tests' program with a process per test, so that a fault ends
//! only one test.

use super::{options::Size, results::LineWriter};
use crate::{
    failure::{Failure, Result},
    shell::{Cmd, Shell, note},
};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// Time limit of a test. A test on a GPU takes seconds, mostly in the reference.
const TIME_MAX: Duration = Duration::from_secs(300);
/// Concurrent processes on the GPU.
const AT_ONCE_MAX: usize = 4;
/// Lines kept of a panic.
const LINES_REPORTED: usize = 4;
/// Output of a test that checks nothing on a real GPU, because it mutates a kernel of the emulated one.
const EMULATED_ALONE: &str = "emulated alone";

/// Returns the command of the tests' program, with the variables that require a GPU.
pub fn command(shell: &Shell, ops: &Path, seed: u64) -> Cmd {
    demanding(shell.cmd(ops), seed)
}

/// Adds the same variables to a command that runs the tests' program.
pub fn demanding(command: Cmd, seed: u64) -> Cmd {
    // Without a backtrace, whose lines would hide the message.
    let command = command.env("HEADROOM_CUDA_REQUIRED", "1").env("RUST_BACKTRACE", "0");
    command.env("HEADROOM_OPS_SEED", seed.to_string())
}

/// Returns the names of the tests.
pub fn names(shell: &Shell, ops: &Path, size: &Size) -> Result<Vec<String>> {
    let text = shell.cmd(ops).args(["--list", "--format", "terse"]).read();
    let text = text.ok_or_else(|| Failure::new(format!("{} does not list its tests", ops.display())))?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<String> = names.filter(|name| name.contains(size.tests)).map(str::to_owned).collect();
    if names.is_empty() { Err(Failure::new(format!("{} has no test", ops.display()))) } else { Ok(names) }
}

/// Adds a line per test, in order of completion.
pub fn measure(shell: &Shell, ops: &Path, size: &Size, seed: u64, found: &mut LineWriter<'_>) -> Result<()> {
    let names = names(shell, ops, size)?;
    note(&format!("{} tests, on inputs of the seed {seed}: --seed={seed} makes them again", names.len()));
    let next = AtomicUsize::new(0);
    let (sender, done) = mpsc::channel();
    let n_threads = thread::available_parallelism().map_or(1, usize::from).min(AT_ONCE_MAX);
    thread::scope(|scope| {
        for _ in 0..n_threads {
            let (sender, next, names) = (sender.clone(), &next, &names);
            scope.spawn(move || {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // Without a receiver, a line could not be written, and the work is over.
                    if sender.send(line(shell, ops, name, seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for line in done {
            let line = line?;
            if line["passes"] == false {
                let word = |key: &str| line[key].as_str().unwrap_or_default();
                note(&format!("{}: {}", word("name"), word("why")));
            }
            found.add(line)?;
        }
        Ok(())
    })
}

fn line(shell: &Shell, ops: &Path, name: &str, seed: u64) -> Result<Value> {
    let ended = command(shell, ops, seed).args(["--exact", name, "--test-threads=1"]).limited(TIME_MAX, |_| {})?;
    // The runner succeeds with zero tests if the name is unknown.
    let ran = ended.out.contains("1 passed");
    let why =
        panic_of(&ended.out).or_else(|| ended.why()).or_else(|| (!ran).then(|| "no test has this name".to_owned()));
    Ok(json!({
        "kind": "kernel_test", "name": name, "seed": seed, "passes": ended.success && ran, "seconds": ended.seconds,
        "emulated_alone": ended.out.contains(EMULATED_ALONE), "why": why,
    }))
}

/// Returns the message of a test's panic from the runner's output.
fn panic_of(out: &str) -> Option<String> {
    let mut lines = out.lines().skip_while(|line| !line.contains(" panicked at ")).skip(1).peekable();
    lines.peek()?;
    let shown = lines.take_while(|line| !line.is_empty() && !line.starts_with("note: "));
    Some(shown.take(LINES_REPORTED).collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_found_among_the_runners_words() {
        let out = "\nrunning 1 test\ntest losses::sums ... FAILED\n\nfailures:\n\n---- losses::sums stdout ----\n\n\
                   thread 'losses::sums' (7) panicked at tests/fake_cuda/tests/ops/losses.rs:9:5:\non the GPU: Numbers(\"1\")\n\
                   note: run with `RUST_BACKTRACE=1`\n\nfailures:\n    losses::sums\n";
        assert_eq!(panic_of(out).as_deref(), Some("on the GPU: Numbers(\"1\")"));
        assert_eq!(panic_of("test result: ok. 1 passed\n"), None);
    }
}
