//! What a message says, as values: figures stay as they were printed, and what a text does not say is `None`.

use serde::Serialize;

use crate::memory::message::TorchVersion;

/// Who printed the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// PyTorch's caching allocator, with figures.
    Pytorch,
    /// CUDA itself, in a call beside the caching allocator: a context, NCCL, a Triton kernel, pinned memory.
    PytorchCudaMalloc,
    /// cuBLAS or a sister library (cuDNN, cuSOLVER), which had no room for a handle or a workspace.
    Cublas,
    /// llm.c.
    LlmC,
    /// bitsandbytes' own allocations.
    Bitsandbytes,
    /// JAX, or XLA beneath it.
    Jax,
    /// TensorFlow.
    Tensorflow,
    /// PyTorch on Apple's GPUs.
    Mps,
    /// The host's memory, not the card's.
    Cpu,
    /// Something else ended the run; `Message::not_oom` says what.
    NotOom,
}

/// A size as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The printed figure, to the nearest byte.
    pub bytes: u64,
    /// How wide the range is that rounds to this text: 0.01 GiB for `6.14 GiB`, 1 for plain bytes.
    pub resolution_bytes: u64,
}

impl Size {
    /// Whether so many bytes would be printed so.
    pub(super) fn is_printed_for(self, bytes: u64) -> bool {
        bytes.abs_diff(self.bytes).saturating_mul(2) <= self.resolution_bytes
    }
}

/// A process that the message names by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OtherProcess {
    /// Its number; `None` where the text has none that can be read.
    pub pid: Option<u64>,
    /// What it holds on the card.
    pub bytes: Size,
}

/// The PyTorch versions that word a message so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Era {
    /// The first of them.
    pub first: TorchVersion,
    /// The last of them; `None` where the newest still does.
    pub last: Option<TorchVersion>,
}

/// What ended a run that was no want of memory on the card. Earlier ones say more than later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotOom {
    /// A kernel's assertion failed, most often an index beyond a table.
    DeviceAssert,
    /// A kernel read or wrote where it may not.
    IllegalAccess,
    /// A kernel wants more shared memory or registers than a multiprocessor has (Triton's `OutOfResources`).
    KernelResources,
    /// The system killed the process, as it does when the host's memory is full.
    Killed,
    /// The disk is full.
    DiskFull,
    /// The host's shared memory (`/dev/shm`) is full.
    SharedMemory,
    /// PyTorch was built without CUDA, or without kernels for this card.
    CudaMissing,
    /// A module is not installed.
    ModuleMissing,
    /// Somebody pressed Ctrl-C.
    Interrupted,
    /// The process crashed.
    Crashed,
    /// Another failure of CUDA or one of its libraries.
    CudaError,
    /// Processes lost each other.
    Nccl,
    /// One of torchrun's processes failed; its own message is elsewhere.
    ChildFailed,
    /// TensorFlow tried something that would have been faster, and went on without it.
    Warning,
    /// The words stand there, but no program printed them as its message.
    OnlyMentioned,
}

/// Something about a message that its figures do not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// A figure is beyond any card, as 17179869184.00 GiB under WSL: a counter below zero. It is left out.
    Implausible,
    /// The request is beyond an exabyte: a size that went below zero.
    MoreThanExabyte,
    /// The message ends before its figures.
    CutShort,
    /// Only processes with a number are named, and one of them holds what PyTorch holds: this process, seen from
    /// inside a container. `Message::own_process` says which.
    OwnProcessNumbered,
    /// PyTorch holds more than the card has: the driver has moved some of it to the host's memory.
    Spilled,
    /// The request is the product of a printed shape.
    FromShape,
    /// `…_NOT_INITIALIZED`: most often no room for the library's handle, sometimes a broken installation.
    Disguised,
    /// The failing call was NCCL's.
    Nccl,
    /// The failing call was for pinned memory of the host.
    Pinned,
    /// llm.c went on with managed memory: slower, and no failure.
    FellBack,
    /// Metal has a limit for one buffer; the memory in all may suffice.
    BufferLimit,
    /// The allocator behind PyTorch was `cudaMallocAsync`.
    AsyncAllocator,
}

/// A message that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who printed it.
    pub kind: Kind,
    /// The line it begins on, from 1.
    pub line: u32,
    /// The message as it stands there without prefixes and colours, with its line breaks, at most
    /// `MAX_TEXT_BYTES` long.
    pub text: String,
    /// What was asked for.
    pub requested: Option<Size>,
    /// The card's memory.
    pub total: Option<Size>,
    /// What is free on the card.
    pub free: Option<Size>,
    /// What this process holds on the card, everything included.
    pub process: Option<Size>,
    /// What live tensors take.
    pub allocated: Option<Size>,
    /// What PyTorch holds: `allocated` and `unallocated`, summed where only those are printed.
    pub reserved: Option<Size>,
    /// What PyTorch holds and nothing uses.
    pub unallocated: Option<Size>,
    /// What CUDA graphs hold for themselves, as a part of `allocated`.
    pub private_pools: Option<Size>,
    /// The limit that the program has set for itself, or the system for it.
    pub allowed: Option<Size>,
    /// The card's number in this process.
    pub gpu_index: Option<u32>,
    /// The process's rank, from the line's prefix.
    pub rank: Option<u32>,
    /// The processes that are named by number. One of them may be this one: see `own_process`.
    pub other_processes: Vec<OtherProcess>,
    /// Which of `other_processes` is most probably this one.
    pub own_process: Option<usize>,
    /// The PyTorch versions with this wording.
    pub era: Option<Era>,
    /// What else is to be known.
    pub notes: Vec<Note>,
    /// With `Kind::NotOom`: what it is.
    pub not_oom: Option<NotOom>,
}

/// What the run was doing, from the functions that a traceback names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reading a checkpoint.
    Load,
    /// Moving the model to the card.
    ToDevice,
    /// `estimate_loss`.
    Evaluation,
    /// A training step's forward.
    Forward,
    /// A training step's backward.
    Backward,
    /// Clipping the gradients.
    Clip,
    /// The optimizer's step.
    Optimizer,
}

/// The innermost operation that a traceback names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The loss.
    CrossEntropy,
    /// Attention, its projections included.
    Attention,
    /// The MLP.
    Mlp,
    /// The last linear layer.
    LmHead,
    /// Copying a batch to pinned memory.
    PinMemory,
}

/// Where the run was, as far as a traceback tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseHint {
    /// What it was doing.
    pub phase: Option<Phase>,
    /// In which operation.
    pub operation: Option<Operation>,
    /// Inductor's code was running.
    pub compiled: bool,
    /// Activation checkpointing was on.
    pub checkpointing: bool,
}

/// What was found in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The first message, most often the cause; with `n_messages` 0 what is similar to one (`Kind::NotOom`), if
    /// anything.
    pub first: Option<Message>,
    /// The last message; equal to `first` where there is only one.
    pub last: Option<Message>,
    /// How many messages there are. Each rank's counts, and each repetition.
    pub n_messages: usize,
    /// Where the run was at the first message.
    pub phase_hint: PhaseHint,
    /// The text is longer than `MAX_INPUT_BYTES`, and its middle was not read.
    pub truncated: bool,
}

impl Kind {
    /// The name of the JSON contract.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::PytorchCudaMalloc => "pytorch_cuda_malloc",
            Self::Cublas => "cublas",
            Self::LlmC => "llm_c",
            Self::Bitsandbytes => "bitsandbytes",
            Self::Jax => "jax",
            Self::Tensorflow => "tensorflow",
            Self::Mps => "mps",
            Self::Cpu => "cpu",
            Self::NotOom => "not_oom",
        }
    }
}

impl Message {
    /// The processes beside this one.
    pub fn others(&self) -> impl Iterator<Item = &OtherProcess> {
        self.other_processes.iter().enumerate().filter(|(at, _)| Some(*at) != self.own_process).map(|(_, other)| other)
    }

    /// A message of which nothing is known yet.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            line: 0,
            text: String::new(),
            requested: None,
            total: None,
            free: None,
            process: None,
            allocated: None,
            reserved: None,
            unallocated: None,
            private_pools: None,
            allowed: None,
            gpu_index: None,
            rank: None,
            other_processes: vec![],
            own_process: None,
            era: None,
            notes: vec![],
            not_oom: None,
        }
    }

    /// Adds a note that is not there yet.
    pub(super) fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
