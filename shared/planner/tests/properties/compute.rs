//! Invariants of the estimated step time: it is finite, and more work never takes less time.

use headroom_planner::{
    compute::{flops, model_flops, step_seconds, step_time_ratio},
    gpt::{GptConfig, GptShape, MAX_DIMENSION, MAX_N_LAYER},
    hardware::{Device, context::Estimate, devices},
    memory::{allocator::SegmentKind, message::TorchVersion},
    plan::{Machine, Request},
    train_config::{CrossEntropy, MAX_COUNT, TrainConfig},
};
use proptest::{prelude::*, sample::select};

use crate::strategies::{ANY_HEAD_SIZES, gpt, shapes, trainings};

/// Tolerance for the order of floating-point additions.
const ROUNDING: f64 = 1e-9;

fn request(gpt: GptConfig, train: &TrainConfig, device: &Device) -> Request {
    Request {
        gpt,
        train: train.clone(),
        machine: Machine {
            device: device.clone(),
            segments: SegmentKind::Native,
            tuned: None,
            other_processes_bytes: 0,
            context: Estimate::given(0),
            torch: TorchVersion::RECORDED,
        },
        given_vocab_size: None,
    }
}

fn any_device() -> impl Strategy<Value = &'static Device> {
    select(devices().iter().collect::<Vec<_>>())
}

/// Small models and realistic ones.
fn any_shape() -> impl Strategy<Value = GptShape> {
    let real = (1..49_u64, 1..26_u64, select(vec![64_u64, 96, 128]), 1..2049_u64, 64..60_000_u64, any::<[bool; 2]>());
    let real = real.prop_map(|(n_layer, n_head, head_size, block_size, vocab_size, [drops, bias])| GptShape {
        n_layer,
        n_head,
        n_embd: n_head * head_size,
        block_size,
        vocab_size,
        dropout: if drops { 0.1 } else { 0.0 },
        bias,
    });
    prop_oneof![shapes(ANY_HEAD_SIZES), real]
}

/// Replaces Liger's loss, which is not monotonic: half a batch has as many chunks as a whole one, and a wider model has
/// fewer.
fn without_liger(mut train: TrainConfig) -> TrainConfig {
    if train.cross_entropy == CrossEntropy::Fused {
        train.cross_entropy = CrossEntropy::Whole;
    }
    train
}

fn seconds(shape: GptShape, train: &TrainConfig, device: &Device) -> f64 {
    step_seconds(&request(gpt(shape), train, device)).expect("the table knows every rate")
}

fn ratio(shape: GptShape, [before, after]: [&TrainConfig; 2], device: &Device) -> f64 {
    let [before, after] = [before, after].map(|train| request(gpt(shape), train, device));
    step_time_ratio(&before, &after).expect("the table knows every rate")
}

proptest! {
    #[test]
    fn a_second_micro_step_takes_longer(shape in any_shape(), train in trainings(), device in any_device()) {
        let steps = 2 * train.gradient_accumulation_steps;
        let after = TrainConfig { gradient_accumulation_steps: steps, ..train.clone() };
        let ratio = ratio(shape, [&train, &after], device);
        prop_assert!(ratio > 1.0, "{}", ratio);
    }

    #[test]
    fn the_same_tokens_in_smaller_batches_take_no_less(
        shape in any_shape(), train in trainings(), device in any_device(), half_batch in 1..65_u64,
    ) {
        let before = TrainConfig { batch_size: 2 * half_batch, ..train.clone() };
        let steps = 2 * train.gradient_accumulation_steps;
        let after = TrainConfig { batch_size: half_batch, gradient_accumulation_steps: steps, ..train };
        let ratio = ratio(shape, [&before, &after], device);
        prop_assert!(ratio >= 1.0 - ROUNDING, "{}", ratio);
    }

    #[test]
    fn large_batches_can_be_halved_for_nothing(shape in any_shape(), train in trainings(), device in any_device()) {
        let batch_size = 1 << 32;
        let before = TrainConfig { batch_size, world_size: 1, ..without_liger(train) };
        let steps = 2 * before.gradient_accumulation_steps;
        let after =
            TrainConfig { batch_size: batch_size / 2, gradient_accumulation_steps: steps, ..before.clone() };
        let ratio = ratio(shape, [&before, &after], device);
        prop_assert!((1.0 - ROUNDING..1.01).contains(&ratio), "{}", ratio);
    }

    #[test]
    fn checkpointing_costs_up_to_half(shape in any_shape(), train in trainings(), device in any_device()) {
        let [before, after] =
            [false, true].map(|on| TrainConfig { activation_checkpointing: on, ..train.clone() });
        let ratio = ratio(shape, [&before, &after], device);
        prop_assert!((1.0..=1.5).contains(&ratio), "{}", ratio);
    }

    #[test]
    fn compiled_code_is_never_slower(shape in any_shape(), train in trainings(), device in any_device()) {
        let [before, after] = [false, true].map(|compile| TrainConfig { compile, ..train.clone() });
        let ratio = ratio(shape, [&before, &after], device);
        prop_assert!(ratio <= 1.0 + ROUNDING, "{}", ratio);
    }

    #[test]
    fn a_larger_model_is_never_faster(shape in any_shape(), train in trainings(), device in any_device()) {
        let train = without_liger(train);
        let before = seconds(shape, &train, device);
        let GptShape { n_layer, n_head, n_embd, block_size, vocab_size, .. } = shape;
        let mut larger = vec![
            GptShape { n_layer: n_layer + 1, ..shape },
            GptShape { block_size: block_size + 1, ..shape },
            GptShape { n_head: 2 * n_head, n_embd: 2 * n_embd, ..shape },
            GptShape { vocab_size: vocab_size + 8, ..shape },
        ];
        // Other head sizes may lack fused attention while twice the size has it.
        if (n_embd / n_head).is_multiple_of(8) {
            larger.push(GptShape { n_embd: 2 * n_embd, ..shape });
        }
        for larger in larger {
            let after = seconds(larger, &train, device);
            prop_assert!(after >= before * (1.0 - ROUNDING), "{:?}: {} to {}", larger, before, after);
        }
    }

    #[test]
    fn no_size_is_too_large_for_a_number(
        layers in select(vec![1, MAX_N_LAYER]), sizes in proptest::array::uniform4(select(vec![1, MAX_DIMENSION])),
        counts in proptest::array::uniform3(select(vec![1, MAX_COUNT])), train in trainings(), device in any_device(),
    ) {
        let [n_head, n_embd, block_size, vocab_size] = sizes;
        let shape = GptShape {
            n_layer: layers, n_head: n_head.min(n_embd), n_embd, block_size, vocab_size, dropout: 0.5, bias: true,
        };
        let [batch_size, gradient_accumulation_steps, world_size] = counts;
        let train = TrainConfig { batch_size, gradient_accumulation_steps, world_size, ..train };
        let time = seconds(shape, &train, device);
        prop_assert!(time.is_finite() && time > 0.0);
        let counted = flops(&gpt(shape), &train);
        prop_assert!(counted.total().is_finite() && counted.total() > 0.0);
        prop_assert!(model_flops(&gpt(shape), &train) > 0.0);
        prop_assert!(counted.recomputed < counted.total() / 2.0);
    }
}
