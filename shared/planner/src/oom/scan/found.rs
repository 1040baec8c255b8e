//! Types of a scan: phrases, wordings of messages, traceback frames and their positions.

use crate::oom::message::NotOom;
use crate::oom::reader::Reader;

/// Meaning of a phrase in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::oom) enum Sign {
    /// The request in a message of PyTorch's GPU or CPU allocator, or of Metal.
    TriedToAllocate,
    /// `out of memory`, from any program.
    OutOfMemory,
    /// Figures of a message whose beginning is missing.
    Capacity,
    /// `trying to allocate`: XLA's and TensorFlow's allocators.
    Trying,
    /// `RESOURCE_EXHAUSTED` and its spelling variants.
    Exhausted,
    /// TensorFlow's `OOM when allocating`.
    OomWhen,
    /// numpy's `Unable to allocate`.
    Unable,
    /// Python's `MemoryError`.
    MemoryError,
    /// An unambiguous form that needs no further check.
    Form(MessageForm),
    /// A message, unless a stronger form is found.
    Weak(MessageForm),
    /// `CUDA error:`, with any text after it.
    CudaError,
    /// A failure that is not an out-of-memory error.
    Not(NotOom),
    /// Start of a traceback.
    Traceback,
    /// A line of a traceback.
    Frame(Frame),
    /// A sign that the text is from JAX.
    Jax,
}

/// Wording of a message, which determines how it is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::oom) enum MessageForm {
    /// `CUDA out of memory. Tried to allocate …`
    Caching,
    /// The same phrase without figures.
    CachingBare,
    /// Only the figures.
    CachingTail,
    /// `Allocation on device 0 would exceed allowed memory`.
    Async,
    /// `MPS backend out of memory`.
    Mps,
    /// `Invalid buffer size`.
    MpsBuffer,
    /// `CUDA error: out of memory`.
    CudaMalloc,
    /// The same error by its number: PyTorch before 1.0.
    Thc,
    /// A failed NCCL call.
    Nccl,
    /// `CUBLAS_STATUS_ALLOC_FAILED` and similar statuses.
    Library,
    /// `CUBLAS_STATUS_NOT_INITIALIZED` and similar statuses.
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
    /// A line printed by the BFC allocator.
    Bfc,
    /// The driver's `CUDA_ERROR_OUT_OF_MEMORY`.
    Driver,
    /// TensorFlow's `OOM when allocating`, without a status.
    OomWhen,
    /// `DefaultCPUAllocator`.
    CpuAllocator,
    /// numpy's error.
    Numpy,
    /// Host memory, without figures.
    Host,
    /// A failure that is not an out-of-memory error.
    Not(NotOom),
}

/// Function or operation named by a line of a traceback.
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
    Nanochat,
    Transformers,
    Peft,
    Gemma2,
    Gemma3,
    Gpt2,
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    SmolLm3,
    CrossEntropy,
    Attention,
    Mlp,
    LmHead,
    PinMemory,
}

/// Set of frames in a traceback, and its last operation.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::oom) struct Frames {
    seen: u32,
    /// Innermost operation.
    pub operation: Option<Frame>,
}

impl Frames {
    /// Returns whether the traceback contains the frame.
    pub(in crate::oom) fn has(self, frame: Frame) -> bool {
        self.seen & (1 << frame as u32) != 0
    }

    /// Returns whether the traceback contains no known frame.
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

/// Position of a message.
#[derive(Clone, Copy, Debug)]
pub(in crate::oom) struct MessagePosition<'a> {
    /// Wording of the message.
    pub form: MessageForm,
    /// Reader at the beginning of the surroundings.
    pub start: Reader<'a>,
    /// Offset after the phrase.
    pub anchor: usize,
    /// Length of the phrase in squeezed bytes.
    pub phrase: usize,
    /// Rank of the phrase's line.
    pub rank: Option<u32>,
    /// Frames of the preceding traceback.
    pub frames: Frames,
}

/// The first and the last position, and their number.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::oom) struct Places<'a> {
    /// First position.
    pub first: Option<MessagePosition<'a>>,
    /// Last position.
    pub last: Option<MessagePosition<'a>>,
    /// Number of positions.
    pub n: usize,
}

impl<'a> Places<'a> {
    pub(super) fn add(&mut self, found: MessagePosition<'a>) {
        self.first.get_or_insert(found);
        self.last = Some(found);
        self.n += 1;
    }
}
