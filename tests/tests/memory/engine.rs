//! The engine, which derives a run's events from its model, has the events of the list written by hand on every
//! recorded eager row.

use headroom_planner::{
    memory::schedule::program,
    models::nanogpt::{self, Rounds},
    torch,
};

use crate::{
    event_list::{Event, events_of, in_canonical_order},
    records::{EAGER, rows, without_lt_workspace},
};

/// Events with tensors numbered in order of allocation, and sizes rounded as the allocator rounds them.
fn numbered(events: Vec<torch::Event>) -> Vec<Event> {
    let mut tensors = Vec::new();
    let mut n_tensors = 0;
    let events = events.into_iter().map(|event| match event {
        torch::Event::Alloc { block, bytes, .. } => {
            n_tensors += 1;
            let block = block as usize;
            tensors.resize(tensors.len().max(block + 1), 0);
            tensors[block] = n_tensors;
            Event::Alloc(n_tensors, bytes.next_multiple_of(512).max(512))
        }
        torch::Event::Free { block } => Event::Free(tensors[block as usize]),
    });
    events.collect()
}

#[test]
fn the_engine_has_the_events_of_every_recorded_row() {
    for row in EAGER.into_iter().chain(["random/seen", "random/held_out"]).flat_map(rows) {
        let (gpt, train, gpu) = row.config();
        // Without logits, the list written by hand releases the previous loss too late.
        if train.compile || train.del_train_logits {
            continue;
        }
        let written = events_of(&without_lt_workspace(
            program(&gpt, &train, gpu).expect("a recorded run is within the planner's limits"),
        ));
        let rounds = Rounds { eval: 2 * train.eval_iters, micro_steps: train.gradient_accumulation_steps };
        let derived =
            in_canonical_order(&numbered(nanogpt::run(&gpt, &train, gpu, torch::Recorder::FakeTensors, rounds)));
        let written = in_canonical_order(&written);
        assert_eq!(derived.get(..written.len()), Some(written.as_slice()), "{}", row.tag());
    }
}
