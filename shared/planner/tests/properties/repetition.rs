//! The simulation stops replaying a section once it repeats. The skipped part must not change any figure.

use headroom_planner::{
    memory::{
        allocator::{Allocator, SegmentKind},
        context::GpuProperties,
        program::{Action, Program},
        schedule::program,
        simulate::simulate,
    },
    train_config::TrainConfig,
};
use proptest::prelude::*;

use crate::strategies::{ANY_HEAD_SIZES, gpt, gpus, segment_kinds, shapes, trainings};

/// Returns `max_memory_allocated` and `max_memory_reserved` with every repetition replayed.
fn replayed_in_full(program: &Program, segments: SegmentKind) -> (u64, u64) {
    let mut allocator = Allocator::new(segments, u64::MAX);
    let mut slots = vec![None; program.n_slots];
    let rounds = program.schedule.iter().flat_map(|turn| (0..turn.times).flat_map(|_| &turn.sections));
    for (_, id) in rounds {
        let section = &program.sections[id.index()];
        for event in &section.events {
            let slot = &mut slots[event.slot().index()];
            match event.action() {
                Action::Alloc(code, _) => {
                    *slot = Some(
                        allocator
                            .alloc(program.tensors.bytes(code, section.batch))
                            .expect("a GPU without end has room"),
                    );
                }
                Action::Free => allocator.free(slot.take().expect("a slot that is given back holds a tensor")),
            }
        }
        for (from, to) in &section.renames {
            slots[to.index()] = slots[from.index()].take();
        }
    }
    (allocator.max_allocated_bytes(), allocator.max_reserved_bytes())
}

proptest! {
    #[test]
    fn a_replay_that_stops_early_has_the_figures_of_the_whole_run(
        shape in shapes(ANY_HEAD_SIZES), train in trainings(), gpu in gpus(), segments in segment_kinds(),
        eval_iters in 0..60_u64, gradient_accumulation_steps in 1..100_u64,
    ) {
        let train = TrainConfig { eval_iters, gradient_accumulation_steps, ..train };
        let gpu = GpuProperties { compute_capability: gpu, sm_count: 46 };
        let program = program(&gpt(shape), &train, gpu).expect("the strategy makes small models");
        let outcome = simulate(&program, segments, u64::MAX);
        let figures = (outcome.max_allocated_bytes, outcome.max_reserved_bytes);
        prop_assert_eq!(figures, replayed_in_full(&program, segments));
    }
}
