//! Element types that a training run stores, under PyTorch's names.

use serde::{Deserialize, Serialize};

/// An element type, under PyTorch's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE double precision; scalars of the gradient scaler.
    Float64,
    /// IEEE single precision.
    Float32,
    /// IEEE half precision; trains with a `GradScaler`.
    Float16,
    /// The upper half of a float32; hardware support starts at compute capability 8.0.
    Bfloat16,
    /// Token indices and targets.
    Int64,
    /// Indices of sorting and compiled code.
    Int32,
    /// Matrices of inference on the CPU, with a scale a row.
    Int16,
    /// Quantized weights.
    Int8,
    /// Quantised optimizer state, random number generator state.
    Uint8,
    /// Seeds of a random number generator.
    Uint64,
    /// Dropout masks; one byte an element.
    Bool,
}

impl Dtype {
    /// Bytes of one element.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Float64 | Self::Int64 | Self::Uint64 => 8,
            Self::Float32 | Self::Int32 => 4,
            Self::Float16 | Self::Bfloat16 | Self::Int16 => 2,
            Self::Int8 | Self::Uint8 | Self::Bool => 1,
        }
    }

    /// PyTorch's name, as in `torch.bfloat16`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Float64 => "float64",
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Uint64 => "uint64",
            Self::Bool => "bool",
        }
    }
}
