//! Event lists of recorded traces, and of the simulation with all repetitions expanded.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
};

use flate2::read::GzDecoder;
use headroom_planner::{
    gpt::{GptConfig, GptShape},
    memory::program::{Action, Program},
    train_config::{Attention, TrainConfig},
};
use serde_json::Value;

use crate::records::{dtype, golden};

/// An event of a tensor; tensors are numbered in order of allocation, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Allocation of a tensor with this number of bytes.
    Alloc(usize, u64),
    /// Free of a tensor.
    Free(usize),
}

/// A recorded event list and its run.
pub struct Trace {
    /// Model configuration.
    pub gpt: GptConfig,
    pub train: TrainConfig,
    /// Recorded events.
    pub events: Vec<Event>,
}

/// Reads a trace of tests/golden/truth/traces.
#[track_caller]
pub fn trace(name: &str) -> Trace {
    let file = File::open(golden(&format!("truth/traces/{name}.jsonl.gz"))).expect("the trace is there");
    let mut lines = BufReader::new(GzDecoder::new(file)).lines().map(|line| -> Value {
        serde_json::from_str(&line.expect("a whole file")).expect("a trace has one object per line")
    });
    let (gpt, train) = config(&lines.next().expect("a trace begins with its config"));
    let number = |value: &Value| value.as_u64().expect("a number");
    let tensor = |line: &Value| usize::try_from(number(&line["id"])).expect("a small number");
    let events: Vec<_> = lines
        .filter_map(|line| match line["event"].as_str() {
            Some("alloc") => Some(Event::Alloc(tensor(&line), number(&line["bytes"]))),
            Some("free") => Some(Event::Free(tensor(&line))),
            _ => None,
        })
        .collect();
    assert!(events.len() > 100, "{name} has {} events", events.len());
    Trace { gpt, train, events }
}

fn config(config: &Value) -> (GptConfig, TrainConfig) {
    let count = |key: &str| config[key].as_u64().expect("a count");
    let shape = GptShape {
        n_layer: count("n_layer"),
        n_head: count("n_head"),
        n_embd: count("n_embd"),
        block_size: count("block"),
        vocab_size: count("vocab"),
        dropout: config["dropout"].as_f64().expect("a number"),
        bias: config["bias"] == true,
    };
    let train = TrainConfig {
        batch_size: count("batch"),
        gradient_accumulation_steps: count("grad_accum"),
        dtype: dtype(config["dtype"].as_str().expect("a name")),
        compile: config["compile"] == true,
        attention: if config["flash"] == true { Attention::Flash } else { Attention::Math },
        activation_checkpointing: config["ckpt"] == true,
        eval_iters: 2,
        eval_interval: 100,
        max_iters: 1,
        ..TrainConfig::default()
    };
    (GptConfig::new(shape).expect("a recorded shape"), train.check().expect("a recorded training"))
}

/// The simulation's events, with repetitions expanded.
pub fn events_of(program: &Program) -> Vec<Event> {
    let mut tensors = vec![0; program.n_slots];
    let mut n_tensors = 0;
    let mut events = Vec::new();
    let turns = program.schedule.iter().flat_map(|turn| (0..turn.times).flat_map(|_| &turn.sections));
    for (_, id) in turns {
        let section = &program.sections[id.index()];
        for event in &section.events {
            let tensor = &mut tensors[event.slot().index()];
            events.push(match event.action() {
                Action::Alloc(code, _) => {
                    n_tensors += 1;
                    *tensor = n_tensors;
                    Event::Alloc(n_tensors, program.tensors.bytes(code, section.batch))
                }
                Action::Free => Event::Free(*tensor),
            });
        }
        for (from, to) in &section.renames {
            tensors[to.index()] = tensors[from.index()];
        }
    }
    events
}

/// Serialises an event list for another allocator, one event per line: the tensor and its bytes, or -1 for a free.
pub fn text(events: &[Event]) -> String {
    events
        .iter()
        .map(|event| match event {
            Event::Alloc(tensor, bytes) => format!("{tensor} {bytes}\n"),
            Event::Free(tensor) => format!("{tensor} -1\n"),
        })
        .collect()
}

/// Sorts each run of frees by tensor. The order within such a run has no effect, and autocast's cache, a hash map, has
/// no defined order.
pub fn in_canonical_order(events: &[Event]) -> Vec<Event> {
    let mut events = events.to_vec();
    let tensor = |event: &Event| match *event {
        Event::Alloc(tensor, _) | Event::Free(tensor) => tensor,
    };
    for run in events.chunk_by_mut(|a, b| matches!((a, b), (Event::Free(_), Event::Free(_)))) {
        run.sort_unstable_by_key(tensor);
    }
    events
}

/// FNV-1a hash (64 bits) of a serialised event list.
pub fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
