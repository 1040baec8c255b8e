//! How much work a plan is, counted in events that are replayed: a bound that no clock blurs.

use headroom_shared::{
    gpt::{GptConfig, GptShape},
    hardware::ComputeCapability,
    memory::{
        allocator::SegmentKind,
        run::{Card, program},
        simulate::simulate,
    },
    train_config::TrainConfig,
};

/// Events replayed for GPT-2's shape at nanoGPT's defaults, which stand for 200 evaluation batches and 40 micro-steps,
/// and sections that they are in.
fn n_events_and_sections(n_layer: u64, compile: bool) -> (usize, usize) {
    let shape =
        GptShape { n_layer, n_head: 12, n_embd: 768, block_size: 1024, vocab_size: 50_304, dropout: 0.0, bias: false };
    let gpt = GptConfig::new(shape).expect("GPT-2's shape");
    let train = TrainConfig { compile, ..TrainConfig::default() };
    let card = Card { compute_capability: ComputeCapability { major: 8, minor: 9 }, sm_count: 46 };
    let program = program(&gpt, &train, card).expect("no tensor is too large");
    let outcome = simulate(&program, SegmentKind::Native, u64::MAX);
    let n_events = outcome.played.iter().map(|played| program.sections[played.section.index()].events.len()).sum();
    (n_events, outcome.played.len())
}

#[test]
fn work_is_linear_in_layers() {
    for compile in [false, true] {
        // How many rounds a turn takes until it repeats depends on sizes, so that rounds are compared.
        let per_section = |n_layer| {
            let (n_events, n_sections) = n_events_and_sections(n_layer, compile);
            println!("compile {compile}: {n_events} events in {n_sections} sections for {n_layer} layers");
            n_events / n_sections
        };
        let [small, large, largest] = [12, 24, 48].map(per_section);
        assert!(large <= 2 * small && largest <= 4 * small, "{small} {large} {largest}");
    }
}

/// A turn that repeats ends soon after the allocator is again as it was a few rounds before. New and old logits change
/// places, so that this is hardly ever one round.
#[test]
fn work_of_a_plan_stays_within_its_bound() {
    assert!(n_events_and_sections(12, false).0 <= 91_000);
    assert!(n_events_and_sections(12, true).0 <= 48_000);
}
