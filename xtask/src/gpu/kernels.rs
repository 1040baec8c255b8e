//! Every kernel against the reference: the op tests' program, a process a test, so that a fault ends one test alone.

use super::{book::Found, options::Size};
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

/// A test on a card takes seconds, most of it in the reference; one that takes this long hangs.
const TIME_MAX: Duration = Duration::from_secs(300);
/// Processes that share the card.
const AT_ONCE_MAX: usize = 4;
/// Of a panic.
const LINES_TOLD: usize = 4;
/// What a test prints that has nothing to check on a card: it makes a mistake, which only the emulated one has.
const EMULATED_ALONE: &str = "emulated alone";

/// The tests' program with what makes it demand a card.
pub fn command(shell: &Shell, ops: &Path, seed: u64) -> Cmd {
    demanding(shell.cmd(ops), seed)
}

/// The same for a program that runs it.
pub fn demanding(command: Cmd, seed: u64) -> Cmd {
    // Without a backtrace, whose lines would stand for what went wrong.
    let command = command.env("HEADROOM_CUDA_REQUIRED", "1").env("RUST_BACKTRACE", "0");
    command.env("HEADROOM_OPS_SEED", seed.to_string())
}

/// The tests' names.
pub fn names(shell: &Shell, ops: &Path, size: &Size) -> Result<Vec<String>> {
    let text = shell.cmd(ops).args(["--list", "--format", "terse"]).read();
    let text = text.ok_or_else(|| Failure::new(format!("{} does not list its tests", ops.display())))?;
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<String> = names.filter(|name| name.contains(size.tests)).map(str::to_owned).collect();
    if names.is_empty() { Err(Failure::new(format!("{} has no test", ops.display()))) } else { Ok(names) }
}

/// A line a test, in the order in which they end.
pub fn measure(shell: &Shell, ops: &Path, size: &Size, seed: u64, found: &mut Found<'_>) -> Result<()> {
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
                    // Nobody receives it where a line could not be written: then no more is to be done.
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
    // A name that no test has is a success of none.
    let ran = ended.out.contains("1 passed");
    let why =
        panic_of(&ended.out).or_else(|| ended.why()).or_else(|| (!ran).then(|| "no test has this name".to_owned()));
    Ok(json!({
        "kind": "kernel_test", "name": name, "seed": seed, "passes": ended.success && ran, "seconds": ended.seconds,
        "emulated_alone": ended.out.contains(EMULATED_ALONE), "why": why,
    }))
}

/// What a test's panic says, among what the runner prints of it.
fn panic_of(out: &str) -> Option<String> {
    let mut lines = out.lines().skip_while(|line| !line.contains(" panicked at ")).skip(1).peekable();
    lines.peek()?;
    let told = lines.take_while(|line| !line.is_empty() && !line.starts_with("note: "));
    Some(told.take(LINES_TOLD).collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_found_among_the_runners_words() {
        let out = "\nrunning 1 test\ntest losses::sums ... FAILED\n\nfailures:\n\n---- losses::sums stdout ----\n\n\
                   thread 'losses::sums' (7) panicked at tests/fake_cuda/tests/ops/losses.rs:9:5:\non the card: Numbers(\"1\")\n\
                   note: run with `RUST_BACKTRACE=1`\n\nfailures:\n    losses::sums\n";
        assert_eq!(panic_of(out).as_deref(), Some("on the card: Numbers(\"1\")"));
        assert_eq!(panic_of("test result: ok. 1 passed\n"), None);
    }
}
