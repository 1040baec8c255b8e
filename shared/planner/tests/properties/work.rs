//! The cost of a plan as the number of replayed events, a bound that does not depend on the clock.

use headroom_planner::{
    gpt::{GptConfig, GptShape},
    hardware::ComputeCapability,
    memory::{
        allocator::SegmentKind,
        context::GpuProperties,
        schedule::program,
        simulate::{Outcome, simulate},
    },
    train_config::TrainConfig,
};

/// Replays GPT-2's shape with nanoGPT's defaults: 200 evaluation batches and 40 micro-steps.
fn replay(n_layer: u64, compile: bool, segments: SegmentKind) -> Outcome {
    let shape =
        GptShape { n_layer, n_head: 12, n_embd: 768, block_size: 1024, vocab_size: 50_304, dropout: 0.0, bias: false };
    let gpt = GptConfig::new(shape).expect("GPT-2's shape");
    let train = TrainConfig { compile, ..TrainConfig::default() };
    let gpu = GpuProperties { compute_capability: ComputeCapability { major: 8, minor: 9 }, sm_count: 46 };
    let program = program(&gpt, &train, gpu).expect("no tensor is too large");
    simulate(&program, segments, u64::MAX)
}

#[test]
fn work_is_linear_in_layers() {
    for compile in [false, true] {
        // The number of repetitions until a section repeats its state depends on sizes, so the cost per repetition is
        // compared.
        let per_section = |n_layer| {
            let outcome = replay(n_layer, compile, SegmentKind::Native);
            let (n_events, n_sections) = (outcome.n_events, outcome.played.len());
            println!("compile {compile}: {n_events} events in {n_sections} sections for {n_layer} layers");
            n_events / n_sections
        };
        let [small, large, largest] = [12, 24, 48].map(per_section);
        assert!(large <= 2 * small && largest <= 4 * small, "{small} {large} {largest}");
    }
}

/// The large pool returns to an earlier state after a few repetitions of a section. With expandable segments, the small
/// pool may need every repetition of the section; then only the small pool is replayed.
#[test]
fn work_of_a_plan_stays_within_its_bound() {
    for (n_layer, compile, segments, bound) in [
        (12, false, SegmentKind::Native, 23_000),
        (12, true, SegmentKind::Native, 13_000),
        (12, false, SegmentKind::Expandable, 28_000),
        (12, true, SegmentKind::Expandable, 27_000),
        (48, false, SegmentKind::Expandable, 196_000),
        (48, true, SegmentKind::Expandable, 136_000),
    ] {
        let n_events = replay(n_layer, compile, segments).n_events;
        println!("compile {compile}, {segments:?}: {n_events} events for {n_layer} layers");
        assert!(n_events <= bound, "compile {compile}, {segments:?}, {n_layer} layers: {n_events} events");
    }
}
