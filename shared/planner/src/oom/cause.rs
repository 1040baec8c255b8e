//! Causes of an out-of-memory failure, in priority order: another process, a full GPU, fragmentation.

use super::{
    Message,
    explanation::{Agreement, Arithmetic, Cause, Explanation},
};
use crate::{plan::RunOnMachine, session::Options};
use headroom_text::{self as text, Separator, Text};
use std::cmp::Reverse;

/// Divisor of the GPU's memory: a share below a twentieth is ignored.
const NOTABLE: u64 = 20;

/// Returns the causes of a message from PyTorch's allocator, most important first.
pub(super) fn causes<R: RunOnMachine>(
    message: &Message,
    explanation: &Explanation<R>,
    options: &Options,
) -> Vec<Cause> {
    let sums = &explanation.arithmetic;
    let (Some(requested), Some(total)) = (sums.requested, sums.total) else { return vec![] };
    let mut causes: Vec<Cause> = other_process(message, sums, requested, total).into_iter().collect();
    let fragmentation = fragmentation(explanation, options, requested, total);
    if causes.is_empty() && (fragmentation.is_none() || is_full(sums, total)) {
        causes.push(Cause::GpuFull);
    }
    causes.extend(fragmentation);
    causes
}

/// Returns the cause *another process* if the allocation would fit without the other processes.
fn other_process(message: &Message, sums: &Arithmetic, requested: u64, total: u64) -> Option<Cause> {
    let listed = message.others().map(|other| other.bytes.bytes).fold(0, u64::saturating_add);
    // In old messages, the other processes' share includes the CUDA context.
    let held = sums.context.and(sums.others).unwrap_or(listed);
    let suffices = sums.free.unwrap_or(0).saturating_add(held) >= requested;
    if !suffices || held.saturating_mul(NOTABLE) <= total {
        return None;
    }
    let named = match notable_processes(message, total)[..] {
        [(pid, bytes)] if bytes >= held / 2 && sums.free.unwrap_or(0).saturating_add(bytes) >= requested => {
            Some((pid, bytes))
        }
        _ => None,
    };
    Some(Cause::OtherProcess { pid: named.map(|(pid, _)| pid), bytes: named.map_or(held, |(_, bytes)| bytes) })
}

/// Returns the PIDs of the other processes that hold a notable share of the GPU, with their memory in bytes, largest
/// first.
fn notable_processes(message: &Message, total: u64) -> Vec<(u64, u64)> {
    let named = message.others().filter_map(|other| Some((other.pid?, other.bytes.bytes)));
    let mut notable: Vec<(u64, u64)> = named.filter(|(_, bytes)| bytes.saturating_mul(NOTABLE) > total).collect();
    notable.sort_by_key(|(_, bytes)| Reverse(*bytes));
    notable
}

/// Returns whether tensors take at least four fifths of the GPU.
fn is_full(sums: &Arithmetic, total: u64) -> bool {
    sums.allocated.is_some_and(|allocated| allocated / 4 >= total / 5)
}

fn fragmentation<R: RunOnMachine>(
    explanation: &Explanation<R>,
    options: &Options,
    requested: u64,
    total: u64,
) -> Option<Cause> {
    if options.expandable_segments {
        return None;
    }
    let is_notable = |bytes: &u64| *bytes > requested && bytes.saturating_mul(NOTABLE) > total;
    let unallocated_bytes = explanation.arithmetic.unallocated.filter(is_notable);
    let agrees = matches!(explanation.agreement, Some(Agreement::Exact | Agreement::Close));
    let simulated = || explanation.plan.as_ref().is_some_and(|plan| agrees && !plan.fits && plan.fits_expandable());
    (unallocated_bytes.is_some() || simulated()).then_some(Cause::Fragmentation { unallocated_bytes })
}

/// Returns the opening sentence about another process.
pub(super) fn headline(cause: Cause, message: &Message, sums: &Arithmetic) -> Option<Text> {
    let Cause::OtherProcess { pid, bytes } = cause else { return None };
    let (held, total) = (text::printed_size(bytes), text::printed_size(sums.total?));
    let notable = notable_processes(message, sums.total?);
    let held_by = match (pid, notable.len()) {
        (Some(pid), _) => text::process_holds(pid, held, total),
        (None, 0 | 1) => text::others_hold(held, total),
        (None, _) => {
            let process = |(pid, bytes): &(u64, u64)| text::process_with(*pid, text::printed_size(*bytes));
            text::processes_hold(text::list(Separator::Comma, notable.iter().map(process)), held, total)
        }
    };
    Some(text::two_sentences(held_by, text::fits_without(text::printed_size(sums.requested?))))
}

/// Returns the sentence about any other cause. It follows the sentence about the tensor.
pub(super) fn remark(cause: Cause, sums: &Arithmetic, variable: &'static str) -> Option<Text> {
    match cause {
        Cause::OtherProcess { .. } => None,
        Cause::GpuFull => {
            let (allocated, total) = (sums.allocated?, sums.total?);
            let said = || text::gpu_full(text::printed_size(allocated), text::printed_size(total));
            is_full(sums, total).then(said)
        }
        Cause::Fragmentation { unallocated_bytes: Some(bytes) } => {
            Some(text::fragmentation(text::printed_size(bytes), text::printed_size(sums.requested?), variable))
        }
        Cause::Fragmentation { unallocated_bytes: None } => Some(text::fragmentation_simulated(variable)),
    }
}
