//! Helpers that start the program and read its output.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

/// Arguments of a model that trains in a moment and saves at every iteration.
pub const TINY: [&str; 16] = [
    "train",
    "--json",
    "--threads",
    "1",
    "--device=cpu",
    "--dataset=fox",
    "--n_layer=1",
    "--n_head=2",
    "--n_embd=8",
    "--block_size=8",
    "--batch_size=2",
    "--gradient_accumulation_steps=2",
    "--eval_interval=1",
    "--eval_iters=1",
    "--dropout=0.1",
    "--learning_rate=1e-2",
];

/// Returns a command that trains [`TINY`] with more options.
pub fn tiny(folder: &Path, more: &[&str]) -> Command {
    headroom(folder, &[&TINY, more].concat())
}

/// Returns what the program wrote to its standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Creates a directory with a character-level data set.
pub fn folder() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(40);
    fs::write(folder.path().join("text.txt"), text).expect("a text");
    let prepared =
        headroom(folder.path(), &["data", "prepare", "text.txt", "--out", "data/fox"]).output().expect("it runs");
    assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
    folder
}

/// Environment variable with the peak rate of the CPU, in FLOP/s.
pub const CPU_FLOPS: &str = "HEADROOM_CPU_FLOPS";

/// Returns a command in a directory. It finds only the GPUs that a test provides. The rate of the CPU is given, because
/// its measurement takes most of the time of a short run.
pub fn headroom(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
    command.env(CPU_FLOPS, "1e11");
    command.current_dir(folder).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command that must succeed, and returns its output.
#[track_caller]
pub fn finished(command: &mut Command) -> Output {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the loss of each iteration, as printed.
pub fn losses(stdout: &[u8]) -> BTreeMap<u64, String> {
    let text = String::from_utf8_lossy(stdout).into_owned();
    // A killed program may leave a partial line.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| Some((line["iter"].as_u64()?, line.get("loss")?.to_string()))).collect()
}

/// Runs a command that must fail with this exit status and these words. Returns standard error.
#[track_caller]
pub fn refused(command: &mut Command, code: i32, words: &[&str]) -> String {
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    said
}
