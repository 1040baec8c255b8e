//! What is written against a reader of the format, and the dashboard against what is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use headroom_shared::protocol::{
    Slow, Telemetry,
    host::HostSample,
    reading::{Reading, Why},
    run::{Evaluation, Iteration, RunStatus},
};
use serde_json::Value;

use super::*;
use crate::server::made::{gpu, run};

/// A value with its name and its labels.
type Line = (String, BTreeMap<String, String>, f64);

/// Reads the format strictly: HELP and TYPE once before a family's values, which follow each other.
#[track_caller]
fn read(text: &str) -> (BTreeMap<String, String>, Vec<Line>) {
    let (mut kinds, mut lines) = (BTreeMap::new(), vec![]);
    let mut current = String::new();
    assert!(text.ends_with('\n') && !text.contains("\n\n") && !text.contains('\r'));
    let mut rows = text.lines();
    while let Some(row) = rows.next() {
        if let Some(help) = row.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a name and its help");
            assert!(!help.is_empty(), "{row}");
            let kind = rows.next().and_then(|row| row.strip_prefix(&format!("# TYPE {name} "))).expect("its type");
            assert!(["gauge", "counter"].contains(&kind), "{kind}");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} is there twice");
            name.clone_into(&mut current);
            continue;
        }
        let (name, rest) = row.split_at(row.find(['{', ' ']).expect("a name"));
        assert_eq!(name, current, "{row}");
        let mut labels = BTreeMap::new();
        let value = match rest.strip_prefix('{') {
            None => rest.strip_prefix(' ').expect("a value"),
            Some(mut rest) => loop {
                let (label, quoted) = rest.split_once("=\"").expect("a label");
                assert!(label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{label}");
                let mut text = String::new();
                let mut chars = quoted.char_indices();
                let end = loop {
                    match chars.next().expect("a quote") {
                        (end, '"') => break end,
                        (_, '\\') => text.push(match chars.next().expect("an escaped one").1 {
                            'n' => '\n',
                            char @ ('"' | '\\') => char,
                            other => panic!("\\{other}"),
                        }),
                        (_, char) => text.push(char),
                    }
                };
                assert!(labels.insert(label.to_owned(), text).is_none(), "{row}");
                rest = &quoted[end + 1..];
                match rest.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break rest.strip_prefix("} ").expect("a value"),
                }
            },
        };
        lines.push((name.to_owned(), labels, value.parse().expect("a number")));
    }
    let distinct: BTreeSet<_> = lines.iter().map(|(name, labels, _)| (name, labels)).collect();
    assert_eq!(distinct.len(), lines.len(), "a series is there twice");
    (kinds, lines)
}

fn sources() -> Sources {
    Sources {
        driver: DriverState::Ready { driver_version: "580".to_owned(), cuda_version: None, windows: false },
        history: HistoryState::Kept { bytes: 4096, set_aside: None },
    }
}

fn sample(gpu: u32) -> Sample {
    Sample {
        gpu,
        memory_used_bytes: Reading::Is(5 << 30),
        memory_free_bytes: Reading::Is(7 << 30),
        memory_reserved_bytes: Reading::Is(1 << 28),
        utilization_percent: Reading::Is(97),
        memory_utilization_percent: Reading::Is(41),
        power_watts: Reading::Is(199.5),
        clock_sm_mhz: Reading::Is(2800),
        clock_memory_mhz: Reading::Is(10_501),
        temperature_celsius: Reading::Is(71),
        throttle: Reading::Is(0x4),
    }
}

fn slow_sample(gpu: u32) -> SlowSample {
    SlowSample {
        gpu,
        fan_percent: Reading::Is(30),
        energy_joules: Reading::Is(123_456.75),
        pcie_receive_bytes_per_second: Reading::Is(1_000_000),
        pcie_send_bytes_per_second: Reading::Is(2_000_000),
        pcie_link: Reading::Is((4, 16)),
        ecc_corrected: Reading::Is(0),
        ecc_uncorrected: Reading::Is(0),
        processes: Reading::Is(vec![]),
    }
}

fn full() -> (Vec<Gpu>, Latest, Vec<Run>) {
    let card = Gpu { power_limit_watts: Reading::Is(200.0), ..gpu(0) };
    let host = HostSample {
        cpu_percent: Reading::Is(12.5),
        memory_used_bytes: Reading::Is(1),
        memory_total_bytes: Reading::Is(2),
        disk_free_bytes: Reading::Is(3),
        disk_total_bytes: Reading::Is(4),
    };
    let latest = Latest {
        telemetry: Some(Arc::new(Telemetry { seq: 1, time_ms: 1000, gpus: vec![sample(0)] })),
        slow: Some(Arc::new(Slow { time_ms: 1000, gpus: vec![slow_sample(0)], host })),
    };
    let iteration = Iteration {
        iter: 250,
        loss: Some(2.0625),
        time_ms: 132.25,
        tokens_per_second: Some(123_904.0),
        mfu_printed_percent: Some(18.5),
        mfu_percent: Some(40.0),
    };
    let plan = headroom_shared::protocol::run::PlanSummary {
        card: "RTX 4070".to_owned(),
        fits: true,
        peak_bytes: 8 << 30,
        max_memory_allocated: 0,
        max_memory_reserved: 0,
        phases: vec![],
    };
    let goes_on = Run {
        last: Some(iteration),
        last_evaluation: Some(Evaluation { iter: 250, train_loss: Some(1.97), val_loss: Some(2.5) }),
        gpu_memory_peak_bytes: Some(6 << 30),
        energy_joules: Some(3600.0),
        plan: Some(plan),
        ..run("ab")
    };
    let ended = Run { status: RunStatus::Exited { code: 0 }, ..run("cd") };
    (vec![card], latest, vec![goes_on, ended])
}

fn value(lines: &[Line], name: &str) -> Option<f64> {
    lines.iter().find(|line| line.0 == name).map(|line| line.2)
}

#[test]
fn everything_is_told_in_base_units() {
    let (gpus, latest, runs) = full();
    let (kinds, lines) = read(&written(&sources(), &gpus, &latest, &runs, 3));
    let written: BTreeSet<&str> = kinds.keys().map(String::as_str).collect();
    let known: BTreeSet<&str> = families().iter().map(|family| family.name).collect();
    assert_eq!(written, known, "with every reading there every family is there");
    for (name, expected) in [
        ("headroom_viewers", 3.0),
        ("headroom_driver_ready", 1.0),
        ("headroom_gpu_memory_used_bytes", 5_368_709_120.0),
        ("headroom_gpu_utilization_ratio", 0.97),
        ("headroom_gpu_power_watts", 199.5),
        ("headroom_gpu_sm_clock_hertz", 2.8e9),
        ("headroom_gpu_fan_ratio", 0.3),
        ("headroom_gpu_energy_joules_total", 123_456.75),
        ("headroom_host_cpu_ratio", 0.125),
        ("headroom_run_loss", 2.0625),
        ("headroom_run_iteration_seconds", 0.13225),
        ("headroom_run_mfu_ratio", 0.4),
        ("headroom_run_start_time_seconds", 1.5),
    ] {
        assert_eq!(value(&lines, name), Some(expected), "{name}");
    }
    for (name, labels, _) in &lines {
        let expected: &[&str] = match name.as_str() {
            "headroom_gpu_throttled" => &["gpu", "name", "reason", "uuid"],
            name if name.starts_with("headroom_gpu_") => &["gpu", "name", "uuid"],
            name if name.starts_with("headroom_run_") => &["name", "run"],
            "headroom_build_info" => &["version"],
            _ => &[],
        };
        assert_eq!(labels.keys().collect::<Vec<_>>(), expected, "{name}");
        assert_ne!(labels.get("run").map(String::as_str), Some("cd"), "{name} is of a run that has ended");
    }
    let slowed: Vec<_> = lines.iter().filter(|line| line.0 == "headroom_gpu_throttled" && line.2 == 1.0).collect();
    assert_eq!(slowed.len(), 1);
    assert_eq!(slowed[0].1["reason"], "power_cap");
    let loss = lines.iter().find(|line| line.0 == "headroom_run_loss").expect("it is there");
    assert_eq!(loss.1["name"], "a \"run\"\\\n", "what an owner writes is escaped");
}

#[test]
fn names_follow_prometheus_conventions() {
    for family in families() {
        let name = family.name;
        assert!(name.starts_with("headroom_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
        assert_eq!(name.ends_with("_total"), family.kind == table::Kind::Counter, "{name}");
        for unit in ["percent", "mhz", "_ms", "milli", "mib", "kwh", "celcius"] {
            assert!(!name.contains(unit), "{name}");
        }
        assert!(family.help.ends_with('.') || family.help.ends_with("always 1."), "{name}");
    }
}

#[test]
fn a_reading_that_is_missing_is_not_there() {
    let (gpus, mut latest, _) = full();
    let missing = Sample { power_watts: Reading::missing(Why::NotSupported), ..sample(0) };
    latest.telemetry = Some(Arc::new(Telemetry { seq: 1, time_ms: 1000, gpus: vec![missing] }));
    let (kinds, lines) = read(&written(&sources(), &gpus, &latest, &[], 0));
    assert!(!kinds.contains_key("headroom_gpu_power_watts"));
    assert!(value(&lines, "headroom_gpu_temperature_celsius").is_some());
    // A card that is lost has nothing but that, and what it is.
    let lost = Gpu { present: false, ..gpu(0) };
    let (_, lines) = read(&written(&sources(), &[lost], &latest, &[], 0));
    assert_eq!(value(&lines, "headroom_gpu_present"), Some(0.0));
    assert_eq!(value(&lines, "headroom_gpu_temperature_celsius"), None);
    // Without a driver and with history paused there is still an answer.
    let none = Sources {
        driver: DriverState::NoLibrary,
        history: HistoryState::Paused { reason: "full".to_owned(), since_ms: 1 },
    };
    let (_, lines) = read(&written(&none, &[], &Latest::default(), &[], 0));
    assert_eq!(
        (value(&lines, "headroom_driver_ready"), value(&lines, "headroom_history_kept")),
        (Some(0.0), Some(0.0))
    );
    assert_eq!(value(&lines, "headroom_history_bytes"), None);
}

#[test]
fn what_is_old_is_not_told() {
    let (_, latest, _) = full();
    assert!(fresh(latest.clone(), 1000 + STALE_MS).telemetry.is_some());
    let old = fresh(latest, 1001 + STALE_MS);
    assert!(old.telemetry.is_none() && old.slow.is_none());
}

#[test]
fn numbers_are_as_go_reads_them() {
    let mut text = Text::default();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.1, 1e21, 9_007_199_254_740_993_f64] {
        text.one(&VIEWERS, &[("x", &value.to_string())], value);
    }
    let text = text.finish();
    let values: Vec<&str> =
        text.lines().skip(2).filter_map(|line| line.rsplit_once(' ').map(|(_, value)| value)).collect();
    assert_eq!(values, ["NaN", "+Inf", "-Inf", "0.1", "1000000000000000000000", "9007199254740992"]);
}

#[test]
fn the_dashboard_names_what_there_is() {
    let text = include_str!("../../../../docs/grafana/headroom.json");
    let dashboard: Value = serde_json::from_str(text).expect("JSON");
    let known: BTreeSet<&str> = families().iter().map(|family| family.name).collect();
    let named: BTreeSet<&str> = text
        .split(|char: char| !char.is_ascii_lowercase() && char != '_')
        .filter(|word| word.starts_with("headroom_"))
        .collect();
    assert!(named.len() > 15, "{named:?}");
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()), "{panel}");
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty() && targets.iter().all(|target| target["expr"].is_string()), "{panel}");
    }
}

#[tokio::test]
async fn it_is_answered_to_who_may_look() {
    let server = crate::server::tests::talk::Server::start().await;
    server.place.state.hub.gpus(vec![gpu(0)]);
    server.place.made.runs.lock().expect("no panic").push(run("ab"));
    assert_eq!(server.get("/metrics").await.status, 401);
    let answer = server.asked("GET", "/metrics", &server.place.view).await;
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let (_, lines) = read(&answer.body);
    assert_eq!(value(&lines, "headroom_gpu_present"), Some(1.0));
    assert_eq!(value(&lines, "headroom_run_start_time_seconds"), Some(1.5));
    *server.place.made.broken.lock().expect("no panic") = true;
    assert_eq!(server.asked("GET", "/metrics", &server.place.view).await.status, 200, "cards are there all the same");
    server.stop().await;
}
