//! Values parsed from a message. Figures stay as printed; a figure that the text lacks is `None`.

use serde::Serialize;

use crate::{
    memory::{message::TorchVersion, simulate::Failure},
    trainers::input::Trainer,
};

/// Program or library that printed the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// PyTorch's caching allocator, with figures.
    Pytorch,
    /// CUDA itself, in a call outside the caching allocator: a context, NCCL, a Triton kernel, pinned memory.
    PytorchCudaMalloc,
    /// cuBLAS or a related library (cuDNN, cuSOLVER) that could not allocate a handle or a workspace.
    Cublas,
    /// llm.c.
    LlmC,
    /// bitsandbytes' own allocations.
    Bitsandbytes,
    /// JAX, or XLA underneath it.
    Jax,
    /// TensorFlow.
    Tensorflow,
    /// PyTorch on Apple's GPUs.
    Mps,
    /// The host's memory instead of the GPU's.
    Cpu,
    /// A failure other than out of memory; see `Message::not_oom`.
    NotOom,
}

/// A size as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The printed figure, to the nearest byte.
    pub bytes: u64,
    /// Width of the range that rounds to this text: 0.01 GiB for `6.14 GiB`, 1 for plain bytes.
    pub resolution_bytes: u64,
}

impl Size {
    /// Returns whether `bytes` would be printed as this size.
    pub(super) fn is_printed_for(self, bytes: u64) -> bool {
        bytes.abs_diff(self.bytes).saturating_mul(2) <= self.resolution_bytes
    }
}

/// A process that the message lists by PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OtherProcess {
    /// PID; `None` if the text has none that can be parsed.
    pub pid: Option<u64>,
    /// Memory that the process holds on the GPU.
    pub bytes: Size,
}

/// Range of PyTorch versions with a given wording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Era {
    /// First version.
    pub first: TorchVersion,
    /// Last version; `None` if the newest version still has this wording.
    pub last: Option<TorchVersion>,
}

/// Failures that are not out-of-memory errors of the GPU. Variants that say more about the cause come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotOom {
    /// A kernel's assertion failed, usually because of an out-of-range index.
    DeviceAssert,
    /// A kernel accessed invalid memory.
    IllegalAccess,
    /// A kernel requires more shared memory or registers than a multiprocessor has (Triton's `OutOfResources`).
    KernelResources,
    /// The system killed the process, as it does when the host runs out of memory.
    Killed,
    /// The disk is full.
    DiskFull,
    /// The host's shared memory (`/dev/shm`) is full.
    SharedMemory,
    /// PyTorch was built without CUDA, or without kernels for this GPU.
    CudaMissing,
    /// A module is not installed.
    ModuleMissing,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The process crashed.
    Crashed,
    /// Any other error from CUDA or one of its libraries.
    CudaError,
    /// A collective operation failed: processes lost contact.
    Nccl,
    /// A child process of torchrun failed; its own message is elsewhere.
    ChildFailed,
    /// TensorFlow continued without an optional allocation that would have been faster.
    Warning,
    /// The phrase appears, but no program printed it as an error message.
    OnlyMentioned,
}

/// An observation about a message beyond its figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// A figure exceeds any GPU's memory, such as 17179869184.00 GiB under WSL: a counter underflowed. It is omitted.
    Implausible,
    /// The request exceeds an exabyte: its computed size underflowed.
    MoreThanExabyte,
    /// The message is cut off before its figures.
    CutShort,
    /// Every process is listed by PID, and one of them holds as much as PyTorch does. It is this process, seen from
    /// inside a container; `Message::own_process` is its index.
    OwnProcessNumbered,
    /// PyTorch holds more than the GPU has: the driver has moved some memory to the host.
    Spilled,
    /// The request was computed from a printed shape.
    FromShape,
    /// `…_NOT_INITIALIZED`: usually no memory for the library's handle, sometimes a broken installation.
    Disguised,
    /// The failing call was NCCL's.
    Nccl,
    /// The failing call allocated pinned memory on the host.
    Pinned,
    /// llm.c fell back to managed memory: slower, but not a failure.
    FellBack,
    /// Metal limits the size of a single buffer; the total memory may suffice.
    BufferLimit,
    /// PyTorch used the `cudaMallocAsync` backend.
    AsyncAllocator,
}

/// A message found in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Program or library that printed it.
    pub kind: Kind,
    /// Line on which it begins, from 1.
    pub line: u32,
    /// Text of the message without prefixes and colours, with its line breaks. At most `MAX_TEXT_BYTES` long.
    pub text: String,
    /// Requested size.
    pub requested: Option<Size>,
    /// Total memory of the GPU.
    pub total: Option<Size>,
    /// Free memory of the GPU.
    pub free: Option<Size>,
    /// All memory that this process holds on the GPU.
    pub process: Option<Size>,
    /// Memory of live tensors.
    pub allocated: Option<Size>,
    /// Memory reserved by PyTorch: printed, or the sum of `allocated` and `unallocated`.
    pub reserved: Option<Size>,
    /// Memory reserved by PyTorch but not allocated.
    pub unallocated: Option<Size>,
    /// Memory in the private pools of CUDA graphs, a part of `allocated`.
    pub private_pools: Option<Size>,
    /// Memory limit set by the program or by the system.
    pub allowed: Option<Size>,
    /// Index of the GPU in this process.
    pub gpu_index: Option<u32>,
    /// Rank of the process, from the line's prefix.
    pub rank: Option<u32>,
    /// Processes listed by PID. One of them may be this process; see `own_process`.
    pub other_processes: Vec<OtherProcess>,
    /// Index in `other_processes` of the process that is most probably this one.
    pub own_process: Option<usize>,
    /// PyTorch versions with this wording.
    pub era: Option<Era>,
    /// Further observations.
    pub notes: Vec<Note>,
    /// The actual failure, with `Kind::NotOom`.
    pub not_oom: Option<NotOom>,
}

/// Phase of the run, derived from the functions in a traceback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Loading a checkpoint.
    Load,
    /// Moving the model to the GPU.
    ToDevice,
    /// `estimate_loss`.
    Evaluation,
    /// Forward pass of a training step.
    Forward,
    /// Backward pass of a training step.
    Backward,
    /// Gradient clipping.
    Clip,
    /// Optimizer step.
    Optimizer,
}

/// Innermost operation in a traceback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// The loss.
    CrossEntropy,
    /// Attention, including its projections.
    Attention,
    /// The MLP.
    Mlp,
    /// The output projection `lm_head`.
    LmHead,
    /// Copying a batch to pinned memory.
    PinMemory,
}

/// Program whose code a traceback names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// nanochat.
    Nanochat,
    /// transformers.
    Transformers {
        /// `model_type` of the model, if a frame is in its code.
        model_type: Option<&'static str>,
        /// Whether a frame is in PEFT.
        peft: bool,
    },
}

impl Origin {
    /// Returns the program with the model, as in `transformers (qwen2, PEFT)`.
    #[must_use]
    pub fn program(self) -> String {
        let Self::Transformers { model_type, peft } = self else { return "nanochat".to_owned() };
        let details: Vec<&str> = model_type.into_iter().chain(peft.then_some("PEFT")).collect();
        let details = if details.is_empty() { String::new() } else { format!(" ({})", details.join(", ")) };
        format!("transformers{details}")
    }

    /// Returns the trainer.
    #[must_use]
    pub const fn trainer(self) -> Trainer {
        match self {
            Self::Nanochat => Trainer::Nanochat,
            Self::Transformers { .. } => Trainer::Hf,
        }
    }
}

/// Location in the run, derived from a traceback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseHint {
    /// The phase.
    pub phase: Option<Phase>,
    /// The operation.
    pub operation: Option<Operation>,
    /// Whether code generated by Inductor was running.
    pub compiled: bool,
    /// Whether activation checkpointing was on.
    pub checkpointing: bool,
    /// Program whose code was running, if it is not nanoGPT.
    pub origin: Option<Origin>,
}

/// Result of searching a text for messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The first message, most often the cause. If `n_messages` is 0, a similar failure (`Kind::NotOom`), if any.
    pub first: Option<Message>,
    /// The last message; equal to `first` if there is only one.
    pub last: Option<Message>,
    /// Number of messages. Ranks and repetitions are counted separately.
    pub n_messages: usize,
    /// Location in the run at the first message.
    pub phase_hint: PhaseHint,
    /// Whether the text exceeds `MAX_INPUT_BYTES`, so that its middle was skipped.
    pub truncated: bool,
}

impl Kind {
    /// Returns the name in the JSON contract.
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
    /// Compares a failure's reserved memory with the printed figure. Returns the difference in bytes and whether both
    /// print the same. Returns `None` if the message has no such figure.
    #[must_use]
    pub(super) fn reserved_difference(&self, failure: &Failure) -> Option<(u64, bool)> {
        let unallocated_bytes = failure.reserved_bytes.saturating_sub(failure.allocated_bytes);
        let (printed, bytes) = match self.unallocated {
            Some(printed) => (printed, unallocated_bytes),
            None => (self.reserved?, failure.reserved_bytes),
        };
        Some((printed.bytes.abs_diff(bytes), printed.is_printed_for(bytes)))
    }

    /// Iterates over all listed processes except this one.
    pub fn others(&self) -> impl Iterator<Item = &OtherProcess> {
        self.other_processes.iter().enumerate().filter(|(at, _)| Some(*at) != self.own_process).map(|(_, other)| other)
    }

    /// Creates a message with no figures.
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

    /// Adds a note unless it is already present.
    pub(super) fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
