//! Faults of kernels, with their source lines.

use std::fmt;

use thiserror::Error;

use crate::Size;

/// A kernel's mistake, which ends the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The block's index in the grid.
    pub block: Size,
    /// The thread's index in the block.
    pub thread: Size,
    /// The kind of mistake.
    pub what: FaultKind,
    /// The source line, as `matmul.cu:120`.
    pub place: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, block: [bx, by, bz], thread: [tx, ty, tz], what, place } = self;
        write!(f, "{kernel}, {place}, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz}): {what}")
    }
}

impl std::error::Error for Fault {}

/// An access outside every allocation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OutOfBounds {
    /// The access ends, or starts, after the end of an allocation.
    #[error("an access of {bytes} bytes at byte {offset} of an allocation of {allocated_bytes}")]
    After {
        /// The access's size in bytes.
        bytes: u64,
        /// The access's offset in the allocation.
        offset: u64,
        /// The allocation's size in bytes.
        allocated_bytes: u64,
    },
    /// No allocation is near the address.
    #[error("an access of {bytes} bytes at {address:#x}, where nothing is allocated")]
    Nowhere {
        /// The access's size in bytes.
        bytes: u64,
        /// The access's address.
        address: u64,
    },
}

/// The kinds of mistakes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FaultKind {
    /// An access outside every allocation and the block's shared memory.
    #[error("{0}")]
    OutOfBounds(#[from] OutOfBounds),
    /// An access at an address that is not a multiple of its size.
    #[error("an access of {bytes} bytes at {address:#x}, which is no multiple of that")]
    Misaligned {
        address: u64,
        /// The access's size in bytes.
        bytes: u32,
    },
    /// A read of uninitialised memory.
    #[error("a read of uninitialised {space} memory at byte {offset}")]
    Unwritten {
        /// The memory space.
        space: Space,
        /// The byte offset in the allocation.
        offset: u64,
    },
    /// A data race: two threads access the same memory without a barrier between, and at least one writes.
    #[error("a race: it {does} {space} memory at byte {offset}, which {other} {did} with no barrier between them")]
    Race {
        /// The memory space.
        space: Space,
        /// The byte offset in the allocation.
        offset: u64,
        /// `reads` or `writes`.
        does: &'static str,
        /// The other thread.
        other: String,
        /// `read` or `wrote`.
        did: &'static str,
    },
    /// An access to shared memory that is the destination of a copy in flight.
    #[error("shared memory at byte {offset}, which a copy is still on its way to: no cp_async_wait came between")]
    InFlight {
        /// The byte offset in shared memory.
        offset: u64,
    },
    /// Threads of a block wait at different barriers.
    #[error("it waits at this barrier and others of its block at {other}")]
    OtherBarrier {
        /// The source line of the other barrier.
        other: String,
    },
    /// Lanes of a warp execute different operations.
    #[error("it is in {this} and another lane of its warp in {other}")]
    OtherOperation {
        /// This lane's operation.
        this: String,
        /// The other lane's operation.
        other: String,
    },
    /// An operation's mask includes a lane that has returned or never existed.
    #[error("the operation names lane {lane}, which has returned or never was")]
    NoLane {
        /// The lane's number.
        lane: u32,
    },
    /// A deadlock: every thread waits.
    #[error("every thread of the block waits, and none for what can still come: this one in {waits}")]
    Deadlock {
        /// The operation that this thread waits in.
        waits: String,
    },
    /// A kernel needs more shared memory than its launch provides.
    #[error("its shared memory takes {needs_bytes} bytes, and the launch gave {given_bytes}")]
    SharedMemory {
        needs_bytes: u64,
        /// The bytes that the launch provides.
        given_bytes: u64,
    },
}

/// A memory space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The GPU's global memory.
    Global,
    /// A block's shared memory.
    Shared,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Global => "global",
            Self::Shared => "shared",
        })
    }
}
