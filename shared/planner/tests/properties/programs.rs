//! Invariant of any run's events: a slot holds one tensor at a time.

use headroom_planner::memory::{
    context::GpuProperties,
    program::{Action, Program, Slot},
    schedule::program,
};
use proptest::prelude::*;

use crate::strategies::{ANY_HEAD_SIZES, gpt, gpus, shapes, trainings};

/// Returns the events whose slot is in the wrong state.
fn slips(program: &Program) -> Vec<String> {
    let mut held: Vec<Option<String>> = vec![None; program.n_slots];
    let mut slips = Vec::new();
    for turn in &program.schedule {
        for (phase, id) in (0..turn.times.min(3)).flat_map(|_| &turn.sections) {
            let section = &program.sections[id.index()];
            for event in &section.events {
                let slot: Slot = event.slot();
                match event.action() {
                    Action::Alloc(code, layer) => {
                        let stored = program.tensors.get(code, section.batch).expect("a tensor of the table").stored;
                        let name = stored.name(layer);
                        if let Some(before) = held[slot.index()].replace(name.clone()) {
                            slips.push(format!("{}: {name} takes the slot that {before} is in", phase.name()));
                        }
                    }
                    Action::Free => {
                        if held[slot.index()].take().is_none() {
                            slips.push(format!(
                                "{}: slot {} is given back with nothing in it",
                                phase.name(),
                                slot.index()
                            ));
                        }
                    }
                }
            }
            for (from, to) in &section.renames {
                let tensor = held[from.index()].take();
                if let Some(before) = std::mem::replace(&mut held[to.index()], tensor) {
                    slips.push(format!("{}: {before} loses its name", phase.name()));
                }
            }
        }
    }
    slips
}

proptest! {
    #[test]
    fn a_slot_holds_one_tensor_at_a_time(shape in shapes(ANY_HEAD_SIZES), train in trainings(), gpu in gpus()) {
        let gpu = GpuProperties { compute_capability: gpu, sm_count: 46 };
        let program = program(&gpt(shape), &train, gpu).expect("the strategy makes small models");
        prop_assert_eq!(slips(&program), Vec::<String>::new());
    }
}
