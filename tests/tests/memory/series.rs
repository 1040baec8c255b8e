//! Recordings at several batch sizes or sequence lengths, against recordings at a further size.

use headroom_planner::{
    memory::program::Phase,
    plan::Plan,
    recording::{Decoder, Recording, ReplayRequest, Variable, plan},
    session::Options,
};

use crate::records::golden;

fn recording(name: &str) -> Recording {
    let file = std::fs::read(golden(&format!("recordings/series/{name}.headroom"))).expect("the recording is there");
    let mut decoder = Decoder::default();
    decoder.push(&file).expect("a part of a recording");
    decoder.finish().expect("a recording")
}

fn replay(recording: &Recording, gpu: &str) -> Plan<ReplayRequest> {
    let machine = Options { gpu: gpu.to_owned(), ..Options::default() }.machine().expect("a GPU");
    plan(recording, machine).expect("a program")
}

/// Live bytes of each phase.
fn live(plan: &Plan<ReplayRequest>) -> Vec<(Phase, u64)> {
    plan.phases.iter().map(|peak| (peak.phase, peak.live_bytes)).collect()
}

/// Allocated and reserved bytes of each phase.
fn allocated(plan: &Plan<ReplayRequest>) -> Vec<[u64; 2]> {
    plan.phases.iter().map(|peak| [peak.max_allocated_bytes, peak.max_reserved_bytes]).collect()
}

/// Series, with their variable and the size that was also recorded alone.
const SERIES: [(&str, Variable, u64); 6] = [
    ("nanogpt", Variable::BatchSize, 40),
    ("nanogpt_compiled", Variable::BatchSize, 40),
    ("gpt2", Variable::BatchSize, 7),
    ("llama_lora", Variable::BatchSize, 7),
    ("gpt2_length", Variable::SequenceLength, 1024),
    ("cnn", Variable::BatchSize, 100),
];

#[test]
fn run_at_a_further_size_equals_its_own_recording() {
    for (name, variable, size) in SERIES {
        let series = recording(name);
        assert_eq!(series.series().map(|series| series.variable), Some(variable), "{name}");
        assert!(!series.series().expect("a series").sizes.contains(&size), "{name}");
        let at = series.at(variable, size).expect("a run");
        let alone = recording(&format!("{name}-{size}"));
        for gpu in ["RTX 4070", "RTX 3060", "H200"] {
            let (at, alone) = (replay(&at, gpu), replay(&alone, gpu));
            assert_eq!(live(&at), live(&alone), "{name} on {gpu}");
            // Inductor orders the buffers of this run in another way at this size.
            if name != "nanogpt_compiled" {
                assert_eq!(allocated(&at), allocated(&alone), "{name} on {gpu}");
            }
        }
    }
}

#[test]
fn smallest_recorded_size_is_the_default() {
    for (name, variable, _) in SERIES {
        let series = recording(name);
        let first = series.series().expect("a series").sizes[0];
        assert_eq!(series.size(), Some(first), "{name}");
        let at = series.at(variable, first).expect("a run");
        assert_eq!(at, series, "{name}");
    }
}
