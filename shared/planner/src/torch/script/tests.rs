//! Tests of scripts, loops and names.

use std::collections::HashMap;

use super::*;
use crate::{
    dtype::Dtype,
    hardware::ComputeCapability,
    memory::{context::GpuProperties, program::Action},
    torch::{Recorder, Tensor},
};

fn torch() -> Torch {
    Torch::new(GpuProperties { compute_capability: ComputeCapability::new(8, 9), sm_count: 46 }, Recorder::Gpu)
}

/// A round that replaces two tensors of the round before.
fn round(torch: &Torch, held: &mut [Option<Tensor>; 2]) {
    let early = torch.empty("early", &[1000], Dtype::Float32);
    held[0] = Some(torch.empty("loss", &[2000], Dtype::Float32));
    drop(early);
    let late = torch.empty("late", &[3000], Dtype::Float32);
    held[1] = Some(torch.empty("batch", &[4000], Dtype::Int64));
    drop(late);
}

/// An event: the number of its tensor in order of allocation, with the size of an allocation.
type Numbered = (usize, Option<u64>);

fn numbered(events: &[Event]) -> Vec<Numbered> {
    let (mut numbers, mut n) = (HashMap::new(), 0);
    let number = |event: &Event| match event {
        Event::Alloc { block, bytes, .. } => {
            n += 1;
            numbers.insert(*block, n);
            (n, Some(bytes.next_multiple_of(512)))
        }
        Event::Free { block } => (numbers[block], None),
    };
    events.iter().map(number).collect()
}

/// The events of all rounds of a program.
fn expanded(program: &Program) -> Vec<Numbered> {
    let (mut slots, mut n, mut events) = (vec![0; program.n_slots], 0, Vec::new());
    let entries = program.schedule.iter().flat_map(|entry| (0..entry.times).flat_map(|_| &entry.sections));
    for (_, id) in entries {
        let section = &program.sections[id.index()];
        for event in &section.events {
            let slot = &mut slots[event.slot().index()];
            match event.action() {
                Action::Alloc(code, _) => {
                    assert_eq!(*slot, 0, "the slot is free");
                    n += 1;
                    *slot = n;
                    events.push((n, Some(program.tensors.bytes(code, section.batch))));
                }
                Action::Free => events.push((std::mem::take(slot), None)),
            }
        }
        for (from, to) in &section.renames {
            slots[to.index()] = std::mem::take(&mut slots[from.index()]);
        }
    }
    events
}

/// The program of a loop between two tensors, and its events without a script.
fn looped(times: u64, round: impl Fn(&Torch, &mut [Option<Tensor>; 2])) -> (Program, Vec<Numbered>) {
    let run = |script: Option<&mut Script<'_>>, torch: &Torch| {
        let _before = torch.empty("before", &[500], Dtype::Float32);
        let mut held = [None, None];
        match script {
            Some(script) => {
                script.section(Phase::Init);
                script.repeat(times, |script| {
                    script.empty_cache();
                    round(torch, &mut held);
                    script.section(Phase::SteadyForward);
                    // A section without events.
                    script.section(Phase::SteadyBackward);
                });
            }
            None => (0..times).for_each(|_| round(torch, &mut held)),
        }
        let _after = torch.empty("after", &[600], Dtype::Float32);
        drop(held);
    };
    let plain = torch();
    run(None, &plain);
    let torch = torch();
    let mut script = Script::new(&torch);
    run(Some(&mut script), &torch);
    script.section(Phase::Rest);
    (script.finish().program().expect("small tensors"), numbered(&plain.take_events()))
}

#[test]
fn a_program_has_the_events_of_every_round() {
    for times in [0, 1, 2, 3, 4, 9] {
        let (program, events) = looped(times, round);
        assert_eq!(expanded(&program), events, "{times} rounds");
        let repeats = program.schedule.iter().any(|entry| entry.times > 1);
        assert_eq!(repeats, times > MAX_ROUNDS, "{times} rounds");
        let in_loop = program.schedule.iter().flat_map(|entry| &entry.sections);
        let mut forward = in_loop.filter(|(phase, _)| *phase == Phase::SteadyForward);
        assert!(forward.all(|(_, id)| program.sections[id.index()].empties_cache), "{times} rounds");
    }
}

#[test]
fn rounds_that_differ_do_not_repeat() {
    let kept = std::cell::RefCell::new(Vec::new());
    let (program, _) = looped(9, |torch, _| kept.borrow_mut().push(torch.empty("kept", &[100], Dtype::Float32)));
    assert!(program.schedule.iter().all(|entry| entry.times == 1));
}

#[test]
fn a_tensor_has_its_module_its_parameter_and_its_block() {
    let torch = torch();
    let mut script = Script::new(&torch);
    let weight = {
        let _block = torch.enter_block("h", 3);
        let _module = torch.enter("c_fc");
        torch.parameter("weight", &[8, 8], Dtype::Float32)
    };
    let x = torch.empty("x", &[8, 8], Dtype::Float32);
    let out = {
        let _block = torch.enter_block("h", 3);
        torch.linear(&x, &weight, None)
    };
    torch.backward(&out, &out);
    script.section(Phase::FirstBackward);
    let program = script.finish().program().expect("small tensors");
    let name = |code| program.tensors.get(code, Batch::Train).expect("a tensor").stored;
    let names: Vec<String> = program.sections[0]
        .events
        .iter()
        .filter_map(|event| match event.action() {
            Action::Alloc(code, layer) => Some(name(code).name(layer)),
            Action::Free => None,
        })
        .collect();
    assert_eq!(
        names,
        ["h.3.c_fc.weight", "x", "linear (h.3)", "cuBLAS workspace", "gradient of h.3.c_fc.weight", "cuBLAS workspace"]
    );
}
