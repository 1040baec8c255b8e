//! Tests of `headroom bench` as programs use it: JSON lines with names and figures, whatever hardware the machine has.
//!
//! `HEADROOM_BIN` names a binary to test instead of this build's. Only this build's may have WebGPU, so WebGPU is
//! tested on it.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Output, Stdio},
};

use headroom_fake_nvml::{Scenario, Stage, code};
use serde_json::Value;

fn headroom(args: &[&str]) -> Command {
    let program = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    bench(Command::new(program), args)
}

/// Returns a command of this build's binary.
fn built(args: &[&str]) -> Command {
    bench(Command::new(env!("CARGO_BIN_EXE_headroom")), args)
}

fn bench(mut command: Command, args: &[&str]) -> Command {
    command.arg("bench").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command that must succeed. Returns its lines, each checked for the common fields.
#[track_caller]
fn lines(command: &mut Command) -> Vec<Value> {
    let output = command.output().expect("headroom runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.ends_with('\n'), "the last line is whole");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    for line in &lines {
        assert_eq!((&line["schema"], &line["headroom"]), (&1.into(), &env!("CARGO_PKG_VERSION").into()), "{line}");
        assert!(["debug", "release"].map(Value::from).contains(&line["build"]), "{line}");
        assert!(line["device"].as_str().is_some_and(|device| !device.is_empty()), "{line}");
        assert_eq!(line["available"] == false, line["reason"].as_str().is_some(), "{line}");
    }
    assert_eq!((&lines[0]["kind"], &lines[0]["available"]), (&"machine".into(), &true.into()));
    assert!(lines[0]["instructions"].is_string() && lines[0]["threads"].as_u64() >= Some(1), "{}", lines[0]);
    lines
}

#[track_caller]
fn are_positive(line: &Value, figures: &[&str]) {
    assert_eq!(line["available"], true, "{line}");
    for name in figures {
        assert!(line[name].as_f64() > Some(0.0), "{name} of {line}");
    }
}

/// Returns the kind and shape of each line.
fn parts(lines: &[Value]) -> Vec<(&str, Option<&str>)> {
    lines.iter().map(|line| (line["kind"].as_str().expect("a kind"), line["shape"].as_str())).collect()
}

const OF_TEXT: [&str; 5] =
    ["tokens_per_second", "millis_a_token", "best_millis_a_token", "prompt_tokens_per_second", "prompt_millis_a_token"];

#[test]
fn writing_on_the_cpu_has_figures() {
    let lines = lines(&mut headroom(&["--quick", "--only", "decode"]));
    assert_eq!(parts(&lines), [("machine", None), ("decode", Some("tiny")), ("decode", Some("tiny"))]);
    for (line, weights) in lines[1..].iter().zip(["f32", "int16"]) {
        assert_eq!(
            (&line["weights"], &line["device"], &line["instructions"]),
            (&weights.into(), &lines[0]["device"], &lines[0]["instructions"])
        );
        are_positive(line, &OF_TEXT);
        let [rate, millis] = ["tokens_per_second", "millis_a_token"].map(|name| line[name].as_f64().expect("a number"));
        assert!((rate * millis / 1e3 - 1.0).abs() < 0.01, "one of them is wrong: {line}");
    }
}

/// A shape that takes long on a slow machine or in a debug build has a line too.
#[test]
fn training_has_figures() {
    let lines = lines(&mut headroom(&["--quick", "--only=train", "--threads=1"]));
    assert_eq!(parts(&lines), [("machine", None), ("gemm", None), ("train", Some("small")), ("train", Some("medium"))]);
    are_positive(&lines[1], &["gflops", "side"]);
    let trained = lines.iter().filter(|line| line["kind"] == "train" && line["available"] == true);
    for line in trained {
        are_positive(line, &["tokens_per_second", "millis_an_iteration", "gflops", "gemm_gflops", "rounds"]);
        are_positive(line, &["fraction_of_gemm", "best_tokens_per_second", "best_fraction_of_best_gemm"]);
        assert_eq!(line["threads"], 1);
    }
    assert_eq!(lines[2]["available"], true, "{}", lines[2]);
}

/// With a GPU, a software driver or neither, and in builds with or without WebGPU.
#[test]
fn webgpu_has_figures_or_a_reason() {
    let lines = lines(&mut built(&["--quick", "--only", "webgpu"]));
    for line in &lines[1..] {
        assert_eq!(line["kind"], "webgpu");
        if line["available"] == true {
            are_positive(line, &OF_TEXT);
            are_positive(line, &["bytes_a_token", "copy_gigabytes_per_second", "fraction_of_copy_bandwidth"]);
            assert!(line["software"].is_boolean() && line["f16"].is_boolean(), "{line}");
        }
    }
    assert!(lines.len() > 1, "all hardware is reported");
}

/// The Vulkan loader finds no driver if its list names one that does not exist.
#[test]
fn a_machine_without_a_driver_has_a_reason() {
    let mut command = built(&["--quick", "--only", "webgpu"]);
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        command.env(name, "/nowhere/driver.json");
    }
    let lines = lines(&mut command);
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[1]["device"], &lines[1]["available"]), (&"webgpu".into(), &false.into()), "{}", lines[1]);
    let reason = lines[1]["reason"].as_str().expect("a reason");
    assert_eq!(reason.contains("this build has no WebGPU"), !cfg!(feature = "webgpu"), "{reason}");
}

/// Reads a scenario's GPUs with the real NVML wrapper. On an idle machine a release build uses less than half a percent
/// of a core. Beside other tests the bound only detects a loop that does not wait.
#[test]
fn reading_the_gpus_has_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario =
        Scenario { slow_ms: [("nvmlDeviceGetPcieThroughput".to_owned(), 20)].into(), ..Scenario::of_gpus(8) };
    let stage = Stage::new(folder.path(), &[], &scenario).expect("a stage");
    let lines = lines(headroom(&["--quick", "--only", "telemetry"]).env("HEADROOM_NVML", stage.library()));
    assert_eq!(parts(&lines), [("machine", None), ("telemetry", None)]);
    let line = &lines[1];
    are_positive(line, &["core_percent", "moment_micros", "moment_micros_max", "slow_moment_micros", "seconds"]);
    assert_eq!((&line["cards"], &line["device"]), (&8.into(), &"NVIDIA GeForce RTX 4070".into()), "{line}");
    assert!(line["moments"].as_u64() > Some(20), "{line}");
    let readings = line["readings"].as_array().expect("readings");
    assert!(readings.len() > 15 && readings.iter().all(|reading| reading["micros"].is_number()), "{line}");
    // `headroom doctor` reports the readings themselves.
    assert!(["card", "sample", "slow"].iter().all(|name| line[name].is_null()), "{line}");
    assert!(line["core_percent"].as_f64() < Some(5.0), "{line}");
}

#[test]
fn a_machine_without_gpus_has_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    for (scenario, said) in [
        (Scenario { init: code::DRIVER_NOT_LOADED, ..Scenario::default() }, "not loaded"),
        (Scenario::default(), "reports no GPU"),
    ] {
        let stage = Stage::new(folder.path(), &[], &scenario).expect("a stage");
        let lines = lines(headroom(&["--quick", "--only", "telemetry"]).env("HEADROOM_NVML", stage.library()));
        assert_eq!((&lines[1]["kind"], &lines[1]["available"]), (&"telemetry".into(), &false.into()));
        assert!(lines[1]["reason"].as_str().is_some_and(|reason| reason.contains(said)), "{}", lines[1]);
    }
}

#[test]
fn words_that_mean_nothing_are_refused() {
    for (args, said) in [
        (
            &["--only", "cuda"][..],
            "headroom: --only: \"cuda\" is not one of train, decode, webgpu, telemetry, history\n",
        ),
        (&["--only"], "headroom: --only needs a value\n\nhint: --only train|decode|webgpu|telemetry|history\n"),
        (&["--threads=0"], "headroom: --threads: \"0\" is no number of threads, 1 to 1024\n"),
        (&["--quick=1"], "headroom: --quick is a switch and takes no value\n\nhint: write --quick, or leave it out\n"),
        (&["--quik"], "headroom: bench has no option --quik\n\nhint: did you mean --quick?\n"),
        (&["gpt2"], "headroom: bench takes no \"gpt2\"\n\nhint: `headroom bench --help` lists what it takes\n"),
    ] {
        let Output { status, stdout, stderr } = headroom(args).output().expect("headroom runs");
        assert_eq!((status.code(), String::from_utf8_lossy(&stderr)), (Some(2), said.into()), "{args:?}");
        assert!(stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_reader_that_goes_ends_it_quietly() {
    let mut child = headroom(&["--quick", "--only", "decode"]).spawn().expect("headroom runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("text");
    assert!(serde_json::from_str::<Value>(&line).is_ok(), "{line}");
    drop(stdout);
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{stderr}");
    assert!(!stderr.contains("headroom:") && !stderr.contains("panicked"), "{stderr}");
}

/// A limit of the process is detected before the model is allocated. The result is a line, as the allocation would end
/// the process.
#[cfg(target_os = "linux")]
#[test]
fn too_little_memory_is_a_reason() {
    let program = std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into());
    let mut command = Command::new("sh");
    // In KiB. The limit permits the program and the small shape, but not the medium one.
    command.args(["-c", "ulimit -v 500000; exec \"$0\" bench --quick --only train --threads 1"]).arg(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let lines = lines(&mut command);
    let medium = lines.last().expect("lines");
    assert_eq!((&medium["shape"], &medium["available"]), (&"medium".into(), &false.into()), "{medium}");
    assert!(medium["reason"].as_str().is_some_and(|reason| reason.contains("memory")), "{medium}");
}
