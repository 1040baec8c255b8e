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

/// Events replayed for GPT-2's shape at nanoGPT's defaults, which stand for 200 evaluation batches and 40 micro-steps.
fn n_events(n_layer: u64, compile: bool) -> usize {
    let shape =
        GptShape { n_layer, n_head: 12, n_embd: 768, block_size: 1024, vocab_size: 50_304, dropout: 0.0, bias: false };
    let gpt = GptConfig::new(shape).expect("GPT-2's shape");
    let train = TrainConfig { compile, ..TrainConfig::default() };
    let card = Card { compute_capability: ComputeCapability { major: 8, minor: 9 }, sm_count: 46 };
    let program = program(&gpt, &train, card).expect("no tensor is too large");
    let outcome = simulate(&program, SegmentKind::Native, u64::MAX);
    outcome.played.iter().map(|played| program.sections[played.section.index()].events.len()).sum()
}

#[test]
fn work_is_linear_in_layers() {
    for compile in [false, true] {
        let [small, large, largest] = [12, 24, 48].map(|n_layer| n_events(n_layer, compile));
        println!("compile {compile}: {small} events for 12 layers, {large} for 24, {largest} for 48");
        assert!(large <= 2 * small && largest <= 4 * small, "{small} {large} {largest}");
    }
}

/// Nearly every turn that repeats runs 16 times: new and old logits change places, so that the allocator is again as it
/// was two turns before, mostly after two to six turns, and never as it was one turn before, where the replay looks.
#[test]
fn work_of_a_plan_stays_within_its_bound() {
    assert!(n_events(12, false) <= 91_000);
    assert!(n_events(12, true) <= 48_000);
}
