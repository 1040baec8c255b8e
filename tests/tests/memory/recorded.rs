//! The events that the engine derives for `transformers.Trainer` and for nanochat, compared with rows that were recorded
//! without a GPU. The README of tests/golden/recorded has the format.

use std::{collections::HashSet, fs};

use headroom_planner::{
    memory::{
        allocator::{Allocator, SegmentKind},
        context::GpuProperties,
    },
    models::{
        hf,
        nanochat::{self, Lengths},
    },
    torch::{Event, Name, Recorder},
};
use serde_json::Value;

use crate::records::{SM89, SM90, golden};

/// The rows of a trainer: those that the engine was corrected with, and those that it was not.
const HF: &[&str] = &["hf_seen", "hf_held_out", "hf_flash_attn"];
const NANOCHAT: &[&str] = &["nanochat_seen", "nanochat_held_out"];

type Phases = Vec<(&'static str, Vec<Event>)>;

/// Bytes of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Figures {
    /// Maximum of the tensors, and their sum at the end, each rounded up to 512.
    live: [u64; 2],
    /// The same of the allocator's blocks.
    allocated: [u64; 2],
    /// `max_memory_reserved` so far.
    reserved: u64,
}

#[track_caller]
fn rows(file: &str) -> Vec<Value> {
    let lines = fs::read_to_string(golden("recorded").join(file).with_extension("jsonl")).expect("the rows are there");
    lines.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
}

#[track_caller]
fn gpu(row: &Value) -> GpuProperties {
    match row["capability"].as_str() {
        Some("8.9") => GpuProperties { sm_count: 128, ..SM89 },
        Some("9.0") => SM90,
        other => panic!("{other:?} is not the capability of a recorded run"),
    }
}

/// The engine's events of a row, by phase.
fn derived(row: &Value) -> Phases {
    if row["kind"] == "hf" {
        return hf::run(&crate::hf::args(row), gpu(row), Recorder::Gpu);
    }
    let grad_accum_steps = row["grad_accum_steps"].as_u64().expect("a count");
    let lengths = Lengths { eval_steps: 2, grad_accum_steps, num_iterations: 3, eval_every: u64::MAX };
    let run = nanochat::run(&crate::nanochat::args(row), lengths, gpu(row), Recorder::Gpu);
    crate::nanochat::derived(&run).into_iter().map(|(name, events)| (name, without_buffers(events))).collect()
}

/// Events without the buffers of the compiled Muon kernel, which are not recorded.
fn without_buffers(events: Vec<Event>) -> Vec<Event> {
    let mut buffers = HashSet::new();
    let mut is_recorded = |event: &Event| match event {
        Event::Alloc { block, label, .. } => {
            let is_buffer = matches!(label.name, Name::Operation("Muon buffer" | "Muon product"));
            !is_buffer || !buffers.insert(*block)
        }
        Event::Free { block } => !buffers.remove(block),
    };
    events.into_iter().filter(|event| is_recorded(event)).collect()
}

/// The figures of each phase. `empties_cache` has the names of phases that begin with `torch.cuda.empty_cache()`.
fn figures(phases: Phases, empties_cache: impl Fn(&str) -> bool) -> Vec<(&'static str, Figures)> {
    let mut allocator = Allocator::new(SegmentKind::Native, u64::MAX).with_descending_segments();
    let (mut live, mut blocks) = (0, Vec::new());
    let of_phase = |(name, events): (&'static str, Vec<Event>)| {
        if empties_cache(name) {
            allocator.empty_cache();
        }
        let mut peaks = [live, allocator.allocated_bytes()];
        for event in events {
            match event {
                Event::Alloc { block, bytes, .. } => {
                    let block = block as usize;
                    blocks.resize(blocks.len().max(block + 1), None);
                    let rounded = bytes.next_multiple_of(512);
                    live += rounded;
                    // A tensor without elements has no block in the allocator.
                    blocks[block] = (bytes > 0).then(|| (rounded, allocator.alloc(rounded).expect("unlimited memory")));
                    peaks = [peaks[0].max(live), peaks[1].max(allocator.allocated_bytes())];
                }
                Event::Free { block } => {
                    if let Some((bytes, id)) = blocks[block as usize].take() {
                        live -= bytes;
                        allocator.free(id);
                    }
                }
            }
        }
        let figures = Figures {
            live: [peaks[0], live],
            allocated: [peaks[1], allocator.allocated_bytes()],
            reserved: allocator.max_reserved_bytes(),
        };
        (name, figures)
    };
    phases.into_iter().map(of_phase).collect()
}

/// The recorded figures of each phase.
#[track_caller]
fn recorded(row: &Value) -> Vec<(&str, Figures)> {
    let figures = |phase: &Value| {
        let bytes = |key: &str| phase[key].as_u64().expect("bytes");
        Figures {
            live: [bytes("phase_peak_live"), bytes("live_now")],
            allocated: [bytes("phase_peak_allocated"), bytes("allocated_now")],
            reserved: bytes("max_memory_reserved"),
        }
    };
    let phases = row["phases"].as_array().expect("a list of phases");
    phases.iter().map(|phase| (phase["name"].as_str().expect("a name"), figures(phase))).collect()
}

/// The comparison of a row with the engine.
#[derive(Debug, Default)]
struct Comparison {
    /// Phases whose live bytes differ.
    differences: Vec<String>,
    /// Relative deviation of the run's `max_memory_allocated` and `max_memory_reserved`.
    deviations: [f64; 2],
}

fn compare(row: &Value) -> Comparison {
    let empties_cache = |name: &str| row["kind"] == "hf" && hf::empties_cache(&crate::hf::args(row), name);
    let (recorded, ours) = (recorded(row), figures(derived(row), empties_cache));
    let mut comparison = Comparison::default();
    if recorded.len() != ours.len() {
        comparison.differences.push(format!("{} phases, recorded {}", ours.len(), recorded.len()));
    }
    for ((name, theirs), (_, ours)) in recorded.iter().zip(&ours) {
        if theirs.live != ours.live {
            comparison.differences.push(format!("{name}: {:?}, recorded {:?}", ours.live, theirs.live));
        }
    }
    let maxima = |phases: &mut dyn Iterator<Item = Figures>| {
        phases.fold([0, 0], |[a, r]: [u64; 2], figures| [a.max(figures.allocated[0]), r.max(figures.reserved)])
    };
    let theirs = maxima(&mut recorded.iter().map(|(_, figures)| *figures));
    let ours = maxima(&mut ours.iter().map(|(_, figures)| *figures));
    comparison.deviations = [0, 1].map(|at| (ours[at] as f64 / theirs[at] as f64 - 1.0).abs());
    comparison
}

/// Maximum deviations of a run's allocated and reserved memory: the median of the rows, and the worst.
const BARS: [[f64; 2]; 2] = [[0.001, 0.01], [0.01, 0.05]];

/// Compares all rows of the files. Prints the figures of the documentation.
#[expect(clippy::print_stdout, reason = "the figures are part of the test's output")]
#[track_caller]
fn hold(files: &[&'static str]) {
    let numbered = |&file: &&'static str| rows(file).into_iter().enumerate().map(move |(at, row)| (file, at, row));
    let compared = files.iter().flat_map(numbered).map(|(file, at, row)| (file, at, compare(&row)));
    let compared: Vec<_> = compared.collect();
    let n = compared.len();
    let n_exact = compared.iter().filter(|(.., comparison)| comparison.differences.is_empty()).count();
    println!("live bytes are exact in {n_exact} of {n} rows");
    for (file, at, comparison) in &compared {
        println!("{file} {at}: {comparison:?}");
    }
    assert_eq!(n_exact, n, "live bytes are exact in {n_exact} of {n} rows");
    let mut deviations = [Vec::new(), Vec::new()];
    for (_, _, comparison) in compared {
        deviations[0].push(comparison.deviations[0]);
        deviations[1].push(comparison.deviations[1]);
    }
    for ((name, mut deviations), [median, worst]) in ["allocated", "reserved"].into_iter().zip(deviations).zip(BARS) {
        deviations.sort_by(f64::total_cmp);
        let (middle, last) = (deviations[deviations.len() / 2], deviations[deviations.len() - 1]);
        println!("{name}: median {:.3} %, worst {:.3} %", middle * 100.0, last * 100.0);
        assert!(middle <= median && last <= worst, "{name}: {deviations:?}");
    }
}

#[test]
fn trainer_allocates_what_was_recorded() {
    hold(HF);
}

#[test]
fn nanochat_allocates_what_was_recorded() {
    hold(NANOCHAT);
}
