//! A replay of the small pool alone must end as a replay of every round.

use proptest::{collection::vec, prelude::*};

use crate::{
    gpt::{GptConfig, GptShape, tensors::Tensor},
    hardware::{ComputeCapability, Device, context::Estimate},
    memory::{
        allocator::{Defaults, SegmentKind},
        message::TorchVersion,
        program::{Batch, Phase, Program, ProgramBuilder, ScheduleEntry},
        simulate::{End, Replay, Rounds},
    },
    plan::{Machine, Request},
    train_config::TrainConfig,
};

fn gpt2(n_layer: u64, batch_size: u64, block_size: u64, compile: bool) -> Program {
    let shape =
        GptShape { n_layer, n_head: 12, n_embd: 768, block_size, vocab_size: 50_304, dropout: 0.0, bias: false };
    let train = TrainConfig { batch_size, compile, eval_iters: 20, ..TrainConfig::default() };
    let request = Request {
        gpt: GptConfig::new(shape).expect("GPT-2's shape"),
        train,
        machine: Machine {
            device: Device::custom(u64::MAX, ComputeCapability::new(8, 9)),
            segments: SegmentKind::Expandable,
            tuned: None,
            other_processes_bytes: 0,
            context: Estimate::given(0),
            torch: TorchVersion::RECORDED,
        },
        given_vocab_size: None,
    };
    request.program().expect("no tensor is too large")
}

/// Replays a program with and without omitted rounds, and compares the ends. Returns the number of omitted events.
fn compare(program: &Program, name: &str) -> usize {
    let replayed = |rounds| {
        let mut replay = Replay::with_settings(program, SegmentKind::Expandable, u64::MAX, Defaults);
        assert!(replay.run(rounds) == End::Run, "{name}");
        replay
    };
    let (by_pool, all) = (replayed(Rounds::ByPool), replayed(Rounds::All));
    assert_eq!(by_pool.allocator.max_reserved_bytes(), all.allocator.max_reserved_bytes(), "{name}");
    assert_eq!(by_pool.allocator.max_allocated_bytes(), all.allocator.max_allocated_bytes(), "{name}");
    assert!(by_pool.allocator.same_state(&all.allocator), "{name}");
    all.n_events - by_pool.n_events
}

#[test]
fn shortened_replay_ends_in_the_state_of_all_rounds() {
    for (n_layer, compile) in [(12, false), (12, true), (24, true), (48, false)] {
        let omitted = compare(&gpt2(n_layer, 12, 1024, compile), &format!("{n_layer} layers, compile {compile}"));
        assert!(omitted > 30_000, "{n_layer} layers, compile {compile}: {omitted}");
    }
}

#[test]
fn temporary_tensor_without_room_extends_the_pool() {
    let mut program = gpt2(1, 20, 1024, false);
    let mut writer = ProgramBuilder::new(0);
    writer.transient(Tensor::AttLse, None);
    let section = writer.section(Batch::Train);
    (program.sections, program.n_slots) = writer.finish();
    let mut replay = Replay::with_settings(&program, SegmentKind::Expandable, u64::MAX, Defaults);
    let sections = replay.small_sections(&ScheduleEntry::once(vec![(Phase::SteadyForward, section)]));
    assert!(sections[0].events[0].is_temporary);
    assert!(replay.play_small(&sections[0].events, &mut vec![None; program.n_slots]).is_some());
    assert_eq!(replay.allocator.reserved_bytes(), 2 << 20);
}

/// A request or a free of a random section.
type Choice = (prop::sample::Index, bool);

/// A program of random sections with tensors of the small and the large pool, each with two tensors that it keeps until
/// the next round, as train.py keeps a batch. No other tensor outlives a section.
fn random_program(sections: &[(Vec<Choice>, u64)]) -> Program {
    // Logsumexp nearly fills half a segment.
    let mut program = gpt2(1, 20, 1024, false);
    let tensors = [Tensor::Scalar, Tensor::X, Tensor::Pos, Tensor::Ln1W, Tensor::AttLse, Tensor::TokEmb, Tensor::FcW];
    let mut writer = ProgramBuilder::new(4);
    let [old, new] = [[0, 1], [2, 3]].map(|slots| slots.map(ProgramBuilder::kept));
    for slot in old {
        writer.alloc_in(slot, Tensor::X, None);
    }
    let mut schedule = vec![ScheduleEntry::once(vec![(Phase::Init, writer.section(Batch::Train))])];
    for (choices, times) in sections {
        let mut live = Vec::new();
        for (at, (index, frees)) in choices.iter().enumerate() {
            if at == choices.len() / 2 {
                new.iter().for_each(|&slot| writer.alloc_in(slot, Tensor::X, None));
            } else if at == choices.len() * 3 / 4 {
                old.iter().for_each(|&slot| writer.free_kept(slot));
            }
            if *frees && !live.is_empty() {
                writer.free(live.swap_remove(index.index(live.len())));
            } else {
                live.push(writer.alloc(*index.get(&tensors), None));
            }
        }
        writer.free_all(live);
        let section = writer.section_renaming(Batch::Train, new.into_iter().zip(old).collect());
        schedule.push(ScheduleEntry::repeated(vec![(Phase::SteadyForward, section)], *times));
    }
    let (sections, n_slots) = writer.finish();
    (program.sections, program.n_slots, program.schedule) = (sections, n_slots, schedule);
    program
}

proptest! {
    #[test]
    fn shortened_replay_of_random_rounds_ends_in_the_same_state(
        sections in vec((vec(any::<Choice>(), 8..80), 1..60_u64), 1..4),
    ) {
        compare(&random_program(&sections), "random");
    }
}
