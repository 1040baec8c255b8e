//! Compares the engine, which derives the events of a run from its model, with the list written by hand.

use headroom_planner::{
    gpt::tensors::{Tensor, TensorId},
    memory::{
        context::GpuProperties,
        program::{Action, Program},
        schedule::program,
    },
    models::nanogpt::{self, Rounds},
    torch,
    train_config::{CrossEntropy, TrainConfig},
};
use proptest::prelude::*;

use crate::strategies::{ANY_HEAD_SIZES, gpt, gpus, shapes, trainings};

/// An event, with tensors numbered in order of allocation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Alloc(usize, u64),
    Free(usize),
}

/// Sorts consecutive frees, whose order has no effect. Returns a name for each event.
fn ordered(mut events: Vec<(Event, String)>) -> Vec<(Event, String)> {
    let is_free = |event: &(Event, String)| matches!(event.0, Event::Free(_));
    for run in events.chunk_by_mut(|a, b| is_free(a) && is_free(b)) {
        run.sort_unstable();
    }
    events
}

/// Whether the tensor of an event is cuBLASLt's workspace.
fn is_lt_workspace(code: u16) -> bool {
    TensorId::from_code(code).is_some_and(|stored| stored.tensor == Tensor::CublasLtWorkspace)
}

fn written(program: &Program) -> Vec<(Event, String)> {
    let mut tensors = vec![0; program.n_slots];
    let mut n_tensors = 0;
    let mut events = Vec::new();
    let entries = program.schedule.iter().flat_map(|entry| (0..entry.times).flat_map(|_| &entry.sections));
    for (_, id) in entries {
        let section = &program.sections[id.index()];
        for event in &section.events {
            // The engine omits it if the recorder has no GPU.
            if matches!(event.action(), Action::Alloc(code, _) if is_lt_workspace(code)) {
                continue;
            }
            let tensor = &mut tensors[event.slot().index()];
            events.push(match event.action() {
                Action::Alloc(code, layer) => {
                    n_tensors += 1;
                    *tensor = n_tensors;
                    let info = program.tensors.get(code, section.batch).expect("a tensor of the table");
                    (Event::Alloc(n_tensors, info.bytes), info.stored.name(layer))
                }
                Action::Free => (Event::Free(*tensor), String::new()),
            });
        }
        for (from, to) in &section.renames {
            tensors[to.index()] = tensors[from.index()];
        }
    }
    ordered(events)
}

fn derived(events: Vec<torch::Event>) -> Vec<(Event, String)> {
    let mut tensors = Vec::new();
    let mut n_tensors = 0;
    let events = events.into_iter().map(|event| match event {
        torch::Event::Alloc { block, bytes, label } => {
            n_tensors += 1;
            let block = block as usize;
            tensors.resize(tensors.len().max(block + 1), 0);
            tensors[block] = n_tensors;
            (Event::Alloc(n_tensors, bytes.next_multiple_of(512).max(512)), format!("{:?}", label.name))
        }
        torch::Event::Free { block } => (Event::Free(tensors[block as usize]), String::new()),
    });
    ordered(events.collect())
}

/// The first difference of two lists, with the events before it.
fn first_difference(written: &[(Event, String)], derived: &[(Event, String)]) -> Option<String> {
    let at = written
        .iter()
        .zip(derived)
        .position(|(a, b)| a.0 != b.0)
        .or_else(|| (derived.len() < written.len()).then_some(derived.len()))?;
    let from = at.saturating_sub(12);
    let part = |events: &[(Event, String)]| {
        events.iter().skip(from).take(20).map(|(event, name)| format!("  {event:?} {name}\n")).collect::<String>()
    };
    Some(format!("differ at event {at}\nwritten:\n{}derived:\n{}", part(written), part(derived)))
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 1_000_000, ..ProptestConfig::default() })]

    #[test]
    fn events_are_those_written_by_hand(shape in shapes(ANY_HEAD_SIZES), train in trainings(), gpu in gpus()) {
        // An axis of size 1 makes views possible that the list written by hand does not consider.
        prop_assume!(shape.block_size > 1 && shape.n_embd > shape.n_head);
        let mut train = TrainConfig { compile: false, del_train_logits: false, ..train };
        if train.cross_entropy != CrossEntropy::Whole {
            // Without logits, the list written by hand releases the previous micro-step's loss too late.
            train = TrainConfig { gradient_accumulation_steps: 1, max_iters: 0, ..train };
        }
        let gpu = GpuProperties { compute_capability: gpu, sm_count: 46 };
        let gpt = gpt(shape);
        let rounds = Rounds { eval: 2 * train.eval_iters, micro_steps: train.gradient_accumulation_steps };
        let written = written(&program(&gpt, &train, gpu).expect("the strategy makes small models"));
        let derived = derived(nanogpt::run(&gpt, &train, gpu, torch::Recorder::FakeTensors, rounds));
        prop_assert_eq!(first_difference(&written, &derived), None);
    }
}
