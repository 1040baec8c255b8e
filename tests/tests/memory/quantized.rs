//! The events that the engine derives for quantized models, 8-bit optimizers and saved modules, compared with recorded runs.

use std::fs;

use headroom_planner::{
    gpt::tensors::Category,
    hardware::ComputeCapability,
    memory::context::GpuProperties,
    models::hf::{self, Args},
    torch::{Event, Recorder},
    trainers::hf::Run,
};
use serde_json::Value;

use crate::records::golden;

/// The GPU that the recorder describes.
const GPU: GpuProperties =
    GpuProperties { compute_capability: ComputeCapability { major: 8, minor: 9 }, sm_count: 128 };

fn rows() -> Vec<Value> {
    let lines = fs::read_to_string(golden("quantized/rows.jsonl")).expect("the lines are there");
    lines.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

/// The options of `headroom plan hf` for a row.
fn words(row: &Value) -> Vec<String> {
    let is_set = |key: &str| row[key] == true;
    let text = |key: &str, default: &str| format!("--{key}={}", row[key].as_str().unwrap_or(default));
    let mut words = vec![
        format!("--per_device_train_batch_size={}", row["batch"]),
        format!("--per_device_eval_batch_size={}", row["batch"]),
        format!("--max_length={}", row["length"]),
        format!("--gradient_accumulation_steps={}", row["accum"].as_u64().unwrap_or(1)),
        text("optim", "adamw_torch_fused"),
        format!("--attention_mask={}", is_set("mask")),
        format!("--dtype={}", row["weights"].as_str().expect("a dtype")),
        format!("--gradient_checkpointing={}", row.get("gc").is_some()),
        format!("--use_reentrant={}", row["gc"] == "reentrant"),
        format!("--eval_strategy={}", if is_set("evaluate") { "epoch" } else { "no" }),
        text("bnb_4bit_compute_dtype", "float32"),
        text("bnb_4bit_quant_type", "fp4"),
        text("bnb_4bit_quant_storage", "uint8"),
    ];
    let switches = ["bf16", "fp16", "load_in_4bit", "load_in_8bit", "bnb_4bit_use_double_quant"];
    words.extend(switches.map(|key| format!("--{key}={}", is_set(key))));
    if let Some(lora) = row.get("lora") {
        let names = |key: &str| {
            let names = lora[key].as_array().into_iter().flatten().filter_map(Value::as_str);
            names.collect::<Vec<_>>().join(",")
        };
        let targets = lora["target_modules"].as_str().map_or_else(|| names("target_modules"), str::to_owned);
        words.push(format!("--lora_r={}", lora["r"]));
        words.push(format!("--lora_dropout={}", lora["lora_dropout"]));
        words.push(format!("--lora_target_modules={targets}"));
        words.push(format!("--lora_modules_to_save={}", names("modules_to_save")));
    }
    words
}

fn args(row: &Value) -> Args {
    Run::read(&row["config"], &words(row)).unwrap_or_else(|error| panic!("{error}")).args().clone()
}

/// Peak and end of a phase in live bytes. Each tensor counts as a multiple of 512 bytes, as in the allocator's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bytes {
    peak: u64,
    end: u64,
}

/// The derived bytes of each phase, without workspaces of kernels, which the recorder does not see.
fn derived(args: &Args) -> Vec<(&'static str, Bytes)> {
    let mut sizes: Vec<u64> = Vec::new();
    let mut live = 0;
    let of_phase = |(name, events): (&'static str, Vec<Event>)| {
        let mut peak = live;
        for event in events {
            match event {
                Event::Alloc { block, bytes, label } => {
                    let block = block as usize;
                    sizes.resize(sizes.len().max(block + 1), 0);
                    let is_seen = label.category != Category::Workspace;
                    sizes[block] = if is_seen { bytes.next_multiple_of(512).max(512) } else { 0 };
                    live += sizes[block];
                    peak = peak.max(live);
                }
                Event::Free { block } => live -= std::mem::take(&mut sizes[block as usize]),
            }
        }
        (name, Bytes { peak, end: live })
    };
    hf::run(args, GPU, Recorder::FakeTensors).into_iter().map(of_phase).collect()
}

/// Phases whose bytes differ.
fn differences(row: &Value) -> Vec<String> {
    let derived = derived(&args(row));
    let phases = row["phases"].as_array().expect("a list of phases");
    // The engine has no phase for the start of the process.
    let phases: Vec<_> = phases.iter().filter(|phase| phase["name"] != "context").collect();
    let derived: Vec<_> = derived.into_iter().filter(|(name, _)| *name != "context").collect();
    let names = |phases: &[&Value]| phases.iter().map(|phase| phase["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&phases), derived.iter().map(|(name, _)| Value::from(*name)).collect::<Vec<_>>());
    let pairs = phases.into_iter().zip(derived);
    let differs = pairs.filter_map(|(phase, (name, ours))| {
        let bytes = |key: &str| phase[key].as_u64().expect("bytes");
        let recorded = Bytes { peak: bytes("peak"), end: bytes("end") };
        (ours != recorded).then(|| format!("{name}: {ours:?}, recorded {recorded:?}"))
    });
    differs.collect()
}

#[test]
fn every_recorded_phase_is_derived_to_the_byte() {
    let rows = rows();
    let differences: Vec<_> =
        rows.iter().enumerate().flat_map(|(at, row)| differences(row).into_iter().map(move |d| (at, d))).collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn a_falsified_row_differs() {
    let mut row = rows().swap_remove(0);
    let peak = &mut row["phases"][5]["peak"];
    *peak = (peak.as_u64().expect("bytes") + 512).into();
    assert_eq!(differences(&row).len(), 1);
}

#[test]
fn rows_cover_formats_optimizers_and_saved_modules() {
    let rows = rows();
    assert_eq!(rows.len(), 18);
    let count = |applies: &dyn Fn(&Value) -> bool| rows.iter().filter(|row| applies(row)).count();
    assert_eq!(count(&|row| row["load_in_4bit"] == true), 8);
    assert_eq!(count(&|row| row["load_in_8bit"] == true), 3);
    assert_eq!(count(&|row| row["optim"].as_str().is_some_and(|name| name.starts_with("paged"))), 8);
    assert_eq!(count(&|row| row["lora"]["modules_to_save"].is_array()), 3);
}
