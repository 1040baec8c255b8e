//! Tests of `headroom doctor` on a machine with a scenario's GPUs.

use std::{
    path::Path,
    process::{Command, Output},
};

use headroom_fake_nvml::{Course, Scenario, Stage, code};
use serde_json::Value;

fn doctor(library: &Path, folder: &Path, args: &[&str]) -> Output {
    Command::new(std::env::var_os("HEADROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_headroom").into()))
        .arg("doctor")
        .args(args)
        .env("HEADROOM_NVML", library)
        .env("HEADROOM_DATA_DIR", folder)
        .output()
        .expect("headroom runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn every_reading_is_there_or_says_why_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut scenario = Scenario::of_gpus(2);
    scenario.gpus[1].errors.insert("nvmlDeviceGetPowerUsage".to_owned(), code::NO_PERMISSION);
    let stage = Stage::new(&folder.path().join("driver"), &[], &scenario).expect("a stage");

    let output = doctor(&stage.library(), folder.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["schema"], 1);
    assert_eq!(found["driver"]["state"], "ready");
    assert_eq!(found["gpus"].as_array().expect("GPUs").len(), 2);
    assert_eq!(found["telemetry"]["gpus"][0]["power_watts"], 199.5);
    assert_eq!(found["telemetry"]["gpus"][1]["power_watts"]["missing"], "no_permission");
    assert_eq!(found["slow"]["gpus"].as_array().expect("GPUs").len(), 2);
    assert_eq!(found["history"]["state"], "kept");

    let output = doctor(&stage.library(), folder.path(), &[]);
    let said = text(&output.stdout);
    for line in [
        "GPU 0: NVIDIA GeForce RTX 4070\n",
        "  power                   199.5 W\n",
        "  power                   missing: only this system's administrator may read it\n",
        "  kept                    none yet: `headroom serve` and `headroom watch` begin it\n",
    ] {
        assert!(said.contains(line), "no {line:?} in\n{said}");
    }
}

#[test]
fn value_that_no_gpu_can_have_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut scenario = Scenario::of_gpus(1);
    let gpu = &mut scenario.gpus[0];
    gpu.memory_total_bytes = u64::MAX;
    gpu.memory_used_bytes = Course::Stays(1.8e19);
    gpu.utilization_percent = Course::Stays(5000.0);
    gpu.temperature_celsius = Course::Stays(1e9);
    let stage = Stage::new(&folder.path().join("driver"), &[], &scenario).expect("a stage");
    let output = doctor(&stage.library(), folder.path(), &["--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let readings = &found["telemetry"]["gpus"][0];
    for (name, reading) in [
        ("memory_total_bytes", &found["gpus"][0]["memory_total_bytes"]),
        ("memory_used_bytes", &readings["memory_used_bytes"]),
        ("utilization_percent", &readings["utilization_percent"]),
        ("temperature_celsius", &readings["temperature_celsius"]),
    ] {
        assert_eq!(reading["missing"], "implausible", "{name} is {reading}");
    }
}

#[test]
fn doctor_without_driver_reports_and_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = Scenario { init: code::DRIVER_NOT_LOADED, ..Scenario::default() };
    let stage = Stage::new(&folder.path().join("driver"), &[], &scenario).expect("a stage");
    let output = doctor(&stage.library(), folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("  state                   not usable: "), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("This machine\n"));
}
