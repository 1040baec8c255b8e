//! How long one plan takes: the bars are 0.3 ms for 12 layers and 5 ms for 48, native.
//!
//! Runs of nanoGPT's defaults (40 micro-steps, 200 evaluation batches, an evaluation every 2000 iterations), which
//! stand for thousands of times the events that have to be replayed.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use headroom_planner::{
    gpt::{GptConfig, GptShape, MAX_N_LAYER},
    hardware::{ComputeCapability, Device, context::Estimate},
    memory::{allocator::SegmentKind, message::TorchVersion},
    plan::{Machine, Request, builtin::builtin, plan},
    train_config::TrainConfig,
};
use headroom_text::units::{GIB, MIB};
use std::hint::black_box;

fn request(n_layer: u64, compile: bool, segments: SegmentKind, total_bytes: u64) -> Request {
    let shape =
        GptShape { n_layer, n_head: 12, n_embd: 768, block_size: 1024, vocab_size: 50_304, dropout: 0.0, bias: false };
    Request {
        gpt: GptConfig::new(shape).expect("GPT-2's shape"),
        train: TrainConfig { compile, ..TrainConfig::default() },
        machine: Machine {
            device: Device::custom(total_bytes, ComputeCapability::new(8, 9)),
            segments,
            tuned: None,
            other_processes_bytes: GIB,
            context: Estimate::given(225 * MIB),
            torch: TorchVersion::RECORDED,
        },
        given_vocab_size: None,
    }
}

fn by_layers(criterion: &mut Criterion) {
    for (name, compile) in [("plan/eager", false), ("plan/compile", true)] {
        let mut group = criterion.benchmark_group(name);
        for n_layer in [12, 48, MAX_N_LAYER] {
            let request = request(n_layer, compile, SegmentKind::Native, 1 << 50);
            group.bench_with_input(BenchmarkId::from_parameter(n_layer), &request, |bencher, request| {
                bencher.iter(|| plan(black_box(request.clone())).expect("no tensor is too large"));
            });
        }
    }
}

/// What costs more than a run that fits: expandable segments, and a GPU that is too small, which is replayed twice.
fn other_ways(criterion: &mut Criterion) {
    let ways = [
        ("plan/expandable", SegmentKind::Expandable, 1 << 50),
        ("plan/does not fit", SegmentKind::Native, 6 * GIB),
        ("plan/does not fit, expandable", SegmentKind::Expandable, 6 * GIB),
    ];
    for (name, segments, total_bytes) in ways {
        let request = request(12, false, segments, total_bytes);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| plan(black_box(request.clone())).expect("no tensor is too large"));
        });
    }
}

/// What stands beside a plan: the built-in trainer's, at its slowest, where every level is tried and none fits.
fn builtin_trainer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan/built-in trainer");
    for n_layer in [12, 48, MAX_N_LAYER] {
        let request = request(n_layer, true, SegmentKind::Native, 1 << 30);
        group.bench_with_input(BenchmarkId::from_parameter(n_layer), &request, |bencher, request| {
            bencher.iter(|| builtin(black_box(request)).expect("it can"));
        });
    }
}

criterion_group! {
    name = benches;
    // A machine that does other things, too, needs no more: the best of its samples is what counts.
    config = Criterion::default().sample_size(50).without_plots();
    targets = by_layers, other_ways, builtin_trainer
}
criterion_main!(benches);
