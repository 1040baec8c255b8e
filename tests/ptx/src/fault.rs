//! Faults of kernels, with their PTX lines.

use std::fmt;

use thiserror::Error;

/// A kernel's mistake, which ends the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel's name.
    pub entry: String,
    /// The line in the PTX file, counted from 1.
    pub line: u32,
    /// The instruction's text.
    pub instruction: String,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The thread's number in the block.
    pub thread: u32,
    pub mistake: MistakeKind,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, line, instruction, block: [x, y, z], thread, mistake } = self;
        write!(f, "{entry}, PTX line {line} (`{instruction}`), block ({x}, {y}, {z}), thread {thread}: {mistake}")
    }
}

impl std::error::Error for Fault {}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MistakeKind {
    /// An access outside every allocation or the block's shared memory.
    #[error("{access} of {bytes} bytes at {place}, out of bounds")]
    OutOfBounds {
        /// The kind of access.
        access: Access,
        /// The access's size in bytes.
        bytes: u32,
        /// The address, as text.
        place: String,
    },
    /// An access at an address that is not a multiple of its size.
    #[error("{access} of {bytes} bytes at {address:#x}, which is misaligned")]
    Misaligned {
        /// The kind of access.
        access: Access,
        /// The access's size in bytes.
        bytes: u32,
        address: u64,
    },
    /// A load of uninitialised memory.
    #[error("load of {space} memory at byte {offset}, which nothing has written")]
    Unwritten {
        /// The memory space.
        space: Space,
        /// The byte offset in the allocation or shared memory.
        offset: u64,
    },
    /// A data race: two threads access the same word without synchronisation, and at least one stores.
    #[error("race: {access} of {space} memory at byte {offset}, which {other} accesses with no barrier between them")]
    Race {
        /// The kind of access.
        access: Access,
        /// The memory space.
        space: Space,
        /// The byte offset in the allocation or shared memory.
        offset: u64,
        /// The other thread.
        other: String,
    },
    /// An access to shared memory that is the destination of an asynchronous copy in flight.
    #[error("{access} of shared memory at byte {offset} before the copy to it was waited for")]
    InFlight {
        /// The kind of access.
        access: Access,
        /// The byte offset in shared memory.
        offset: u64,
    },
    /// An asynchronous copy whose source size is neither 0 nor 16 bytes.
    #[error("asynchronous copy with a source of {bytes} bytes; only 0 and 16 are known")]
    CopySize {
        /// The source's size in bytes.
        bytes: u32,
    },
    /// A thread exits before it has waited for its copies.
    #[error("the thread exits before it has waited for its asynchronous copies")]
    Unawaited,
    /// A use of an uninitialised register that affects control flow or an address.
    #[error("undefined {what}")]
    Undefined {
        /// The register's use.
        what: &'static str,
    },
    /// A warp-wide instruction that only some lanes execute.
    #[error("executed by lanes {lanes:#010x} of the warp instead of all")]
    Diverged {
        /// A mask of the lanes that execute it.
        lanes: u32,
    },
    /// A barrier that some threads of the block cannot reach, because they have exited.
    #[error("barrier after {exited} warps of the block have exited")]
    BarrierAfterExit {
        /// The number of exited warps.
        exited: usize,
    },
    /// Warps of a block wait at different barriers.
    #[error("the warp waits here, and another warp of its block at the barrier in line {other}")]
    OtherBarrier {
        /// The line of the other barrier.
        other: u32,
    },
    /// A division by 0, whose result the PTX ISA does not specify.
    #[error("division by zero")]
    DivisionByZero,
    /// A shuffle reads the value of an inactive lane.
    #[error("shuffle from lane {lane}, which is not active")]
    InactiveLane {
        /// The source lane's number.
        lane: u32,
    },
    /// Execution continues past the last instruction.
    #[error("execution continues after the last instruction")]
    NoReturn,
    /// The block exceeds the limit of instructions.
    #[error("the block executes more than {limit} instructions of a warp")]
    TimedOut {
        /// The limit, in instructions of a warp.
        limit: u64,
    },
}

/// The kind of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A read.
    Load,
    /// A write.
    Store,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "load",
            Self::Store => "store",
        })
    }
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

/// A mistake with the lane that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneMistake {
    /// The lane's number.
    pub lane: u32,
    pub mistake: MistakeKind,
}

impl MistakeKind {
    /// Attributes the mistake to a lane.
    pub fn by(self, lane: usize) -> LaneMistake {
        LaneMistake { lane: u32::try_from(lane).unwrap_or(0), mistake: self }
    }

    /// Attributes the mistake to the lowest lane of a mask.
    pub fn by_first(self, lanes: u32) -> LaneMistake {
        LaneMistake { lane: lanes.trailing_zeros() % 32, mistake: self }
    }
}
