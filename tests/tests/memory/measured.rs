//! Comparison with measurements on a real GPU: lines of tests/golden/measured, whose README describes the format and
//! the comparison.

use std::fs;

use headroom_planner::{
    gpt::{GptConfig, GptShape},
    hardware::{
        ComputeCapability,
        context::{ModuleLoading, context_bytes},
        reported,
    },
    memory::{allocator::SegmentKind, context::GpuProperties, program::Phase, schedule::program, simulate::simulate},
    train_config::TrainConfig,
};
use serde_json::{Value, json};

use crate::{
    figures::{ALLOCATED_COMPILED, ALLOCATED_EAGER, RESERVED},
    records::{EAGER, Row, dtype, golden, rows},
};

/// Files in the directory.
const FILES: [&str; 3] = ["H200-compile.jsonl", "H200-eager.jsonl", "H200-speed.jsonl"];

/// The measurements of compiled runs that the simulation misses, as `n_layer`, `batch_size` and the finding. The README of
/// the directory has the causes.
const MISSES: [(u64, u64, &str); 11] = [
    // The character model, whose vocabulary of 65 Inductor fuses otherwise.
    (6, 64, "first_backward allocated"),
    (6, 64, "first_backward reserved"),
    (6, 64, "first_forward allocated"),
    (6, 64, "first_optimizer allocated"),
    (6, 64, "first_optimizer reserved"),
    // Inductor times candidate kernels at their first call, and holds a buffer of the L2 cache's size meanwhile.
    (12, 1, "eval reserved"),
    (12, 1, "eval_first reserved"),
    (12, 4, "eval reserved"),
    (12, 4, "eval_first reserved"),
    (12, 8, "eval_first reserved"),
    (24, 4, "eval_first reserved"),
];

/// Names of phases in a line.
const PHASES: [(&str, Phase); 10] = [
    ("init", Phase::Init),
    ("eval_first", Phase::EvalFirst),
    ("eval", Phase::Eval),
    ("first_forward", Phase::FirstForward),
    ("first_backward", Phase::FirstBackward),
    ("first_optimizer", Phase::FirstOptimizer),
    ("steady_forward", Phase::SteadyForward),
    ("steady_backward", Phase::SteadyBackward),
    ("steady_optimizer", Phase::SteadyOptimizer),
    ("rest", Phase::Rest),
];

/// Required integer field of a line.
#[track_caller]
fn count(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("no {key} in {of}"))
}

#[track_caller]
fn is(line: &Value, key: &str) -> bool {
    line[key].as_bool().unwrap_or_else(|| panic!("no {key} in {line}"))
}

/// Model, training and GPU of a line.
#[track_caller]
fn config(line: &Value) -> (GptConfig, TrainConfig, GpuProperties) {
    let shape = GptShape {
        n_layer: count(line, "n_layer"),
        n_head: count(line, "n_head"),
        n_embd: count(line, "n_embd"),
        block_size: count(line, "block_size"),
        vocab_size: count(line, "vocab_size"),
        dropout: line["dropout"].as_f64().expect("dropout is a number"),
        bias: is(line, "bias"),
    };
    let train = TrainConfig {
        batch_size: count(line, "batch_size"),
        gradient_accumulation_steps: count(line, "gradient_accumulation_steps"),
        dtype: dtype(line["dtype"].as_str().expect("a dtype's name")),
        compile: is(line, "compile"),
        eval_iters: count(line, "eval_iters"),
        max_iters: count(line, "iters") - 1,
        // Evaluation runs only before the first iteration.
        eval_interval: 1 << 20,
        ..TrainConfig::default()
    };
    let capability = line["capability"].as_str().and_then(|text| text.split_once('.')).expect("a capability");
    let [major, minor] = [capability.0, capability.1].map(|number| number.parse().expect("a capability's number"));
    let name = line["device"].as_str().expect("a GPU's name");
    let sm_count = reported(name, line["device_total"].as_u64()).and_then(|device| device.sm_count);
    let sm_count = sm_count.unwrap_or_else(|| panic!("{name} is not a GPU of the table"));
    let gpu = GpuProperties { compute_capability: ComputeCapability { major, minor }, sm_count };
    (GptConfig::new(shape).expect("a shape"), train.check().expect("a training"), gpu)
}

/// The comparison of a line with the simulation.
struct Comparison {
    /// Differences beyond the tolerance.
    findings: Vec<String>,
    /// Deviation of the whole run's `max_memory_allocated` and `max_memory_reserved`, in percent; `None` if memory ran
    /// out.
    of_run: Option<[f64; 2]>,
}

#[track_caller]
fn findings(line: &Value) -> Vec<String> {
    compare(line).findings
}

#[track_caller]
fn compare(line: &Value) -> Comparison {
    assert!(line.get("error").is_none(), "a process that died measured nothing: {}", line["error"]);
    let (gpt, train, gpu) = config(line);
    let kind = if is(line, "expandable") { SegmentKind::Expandable } else { SegmentKind::Native };
    let cap_gib = line["cap_gib"].as_f64().expect("a limit");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some GiB, in bytes")]
    let capacity_bytes =
        if cap_gib > 0.0 { (cap_gib * f64::from(1 << 30)) as u64 } else { count(line, "device_total") };
    let program = program(&gpt, &train, gpu).expect("it ran, so it can be planned");
    let outcome = simulate(&program, kind, capacity_bytes);

    let mut findings = Vec::new();
    let mut hold = |what: String, ours: u64, theirs: u64, percent: f64| {
        let off = off_percent(ours, theirs);
        if off.is_nan() || off.abs() > percent {
            findings.push(format!("{what}: {ours} simulated, {theirs} measured, {off:+.2} %"));
        }
    };
    let allocated = if is(line, "compile") { ALLOCATED_COMPILED } else { ALLOCATED_EAGER };
    let phases = line["phases"].as_array().expect("phases");
    let accumulates = count(line, "gradient_accumulation_steps") > 1;
    let (mut n_held, mut of_run) = (0, None);
    for (name, phase) in PHASES {
        // The script's first backward ends after the last micro-step, the simulation's after the first. Later
        // micro-steps of the first iteration belong to the simulation's steady phases.
        if accumulates && matches!(phase, Phase::FirstBackward | Phase::SteadyForward) {
            n_held += 1;
            continue;
        }
        let theirs = phases.iter().find(|theirs| theirs["name"] == name);
        let ours = outcome.phases.iter().find(|ours| ours.phase == phase);
        // A phase in which memory ran out has no end.
        let Some((ours, theirs)) = ours.zip(theirs) else { continue };
        n_held += 1;
        if phase == Phase::Rest {
            let allocated = off_percent(ours.max_allocated_bytes, count(theirs, "max_memory_allocated"));
            of_run = Some([allocated, off_percent(ours.max_reserved_bytes, count(theirs, "max_memory_reserved"))]);
        }
        hold(
            format!("{name} allocated"),
            ours.max_allocated_bytes,
            count(theirs, "max_memory_allocated"),
            allocated.worst,
        );
        hold(format!("{name} reserved"), ours.max_reserved_bytes, count(theirs, "max_memory_reserved"), RESERVED.worst);
    }
    if n_held == 0 || (n_held < PHASES.len() && line.get("oom").is_none()) {
        findings.push(format!("{n_held} phases of {} are in both", PHASES.len()));
    }
    if outcome.failure.is_some() != line.get("oom").is_some() {
        findings.push(format!(
            "out of memory: {} simulated, {} measured",
            outcome.failure.is_some(),
            line.get("oom").is_some()
        ));
    }
    let first = phases.first().expect("the context's phase");
    let context = count(first, "device_used").saturating_sub(count(first, "reserved_now"));
    let band = context_bytes(gpu.compute_capability, Some(gpu.sm_count), ModuleLoading::Lazy);
    // Beside other processes, the driver's figure includes their memory.
    if is(line, "alone") && !(band.band_low..=band.band_high).contains(&context) {
        findings.push(format!("context: {context} measured, {} to {} expected", band.band_low, band.band_high));
    }
    Comparison { findings, of_run }
}

fn off_percent(ours: u64, theirs: u64) -> f64 {
    (ours as f64 / theirs as f64 - 1.0) * 100.0
}

#[test]
fn the_files_that_are_named_are_all_there_are_and_keep_their_bands() {
    let entries = fs::read_dir(golden("measured")).expect("the folder has a README");
    let mut found: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name in UTF-8"))
        .filter(|name| name.ends_with(".jsonl"))
        .collect();
    found.sort();
    assert_eq!(found, FILES, "FILES names what was measured");
    let mut of_runs = Vec::new();
    let mut missed = Vec::new();
    for file in FILES {
        let text = fs::read_to_string(golden("measured").join(file)).expect("it was found");
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect("lines of JSON");
            let compared = compare(&line);
            of_runs.extend(compared.of_run.map(|off| (is(&line, "compile"), off)));
            for finding in compared.findings {
                println!("{file}: {finding}");
                let what = finding.split(':').next().unwrap_or_default().to_owned();
                missed.push((file, count(&line, "n_layer"), count(&line, "batch_size"), what));
            }
        }
    }
    for (compiled, name) in [(false, "eager"), (true, "compiled")] {
        for (figure, what) in ["max_memory_allocated", "max_memory_reserved"].into_iter().enumerate() {
            let off = of_runs.iter().filter(|(of, _)| *of == compiled).map(|(_, off)| off[figure].abs());
            let mut off: Vec<f64> = off.collect();
            off.sort_by(f64::total_cmp);
            let (median, worst) = (off[off.len() / 2], off[off.len() - 1]);
            println!("H200, {name}, {what}: {} runs, median {median:.3} %, worst {worst:.3} %", off.len());
        }
    }
    missed.sort();
    let known = MISSES.map(|(n_layer, batch_size, what)| ("H200-compile.jsonl", n_layer, batch_size, what.to_owned()));
    assert_eq!(missed, known, "the misses that are listed are all there are");
}

/// A synthetic line in the measuring script's format, with the figures of a row that was recorded without a GPU.
fn synthetic(row: &Row) -> Value {
    let figure = |column: &str| row.bytes(column).expect("a column of bytes");
    let number = |column: &str| row.text(column).parse::<u64>().expect("a number");
    let (mib, context) = (1_u64 << 20, 225_u64 << 20);
    let phase = |name: &str, allocated: u64, reserved: u64| {
        json!({
            "name": name, "phase_peak_allocated": allocated, "max_memory_allocated": allocated,
            "max_memory_reserved": reserved, "allocated_now": allocated, "reserved_now": reserved,
            "device_used": context + reserved,
        })
    };
    let mut phases = vec![phase("context", 512, 2 * mib)];
    // The row only has figures of the whole run; the simulation's figures of the phases serve as measurements.
    let outcome = row.replay(SegmentKind::Native);
    for (name, of) in PHASES {
        let ours = outcome.phases.iter().find(|ours| ours.phase == of).expect("it ran");
        phases.push(phase(name, ours.max_allocated_bytes, ours.max_reserved_bytes));
    }
    let last = phases.len() - 1;
    phases[last] = phase("rest", figure("max_memory_allocated"), figure("max_memory_reserved"));
    json!({
        "n_layer": number("n_layer"), "n_head": number("n_head"), "n_embd": number("n_embd"),
        "batch_size": number("batch_size"), "block_size": number("block_size"), "vocab_size": number("vocab_size"),
        "dtype": row.text("dtype"), "dropout": row.text("dropout").parse::<f64>().expect("a number"),
        "bias": row.text("bias") == "True", "gradient_accumulation_steps": number("gradient_accumulation_steps"),
        "compile": false, "cap_gib": 0.0, "expandable": false, "eval_iters": 2, "iters": 2, "timed": 0,
        "torch": "2.11.0+cu130", "device": "NVIDIA GeForce RTX 4070", "capability": "8.9",
        "device_used_at_start": context + 2 * mib, "device_total": 12_878_086_144_u64, "alone": true,
        "phases": phases,
    })
}

fn small_row() -> Row {
    let row =
        rows(EAGER[0]).into_iter().find(|row| row.bytes("max_memory_reserved").is_some_and(|bytes| bytes < 8 << 30));
    row.expect("a row that fits the GPU")
}

#[test]
fn a_line_of_the_scripts_format_is_read_and_held() {
    let line = synthetic(&small_row());
    assert_eq!(findings(&line), [""; 0]);
    let text = line.to_string();
    assert_eq!(findings(&serde_json::from_str(&text).expect("JSON")), [""; 0], "as it is in a file");
}

#[test]
fn must_find_what_a_gpu_does_otherwise() {
    let line = synthetic(&small_row());
    let found = |change: &dyn Fn(&mut Value)| {
        let mut line = line.clone();
        change(&mut line);
        findings(&line)
    };
    let scale = |value: &mut Value, percent: u64| *value = (value.as_u64().expect("bytes") * percent / 100).into();
    let one = |change: &dyn Fn(&mut Value), finding: &str| {
        let found = found(change);
        assert!(found.len() == 1 && found[0].contains(finding), "{finding}: {found:?}");
    };
    one(&|line| scale(&mut line["phases"][5]["max_memory_allocated"], 101), "first_backward allocated");
    one(&|line| scale(&mut line["phases"][10]["max_memory_reserved"], 106), "rest reserved");
    one(&|line| scale(&mut line["phases"][0]["device_used"], 200), "context");
    one(&|line| line["oom"] = "CUDA out of memory.".into(), "out of memory: false simulated, true measured");
    one(&|line| drop(line["phases"].as_array_mut().expect("phases").pop()), "9 phases of 10 are in both");
    let capped = found(&|line| line["cap_gib"] = 1.0.into());
    assert!(capped.iter().any(|finding| finding.contains("out of memory: true simulated")), "{capped:?}");
}

#[test]
#[should_panic(expected = "a process that died measured nothing")]
fn a_process_that_died_is_no_measurement() {
    let mut line = synthetic(&small_row());
    line["error"] = "RuntimeError: CUDA error: no kernel image is available".into();
    findings(&line);
}
