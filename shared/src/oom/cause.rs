//! Why memory ran out, ranked: another process, a full GPU, then fragmentation.

use super::{Arithmetic, Explanation, Message, explain::Agreement};
use crate::{
    memory::allocator::SegmentKind,
    plan::{Plan, Request, outlook},
    session::Options,
    text::{self, Text},
};

/// Less than this part of the GPU's memory is not notable.
const NOTABLE: u64 = 20;

/// One cause, with what the message says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Other processes hold what the allocation lacks.
    OtherProcess {
        /// The largest of them, where the message names it and it holds most of it.
        pid: Option<u64>,
        /// What that one holds, else what they hold together, in bytes.
        bytes: u64,
    },
    /// Live tensors fill the GPU.
    GpuFull,
    /// What PyTorch has reserved would suffice, in other pieces.
    Fragmentation {
        /// Reserved and not allocated, in bytes, where that alone is enough and a notable share of the GPU.
        unallocated_bytes: Option<u64>,
    },
}

impl Cause {
    /// Its name in the JSON contract.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OtherProcess { .. } => "other_process",
            Self::GpuFull => "gpu_full",
            Self::Fragmentation { .. } => "fragmentation",
        }
    }
}

/// The causes of a message of PyTorch's allocator, the first one first.
pub(super) fn causes(message: &Message, explanation: &Explanation, options: &Options) -> Vec<Cause> {
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

/// Other processes, where the allocation would fit without them.
fn other_process(message: &Message, sums: &Arithmetic, requested: u64, total: u64) -> Option<Cause> {
    let listed = message.others().map(|other| other.bytes.bytes).fold(0, u64::saturating_add);
    // An old message has the CUDA context among the others.
    let held = sums.context.and(sums.others).unwrap_or(listed);
    let suffices = sums.free.unwrap_or(0).saturating_add(held) >= requested;
    if !suffices || held.saturating_mul(NOTABLE) <= total {
        return None;
    }
    let largest = message.others().max_by_key(|other| other.bytes.bytes).filter(|other| other.bytes.bytes >= held / 2);
    let named = largest.and_then(|other| Some((other.pid?, other.bytes.bytes)));
    Some(Cause::OtherProcess { pid: named.map(|(pid, _)| pid), bytes: named.map_or(held, |(_, bytes)| bytes) })
}

/// Whether tensors take four fifths of the GPU.
fn is_full(sums: &Arithmetic, total: u64) -> bool {
    sums.allocated.is_some_and(|allocated| allocated / 4 >= total / 5)
}

fn fragmentation(explanation: &Explanation, options: &Options, requested: u64, total: u64) -> Option<Cause> {
    if options.expandable_segments {
        return None;
    }
    let is_notable = |bytes: &u64| *bytes > requested && bytes.saturating_mul(NOTABLE) > total;
    let unallocated_bytes = explanation.arithmetic.unallocated.filter(is_notable);
    let agrees = matches!(explanation.agreement, Some(Agreement::Exact | Agreement::Close));
    let simulated = || explanation.plan.as_ref().is_some_and(|plan| agrees && fits_expandable(plan));
    (unallocated_bytes.is_some() || simulated()).then_some(Cause::Fragmentation { unallocated_bytes })
}

/// Whether a run that fails gets through with segments that grow.
fn fits_expandable(plan: &Plan) -> bool {
    !plan.fits && outlook(&Request { segments: SegmentKind::Expandable, ..plan.request.clone() }).fits
}

/// What is said of another process, before all else.
pub(super) fn headline(cause: Cause, sums: &Arithmetic) -> Option<Text> {
    let Cause::OtherProcess { pid, bytes } = cause else { return None };
    let (held, total) = (text::printed_size(bytes), text::printed_size(sums.total?));
    let held_by = match pid {
        Some(pid) => text::process_holds(pid, held, total),
        None => text::others_hold(held, total),
    };
    Some(text::two_sentences(held_by, text::fits_without(text::printed_size(sums.requested?))))
}

/// What is said of the other causes, behind what is said of the tensor.
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
