//! Two published out-of-memory messages, reproduced by the simulation.

use headroom_planner::{
    gpt::{GptConfig, GptShape},
    hardware::{ComputeCapability, Device, context::Estimate},
    memory::{allocator::SegmentKind, message::TorchVersion, program::Phase},
    nanogpt::defaults::DEFAULT_VOCAB_SIZE,
    plan::{Machine, Oom, Plan, Request, plan},
    train_config::{Attention, TrainConfig},
};
use headroom_text::units::{GIB, MIB};

/// nanoGPT's GPT-2 124M, as train.py creates it from scratch.
fn gpt2_124m() -> GptConfig {
    let shape = GptShape {
        n_layer: 12,
        n_head: 12,
        n_embd: 768,
        block_size: 1024,
        vocab_size: DEFAULT_VOCAB_SIZE,
        dropout: 0.0,
        bias: false,
    };
    GptConfig::new(shape).expect("GPT-2's shape")
}

fn plan_on(train: TrainConfig, total_bytes: u64, other_processes_bytes: u64, segments: SegmentKind) -> Plan {
    plan(Request {
        gpt: gpt2_124m(),
        train: train.check().expect("a valid training"),
        machine: Machine {
            device: Device::custom(total_bytes, ComputeCapability::new(8, 9)),
            segments,
            tuned: None,
            other_processes_bytes,
            context: Estimate::given(225 * MIB),
            torch: TorchVersion::RECORDED,
        },
        given_vocab_size: None,
    })
    .expect("no tensor is too large")
}

/// Asserts that the message contains all parts.
#[track_caller]
fn check_says(oom: &Oom, parts: &[&str]) {
    for part in parts {
        assert!(oom.message.contains(part), "{part:?} is not in {:?}", oom.message);
    }
}

/// Bytes of hundredths of GiB: sizes in messages have two decimals.
fn hundredths_of_gib(hundredths: u64) -> u64 {
    hundredths * GIB / 100
}

fn oom_at_batch_64(segments: SegmentKind) -> Oom {
    let train = TrainConfig { batch_size: 64, ..TrainConfig::default() };
    let plan = plan_on(train, hundredths_of_gib(11_69), hundredths_of_gib(1_97), segments);
    assert!(!plan.fits);
    plan.oom.expect("the run fails")
}

#[test]
fn batch_64_on_a_12_gb_gpu_fails_at_the_second_evaluation_batch() {
    let oom = oom_at_batch_64(SegmentKind::Native);
    assert_eq!(oom.phase, Phase::Eval);
    assert_eq!(oom.tensor, "logits");
    assert_eq!((oom.shape.iter().product::<u64>(), oom.shape.last()), (65_536 * 50_304, Some(&50_304)));
    assert_eq!(oom.dtype.name(), "bfloat16");
    check_says(
        &oom,
        &["Tried to allocate 6.14 GiB", "total capacity of 11.69 GiB", "6.78 GiB is allocated by PyTorch"],
    );
}

/// The message does not mention the allocator's configuration. With expandable segments and a context of 225 MiB, as
/// observed on such a GPU, the simulation reproduces every figure.
#[test]
fn batch_64_prints_every_figure_with_expandable_segments() {
    check_says(
        &oom_at_batch_64(SegmentKind::Expandable),
        &[
            "Tried to allocate 6.14 GiB",
            "total capacity of 11.69 GiB of which 2.68 GiB is free",
            "this process has 7.04 GiB memory in use",
            "6.78 GiB is allocated by PyTorch",
        ],
    );
}

/// <https://github.com/karpathy/nanoGPT/issues/88>: `compile=False`, before nanoGPT used flash attention.
#[test]
fn batch_32_without_compile_fails_at_the_float32_copy_of_the_log_probabilities() {
    let train = TrainConfig { batch_size: 32, compile: false, attention: Attention::Math, ..TrainConfig::default() };
    // The report does not mention the GPU's memory size; the run fails at this point on all of these.
    for total_gib in 15..=20 {
        let plan = plan_on(train.clone(), total_gib * GIB, 0, SegmentKind::Native);
        let oom = plan.oom.expect("the run fails");
        assert_eq!((oom.phase, oom.tensor.as_str()), (Phase::Eval, "log_softmax(logits) (float32)"), "{total_gib} GiB");
        assert_eq!(oom.requested_bytes, 32 * 1024 * 50_304 * 4);
        check_says(&oom, &["Tried to allocate 6.14 GiB", "10.16 GiB is allocated by PyTorch"]);
    }
}

#[test]
#[should_panic(expected = "is not in")]
fn must_find_a_falsified_message() {
    check_says(&oom_at_batch_64(SegmentKind::Native), &["6.79 GiB is allocated by PyTorch"]);
}
