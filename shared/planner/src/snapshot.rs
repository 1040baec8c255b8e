//! A memory snapshot of PyTorch: the allocator's segments and the trace of its events, from a file of
//! `torch.cuda.memory._dump_snapshot`.
//!
//! [`Reader`] reads the pickle as a stream and executes nothing. [`Snapshot`] has the typed events; equal texts, frames
//! and stacks are stored once. [`History`] restores the memory before the trace and replays the trace on it,
//! [`check()`] compares the trace with the replica of the allocator, and [`plan()`] replays it on a GPU.
//!
//! Sources: `torch/csrc/cuda/Module.cpp`, `torch/csrc/cuda/memory_snapshot.cpp` and `torch/cuda/memory.py` of PyTorch
//! 2.11.

mod check;
mod heap;
mod history;
mod lexer;
mod machine;
mod program;
mod report;
mod settings;
mod shapes;
mod store;
mod write;

#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use store::Chunked;

pub use check::{Check, Difference, DifferenceKind, check};
pub use heap::{FreeMemory, LiveBlock};
pub use history::{History, Moment, OomEvent, PoolState, SiteAtPeak};
pub use machine::Reader;
pub use program::plan;
pub use report::Report;
pub use settings::AllocatorSettings;
pub use write::write;

/// First byte of a pickle of protocol 2 or later.
pub const PICKLE_START: u8 = 0x80;

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The first bytes are not those of a pickle of protocol 2 to 5.
    #[error("it is not a pickle of protocol 2 to 5")]
    NotAPickle,
    /// The pickle holds something else.
    #[error("the pickle has no segments and traces of PyTorch's allocator")]
    NotASnapshot,
    /// The file ends within the pickle.
    #[error("the file is cut off")]
    Cut,
    /// An opcode that no snapshot has.
    #[error("unexpected opcode 0x{0:02x}")]
    Opcode(u8),
    /// The stack lacks a value or a mark.
    #[error("a value is missing on the stack")]
    Stack,
    /// A memo entry that does not exist, or that is out of order.
    #[error("a memo entry does not exist or is out of order")]
    Memo,
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    Text,
    /// A number is missing, negative or too large.
    #[error("a number is invalid")]
    Number,
    /// A dict of the allocator lacks a field, or is written in parts.
    #[error("a dict is incomplete")]
    Incomplete,
    /// The file exceeds a limit of this reader.
    #[error("it has more values than this program reads")]
    TooMany,
}

/// Error: a file is not a valid snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (byte {offset})")]
pub struct ReadError {
    /// Offset of the opcode in the file, in bytes.
    pub offset: u64,
    /// What is wrong with it.
    pub problem: Problem,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FrameId {
    name: u32,
    filename: u32,
    line: u32,
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame<'a> {
    /// Name of the function.
    pub name: &'a str,
    /// Path of the source file, as Python knows it.
    pub filename: &'a str,
    /// Line in the file, from 1; 0 if it is not known.
    pub line: u32,
}

impl Frame<'_> {
    /// Whether the frame is of the user's own Python code: not of an installed package, the standard library or C++.
    #[must_use]
    pub fn is_user(&self) -> bool {
        self.is_library() && !self.is_in("site-packages/") && !self.is_in("dist-packages/")
    }

    /// Whether the frame is of Python code besides PyTorch and the standard library.
    #[must_use]
    pub fn is_library(&self) -> bool {
        let is_python = self.filename.ends_with(".py") || self.filename.starts_with("<ipython");
        let is_package = self.is_in("site-packages/") || self.is_in("dist-packages/");
        is_python && !self.is_in("torch/") && (is_package || !self.is_in("lib/python3"))
    }

    /// Whether the path has a part that starts like this.
    fn is_in(&self, part: &str) -> bool {
        self.filename.match_indices(part).any(|(at, _)| at == 0 || self.filename[..at].ends_with('/'))
    }

    /// The frame as `model.py:67 forward`.
    #[must_use]
    pub fn place(&self) -> String {
        let file = self.filename.rsplit(['/', '\\']).next().unwrap_or(self.filename);
        format!("{file}:{} {}", self.line, self.name)
    }
}

/// Number of a stack in its snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(u32);

/// What the allocator did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceAction {
    /// It gave a block to the program.
    Alloc,
    /// The program freed a block. Other streams may still use it.
    FreeRequested,
    /// The block is free.
    FreeCompleted,
    /// `cudaMalloc` of a segment.
    SegmentAlloc,
    /// `cudaFree` of a segment.
    SegmentFree,
    /// It mapped memory into an expandable segment.
    SegmentMap,
    /// It unmapped memory from an expandable segment.
    SegmentUnmap,
    /// A request failed.
    Oom,
    /// Anything else, such as a snapshot.
    Other,
}

/// An event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Address, or the free bytes of the device for [`TraceAction::Oom`].
    pub address: u64,
    /// Requested bytes, without the allocator's rounding; of a segment, its size; of a failure, the bytes requested from
    /// the driver.
    pub bytes: u64,
    /// Time in microseconds since 1970, or 0.
    pub time_us: u64,
    /// Stack of the caller.
    pub stack: StackId,
    stream: u16,
    /// What the allocator did.
    pub action: TraceAction,
}

/// State of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// The program holds it.
    Allocated,
    /// The program freed it, and another stream uses it.
    PendingFree,
    /// It is free.
    Free,
}

/// A block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Address; `None` in snapshots of old versions, where blocks follow one another.
    address: Option<u64>,
    /// Size in bytes.
    pub bytes: u64,
    /// Requested bytes, or those of an earlier tensor if the block is free.
    pub requested_bytes: u64,
    /// State at the end of the trace.
    pub state: BlockState,
    /// Stack of the allocation.
    pub stack: StackId,
}

/// Identity of a memory pool: (0, 0) is the default pool, others belong to CUDA graphs or to `MemPool`.
pub type PoolId = (u64, u64);

/// A segment at the end of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of the GPU in its process.
    pub device: u64,
    /// Address of the first byte.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Stream, as the pointer that CUDA gave; 0 is the default stream.
    pub stream: u64,
    /// Whether the pool of small requests holds it.
    pub is_small: bool,
    /// Whether it is a mapped part of an expandable segment.
    pub is_expandable: bool,
    /// Pool that holds it.
    pub pool: PoolId,
    /// List of its blocks.
    blocks: Option<u32>,
}

/// A memory snapshot.
#[derive(Debug)]
pub struct Snapshot {
    /// Settings of the allocator.
    pub settings: AllocatorSettings,
    /// Segments at the end of the trace.
    pub segments: Vec<Segment>,
    texts: Vec<Arc<str>>,
    frames: Vec<FrameId>,
    stacks: Vec<Arc<[u32]>>,
    streams: Vec<u64>,
    events: Chunked<TraceEvent>,
    blocks: Chunked<Block>,
    /// Lists of blocks, as runs of their numbers.
    lists: Vec<Vec<Range<u32>>>,
    /// Runs of events of each device.
    traces: Vec<Vec<Range<u32>>>,
}

impl Snapshot {
    /// Number of devices with a trace, though it may be empty.
    #[must_use]
    pub fn n_devices(&self) -> usize {
        self.traces.len()
    }

    /// Number of events in the trace of a device.
    #[must_use]
    pub fn n_events(&self, device: usize) -> usize {
        self.traces.get(device).map_or(0, |runs| runs.iter().map(ExactSizeIterator::len).sum())
    }

    /// The events of a device in order.
    pub fn events(&self, device: usize) -> impl DoubleEndedIterator<Item = &TraceEvent> + '_ {
        let runs = self.traces.get(device).map_or(&[][..], Vec::as_slice);
        runs.iter().flat_map(Clone::clone).filter_map(|index| self.events.get(index as usize))
    }

    /// The blocks of a segment with their addresses.
    pub fn blocks<'a>(&'a self, segment: &'a Segment) -> impl Iterator<Item = (u64, &'a Block)> + 'a {
        let runs = segment.blocks.and_then(|list| self.lists.get(list as usize)).map_or(&[][..], Vec::as_slice);
        let indices = runs.iter().flat_map(Clone::clone);
        let mut next = segment.address;
        indices.filter_map(|index| self.blocks.get(index as usize)).map(move |block| {
            let address = block.address.unwrap_or(next);
            next = address.saturating_add(block.bytes);
            (address, block)
        })
    }

    /// Stream of an event, as the pointer that CUDA gave; 0 is the default stream.
    #[must_use]
    pub fn stream(&self, event: &TraceEvent) -> u64 {
        self.streams.get(usize::from(event.stream)).copied().unwrap_or_default()
    }

    /// The frames of a stack, innermost first.
    pub fn stack(&self, stack: StackId) -> impl ExactSizeIterator<Item = Frame<'_>> + '_ {
        let frames = self.stacks.get(stack.0 as usize).map_or(&[][..], |stack| stack);
        frames.iter().map(|&frame| self.frame(frame))
    }

    fn frame(&self, frame: u32) -> Frame<'_> {
        let text = |number: u32| self.texts.get(number as usize).map_or("", |text| text);
        match self.frames.get(frame as usize) {
            Some(frame) => Frame { name: text(frame.name), filename: text(frame.filename), line: frame.line },
            None => Frame { name: "", filename: "", line: 0 },
        }
    }

    /// The innermost frame of the user's own code; without one, the innermost frame.
    #[must_use]
    pub fn user_frame(&self, stack: StackId) -> Option<Frame<'_>> {
        self.stack(stack).find(Frame::is_user).or_else(|| self.stack(stack).next())
    }

    /// The innermost frame of Python code besides PyTorch and the standard library, such as that of a model's package.
    #[must_use]
    pub fn library_frame(&self, stack: StackId) -> Option<Frame<'_>> {
        self.stack(stack).find(Frame::is_library)
    }

    /// The device with the most events; without any, that with the most reserved memory.
    #[must_use]
    pub fn main_device(&self) -> usize {
        let reserved = |device: usize| -> u64 {
            let of_device = self.segments.iter().filter(|segment| segment.device == device as u64);
            of_device.fold(0, |sum, segment| sum.saturating_add(segment.bytes))
        };
        let n = self.segments.iter().map(|segment| segment.device + 1).max().unwrap_or_default();
        let n = usize::try_from(n).unwrap_or_default().max(self.traces.len());
        let best = (0..n).max_by_key(|&device| (self.n_events(device), reserved(device), std::cmp::Reverse(device)));
        best.unwrap_or_default()
    }
}
