//! What can go wrong with a card, in words for the person who can mend it.

use std::{fmt, panic::Location};

use headroom_shared::units::human_size;
use thiserror::Error;

use super::{Capability, driver::Version};

/// Why the card cannot be used, or not any longer.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CudaError {
    /// The machine has no driver.
    #[error("there is no NVIDIA driver here ({reason})")]
    NoDriver {
        /// What the loader said.
        reason: String,
    },
    /// What `HEADROOM_CUDA` names is not what answers.
    #[error("{} names {library}, which cannot be the driver: {reason}", super::driver::VARIABLE)]
    NotTheDriver {
        /// What it names.
        library: String,
        /// What the loader said, or who answers instead.
        reason: String,
    },
    /// The driver does not know the language that the kernels are compiled to.
    #[error(
        "the NVIDIA driver here is for CUDA {found}; the kernels need one for CUDA {} or newer, which is driver {} or \
         newer",
        super::driver::NEEDED,
        super::driver::NEEDED_RELEASE
    )]
    DriverTooOld {
        /// The newest CUDA that the driver knows.
        found: Version,
    },
    /// A driver, and no card that it may use.
    #[error("the NVIDIA driver finds no card; CUDA_VISIBLE_DEVICES, where it is set, has to name one")]
    NoCard,
    /// There are fewer cards.
    #[error("there is no card {index}: the driver shows {n_cards}, counted from 0")]
    NoSuchCard {
        /// What was asked for.
        index: u32,
        /// How many there are.
        n_cards: u32,
    },
    /// The card lacks instructions that the kernels are made of.
    #[error("{name} is of compute capability {capability}; the kernels need {} (Ampere) or newer", Capability::NEEDED)]
    CardTooOld {
        /// The card's name.
        name: String,
        /// What it can.
        capability: Capability,
    },
    /// Not even what the driver itself needs for a process is free.
    #[error(
        "{name} has no room for another process: others hold nearly all of its {} (nvidia-smi lists them)",
        human_size(*total_bytes)
    )]
    NoRoomForContext {
        /// The card's name.
        name: String,
        /// The whole of its memory.
        total_bytes: u64,
    },
    /// Not enough memory is free for what is to be allocated.
    #[error(
        "{} are needed on the card and {} are free",
        human_size(*requested_bytes),
        human_size(*free_bytes)
    )]
    OutOfDeviceMemory {
        /// What was asked for.
        requested_bytes: u64,
        /// What was free then.
        free_bytes: u64,
    },
    /// A kernel broke a rule of the card's. Nothing on the card can be used any longer.
    #[error("{code}: {culprit}, found out at {at}")]
    Fault {
        /// What the driver says.
        code: Code,
        /// Who may have done it.
        culprit: Culprit,
        /// Where it was found out, which with launches that are not waited for is later than where it happened.
        at: At,
    },
    /// The driver refused a call.
    #[error("{call} at {at}: {code}")]
    Call {
        /// The call.
        call: &'static str,
        /// What the driver says.
        code: Code,
        /// Who called.
        at: At,
    },
    /// cuBLASLt refused a call.
    #[error("{call} at {at}: {code}")]
    CublasLt {
        /// The call.
        call: &'static str,
        /// What the library says.
        code: Code,
        /// Who called.
        at: At,
    },
    /// cuDNN refused a call.
    #[error("{call} at {at}: {code}")]
    Cudnn {
        /// The call.
        call: &'static str,
        /// What the library says.
        code: Code,
        /// Who called.
        at: At,
    },
    /// The driver cannot make a program for the card of a file of kernels.
    #[error("the driver refuses kernels/ptx/{module}.ptx with {code}{}{log}", if log.is_empty() { "" } else { ": " })]
    Module {
        /// The file.
        module: &'static str,
        /// What the driver says.
        code: Code,
        /// What its compiler says.
        log: String,
    },
    /// A kernel takes other arguments than it was given.
    #[error("{kernel} takes arguments of {expected:?} bytes and was given {given:?}, at {at}")]
    Arguments {
        /// The kernel.
        kernel: &'static str,
        /// What it takes.
        expected: Vec<u64>,
        /// What it was given.
        given: Vec<u64>,
        /// Who launched it.
        at: At,
    },
    /// A kernel needs more shared memory than a block of this card can have.
    #[error("{kernel} needs {needed_bytes} bytes of shared memory a block, and this card has {available_bytes}")]
    SharedMemory {
        /// The kernel.
        kernel: &'static str,
        /// What it needs.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// A tensor is of another length than the sizes beside it say.
    #[error("{op}: {tensor} has {given} elements instead of {expected}")]
    Length {
        /// The op.
        op: &'static str,
        /// Its argument.
        tensor: &'static str,
        /// Elements that follow from the sizes.
        expected: u64,
        /// Elements it has.
        given: u64,
    },
    /// A size that a kernel is not made for.
    #[error("{op}: {what} is {value}, and has to be {needed}")]
    Size {
        /// The op.
        op: &'static str,
        /// The size's name.
        what: &'static str,
        /// How much it is.
        value: u64,
        /// What the kernel takes.
        needed: &'static str,
    },
    /// A part reaches beyond what it is a part of.
    #[error("elements {start} to {end} of a tensor of {len}, at {at}")]
    OutOfRange {
        /// The part's first.
        start: u64,
        /// After its last.
        end: u64,
        /// What there is.
        len: u64,
        /// Who asked.
        at: At,
    },
    /// A buffer's place is not within the arena, or not at a multiple of 512: a fault of the plan.
    #[error("{buffer} of {buffer_bytes} bytes is planned at byte {offset} of an arena of {arena_bytes}")]
    Misplaced {
        /// Its name.
        buffer: String,
        /// Where it would begin.
        offset: u64,
        /// Its size.
        buffer_bytes: u64,
        /// The arena's.
        arena_bytes: u64,
    },
    /// The arena's list has something else there: what was planned is not what is built.
    #[error("the arena is asked for {asked}, where its list has {planned}")]
    NotPlanned {
        /// What was asked for.
        asked: String,
        /// What the list has.
        planned: String,
    },
    /// More than the card's addresses or a launch's counts reach.
    #[error("{what} is {value}, which is beyond what a card can count")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How much.
        value: u64,
    },
}

/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: u32 = 2;

impl CudaError {
    /// Whether the driver found no memory on the card for what a call needs besides its own: code of kernels, room of
    /// their threads, a copy on its way.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code, .. } | Self::Module { code, .. } if code.number == OUT_OF_MEMORY)
    }
}

/// A file and line of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At(&'static Location<'static>);

impl At {
    /// Who called the function that asks, which has to be `#[track_caller]`.
    #[track_caller]
    pub(super) fn caller() -> Self {
        Self(Location::caller())
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A build on another system names the same files.
        write!(f, "{}:{}", self.0.file().replace('\\', "/"), self.0.line())
    }
}

/// An error code of the driver's or a library's, in its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The number.
    pub number: u32,
    /// As `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
    /// As `an illegal memory access was encountered`.
    pub description: String,
}

impl Code {
    /// Whether a kernel did it, or the card: then everything after it is answered with it too.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        // Memory and links that err, an illegal address, a launch that took too long, an assertion, and from 714 on
        // what else a kernel can break. The codes between say that a call was wrong.
        matches!(self.number, 214 | 220 | 700 | 702 | 710 | 714..=719 | 721)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.description, self.name, self.number)
    }
}

/// Which kernels a fault can come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// This one: it was waited for.
    Kernel(&'static str),
    /// One of several that ran since somebody waited last.
    Among {
        /// How many.
        launches: u64,
        /// The newest.
        last: &'static str,
    },
    /// None was launched.
    Nobody,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(name) => write!(f, "the kernel {name} did it"),
            Self::Among { launches: 1, last } => write!(f, "the kernel {last} did it"),
            Self::Among { launches, last } => write!(
                f,
                "one of the {launches} kernels since the last wait did it, the newest being {last} ({}=1 tells which)",
                super::device::SYNC_VARIABLE
            ),
            Self::Nobody => write!(f, "no kernel was running"),
        }
    }
}
