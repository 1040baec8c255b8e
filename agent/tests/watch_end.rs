//! How `headroom watch` detects the end of a `headroom train` that a command started. It reads the status file,
//! whatever happens to the output.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's.
#![cfg(unix)]

use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

const MODEL: &str = "dataset = 'fox'\nn_layer = 1\nn_head = 2\nn_embd = 8\nblock_size = 8\nbatch_size = 2\ndropout = 0.0\n\
    gradient_accumulation_steps = 1\neval_iters = 1\nwarmup_iters = 0\ndecay_lr = False\n";

fn binary() -> OsString {
    std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into())
}

fn headroom(folder: &Path) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(folder).env("HEADROOM_DATA_DIR", folder.join("history")).env("HEADROOM_NVML", "none");
    command.env("HEADROOM_BIN", binary()).env_remove("CUDA_VISIBLE_DEVICES").stdin(Stdio::null());
    command
}

/// Creates a directory with a data set and with configs that end in different ways.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(40);
    fs::write(folder.path().join("text.txt"), text).expect("a file");
    let prepare = ["data", "prepare", "text.txt", "--out", "data/fox"];
    assert!(headroom(folder.path()).args(prepare).output().expect("headroom runs").status.success());
    for (name, more) in [
        ("short.py", "max_iters = 3\neval_interval = 2\n"),
        ("wild.py", "max_iters = 200\neval_interval = 100\nlearning_rate = 1e30\ngrad_clip = 0.0\n"),
        ("missing.py", "dataset = 'none'\n"),
    ] {
        fs::write(folder.path().join(name), format!("{MODEL}device = 'cpu'\n{more}")).expect("a file");
    }
    folder
}

/// Watches a shell script to its end, and returns the newest run of the history.
fn watched(folder: &Path, script: &str) -> Value {
    let mut watch = headroom(folder);
    watch.args(["watch", "--", "sh", "-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
    watch.status().expect("headroom runs");
    let output = headroom(folder).args(["runs", "--json"]).output().expect("headroom runs");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(!folder.join("history/watched").read_dir().is_ok_and(|mut entries| entries.next().is_some()));
    listed["runs"][0].clone()
}

#[test]
fn silent_trainer_in_a_script_reports_its_end() {
    let folder = folder();
    let train = |config: &str, more: &str| {
        watched(folder.path(), &format!("\"$HEADROOM_BIN\" train {config} --out_dir=out-{config} > log 2>&1{more}"))
    };
    let diverged = train("wild.py", "");
    assert_eq!(diverged["status"], json!({ "state": "exited", "code": 1, "cause": "diverged" }));
    let why = diverged["explanation"].as_str().expect("a reason");
    assert!(why.contains("the run has diverged") && why.contains("hint: "), "{why}");
    let missing = train("missing.py", "");
    assert_eq!(missing["status"], json!({ "state": "exited", "code": 3 }));
    assert!(missing["explanation"].as_str().is_some_and(|why| why.contains("none")), "{missing}");
    assert_eq!(train("short.py", "")["status"], json!({ "state": "exited", "code": 0 }));
    // The run is stopped by the variable that the agent sets, and followed by another command.
    let stopped = watched(
        folder.path(),
        "touch stop; HEADROOM_STOP_FILE=$PWD/stop \"$HEADROOM_BIN\" train wild.py --max_iters=100000000 \
         --learning_rate=1e-3 --out_dir=out-stopped > log 2>&1; true",
    );
    assert_eq!(stopped["status"], json!({ "state": "exited", "code": 0, "cause": "stopped" }));
}

#[test]
fn printed_end_sentences_do_not_end_a_run() {
    let folder = folder();
    let run = watched(folder.path(), "cp /bin/sh headroom; ./headroom -c 'echo Stopped and saved. Go on with:' train");
    assert_eq!(run["status"], json!({ "state": "exited", "code": 0 }));
}

#[test]
fn error_on_one_stream_outweighs_a_warning_on_the_other() {
    let folder = tempfile::tempdir().expect("a folder");
    for script in [
        "echo 'W0101 a warning' >&2; echo 'ERROR: cannot open data'; exit 1",
        "echo 'W0101 a warning'; echo 'ERROR: cannot open data' >&2; exit 1",
    ] {
        // Streams to one file would be recorded as one.
        let output = headroom(folder.path()).args(["watch", "--", "sh", "-c", script]).output().expect("headroom runs");
        assert_eq!(output.status.code(), Some(1));
        let output = headroom(folder.path()).args(["runs", "--json"]).output().expect("headroom runs");
        let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(listed["runs"][0]["explanation"], "ERROR: cannot open data", "{script}");
    }
}

#[test]
fn plan_that_does_not_fit_is_not_out_of_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut watch = headroom(folder.path());
    watch.args(["watch", "--"]).arg(binary()).args(["plan", "--batch_size=64", "--gpu=L4"]);
    let output = watch.output().expect("headroom runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("CUDA out of memory"), "the plan has the message");
    let output = headroom(folder.path()).args(["runs", "--json"]).output().expect("headroom runs");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(listed["runs"][0]["status"], json!({ "state": "exited", "code": 1 }));
}

#[cfg(target_os = "linux")]
#[test]
fn history_folder_that_cannot_be_written_is_reported_before_and_after() {
    // No user can create a file in it.
    for data_dir in ["/sys", "/proc/sys"] {
        let mut watch = headroom(Path::new("/"));
        watch.args(["watch", "--data-dir", data_dir, "--", "sh", "-c", "echo middle >&2"]);
        let output = watch.output().expect("headroom runs");
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let (before, after) = said.split_once("middle\n").expect("the command ran");
        let cause = format!("cannot write to the data folder {data_dir}: ");
        assert!(before.contains(&format!("this run is not kept: {cause}")), "{said}");
        assert!(after.contains(&format!("this run was not kept: {cause}")), "{said}");
    }
}
