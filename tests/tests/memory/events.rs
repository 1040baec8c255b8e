//! Comparison with the event lists of recorded runs, allocation by allocation.
//!
//! The test compares bytes in order, and which tensor is freed when; tensor names exist only in the simulation. The
//! order within a run of frees is ignored: autocast's cache, which is freed at once, is a hash map. No peak can be
//! within such a run.

use headroom_planner::{
    gpt::GptConfig,
    memory::{program::Program, schedule::program},
    train_config::TrainConfig,
};

use crate::{
    event_list::{self, Trace, events_of, in_canonical_order, trace},
    records::{SM89, as_traced, golden},
};

/// An event with its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Alloc(u64),
    Free(u64),
}

/// Events with their bytes; each run of frees is sorted by size.
fn by_bytes(events: &[event_list::Event]) -> Vec<Event> {
    let mut bytes_of = vec![0];
    let events = events.iter().map(|&event| match event {
        event_list::Event::Alloc(tensor, bytes) => {
            assert_eq!(tensor, bytes_of.len(), "tensors are numbered in order");
            bytes_of.push(bytes);
            Event::Alloc(bytes)
        }
        event_list::Event::Free(tensor) => Event::Free(bytes_of[tensor]),
    });
    frees_in_order(events.collect())
}

/// The simulated run without the events that the traces' recorder does not see.
#[track_caller]
fn simulated(gpt: &GptConfig, train: &TrainConfig) -> Program {
    let program = program(gpt, train, SM89).expect("a recorded run is within the planner's limits");
    as_traced(program)
}

/// The recorded events of a trace, and the simulation's.
#[track_caller]
fn recorded_and_ours(name: &str) -> (Vec<Event>, Vec<Event>) {
    let Trace { gpt, train, events } = trace(name);
    (by_bytes(&events), by_bytes(&events_of(&simulated(&gpt, &train))))
}

/// Sorts each run of frees by size.
fn frees_in_order(mut events: Vec<Event>) -> Vec<Event> {
    for run in events.chunk_by_mut(|a, b| matches!((a, b), (Event::Free(_), Event::Free(_)))) {
        run.sort_unstable();
    }
    events
}

/// Number of insertions and deletions that convert one list to the other, by Myers' greedy O(ND) algorithm.
fn n_differing(a: &[Event], b: &[Event]) -> usize {
    let middle = a.len() + b.len() + 1;
    let mut furthest = vec![0_usize; 2 * middle + 1];
    for distance in 0.. {
        for diagonal in (middle - distance..=middle + distance).step_by(2) {
            let down = diagonal == middle - distance
                || diagonal != middle + distance && furthest[diagonal - 1] < furthest[diagonal + 1];
            let mut x = if down { furthest[diagonal + 1] } else { furthest[diagonal - 1] + 1 };
            let Some(mut y) = (x + middle).checked_sub(diagonal) else { continue };
            while x < a.len() && y < b.len() && a[x] == b[y] {
                x += 1;
                y += 1;
            }
            furthest[diagonal] = x;
            if x >= a.len() && y >= b.len() {
                return distance;
            }
        }
    }
    unreachable!("all of both lists is a distance, too")
}

/// Compares the number of differing events with the stated number. The test fails on any change, so that an improvement
/// requires an edit of the number.
#[expect(clippy::print_stdout, reason = "the figures are part of the test's output")]
#[track_caller]
fn check(name: &str, n_stated: usize) {
    let (recorded, ours) = recorded_and_ours(name);
    let n = n_differing(&ours, &recorded);
    println!("{name}: {n} of {} events differ", recorded.len());
    assert_eq!(n, n_stated, "{name}: {n} events differ, {n_stated} are stated");
}

/// The recorded traces with the number of events in which the simulation differs.
const TRACES: &[(&str, usize)] = &[
    ("eager_2layer_b3_T200_vocab50257_bias", 0),
    ("eager_2layer_b4", 0),
    ("eager_2layer_b4_checkpoint", 0),
    ("eager_2layer_b4_float16", 0),
    ("eager_2layer_b4_float32", 0),
    ("eager_2layer_b4_ga2_bias_dropout", 0),
    ("eager_2layer_b4_math_attention", 0),
    ("eager_2layer_b4_vocab65", 0),
    ("eager_gpt2_b4", 0),
    ("eager_shakespeare_char", 0),
    ("compile_2layer_b3_T200_vocab50257_bias", 12),
    ("compile_2layer_b4", 0),
    ("compile_2layer_b4_dropout", 0),
    ("compile_2layer_b4_float16", 0),
    ("compile_2layer_b4_float32", 12),
    ("compile_2layer_b4_ga2_bias_dropout", 40),
    ("compile_2layer_b4_math_attention", 24),
    ("compile_2layer_b4_vocab65", 0),
    ("compile_4layer_b2_C320_h5", 0),
    ("compile_gpt2_b4", 0),
    ("compile_shakespeare_char", 164),
];

/// Lists that equal the recorded ones by bytes, but free tensors of the same size in a different order: one of compiled
/// code.
const OTHER_TENSORS: &[&str] = &["compile_gpt2_b4"];

#[test]
fn event_lists_free_the_recorded_tensors() {
    let differ = TRACES.iter().filter(|(name, n_differing)| {
        let Trace { gpt, train, events } = trace(name);
        *n_differing == 0 && in_canonical_order(&events) != in_canonical_order(&events_of(&simulated(&gpt, &train)))
    });
    assert_eq!(differ.map(|&(name, _)| name).collect::<Vec<_>>(), OTHER_TENSORS);
}

#[test]
fn must_find_another_tensor_of_the_same_size() {
    let alloc = |tensor| event_list::Event::Alloc(tensor, 512);
    let list = |freed| [alloc(1), alloc(2), event_list::Event::Free(freed), alloc(3)];
    assert_eq!(by_bytes(&list(1)), by_bytes(&list(2)), "by bytes they are the same");
    assert_ne!(in_canonical_order(&list(1)), in_canonical_order(&list(2)));
}

#[test]
fn event_lists_are_the_recorded_ones() {
    let n_files = golden("truth/traces").read_dir().expect("the traces are there").count();
    assert_eq!(n_files, TRACES.len(), "a recorded trace is not compared");
    for &(name, n_differing) in TRACES {
        check(name, n_differing);
    }
}

#[test]
fn must_find_a_falsified_event() {
    let (mut recorded, ours) = recorded_and_ours("eager_2layer_b4");
    let middle = recorded.len() / 2;
    recorded.remove(middle);
    assert_eq!(n_differing(&ours, &recorded), 1, "an event that is missing");
    recorded.insert(middle, Event::Alloc(1));
    assert_eq!(n_differing(&ours, &recorded), 2, "an allocation of another size");
}

#[test]
fn must_find_events_out_of_order() {
    let (a, b, c) = (Event::Alloc(512), Event::Alloc(1024), Event::Free(512));
    assert_eq!(n_differing(&[a, b, c], &[b, a, c]), 2);
    assert_eq!(n_differing(&[a, b, c], &[]), 3);
    assert_eq!(n_differing(&[], &[]), 0);
    let frees = |sizes: [u64; 2]| frees_in_order(vec![a, b, Event::Free(sizes[0]), Event::Free(sizes[1]), a]);
    assert_eq!(frees([512, 1024]), frees([1024, 512]), "consecutive frees are unordered");
    assert_ne!(frees_in_order(vec![c, a, c]), frees_in_order(vec![a, c, c]), "an allocation ends a run");
}
