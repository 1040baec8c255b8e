//! Sentences of an explanation.

use super::{
    Kind, Message, Note, Report, Size,
    cause::{causes, headline, remark},
    explanation::{Agreement, Explanation, Match, shape},
    guess::TensorGuess,
    message::NotOom,
};
use crate::{
    memory::{allocator::segment_bytes, message::TorchVersion, program::Phase},
    plan::{Plan, RunOnMachine},
    session::Options,
};
use headroom_text::{self as text, Key, Part, Text, units::MIB};
use std::cmp::Reverse;

fn tensor(found: &Match) -> Text {
    text::tensor(found.tensor.clone(), shape(&found.shape), found.dtype.name())
}

pub(super) fn simulated<R: RunOnMachine>(
    message: &Message,
    plan: &Plan<R>,
    agreement: Agreement,
    reserved_agrees: bool,
    matches: &[Match],
) -> Text {
    let asked = message.requested.map_or_else(|| Part::of(&""), |size| text::printed_size(size.bytes));
    let Some(best) = matches.first() else {
        let run = match &plan.oom {
            Some(oom) => {
                let asked = text::printed_size(oom.requested_bytes);
                text::would_fail(oom.phase.text_in(), oom.tensor.as_str(), asked)
            }
            None => text::WOULD_FIT.into(),
        };
        return text::of_another_run(asked, run);
    };
    let phase = best.phase.map_or_else(|| Part::of(&""), |phase| Part::of(&phase.text_in()));
    let first = match &plan.oom {
        Some(oom) if agreement != Agreement::None => {
            text::fails_asking(phase, asked, tensor(best), text::printed_size(oom.allocated_bytes), largest(plan))
        }
        _ => message.requested.and_then(shared_segment).unwrap_or_else(|| text::asks_for(asked, tensor(best), phase)),
    };
    let second = match (agreement, &plan.oom, message.allocated) {
        (Agreement::Exact, ..) if reserved_agrees => text::SAME_FIGURES.into(),
        (Agreement::Exact, ..) => text::SAME_ALLOCATED.into(),
        (Agreement::Close, Some(oom), Some(allocated)) => {
            let difference = text::size(oom.allocated_bytes.abs_diff(allocated.bytes));
            let printed = text::printed_size(allocated.bytes);
            if allocated.bytes > oom.allocated_bytes {
                text::more_allocated(printed, difference)
            } else {
                text::less_allocated(printed, difference)
            }
        }
        (Agreement::Close, ..) => text::SIZE_AGREES.into(),
        (Agreement::None, oom, Some(allocated)) => {
            let printed = text::printed_size(allocated.bytes);
            match oom {
                Some(oom) => text::but_fails(oom.phase.text_in(), text::printed_size(oom.allocated_bytes), printed),
                None => text::but_fits(printed),
            }
        }
        (Agreement::None, ..) => text::DOES_NOT_FAIL_THERE.into(),
    };
    text::two_sentences(first, second)
}

/// Returns the largest live tensors at the failure.
fn largest<R: RunOnMachine>(plan: &Plan<R>) -> Part {
    let mut live = plan.failure.map(|failure| plan.live_at(failure.moment)).unwrap_or_default();
    let mut next = || {
        // Only two are named, so no sort is necessary.
        let order = |index: &usize| (Reverse(live[*index].bytes), live[*index].layer, live[*index].code);
        let largest = (0..live.len()).min_by_key(order)?;
        let tensor = live.swap_remove(largest);
        Some(text::with_size(tensor.name(), text::size(tensor.bytes)))
    };
    match (next(), next()) {
        (Some(first), Some(second)) => Part::of(&text::largest_two(first, second)),
        (Some(first), None) => Part::of(&text::largest_one(first)),
        _ => Part::of(&""),
    }
}

/// Returns the sentence about a request of the size that the caching allocator makes for every small tensor. Returns
/// `None` for any other size.
pub(super) fn shared_segment(requested: Size) -> Option<Text> {
    let asked = || text::printed_size(requested.bytes);
    let (small, large) = (segment_bytes(1), segment_bytes(2 * MIB));
    match requested {
        size if size.is_printed_for(small) => Some(text::small_segment(asked())),
        size if size.is_printed_for(large) => Some(text::large_segment(asked())),
        _ => None,
    }
}

pub(super) fn guessed(requested: Size, guesses: &[TensorGuess]) -> Text {
    if let Some(segment) = shared_segment(requested) {
        return segment;
    }
    let asked = text::printed_size(requested.bytes);
    match guesses {
        [] => text::no_usual_tensor(asked),
        [only] => text::one_tensor(asked, only.text()),
        [first, others @ ..] => text::several_tensors(asked, first.text(), others.len()),
    }
}

/// Returns the sentence for a message that is not from the caching allocator.
pub(super) fn other_kind(message: &Message) -> Key {
    let disguised = message.notes.contains(&Note::Disguised);
    match message.kind {
        // Messages of the caching allocator have a detailed explanation instead.
        Kind::Pytorch | Kind::NotOom => not_oom(message.not_oom),
        Kind::PytorchCudaMalloc if message.notes.contains(&Note::Pinned) => text::PINNED,
        Kind::PytorchCudaMalloc => text::CUDA_MALLOC,
        Kind::Cublas if disguised => text::CUBLAS_DISGUISED,
        Kind::Cublas => text::CUBLAS,
        Kind::LlmC => text::LLM_C,
        Kind::Bitsandbytes => text::BITSANDBYTES,
        Kind::Jax => text::JAX,
        Kind::Tensorflow => text::TENSORFLOW,
        Kind::Mps => text::MPS,
        Kind::Cpu => text::CPU,
    }
}

const fn not_oom(what: Option<NotOom>) -> Key {
    match what {
        Some(NotOom::DeviceAssert) => text::DEVICE_ASSERT,
        Some(NotOom::IllegalAccess) => text::ILLEGAL_ACCESS,
        Some(NotOom::KernelResources) => text::KERNEL_RESOURCES,
        Some(NotOom::Killed) => text::KILLED,
        Some(NotOom::DiskFull) => text::DISK_FULL,
        Some(NotOom::SharedMemory) => text::SHARED_MEMORY,
        Some(NotOom::CudaMissing) => text::CUDA_MISSING,
        Some(NotOom::ModuleMissing) => text::MODULE_MISSING,
        Some(NotOom::Interrupted) => text::INTERRUPTED,
        Some(NotOom::Crashed) => text::CRASHED,
        Some(NotOom::CudaError) => text::CUDA_ERROR,
        Some(NotOom::Nccl) => text::NCCL,
        Some(NotOom::ChildFailed) => text::CHILD_FAILED,
        Some(NotOom::Warning) => text::WARNING,
        Some(NotOom::OnlyMentioned) | None => text::ONLY_MENTIONED,
    }
}

/// Adds what the message's figures show besides the tensor.
pub(super) fn add_circumstances<R: RunOnMachine>(
    explanation: &mut Explanation<R>,
    message: Option<&Message>,
    options: &Options,
) {
    let Some(message) = message else { return };
    let Some(requested) = message.requested else { return };
    let sums = explanation.arithmetic;
    let asked = text::printed_size(requested.bytes);
    let mut add = |more: Text| explanation.text = text::two_sentences(explanation.text.clone(), more);
    if message.kind != Kind::Pytorch {
        if message.kind != Kind::NotOom {
            add(text::asked_for(asked));
        }
        return;
    }
    if let (Some(allowed), Some(total)) = (message.allowed, message.total)
        && allowed.bytes < total.bytes
    {
        add(text::limited_to(text::printed_size(allowed.bytes)));
    } else if let Some(free) = sums.free.filter(|free| *free > requested.bytes) {
        add(text::free_exceeds(text::printed_size(free), asked.clone()));
    }
    let in_use = message.process.or(message.allocated).map(|size| size.bytes);
    let is_beyond = sums.total.is_some_and(|total| in_use.is_some_and(|in_use| in_use > total));
    if is_beyond || message.notes.iter().any(|note| matches!(note, Note::Spilled | Note::Implausible)) {
        add(text::BEYOND_CARD.into());
    }
    let torch = options.torch.parse().unwrap_or(TorchVersion::RECORDED);
    let causes = causes(message, explanation, options);
    let mut text = explanation.text.clone();
    for cause in &causes {
        if let Some(first) = headline(*cause, message, &sums) {
            text = text::two_sentences(first, text);
        }
        if let Some(more) = remark(*cause, &sums, torch.allocator_variable()) {
            text = text::two_sentences(text, more);
        }
    }
    (explanation.text, explanation.causes) = (text, causes);
}

/// Adds where in the run the traceback was, and whether part of the text was skipped.
pub(super) fn add_traceback<R>(explanation: &mut Explanation<R>, report: &Report) {
    let mut add = |more: Text| explanation.text = text::two_sentences(explanation.text.clone(), more);
    if let Some(origin) = report.phase_hint.origin {
        add(text::traceback_of(origin.program()));
    }
    if let Some((place, phases)) = report.phase_hint.phase.and_then(place) {
        let found = explanation.matches.first().and_then(|best| best.phase);
        match (&explanation.plan, found) {
            (Some(_), Some(found)) if !phases.contains(&found) => add(text::traceback_elsewhere(place)),
            _ => add(text::traceback_in(place)),
        }
    }
    if report.truncated {
        add(text::TOO_LONG.into());
    }
}

/// Returns the words for a traceback's phase, and the phases of a plan that it may be.
pub(super) fn place(phase: super::Phase) -> Option<(Key, &'static [Phase])> {
    Some(match phase {
        super::Phase::Load => return None,
        super::Phase::ToDevice => (text::AT_INIT, &[Phase::Init]),
        super::Phase::Evaluation => {
            (text::AT_EVAL, &[Phase::EvalFirst, Phase::Eval, Phase::LaterEvalFirst, Phase::LaterEval])
        }
        super::Phase::Forward => (text::AT_FORWARD, &[Phase::FirstForward, Phase::SteadyForward]),
        super::Phase::Backward => (text::AT_BACKWARD, &[Phase::FirstBackward, Phase::SteadyBackward]),
        super::Phase::Clip => (text::AT_CLIP, &[Phase::FirstOptimizer, Phase::SteadyOptimizer]),
        super::Phase::Optimizer => (text::AT_OPTIMIZER, &[Phase::FirstOptimizer, Phase::SteadyOptimizer]),
    })
}
