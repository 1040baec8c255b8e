//! Explanation of a message: the matching allocation of a simulated run or, without a config, tensors of the requested
//! size.

use super::{
    Kind, Message, Note, Size,
    difference::differences,
    explanation::{Agreement, Arithmetic, Explanation, MAX_MATCHES, Match},
    guess::{TensorGuess, guesses},
};
use crate::{
    hardware::{Device, devices},
    memory::allocator::segment_bytes,
    plan::{Plan, RunOnMachine},
    session::Options,
};
use headroom_text::{self as text, Text};

/// Divisor of the allocated bytes: a difference of at most this share counts as close.
const CLOSE: u64 = 33;

/// Explains a message. `planned` plans the run, if its config is known, on the GPU that the message describes.
#[must_use]
pub fn explain<R: RunOnMachine>(
    message: Option<&Message>,
    planned: impl FnOnce() -> Option<Plan<R>>,
) -> Explanation<R> {
    let Some(message) = message else {
        return without_plan(vec![], text::NO_OOM.into(), Arithmetic::default());
    };
    let arithmetic = Arithmetic::of(message);
    if !matches!(message.kind, Kind::Pytorch) {
        return without_plan(vec![], super::words::other_kind(message).into(), arithmetic);
    }
    let Some(requested) = message.requested else {
        let text = if message.notes.contains(&Note::MoreThanExabyte) { text::NEGATIVE_SIZE } else { text::CUT_OFF };
        return without_plan(vec![], text.into(), arithmetic);
    };
    match planned() {
        Some(plan) => simulated(message, requested, plan, arithmetic),
        None => guessed(requested, arithmetic),
    }
}

fn without_plan<R>(matches: Vec<Match>, text: Text, arithmetic: Arithmetic) -> Explanation<R> {
    Explanation {
        matches,
        agreement: None,
        reserved_agrees: false,
        text,
        arithmetic,
        differences: vec![],
        causes: vec![],
        plan: None,
    }
}

/// Returns the first known GPU whose printed memory equals the message's figure.
#[must_use]
pub fn gpu_of(message: &Message) -> Option<&'static Device> {
    let total = message.total?;
    devices()
        .iter()
        .min_by_key(|device| device.total_bytes.abs_diff(total.bytes))
        .filter(|device| device.total_bytes.abs_diff(total.bytes) <= total.resolution_bytes)
}

/// Sets the GPU from the message: its model and memory, the other processes' memory, and this process's memory outside
/// PyTorch.
pub(super) fn as_in_message(options: &mut Options, message: &Message, names_gpu: bool) {
    let arithmetic = Arithmetic::of(message);
    if let Some(total) = arithmetic.total {
        if !names_gpu {
            options.gpu = gpu_of(message).map_or_else(String::new, |gpu| gpu.name.to_string());
        }
        options.vram_bytes = Some(total);
    }
    if let Some(others) = arithmetic.others {
        options.other_processes_bytes = others;
        // In old messages, the other processes' share includes the CUDA context.
        options.context_bytes = Some(arithmetic.context.unwrap_or(0));
    }
}

pub(super) fn is_close(bytes: u64, size: Size) -> bool {
    bytes.abs_diff(size.bytes) <= size.bytes / CLOSE
}

fn simulated<R: RunOnMachine>(
    message: &Message,
    requested: Size,
    plan: Plan<R>,
    arithmetic: Arithmetic,
) -> Explanation<R> {
    let mut matches: Vec<Match> = Vec::new();
    let mut agreement = Agreement::None;
    if let Some(oom) = &plan.oom
        && requested.is_printed_for(oom.requested_bytes)
    {
        let exact = message.allocated.is_some_and(|allocated| allocated.is_printed_for(oom.allocated_bytes));
        agreement = match message.allocated {
            Some(_) if exact => Agreement::Exact,
            Some(allocated) if !is_close(oom.allocated_bytes, allocated) => Agreement::None,
            _ => Agreement::Close,
        };
        if agreement != Agreement::None {
            matches.push(Match {
                tensor: text::verbatim(oom.tensor.as_str()),
                shape: oom.shape.clone(),
                dtype: oom.dtype,
                phase: Some(oom.phase),
                exact,
                runs: vec![],
            });
        }
    }
    // Other allocations of the run with the same requested size.
    let near = message.allocated.map_or(0, |allocated| allocated.bytes);
    for asked in plan.allocations(|bytes| requested.is_printed_for(segment_bytes(bytes)), near) {
        let tensor = text::verbatim(asked.stored.name(asked.layer));
        let same = |known: &Match| known.tensor == tensor && known.phase == Some(asked.phase);
        if !matches.iter().any(same) && matches.len() < MAX_MATCHES {
            let exact = message.allocated.is_some_and(|allocated| allocated.is_printed_for(asked.live_bytes));
            let (phase, runs) = (Some(asked.phase), vec![]);
            matches.push(Match { tensor, shape: asked.shape, dtype: asked.dtype, phase, exact, runs });
        }
    }
    let failure = plan.failure.as_ref().filter(|_| agreement == Agreement::Exact);
    let reserved = failure.and_then(|failure| message.reserved_difference(failure));
    let reserved_agrees = reserved.is_some_and(|(_, is_same)| is_same);
    let text = super::words::simulated(message, &plan, agreement, reserved_agrees, &matches);
    Explanation {
        matches,
        agreement: Some(agreement),
        reserved_agrees,
        text,
        arithmetic,
        differences: if agreement == Agreement::None { differences(message, &plan) } else { vec![] },
        causes: vec![],
        plan: Some(plan),
    }
}

fn guessed<R>(requested: Size, arithmetic: Arithmetic) -> Explanation<R> {
    let guesses = guesses(requested);
    let text = super::words::guessed(requested, &guesses);
    let identifies = super::words::shared_segment(requested).is_none();
    let matches = guesses.into_iter().filter(|_| identifies).map(TensorGuess::into_match).collect();
    without_plan(matches, text, arithmetic)
}
