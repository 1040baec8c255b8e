//! Errors of the CUDA side, with messages for the user.

use std::{fmt, panic::Location};

use headroom_planner::hardware::ComputeCapability;
use headroom_text::{self as text, Text};
use thiserror::Error;

use super::requirements::{self, Version};

/// Why the GPU cannot be used, or cannot be used any longer.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum CudaError {
    /// The CUDA driver is not installed.
    NoDriver {
        /// The loader's message.
        reason: String,
    },
    /// The library that `HEADROOM_CUDA` names is not a CUDA driver.
    NotTheDriver {
        /// Path of the library.
        library: String,
        /// The loader's message.
        reason: String,
    },
    /// The driver does not support the PTX version of the kernels.
    DriverTooOld {
        /// The newest CUDA version that the driver supports.
        found: Version,
    },
    /// The driver is installed, but no GPU is visible to it.
    NoGpu,
    /// The GPU index is out of range.
    NoSuchGpu {
        /// Requested index.
        index: u32,
        n_gpus: u32,
    },
    /// The GPU lacks instructions that the kernels use.
    GpuTooOld {
        /// Product name.
        name: String,
        /// Compute capability.
        capability: ComputeCapability,
    },
    /// The GPU is out of memory for the driver's context of a process.
    NoRoomForContext {
        /// Product name.
        name: String,
        /// Total memory in bytes.
        total_bytes: u64,
    },
    /// The GPU is out of memory for an allocation.
    OutOfDeviceMemory {
        requested_bytes: u64,
        /// Free bytes at that time.
        free_bytes: u64,
    },
    /// A kernel faulted, after which the context cannot be used any longer.
    Fault {
        /// The driver's error code.
        code: Code,
        /// Kernels that may have caused the fault.
        culprit: Culprit,
        /// The call that reported the fault; without synchronized launches, later than the faulting launch.
        at: SourceLocation,
    },
    /// A driver function failed.
    Call {
        /// Name of the function.
        call: &'static str,
        /// The driver's error code.
        code: Code,
        /// Location of the call.
        at: SourceLocation,
    },
    /// A cuBLASLt function failed.
    CublasLt {
        /// Name of the function.
        call: &'static str,
        /// The library's error code.
        code: Code,
        /// Location of the call.
        at: SourceLocation,
    },
    /// A cuDNN function failed.
    Cudnn {
        /// Name of the function.
        call: &'static str,
        /// The library's error code.
        code: Code,
        /// Location of the call.
        at: SourceLocation,
    },
    /// The driver cannot compile a file of kernels for the GPU.
    Module {
        /// Name of the file.
        module: &'static str,
        /// The driver's error code.
        code: Code,
        /// Log of the driver's compiler.
        log: String,
    },
    /// The arguments of a launch do not match the kernel's parameters.
    Arguments {
        /// Name of the kernel.
        kernel: &'static str,
        /// Sizes of the parameters in bytes.
        expected: Vec<u64>,
        /// Sizes of the arguments in bytes.
        given: Vec<u64>,
        /// Location of the launch.
        at: SourceLocation,
    },
    /// A kernel needs more shared memory than the GPU offers per block.
    SharedMemory {
        /// Name of the kernel.
        kernel: &'static str,
        /// Required bytes per block.
        needed_bytes: u64,
        /// Available bytes per block.
        available_bytes: u64,
    },
    /// A tensor's length does not match the sizes passed with it.
    Length {
        /// Name of the op.
        op: &'static str,
        /// Name of the argument.
        tensor: &'static str,
        /// Number of elements that follows from the sizes.
        expected: u64,
        /// Number of elements of the tensor.
        given: u64,
    },
    /// A kernel does not support a size.
    Size {
        /// Name of the op.
        op: &'static str,
        /// Name of the size.
        what: &'static str,
        /// Value of the size.
        value: u64,
        /// Supported values.
        needed: &'static str,
    },
    /// A part of a slice exceeds the slice.
    OutOfRange {
        /// First element of the part.
        start: u64,
        /// End of the part, exclusive.
        end: u64,
        /// Length of the slice in elements.
        len: u64,
        /// Location of the call.
        at: SourceLocation,
    },
    /// A buffer of the plan exceeds the arena, or its offset is not a multiple of 512. A bug of the planner.
    Misplaced {
        /// Name of the buffer.
        buffer: String,
        /// Offset in bytes.
        offset: u64,
        /// Size of the buffer in bytes.
        buffer_bytes: u64,
        /// Size of the arena in bytes.
        arena_bytes: u64,
    },
    /// The requested buffer is not the next one of the plan: plan and trainer disagree.
    NotPlanned {
        /// Requested buffer.
        asked: String,
        /// Buffer in the plan.
        planned: String,
    },
    /// A number exceeds the address range or the limits of a launch.
    TooLarge {
        /// Description of the number.
        what: &'static str,
        value: u64,
    },
}

impl CudaError {
    /// The error as a translatable text.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::NoDriver { reason } => text::card_no_driver(reason.as_str()),
            Self::NotTheDriver { library, reason } => {
                text::card_not_driver(requirements::VARIABLE, library.as_str(), reason.as_str())
            }
            Self::DriverTooOld { found } => text::card_driver_too_old(
                found.to_string(),
                requirements::NEEDED.to_string(),
                requirements::NEEDED_RELEASE,
            ),
            Self::NoGpu => text::CARD_NONE.into(),
            Self::NoSuchGpu { index, n_gpus } => text::card_not_there(u64::from(*index), u64::from(*n_gpus)),
            Self::GpuTooOld { name, capability } => {
                text::card_too_old(name.as_str(), capability.to_string(), requirements::NEEDED_CAPABILITY.to_string())
            }
            Self::NoRoomForContext { name, total_bytes } => text::card_no_room(name.as_str(), text::size(*total_bytes)),
            Self::OutOfDeviceMemory { requested_bytes, free_bytes } => {
                text::card_out_of_memory(text::size(*requested_bytes), text::size(*free_bytes))
            }
            Self::Fault { code, culprit, at } => text::card_fault(code.to_string(), culprit.text(), at.to_string()),
            Self::Call { call, code, at } => text::as_is(format!("{call} at {at}: {code}")),
            Self::CublasLt { call, code, at } => text::as_is(format!("{call} at {at}: {code}")),
            Self::Cudnn { call, code, at } => text::as_is(format!("{call} at {at}: {code}")),
            Self::Module { module, code, log } => text::as_is(format!(
                "the driver refuses kernels/ptx/{module}.ptx with {code}{}{log}",
                if log.is_empty() { "" } else { ": " }
            )),
            Self::Arguments { kernel, expected, given, at } => {
                text::as_is(format!("{kernel} takes arguments of {expected:?} bytes and was given {given:?}, at {at}"))
            }
            Self::SharedMemory { kernel, needed_bytes, available_bytes } => text::as_is(format!(
                "{kernel} needs {needed_bytes} bytes of shared memory a block, and this GPU has {available_bytes}"
            )),
            Self::Length { op, tensor, expected, given } => {
                text::as_is(format!("{op}: {tensor} has {given} elements instead of {expected}"))
            }
            Self::Size { op, what, value, needed } => {
                text::as_is(format!("{op}: {what} is {value}, and has to be {needed}"))
            }
            Self::OutOfRange { start, end, len, at } => {
                text::as_is(format!("elements {start} to {end} of a tensor of {len}, at {at}"))
            }
            Self::Misplaced { buffer, offset, buffer_bytes, arena_bytes } => text::as_is(format!(
                "{buffer} of {buffer_bytes} bytes is planned at byte {offset} of an arena of {arena_bytes}"
            )),
            Self::NotPlanned { asked, planned } => {
                text::as_is(format!("the arena is asked for {asked}, where its list has {planned}"))
            }
            Self::TooLarge { what, value } => {
                text::as_is(format!("{what} is {value}, which is beyond what a GPU can count"))
            }
        }
    }
}

/// CUDA_ERROR_OUT_OF_MEMORY.
const OUT_OF_MEMORY: u32 = 2;

impl CudaError {
    /// Whether the driver is out of memory for its own needs: kernel code, local memory of threads, or a staging copy.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code, .. } | Self::Module { code, .. } if code.number == OUT_OF_MEMORY)
    }
}

/// A location in Headroom's source code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLocation(&'static Location<'static>);

impl SourceLocation {
    /// Location of the caller of the current function, which must be `#[track_caller]`.
    #[track_caller]
    pub(super) fn caller() -> Self {
        Self(Location::caller())
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Builds on all systems print the same paths.
        write!(f, "{}:{}", self.0.file().replace('\\', "/"), self.0.line())
    }
}

/// An error code of the driver or a library, with its name and description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Numeric code.
    pub number: u32,
    /// Name, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
    pub name: String,
    /// Description, such as `an illegal memory access was encountered`.
    pub description: String,
}

impl Code {
    /// Whether a kernel or the hardware caused the error, after which every call returns the same code.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        // Uncorrectable ECC and NVLink errors, an illegal address, a launch timeout, an assertion, and from 714 on
        // other faults of kernels. The codes in between mean an invalid call.
        matches!(self.number, 214 | 220 | 700 | 702 | 710 | 714..=719 | 721)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {})", self.description, self.name, self.number)
    }
}

/// Kernels that may have caused a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// This kernel: its launch was synchronized.
    Kernel(&'static str),
    /// One of the kernels launched since the last synchronization.
    Among {
        launches: u64,
        /// The latest kernel.
        last: &'static str,
    },
    /// No kernel was launched.
    Nobody,
}

impl Culprit {
    fn text(&self) -> Text {
        match self {
            Self::Kernel(kernel) | Self::Among { launches: 1, last: kernel } => text::culprit_kernel(*kernel),
            Self::Among { launches, last } => {
                text::culprit_among(*launches, *last, format!("{}=1", requirements::SYNC_VARIABLE))
            }
            Self::Nobody => text::CULPRIT_NOBODY.into(),
        }
    }
}
