//! The sentences of an explanation.

use super::{
    Kind, Message, Note, Size,
    explain::{Agreement, Match},
    guess::Guess,
    message::NotOom,
};
use crate::{
    memory::program::Phase,
    plan::Plan,
    units::{human_size, pytorch_size},
};

/// A phase in a sentence.
#[must_use]
pub const fn in_phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Init => "while the model moves to the card",
        Phase::EvalFirst => "in the first batch of estimate_loss",
        Phase::Eval => "in estimate_loss, after its first batch",
        Phase::FirstForward => "in the first forward",
        Phase::FirstBackward => "in the first backward",
        Phase::FirstOptimizer => "in the first optimizer step",
        Phase::LaterEvalFirst => "in the first batch of a later estimate_loss",
        Phase::LaterEval => "in a later estimate_loss",
        Phase::SteadyForward => "in a later forward",
        Phase::SteadyBackward => "in a later backward",
        Phase::SteadyOptimizer => "in a later optimizer step",
        Phase::Rest => "between iterations",
    }
}

/// `(65536, 50304)`.
#[must_use]
pub fn shape(axes: &[u64]) -> String {
    let axes: Vec<String> = axes.iter().map(u64::to_string).collect();
    format!("({})", axes.join(", "))
}

fn tensor(found: &Match) -> String {
    format!("{} {} {}", found.tensor, shape(&found.shape), found.dtype.name())
}

pub(super) fn simulated(message: &Message, plan: &Plan, agreement: Agreement, matches: &[Match]) -> String {
    let asked = message.requested.map_or_else(String::new, |size| pytorch_size(size.bytes));
    let Some(best) = matches.first() else {
        let run = match &plan.oom {
            Some(oom) => format!(
                "this run would fail {} on {}, asking for {}",
                in_phase(oom.phase),
                oom.tensor,
                pytorch_size(oom.requested_bytes)
            ),
            None => "this run would fit".to_owned(),
        };
        return format!(
            "No allocation of this run asks for {asked}; on this card {run}. The message is of other settings, of a changed \
             model.py, or of a tensor that train.py does not make."
        );
    };
    let phase = best.phase.map_or("", in_phase);
    let first = match &plan.oom {
        Some(oom) if agreement != Agreement::None => format!(
            "It fails {phase}, asking for {asked} for {} while {} are allocated{}.",
            tensor(best),
            pytorch_size(oom.allocated_bytes),
            largest(plan)
        ),
        _ => format!("{asked} is what {} asks for {phase}.", tensor(best)),
    };
    let second = match (agreement, &plan.oom, message.allocated) {
        (Agreement::Exact, ..) => "The simulated run prints the same figures, to the last digit.".to_owned(),
        (Agreement::Close, Some(oom), Some(allocated)) => format!(
            "The message has {} allocated, {} {} than the simulated run: another version of PyTorch, or a small change \
             to train.py.",
            pytorch_size(allocated.bytes),
            human_size(oom.allocated_bytes.abs_diff(allocated.bytes)),
            if allocated.bytes > oom.allocated_bytes { "more" } else { "less" }
        ),
        (Agreement::Close, ..) => "The size agrees; the message does not say what was allocated.".to_owned(),
        (Agreement::None, _, Some(allocated)) => format!(
            "But with this config {}, and the message has {} allocated: look for other settings, tensors that something \
             keeps (a list of losses or outputs), or another process on the card.",
            match &plan.oom {
                Some(oom) =>
                    format!("it fails {} with {} allocated", in_phase(oom.phase), pytorch_size(oom.allocated_bytes)),
                None => "the run fits".to_owned(),
            },
            pytorch_size(allocated.bytes)
        ),
        (Agreement::None, ..) => "The run as given does not fail there.".to_owned(),
    };
    format!("{first} {second}")
}

/// The largest things that are live when the run fails.
fn largest(plan: &Plan) -> String {
    let Some(failure) = plan.failure else { return String::new() };
    let live = plan.live_at(failure.moment);
    let names: Vec<String> =
        live.iter().take(2).map(|tensor| format!("{} with {}", tensor.name(), human_size(tensor.bytes))).collect();
    if names.is_empty() { String::new() } else { format!(", the largest of it {}", names.join(" and ")) }
}

pub(super) fn guessed(requested: Size, guesses: &[Guess]) -> String {
    let asked = pytorch_size(requested.bytes);
    match guesses {
        [] => format!(
            "{asked} is the size of no tensor of GPT-2's usual shapes. With the config, Headroom looks through the whole run."
        ),
        [only] => format!("{asked} is the size of {}. The config tells whether it is that.", only.words()),
        [first, others @ ..] => format!(
            "{asked} is the size of {}, and of {} more. The config tells which.",
            first.words(),
            if others.len() == 1 { "one tensor".to_owned() } else { format!("{} tensors", others.len()) }
        ),
    }
}

/// What is said of messages that are not the caching allocator's.
pub(super) fn other_kind(message: &Message) -> String {
    let disguised = message.notes.contains(&Note::Disguised);
    match message.kind {
        Kind::Pytorch => String::new(),
        Kind::PytorchCudaMalloc if message.notes.contains(&Note::Pinned) => {
            "Pinned memory of the host could not be had: the host is short of memory, not the card.".to_owned()
        }
        Kind::PytorchCudaMalloc => {
            "CUDA itself had no memory, outside PyTorch's allocator: for the context, a library or a kernel's own stack. \
             The card was full already, by other processes or by what PyTorch has reserved."
                .to_owned()
        }
        Kind::Cublas if disguised => {
            "The library could not be set up. Most often that is a full card: it found no room for its handle or \
             workspace; sometimes a broken installation. Try a smaller batch first."
                .to_owned()
        }
        Kind::Cublas => {
            "The library found no room for its handle or workspace: the card was full already, though PyTorch's own \
             allocator had not failed yet. Try a smaller batch, or leave it a few hundred MiB."
                .to_owned()
        }
        Kind::LlmC => "llm.c allocates everything at the start: this model and batch are larger than what is free on the card.".to_owned(),
        Kind::Bitsandbytes => "bitsandbytes allocates beside PyTorch, and found the card full.".to_owned(),
        Kind::Jax => {
            "JAX takes three quarters of the card at its start and manages them itself; the plan here is for PyTorch, so \
             only the figures are shown."
                .to_owned()
        }
        Kind::Tensorflow => {
            "TensorFlow's allocator was full; the plan here is for PyTorch, so only the figures are shown.".to_owned()
        }
        Kind::Mps => "Apple's unified memory was full; the plan here is for CUDA cards, so only the figures are shown.".to_owned(),
        Kind::Cpu => {
            "The host's memory is full, not the card's: data loading, a checkpoint, or a model built on the CPU. Nothing on \
             the card would change that."
                .to_owned()
        }
        Kind::NotOom => not_oom(message.not_oom).to_owned(),
    }
}

const fn not_oom(what: Option<NotOom>) -> &'static str {
    match what {
        Some(NotOom::DeviceAssert) => {
            "No want of memory: a kernel's assertion failed, most often a token or position beyond its table (vocab_size, \
             block_size). Run once with CUDA_LAUNCH_BLOCKING=1 to see which."
        }
        Some(NotOom::IllegalAccess) => "No want of memory: a kernel read or wrote where it may not.",
        Some(NotOom::KernelResources) => {
            "No want of the card's memory: a kernel wants more shared memory or registers than a multiprocessor has. \
             Smaller blocks or another kernel help, a smaller batch does not."
        }
        Some(NotOom::Killed) => {
            "The system killed the process. Most often the host's memory was full, not the card's; dmesg tells."
        }
        Some(NotOom::DiskFull) => "No want of memory: the disk is full.",
        Some(NotOom::SharedMemory) => {
            "No want of the card's memory: /dev/shm is full. Fewer data loader workers, or a container with more of it."
        }
        Some(NotOom::CudaMissing) => "No want of memory: this PyTorch has no CUDA, or no kernels for this card.",
        Some(NotOom::ModuleMissing) => "No want of memory: a module is not installed.",
        Some(NotOom::Interrupted) => "No want of memory: the run was interrupted.",
        Some(NotOom::Crashed) => "The process crashed; the text does not say that memory was short.",
        Some(NotOom::CudaError) => "An error of CUDA, and not that memory was short.",
        Some(NotOom::Nccl) => "The processes lost each other; one of them may have failed for another reason before.",
        Some(NotOom::ChildFailed) => {
            "One of torchrun's processes failed: its own message stands further up, or in its log."
        }
        Some(NotOom::Warning) => "A warning: the program went on.",
        Some(NotOom::OnlyMentioned) | None => "The words stand there, but no program's message.",
    }
}
