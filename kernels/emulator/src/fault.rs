//! What a kernel did wrong, and where.

use std::fmt;

use thiserror::Error;

use crate::{Size, memory::OutOfBounds};

/// A kernel's mistake; it ends the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel.
    pub kernel: &'static str,
    /// The block's place in the grid.
    pub block: Size,
    /// The thread's place in the block.
    pub thread: Size,
    /// What it did.
    pub what: What,
    /// The line that did it, as `matmul.cu:120`.
    pub place: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, block: [bx, by, bz], thread: [tx, ty, tz], what, place } = self;
        write!(f, "{kernel}, {place}, block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz}): {what}")
    }
}

impl std::error::Error for Fault {}

/// What it did.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum What {
    /// An address of no allocation and not of the block's shared memory.
    #[error("{0}")]
    OutOfBounds(#[from] OutOfBounds),
    /// An address that is no multiple of the access's size.
    #[error("an access of {bytes} bytes at {address:#x}, which is no multiple of that")]
    Misaligned {
        /// The address.
        address: u64,
        /// The size.
        bytes: u32,
    },
    /// A read of what nobody wrote.
    #[error("a read of {space} memory at byte {offset}, which nobody has written")]
    Unwritten {
        /// Which memory.
        space: Space,
        /// The byte, in its allocation.
        offset: u64,
    },
    /// Two threads touch the same memory, one of them writes, and no barrier lies between.
    #[error("a race: it {does} {space} memory at byte {offset}, which {other} {did} with no barrier between them")]
    Race {
        /// Which memory.
        space: Space,
        /// The byte, in its allocation.
        offset: u64,
        /// `reads` or `writes`.
        does: &'static str,
        /// The other one.
        other: String,
        /// `read` or `wrote`.
        did: &'static str,
    },
    /// A touch of shared memory that a copy is on its way to.
    #[error("shared memory at byte {offset}, which a copy is still on its way to: no cp_async_wait came between")]
    InFlight {
        /// The byte.
        offset: u64,
    },
    /// Threads of a block wait at different barriers.
    #[error("it waits at this barrier and others of its block at {other}")]
    OtherBarrier {
        /// The other one's line.
        other: String,
    },
    /// Lanes of a warp are in different operations.
    #[error("it is in {this} and another lane of its warp in {other}")]
    OtherOperation {
        /// What it is in.
        this: String,
        /// What the other is in.
        other: String,
    },
    /// An operation of a warp names a lane that is not there any more.
    #[error("the operation names lane {lane}, which has returned or never was")]
    NoLane {
        /// The lane.
        lane: u32,
    },
    /// No thread can go on.
    #[error("every thread of the block waits, and none for what can still come: this one in {waits}")]
    Deadlock {
        /// What it waits in.
        waits: String,
    },
    /// A kernel asks for more shared memory than its launch gave.
    #[error("its shared memory takes {needs_bytes} bytes, and the launch gave {given_bytes}")]
    SharedMemory {
        /// What it asks for.
        needs_bytes: u64,
        /// What there is.
        given_bytes: u64,
    },
}

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The card's.
    Global,
    /// A block's.
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
