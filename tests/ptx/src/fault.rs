//! What a kernel did wrong, and where in its PTX.

use std::fmt;

use thiserror::Error;

/// A kernel's mistake. The launch ends with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The entry's name.
    pub entry: String,
    /// The line in its file of PTX, counted from 1.
    pub line: u32,
    /// The instruction as the file has it.
    pub instruction: String,
    /// The block's index in the grid.
    pub block: [u32; 3],
    /// The thread's number in the block.
    pub thread: u32,
    /// What it did.
    pub mistake: Mistake,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entry, line, instruction, block: [x, y, z], thread, mistake } = self;
        write!(f, "{entry}, PTX line {line} (`{instruction}`), block ({x}, {y}, {z}), thread {thread}: {mistake}")
    }
}

impl std::error::Error for Fault {}

/// What it did.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Mistake {
    /// An access outside of every allocation, or of the block's shared memory.
    #[error("{access} of {bytes} bytes at {place}, out of bounds")]
    OutOfBounds {
        /// Load or store.
        access: Access,
        /// Bytes of the access.
        bytes: u32,
        /// The address, in words.
        place: String,
    },
    /// An address that is not a multiple of the size of the access.
    #[error("{access} of {bytes} bytes at {address:#x}, which is misaligned")]
    Misaligned {
        /// Load or store.
        access: Access,
        /// Bytes of the access.
        bytes: u32,
        /// The address.
        address: u64,
    },
    /// A load of memory that nothing has written.
    #[error("load of {space} memory at byte {offset}, which nothing has written")]
    Unwritten {
        /// Which memory.
        space: Space,
        /// The byte, in its allocation or in shared memory.
        offset: u64,
    },
    /// Two threads access the same word, one of them stores, and nothing orders them.
    #[error("race: {access} of {space} memory at byte {offset}, which {other} accesses with no barrier between them")]
    Race {
        /// Load or store.
        access: Access,
        /// Which memory.
        space: Space,
        /// The byte, in its allocation or in shared memory.
        offset: u64,
        /// The other thread.
        other: String,
    },
    /// An access of shared memory that an asynchronous copy has not reached yet.
    #[error("{access} of shared memory at byte {offset} before the copy to it was waited for")]
    InFlight {
        /// Load or store.
        access: Access,
        /// The byte.
        offset: u64,
    },
    /// An asynchronous copy with another size of its source than nothing or all.
    #[error("asynchronous copy with a source of {bytes} bytes; only 0 and 16 are known")]
    CopySize {
        /// The source's bytes.
        bytes: u32,
    },
    /// A thread ends before it has waited for its copies.
    #[error("the thread exits before it has waited for its asynchronous copies")]
    Unawaited,
    /// A register that nothing has written decides something.
    #[error("undefined {what}")]
    Undefined {
        /// What it is used as.
        what: &'static str,
    },
    /// An instruction that all lanes of a warp have to execute together, and some do not.
    #[error("executed by lanes {lanes:#010x} of the warp instead of all")]
    Diverged {
        /// A bit for each lane.
        lanes: u32,
    },
    /// A barrier that not all threads of the block can reach, as some have exited.
    #[error("barrier after {exited} warps of the block have exited")]
    BarrierAfterExit {
        /// How many have.
        exited: usize,
    },
    /// Warps of a block wait at different barriers.
    #[error("the warp waits here, and another warp of its block at the barrier in line {other}")]
    OtherBarrier {
        /// The other's line.
        other: u32,
    },
    /// A division by 0, whose result the ISA does not specify.
    #[error("division by zero")]
    DivisionByZero,
    /// A lane's value is wanted from a lane that does not take part.
    #[error("shuffle from lane {lane}, which is not active")]
    InactiveLane {
        /// The lane.
        lane: u32,
    },
    /// The last instruction was executed and was not a return.
    #[error("execution continues after the last instruction")]
    NoReturn,
    /// More instructions than any test needs.
    #[error("the block executes more than {limit} instructions of a warp")]
    TimedOut {
        /// The limit.
        limit: u64,
    },
}

/// What a thread does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads.
    Load,
    /// It writes.
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

/// A mistake with the lane that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneMistake {
    /// The lane.
    pub lane: u32,
    /// What it did.
    pub mistake: Mistake,
}

impl Mistake {
    /// As a lane's.
    pub fn by(self, lane: usize) -> LaneMistake {
        LaneMistake { lane: u32::try_from(lane).unwrap_or(0), mistake: self }
    }

    /// As the lowest lane's of some.
    pub fn by_first(self, lanes: u32) -> LaneMistake {
        LaneMistake { lane: lanes.trailing_zeros() % 32, mistake: self }
    }
}
