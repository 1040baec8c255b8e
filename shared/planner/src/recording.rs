//! A recorded training run: the allocations of any PyTorch program, read from a file and replayed on any GPU.
//!
//! `headroom record` writes such files; `docs/src/reference/recording.md` describes the format. [`Decoder`] reads a file as a
//! stream, [`Recording::program`] adds the scratch memory of a GPU's kernels, and [`plan()`] replays the result.

mod decode;
mod encode;
mod program;
mod scratch;
mod series;
mod settings;

use std::sync::Arc;

use headroom_text::{self as text, Text};

use crate::{
    dtype::Dtype,
    gpt::tensors::{Category, Lifetime},
    hardware::ComputeCapability,
    memory::{program::Phase, stored::Batch, timeline::LiveTensor},
    plan::{
        Machine, Plan, RunOnMachine,
        basis::{Basis, RunKind},
    },
};

pub use decode::{DecodeError, Decoder, Problem};
pub use program::ProgramError;
pub use scratch::Scratch;
pub use series::{MergeError, Series, SizeError, SizeOfRun, Variable, merge};

/// First bytes of a file.
pub const MAGIC: &[u8; 8] = b"HEADROOM";

/// Newest version of the format, which the recorder writes. Version 1 is read too.
pub const VERSION: u64 = 2;

/// Maximum sum of live tensors in bytes, far above every GPU.
const MAX_LIVE_BYTES: u64 = 1 << 50;

/// Origin of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// PyTorch's version, as in `2.11.0+cu130`.
    pub torch: String,
    /// Name of the recorded program, without its folder.
    pub program: String,
    /// Compute capability of the GPU that the program found.
    pub capability: ComputeCapability,
    /// Number of optimizer steps.
    pub steps: u64,
}

/// Role of a tensor in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorRole {
    /// A result of an operation.
    Activation,
    /// A parameter or a buffer of the model.
    Parameter,
    /// A gradient of a parameter.
    Gradient,
    /// State of the optimizer.
    OptimizerState,
    /// A copy of a parameter in the dtype of autocast.
    CastCache,
    /// Logits, loss, or a part of them.
    LogitsAndLoss,
    /// A batch of the data.
    Input,
    /// Memory of a library.
    Workspace,
}

impl TensorRole {
    /// All roles by their number in a file.
    const ALL: [Self; 8] = [
        Self::Activation,
        Self::Parameter,
        Self::Gradient,
        Self::OptimizerState,
        Self::CastCache,
        Self::LogitsAndLoss,
        Self::Input,
        Self::Workspace,
    ];

    const fn category(self) -> Category {
        match self {
            Self::Activation => Category::Activations,
            Self::Parameter => Category::Parameters,
            Self::Gradient => Category::Gradients,
            Self::OptimizerState => Category::OptimizerState,
            Self::CastCache => Category::CastCache,
            Self::LogitsAndLoss => Category::LogitsAndLoss,
            Self::Input => Category::Input,
            Self::Workspace => Category::Workspace,
        }
    }

    const fn lifetime(self) -> Lifetime {
        match self {
            Self::Activation | Self::LogitsAndLoss => Lifetime::Intermediate,
            Self::Parameter | Self::Workspace => Lifetime::Run,
            Self::Gradient => Lifetime::UntilZeroGrad,
            Self::OptimizerState => Lifetime::FromFirstStep,
            Self::CastCache => Lifetime::CastCache,
            Self::Input => Lifetime::Batch,
        }
    }

    /// Name of the tensor for the user.
    fn name(self, name: &str, module: &str) -> String {
        match self {
            Self::Gradient => format!("gradient of {name}"),
            Self::OptimizerState => format!("optimizer state of {name}"),
            Self::Parameter | Self::Workspace => name.to_owned(),
            _ if module.is_empty() => name.to_owned(),
            _ => format!("{name} ({module})"),
        }
    }
}

/// A tensor of the recorded run. All allocations with equal properties share one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Label {
    /// The operation, or the full name of the parameter that the tensor belongs to.
    name: Arc<str>,
    /// Path of the module, as in `named_modules`.
    module: Arc<str>,
    /// Source line, as in `model.py:67 forward`.
    source: Arc<str>,
    role: TensorRole,
    dtype: Dtype,
    bytes: u64,
    shape: Vec<u64>,
}

/// Part of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Setup,
    Forward,
    Backward,
    Optimizer,
    Evaluation,
    Rest,
}

impl Mark {
    /// All marks by their number in a file.
    const ALL: [Self; 6] = [Self::Setup, Self::Forward, Self::Backward, Self::Optimizer, Self::Evaluation, Self::Rest];

    /// Name for the user.
    const fn name(self) -> &'static str {
        match self {
            Self::Setup => "the setup",
            Self::Forward => "a forward",
            Self::Backward => "a backward",
            Self::Optimizer => "an optimizer step",
            Self::Evaluation => "an evaluation",
            Self::Rest => "the rest of a step",
        }
    }
}

/// One event, in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Allocates a tensor with this label. Blocks are numbered in the order of their allocation.
    Alloc(u32),
    /// Frees the block with this number.
    Free(u32),
    /// Allocates the scratch memory with this index.
    Scratch(u32),
    /// An operation ends, and its scratch memory is freed.
    EndOfOperation,
    Mark(Mark),
    /// `torch.cuda.empty_cache()`.
    EmptyCache,
}

/// A recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Origin of the recording.
    pub origin: Origin,
    /// What the recorder assumed, one sentence each.
    pub notes: Vec<String>,
    labels: Vec<Label>,
    scratch: Vec<Scratch>,
    events: Vec<Event>,
    series: Option<Series>,
    /// Size of the labels and the scratch memory in the series; 0 without one.
    size: u64,
}

impl Recording {
    /// Number of events.
    #[must_use]
    pub const fn n_events(&self) -> usize {
        self.events.len()
    }
}

/// A recording and the machine to replay it on.
#[derive(Clone, Debug)]
pub struct ReplayRequest {
    /// Origin of the recording; `None` for a snapshot of PyTorch.
    pub origin: Option<Origin>,
    /// What the recorder assumed, or what a snapshot lacks, one sentence each.
    pub notes: Vec<String>,
    /// Size of the run in its series; `None` if the run was recorded at one size.
    pub size: Option<SizeOfRun>,
    machine: Machine,
}

impl RunOnMachine for ReplayRequest {
    fn machine(&self) -> &Machine {
        &self.machine
    }
}

impl ReplayRequest {
    /// The replay of a snapshot.
    pub(crate) const fn of_snapshot(machine: Machine, notes: Vec<String>) -> Self {
        Self { origin: None, notes, size: None, machine }
    }

    /// Remarks on the figures.
    #[must_use]
    pub fn remarks(&self) -> Vec<Text> {
        let notes = self.notes.iter().map(|note| text::verbatim(note.as_str()));
        let Some(Origin { capability, steps, .. }) = &self.origin else { return notes.collect() };
        let mut remarks = vec![text::remark_recorded_steps(*steps)];
        let of_gpu = self.machine.device.compute_capability;
        if of_gpu != *capability {
            remarks.push(text::remark_other_capability(capability.to_string(), of_gpu.to_string()));
        }
        remarks.extend(self.size.iter().flat_map(SizeOfRun::remarks));
        remarks.extend(notes);
        remarks
    }
}

/// Tensors of one kind that are live at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveGroup {
    /// One of the tensors.
    pub tensor: LiveTensor,
    /// Number of tensors.
    pub count: u64,
    /// Sum of their sizes in the allocator in bytes.
    pub bytes: u64,
    /// Blocks of the tensors in order, without repetition.
    pub layers: Vec<u64>,
}

impl Plan<ReplayRequest> {
    /// The tensors that are live at the peak, in groups with the same code, largest first.
    #[must_use]
    pub fn largest_at_peak(&self) -> Vec<LiveGroup> {
        let mut tensors = self.live_at(self.peak.moment);
        tensors.sort_by_key(|tensor| (tensor.code, tensor.layer));
        let mut groups: Vec<LiveGroup> = Vec::new();
        for tensor in tensors {
            match groups.last_mut().filter(|group| group.tensor.code == tensor.code) {
                Some(group) => {
                    group.count += 1;
                    group.bytes = group.bytes.saturating_add(tensor.bytes);
                    group.layers.extend(tensor.layer.filter(|layer| group.layers.last() != Some(layer)));
                }
                None => {
                    let (bytes, layers) = (tensor.bytes, tensor.layer.into_iter().collect());
                    groups.push(LiveGroup { tensor, count: 1, bytes, layers });
                }
            }
        }
        groups.sort_by_key(|group| std::cmp::Reverse(group.bytes));
        groups
    }

    /// Source line of the tensor whose allocation fails, if the run does not fit and the line is known.
    #[must_use]
    pub fn failing_source(&self) -> Option<String> {
        let failing = self.program.tensors.get(self.failure?.code, Batch::Train)?;
        Some(failing.stored.source().to_owned()).filter(|source| !source.is_empty())
    }
}

/// Replays a recording on a machine.
///
/// # Errors
/// The recording has too many kinds of tensors, or too much scratch memory.
pub fn plan(recording: &Recording, machine: Machine) -> Result<Plan<ReplayRequest>, ProgramError> {
    let gpu = machine.gpu();
    let program = recording.program(gpu)?;
    let Recording { origin, notes, .. } = recording;
    let size = recording.size_of_run();
    let request = ReplayRequest { origin: Some(origin.clone()), notes: notes.clone(), size, machine };
    let is_same = gpu.compute_capability == origin.capability;
    let kind = if is_same { RunKind::Recorded } else { RunKind::FollowsCode };
    Ok(Plan::simulate(request, program, |request, outcome| {
        let Machine { context, other_processes_bytes, .. } = &request.machine;
        Basis::new(kind, outcome, context, [*other_processes_bytes; 2])
    }))
}

/// Phase of a section: the first of its kind, or a later one.
#[derive(Debug, Default)]
struct Phases {
    has_forward: bool,
    has_backward: bool,
    has_optimizer: bool,
    /// Whether a forward followed the first optimizer step.
    is_steady: bool,
}

impl Phases {
    fn phase(&mut self, mark: Mark) -> Phase {
        let is_first = |seen: &mut bool| !std::mem::replace(seen, true);
        match mark {
            Mark::Setup => Phase::Init,
            Mark::Evaluation if self.has_forward => Phase::LaterEval,
            Mark::Evaluation => Phase::Eval,
            Mark::Forward => {
                self.is_steady |= self.has_optimizer;
                if is_first(&mut self.has_forward) { Phase::FirstForward } else { Phase::SteadyForward }
            }
            Mark::Backward if is_first(&mut self.has_backward) => Phase::FirstBackward,
            Mark::Backward => Phase::SteadyBackward,
            Mark::Optimizer => {
                self.has_optimizer = true;
                if self.is_steady { Phase::SteadyOptimizer } else { Phase::FirstOptimizer }
            }
            Mark::Rest => Phase::Rest,
        }
    }
}

#[cfg(test)]
mod tests;
