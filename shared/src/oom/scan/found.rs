//! What a scan tells apart: phrases, wordings of messages, lines of tracebacks, and the places of all these.

use crate::oom::message::NotOom;
use crate::oom::reader::Reader;

/// What a phrase in the text may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::oom) enum Sign {
    /// PyTorch's request, or that of its CPU allocator, or Metal's.
    TriedToAllocate,
    /// `out of memory`, by whomever.
    OutOfMemory,
    /// The figures of a message whose beginning was not copied.
    Capacity,
    /// `trying to allocate`: XLA's and TensorFlow's allocators.
    Trying,
    /// `RESOURCE_EXHAUSTED` and its spellings.
    Exhausted,
    /// TensorFlow's `OOM when allocating`.
    OomWhen,
    /// numpy's `Unable to allocate`.
    Unable,
    /// Python's `MemoryError`.
    MemoryError,
    /// A sure form that needs no second look.
    Form(Form),
    /// Sure to be something, but another form is better where there is one.
    Weak(Form),
    /// `CUDA error:`, whatever follows.
    CudaError,
    /// No message.
    Not(NotOom),
    /// A traceback begins.
    Traceback,
    /// A line of a traceback.
    Frame(Frame),
    /// The text is JAX's.
    Jax,
}

/// How a message is worded, and so how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::oom) enum Form {
    /// `CUDA out of memory. Tried to allocate …`
    Caching,
    /// The same without anything that follows.
    CachingBare,
    /// Only its figures.
    CachingTail,
    /// `Allocation on device 0 would exceed allowed memory`.
    Async,
    /// `MPS backend out of memory`.
    Mps,
    /// `Invalid buffer size`.
    MpsBuffer,
    /// `CUDA error: out of memory`.
    CudaMalloc,
    /// The same, by its number: PyTorch before 1.0.
    Thc,
    /// NCCL's call failed.
    Nccl,
    /// `CUBLAS_STATUS_ALLOC_FAILED` and the like.
    Library,
    /// `CUBLAS_STATUS_NOT_INITIALIZED` and the like.
    LibraryDisguised,
    /// `[CUDA ERROR] at file`.
    LlmC,
    /// llm.c's fallback.
    LlmCManaged,
    /// `Error out of memory at line`.
    Bitsandbytes,
    /// XLA's or TensorFlow's status.
    Exhausted,
    /// `Out of memory while trying to allocate`, `Out of memory allocating`, without a status.
    Xla,
    /// The allocator's own line.
    Bfc,
    /// The driver's `CUDA_ERROR_OUT_OF_MEMORY`.
    Driver,
    /// TensorFlow's `OOM when allocating`, without a status.
    OomWhen,
    /// `DefaultCPUAllocator`.
    CpuAllocator,
    /// numpy.
    Numpy,
    /// The host's memory, without figures.
    Host,
    /// No message.
    Not(NotOom),
}

/// What a line of a traceback names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::oom) enum Frame {
    Load,
    ToDevice,
    EstimateLoss,
    Forward,
    Backward,
    Clip,
    Optimizer,
    Inductor,
    Checkpointing,
    CrossEntropy,
    Attention,
    Mlp,
    LmHead,
    PinMemory,
}

/// The frames of a traceback, and which operation came last.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::oom) struct Frames {
    seen: u32,
    /// The innermost operation.
    pub operation: Option<Frame>,
}

impl Frames {
    /// Whether the traceback has it.
    pub(in crate::oom) fn has(self, frame: Frame) -> bool {
        self.seen & (1 << frame as u32) != 0
    }

    /// Whether the traceback names anything.
    pub(in crate::oom) fn is_empty(self) -> bool {
        self.seen == 0
    }

    pub(super) fn add(&mut self, frame: Frame) {
        self.seen |= 1 << frame as u32;
        if frame as u32 >= Frame::CrossEntropy as u32 {
            self.operation = Some(frame);
        }
    }
}

/// A message's place.
#[derive(Clone, Copy, Debug)]
pub(in crate::oom) struct Found<'a> {
    /// How it is worded.
    pub form: Form,
    /// A reader at the beginning of the surroundings.
    pub start: Reader<'a>,
    /// The offset behind the phrase.
    pub anchor: usize,
    /// The phrase's length, squeezed.
    pub phrase: usize,
    /// The rank of the phrase's line.
    pub rank: Option<u32>,
    /// The traceback before it.
    pub frames: Frames,
}

/// The first and the last of some places.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::oom) struct Places<'a> {
    /// The first.
    pub first: Option<Found<'a>>,
    /// The last.
    pub last: Option<Found<'a>>,
    /// How many.
    pub n: usize,
}

impl<'a> Places<'a> {
    pub(super) fn add(&mut self, found: Found<'a>) {
        self.first.get_or_insert(found);
        self.last = Some(found);
        self.n += 1;
    }
}
