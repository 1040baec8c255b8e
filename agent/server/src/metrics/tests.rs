//! Tests of the text with a strict parser and a snapshot, and of the documentation and the dashboard against the table.

mod dashboard;
mod parser;
mod rig;

use std::{collections::BTreeSet, fmt::Write, fs, path::PathBuf};

use headroom_protocol::{
    gpu::Throttle,
    reading::{MissingReason, Reading},
    run::{Cause, RunStatus},
};

use super::{families, gpu, render, run};
use parser::{ParsedFamily, parse};
use rig::{NOW_MS, Rig};

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Parses the text of a rig, which must be valid.
#[track_caller]
fn read(rig: &Rig) -> Vec<ParsedFamily> {
    let text = render(&rig.snapshot());
    parse(&text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

#[track_caller]
fn family<'a>(families: &'a [ParsedFamily], name: &str) -> &'a ParsedFamily {
    families.iter().find(|family| family.name == name).unwrap_or_else(|| panic!("{name} is not there"))
}

/// Returns a family's samples, each as `labels value` with the selected labels.
#[track_caller]
fn values(families: &[ParsedFamily], name: &str, labels: &[&str]) -> Vec<String> {
    let samples = &family(families, name).samples;
    let of = |sample: &parser::Sample| {
        let mut said: Vec<&str> = labels.iter().map(|label| &*sample.labels[*label]).collect();
        said.push(&sample.value);
        said.join(" ")
    };
    samples.iter().map(of).collect()
}

#[test]
fn the_whole_text_is_what_it_was() {
    read(&Rig::whole());
    insta::assert_snapshot!(render(&Rig::whole().snapshot()));
}

#[test]
fn every_family_of_the_table_is_reported_of_a_whole_rig() {
    let names: BTreeSet<_> = read(&Rig::whole()).into_iter().map(|family| family.name).collect();
    let table: BTreeSet<_> = families().map(|family| family.name.to_owned()).collect();
    assert_eq!(names, table);
}

#[test]
fn the_table_keeps_to_prometheus_conventions() {
    let mut names = BTreeSet::new();
    for family in families() {
        let name = family.name;
        assert!(names.insert(name), "{name} is listed twice");
        assert!(name.starts_with("headroom_"), "{name}");
        assert!(family.help.ends_with('.') && !family.help.contains("  "), "{name}: {}", family.help);
        let mut labels = family.labels.to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), family.labels.len(), "{name}");
        for wrong in ["percent", "mhz", "_ms", "kwh", "mib", "gib", "milli"] {
            assert!(!name.contains(wrong), "{name} does not use a base unit");
        }
        // The unit is last, except in counts and rates.
        let words: Vec<_> = name.trim_end_matches("_total").trim_end_matches("_per_second").split('_').collect();
        let unit = |word: &str| ["bytes", "joules", "watts", "celsius", "hertz", "ratio", "seconds"].contains(&word);
        assert!(!words[..words.len() - 1].iter().any(|word| unit(word)), "{name} hides its unit");
    }
    assert!(names.len() > 40, "the walk finds the table: {names:?}");
}

#[test]
fn missing_reading_is_absent_not_zero() {
    let mut rig = Rig::whole();
    let before = read(&rig);
    assert_eq!(values(&before, "headroom_gpu_memory_used_bytes", &["gpu"]), ["0 7516192768", "1 0"]);
    rig.telemetry.gpus[0].memory_used_bytes = Reading::missing(MissingReason::Failed);
    rig.telemetry.gpus[0].power_watts = Reading::Is(f64::NAN);
    rig.telemetry.gpus[1].power_watts = Reading::missing(MissingReason::OldDriver);
    let after = read(&rig);
    assert_eq!(values(&after, "headroom_gpu_memory_used_bytes", &["gpu"]), ["1 0"]);
    assert!(
        after.iter().all(|family| family.name != "headroom_gpu_power_watts"),
        "a family without samples is not reported"
    );
}

#[test]
fn empty_rig_exports_its_state() {
    let rig = Rig::empty();
    let families = read(&rig);
    assert_eq!(values(&families, "headroom_driver_up", &[]), ["0"]);
    assert_eq!(values(&families, "headroom_history_paused", &[]), ["1"]);
    let names: Vec<_> = families.iter().map(|family| &*family.name).collect();
    let expected = ["build_info", "viewers", "dropped_total", "driver_up", "history_paused"];
    assert_eq!(names, expected.map(|name| format!("headroom_{name}")));
}

#[test]
fn a_lost_gpu_has_no_readings() {
    let mut rig = Rig::whole();
    rig.gpus[0].present = false;
    let families = read(&rig);
    assert_eq!(values(&families, "headroom_gpu_present", &["gpu"]), ["0 0", "1 1", "2 0"]);
    assert_eq!(values(&families, "headroom_gpu_memory_used_bytes", &["gpu"]), ["1 0"]);
    assert_eq!(values(&families, "headroom_gpu_processes", &["gpu"]), ["1 0"]);
}

#[test]
fn errors_of_a_gpu_are_reported_when_it_is_lost_by_them_too() {
    let families = read(&Rig::whole());
    assert_eq!(values(&families, "headroom_gpu_xid_errors_total", &["gpu", "xid"]), ["0 31 2", "2 79 1"]);
    assert_eq!(values(&families, "headroom_gpu_xid_error_timestamp_seconds", &["xid"]).len(), 2);
}

#[test]
fn old_readings_are_not_reported_as_new_ones() {
    let mut rig = Rig::whole();
    rig.now_ms = NOW_MS + 60_000;
    let families = read(&rig);
    assert!(families.iter().all(|family| family.name != "headroom_gpu_memory_used_bytes"));
    assert!(families.iter().all(|family| family.name != "headroom_host_memory_used_bytes"));
    assert_eq!(
        values(&families, "headroom_telemetry_timestamp_seconds", &[]).len(),
        1,
        "but the time of reading is reported"
    );
}

#[test]
fn throttling_is_what_slows_a_gpu_down() {
    let mut rig = Rig::whole();
    let reasons = [Throttle::Idle, Throttle::SoftwareThermal].map(Throttle::bit);
    rig.telemetry.gpus[0].throttle = Reading::Is(reasons[0] | reasons[1]);
    rig.telemetry.gpus[1].throttle = Reading::missing(MissingReason::OldDriver);
    let families = read(&rig);
    assert_eq!(
        values(&families, "headroom_gpu_throttled", &["reason"]),
        [
            "power_cap 0",
            "hardware_slowdown 0",
            "sync_boost 0",
            "software_thermal 1",
            "hardware_thermal 0",
            "hardware_power_brake 0"
        ]
    );
}

#[test]
fn hostile_names_stay_within_their_quotes() {
    let names = [
        "\"} 1\nheadroom_gpu_present{gpu=\"9\"} 1\n#",
        "back\\slash \\\" and \\n",
        "zero \0 escape \u{1b}[31m return \r next \u{85}",
        "\u{202e}right to left, \u{fffd}, 卡",
        "",
    ];
    for hostile in names {
        let mut rig = Rig::whole();
        rig.gpus[0].name = hostile.to_owned();
        rig.runs[0].name = hostile.to_owned();
        let process = &mut rig.slow.gpus[0].processes;
        let Reading::Is(processes) = process else { panic!("the rig has processes") };
        processes[0].name = Reading::Is(hostile.to_owned());
        processes[0].user = Reading::Is(hostile.to_owned());
        let families = read(&rig);
        let visible: String =
            hostile.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
        assert_eq!(family(&families, "headroom_gpu_present").samples[0].labels["name"], visible);
        assert_eq!(family(&families, "headroom_gpu_present").samples.len(), 3, "no metric was injected");
        assert_eq!(family(&families, "headroom_run_iteration").samples[0].labels["name"], visible);
        assert_eq!(family(&families, "headroom_gpu_process_memory_used_bytes").samples[0].labels["user"], visible);
    }
    let mut rig = Rig::whole();
    rig.gpus[0].name = "ß".repeat(10_000);
    assert_eq!(family(&read(&rig), "headroom_gpu_present").samples[0].labels["name"], "ß".repeat(128));
}

#[test]
fn duplicate_is_reported_once() {
    let mut rig = Rig::whole();
    let again = rig.telemetry.gpus[0].clone();
    rig.telemetry.gpus.push(again);
    rig.gpus.push(rig.gpus[0].clone());
    let Reading::Is(processes) = &mut rig.slow.gpus[0].processes else { panic!("the rig has processes") };
    processes.push(processes[0].clone());
    read(&rig);
}

#[test]
fn series_are_bounded() {
    let mut rig = Rig::whole();
    let Reading::Is(processes) = &mut rig.slow.gpus[0].processes else { panic!("the rig has processes") };
    let one = processes[0].clone();
    *processes = (1..=5000).map(|pid| headroom_protocol::gpu::Process { pid, ..one.clone() }).collect();
    let run = rig.runs[0].clone();
    rig.runs = (0..5000).map(|id| headroom_protocol::run::Run { id: id.to_string(), ..run.clone() }).collect();
    let families = read(&rig);
    let processes = &family(&families, "headroom_gpu_process_memory_used_bytes").samples;
    assert_eq!(processes.len(), gpu::PROCESSES_MAX);
    assert_eq!(values(&families, "headroom_gpu_processes", &["gpu"]), ["0 5000", "1 0"], "but all are counted");
    assert_eq!(family(&families, "headroom_run_iteration").samples.len(), run::RUNS_MAX);
}

#[test]
fn runs_are_reported_until_a_while_after_their_end() {
    let mut rig = Rig::whole();
    rig.runs.truncate(1);
    rig.runs[0].status = RunStatus::exited(1);
    for (ago_ms, is_reported) in [(0, true), (run::ENDED_MS_MAX, true), (run::ENDED_MS_MAX + 1, false)] {
        rig.runs[0].ended_ms = Some(rig.now_ms - ago_ms);
        let families = read(&rig);
        assert_eq!(families.iter().any(|family| family.name == "headroom_run_status"), is_reported, "{ago_ms}");
        if is_reported {
            let statuses = values(&families, "headroom_run_status", &["status"]);
            assert!(statuses.contains(&"failed 1".to_owned()), "{statuses:?}");
        }
    }
    rig.runs[0].ended_ms = Some(rig.now_ms);
    for (cause, label) in [
        (Cause::OutOfGpuMemory, "out_of_gpu_memory"),
        (Cause::OutOfHostMemory, "out_of_host_memory"),
        (Cause::GpuError, "card_error"),
    ] {
        rig.runs[0].status = RunStatus::exited(1).because(Some(cause));
        let statuses = values(&read(&rig), "headroom_run_status", &["status"]);
        let is: Vec<&String> = statuses.iter().filter(|status| status.ends_with(" 1")).collect();
        assert_eq!(is, [&format!("{label} 1")], "exactly one status is set: {statuses:?}");
    }
    rig.runs[0].ended_ms = None;
    assert!(read(&rig).iter().all(|family| family.name != "headroom_run_status"), "an ended run without its end");
}

/// Generates the documentation page of metrics from the table.
fn page() -> String {
    let mut page = "\
# Metrics

`GET /metrics` of `headroom serve` returns these metrics in Prometheus's text format. It needs a token of the scope `view`.
Units are seconds, bytes, joules, hertz and ratios from 0 to 1.
A reading that the GPU does not provide is absent, never 0. So is a reading older than ten seconds.

[Monitor GPUs](../guide/serve.md#prometheus-and-grafana) has the configuration of Prometheus and an alert.
This page is generated: `HEADROOM_WRITE_GOLDEN=1 cargo test -p headroom-server metrics`.

| Name | Kind | Labels | Meaning |
| --- | --- | --- | --- |
"
    .to_owned();
    for family in families() {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let (kind, help) = (family.kind.name(), family.help);
        let _ = writeln!(page, "| `{}` | {kind} | {} | {help} |", family.name, labels.join(", "));
    }
    page
}

#[test]
fn the_page_of_names_is_the_table() {
    let path = repository().join("docs/src/reference/metrics.md");
    let page = page();
    if std::env::var_os("HEADROOM_WRITE_GOLDEN").is_some() {
        fs::write(&path, &page).expect("the page");
    }
    let written = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(written, page, "metrics.md differs from the table; HEADROOM_WRITE_GOLDEN=1 writes it");
}
