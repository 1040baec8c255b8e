//! No config makes the calculator panic: a config that cannot be planned is an error value.

use headroom_planner::{
    advice::Advice,
    dtype::Dtype,
    gpt::{GptConfig, GptShape, MAX_DIMENSION, MAX_N_LAYER},
    hardware::{ComputeCapability, Device, context::Estimate},
    memory::{allocator::SegmentKind, message::TorchVersion, simulate::EventIndex},
    plan::{Machine, Request, plan},
    session::RunConfig,
    train_config::{MAX_COUNT, TrainConfig},
};
use proptest::{prelude::*, sample::select};

use crate::strategies::kinds;

/// Any number; small ones and those near a limit are frequent.
fn numbers() -> impl Strategy<Value = u64> {
    let limits = [0, 1, 2, MAX_DIMENSION, MAX_COUNT, 1 << 31, 1 << 45, 1 << 63, u64::MAX];
    prop_oneof![
        select(limits.map(|limit: u64| limit.saturating_sub(1)).to_vec()),
        select(limits.to_vec()),
        any::<u64>(),
        (0..64_u32).prop_flat_map(|bits| 0..=(u64::MAX >> bits)),
        1..5000_u64,
        1..20_u64,
    ]
}

/// Mostly few layers, because the cost of a plan grows with them.
fn layers() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 1..5_u64, 1 => select(vec![0, 64, MAX_N_LAYER, MAX_N_LAYER + 1, u64::MAX])]
}

fn shapes() -> impl Strategy<Value = GptShape> {
    let heads = prop_oneof![
        (numbers(), numbers()),
        // A multiple of the number of heads, which two random numbers rarely form.
        (1..65_u64, numbers()).prop_map(|(n_head, size)| (n_head, n_head.saturating_mul(size))),
    ];
    let dropout = select(vec![0.0, 0.1, 0.999, 1.0, -1.0, f64::NAN, f64::INFINITY]);
    (layers(), heads, numbers(), numbers(), dropout, any::<bool>()).prop_map(
        |(n_layer, (n_head, n_embd), block_size, vocab_size, dropout, bias)| GptShape {
            n_layer,
            n_head,
            n_embd,
            block_size,
            vocab_size,
            dropout,
            bias,
        },
    )
}

fn trainings() -> impl Strategy<Value = TrainConfig> {
    let counts = (numbers(), numbers(), numbers(), numbers(), numbers(), numbers(), proptest::option::of(numbers()));
    let kinds = kinds(vec![Dtype::Bfloat16, Dtype::Float16, Dtype::Float32, Dtype::Int64]);
    (counts, kinds, any::<[bool; 7]>()).prop_map(|(counts, kinds, switches)| {
        let (batch_size, gradient_accumulation_steps, eval_iters, eval_interval, max_iters, world_size, eval_batch_size) =
            counts;
        let (dtype, attention, optimizer, cross_entropy) = kinds;
        let [compile, clips_gradients, resumes, activation_checkpointing, del_eval_logits, del_train_logits, eval_only] =
            switches;
        TrainConfig {
            batch_size,
            gradient_accumulation_steps,
            dtype,
            compile,
            eval_iters,
            eval_interval,
            eval_only,
            max_iters,
            clips_gradients,
            resumes,
            attention,
            optimizer,
            cross_entropy,
            activation_checkpointing,
            world_size,
            eval_batch_size,
            del_eval_logits,
            del_train_logits,
        }
    })
}

/// Plans a run and evaluates every part of the plan.
fn exercise(shape: GptShape, train: TrainConfig, device: Device, other_processes_bytes: u64, segments: SegmentKind) {
    let (Ok(gpt), Ok(train)) = (GptConfig::new(shape), train.check()) else { return };
    let context = Estimate { bytes: u64::MAX - 1, band_low: 0, band_high: u64::MAX, source: "a test" };
    let context = if other_processes_bytes.is_multiple_of(2) { Estimate::given(1 << 28) } else { context };
    let request = Request {
        gpt,
        train,
        machine: Machine {
            device,
            segments,
            tuned: None,
            other_processes_bytes,
            context,
            torch: TorchVersion::RECORDED,
        },
        given_vocab_size: None,
    };
    let Ok(plan) = plan(request) else { return };
    assert_eq!(plan.fits, plan.oom.is_none());
    assert!(plan.timeline(100).points.len() < 200);
    for moment in [EventIndex(0), plan.peak.moment, EventIndex(usize::MAX)] {
        assert!(plan.live_at(moment).iter().all(|tensor| tensor.bytes > 0));
    }
    serde_json::to_string(&plan.document(&RunConfig::default(), &Advice::default(), headroom_languages::english()))
        .expect("a plan is plain data");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_config_panics(
        shape in shapes(), train in trainings(), total_bytes in numbers(), others in numbers(),
        (major, minor) in (any::<u8>(), any::<u8>()), expandable in any::<bool>(),
    ) {
        let device = Device::custom(total_bytes, ComputeCapability { major: major % 16, minor: minor % 16 });
        let segments = if expandable { SegmentKind::Expandable } else { SegmentKind::Native };
        exercise(shape, train, device, others, segments);
    }

    /// Configs that pass validation, so that their numbers reach the simulation.
    #[test]
    fn no_valid_config_panics(
        shape in shapes(), train in trainings(), total_bytes in numbers(), others in numbers(), expandable in any::<bool>(),
    ) {
        let within = |value: u64, max: u64| value.clamp(1, max);
        let n_head = within(shape.n_head, 1 << 16);
        let shape = GptShape {
            n_layer: within(shape.n_layer, 64),
            n_head,
            n_embd: (within(shape.n_embd, MAX_DIMENSION) / n_head * n_head).max(n_head),
            block_size: within(shape.block_size, MAX_DIMENSION),
            vocab_size: within(shape.vocab_size, MAX_DIMENSION),
            dropout: if (0.0..1.0).contains(&shape.dropout) { shape.dropout } else { 0.0 },
            ..shape
        };
        let count = |value| within(value, MAX_COUNT);
        let train = TrainConfig {
            batch_size: count(train.batch_size),
            gradient_accumulation_steps: count(train.gradient_accumulation_steps),
            eval_iters: count(train.eval_iters),
            eval_interval: count(train.eval_interval),
            max_iters: count(train.max_iters),
            world_size: count(train.world_size),
            eval_batch_size: train.eval_batch_size.map(count),
            dtype: if train.dtype == Dtype::Int64 { Dtype::Float32 } else { train.dtype },
            ..train
        };
        let device = Device::custom(total_bytes, ComputeCapability { major: 8, minor: 9 });
        let segments = if expandable { SegmentKind::Expandable } else { SegmentKind::Native };
        exercise(shape, train, device, others, segments);
    }
}

#[test]
fn the_largest_model_is_refused_and_not_counted_wrongly() {
    let shape = GptShape {
        n_layer: MAX_N_LAYER,
        n_head: 1,
        n_embd: MAX_DIMENSION,
        block_size: MAX_DIMENSION,
        vocab_size: MAX_DIMENSION,
        dropout: 0.0,
        bias: true,
    };
    let gpt = GptConfig::new(shape).expect("each dimension is in range");
    assert_eq!(gpt.n_parameters(), None);
    let device = Device::custom(1 << 40, ComputeCapability { major: 8, minor: 9 });
    let request = Request {
        gpt,
        train: TrainConfig::default(),
        machine: Machine {
            device,
            segments: SegmentKind::Native,
            tuned: None,
            other_processes_bytes: 0,
            context: Estimate::given(0),
            torch: TorchVersion::RECORDED,
        },
        given_vocab_size: None,
    };
    assert!(plan(request).is_err());
}
