//! A stored tensor: a row of the table, or the optimizer's companion of one.

use super::{Category, Dims, Lifetime, Shape, Tensor};
use crate::dtype::Dtype;

/// Relation of a stored tensor to its row of the table: the tensor itself, or the optimizer's companion of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// The tensor itself.
    Value,
    /// AdamW's first moment of a parameter, float32.
    ExpAvg,
    /// AdamW's second moment of a parameter, float32.
    ExpAvgSq,
    /// The first moment with one byte per element.
    State1,
    /// The second moment with one byte per element.
    State2,
    /// The float32 scale of each block of a one-byte moment.
    Absmax,
    /// The square root of the second moment, which AdamW without `fused` holds during a step.
    Denominator,
    /// The copy of a parameter in a resumed checkpoint's `state_dict`.
    Checkpoint,
    /// A matrix in 16-bit integers, a storage format of inference on the CPU.
    Int16,
    /// The float32 scale of each row of a 16-bit integer matrix.
    RowScale,
    /// A tensor in half precision, regardless of its row: bfloat16 if that is the training dtype, else float16.
    Half,
}

impl Role {
    const ALL: [Self; 11] = [
        Self::Value,
        Self::ExpAvg,
        Self::ExpAvgSq,
        Self::State1,
        Self::State2,
        Self::Absmax,
        Self::Denominator,
        Self::Checkpoint,
        Self::Int16,
        Self::RowScale,
        Self::Half,
    ];
}

/// Elements that share a scale in bitsandbytes' block-wise quantisation.
const QUANTISATION_BLOCK: u128 = 256;

/// A tensor of the table or a companion of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TensorId {
    /// The row of the table.
    pub tensor: Tensor,
    /// Relation to that row.
    pub role: Role,
}

impl From<Tensor> for TensorId {
    fn from(tensor: Tensor) -> Self {
        Self { tensor, role: Role::Value }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the table has a few hundred rows")]
const N_TENSORS: u16 = Tensor::ALL.len() as u16;

impl TensorId {
    /// One more than the largest [`Self::code`].
    pub const N_CODES: usize = Role::ALL.len() * Tensor::ALL.len();

    /// Compact code for events, inverse of [`Self::from_code`].
    #[must_use]
    pub const fn code(self) -> u16 {
        self.role as u16 * N_TENSORS + self.tensor as u16
    }

    /// Decodes a result of [`Self::code`]; `None` if the code is invalid.
    #[must_use]
    pub fn from_code(code: u16) -> Option<Self> {
        let role = *Role::ALL.get(usize::from(code / N_TENSORS))?;
        let tensor = *Tensor::ALL.get(usize::from(code % N_TENSORS))?;
        Some(Self { tensor, role })
    }

    /// Category of the tensor.
    #[must_use]
    pub fn category(self) -> Category {
        match self.role {
            Role::Value | Role::Half => self.tensor.category(),
            Role::Checkpoint | Role::Int16 | Role::RowScale => Category::Parameters,
            _ => Category::OptimizerState,
        }
    }

    /// Reason for the tensor's lifetime.
    #[must_use]
    pub fn lifetime(self) -> Lifetime {
        match self.role {
            Role::Value | Role::Half => self.tensor.lifetime(),
            Role::Checkpoint | Role::Int16 | Role::RowScale => Lifetime::Run,
            Role::Denominator => Lifetime::Intermediate,
            _ => Lifetime::FromFirstStep,
        }
    }

    /// Element type of the tensor.
    #[must_use]
    pub fn dtype(self, compute: Dtype) -> Dtype {
        match self.role {
            Role::Value => self.tensor.dtype(compute),
            Role::State1 | Role::State2 => Dtype::Uint8,
            Role::Int16 => Dtype::Int16,
            Role::Half if compute == Dtype::Bfloat16 => Dtype::Bfloat16,
            Role::Half => Dtype::Float16,
            _ => Dtype::Float32,
        }
    }

    /// Shape of the tensor.
    #[must_use]
    pub fn shape(self, dims: &Dims) -> Shape {
        match self.role {
            Role::Absmax | Role::RowScale => {
                let n = u64::try_from(self.elements(dims)).unwrap_or(u64::MAX);
                Shape { dims: [n, 1, 1, 1], rank: 1 }
            }
            _ => self.tensor.shape(dims),
        }
    }

    /// Name for the user.
    #[must_use]
    pub fn name(self, layer: Option<u64>) -> String {
        let name = self.tensor.full_name(layer);
        match self.role {
            Role::Value | Role::Half => name,
            Role::ExpAvg => format!("exp_avg of {name}"),
            Role::ExpAvgSq => format!("exp_avg_sq of {name}"),
            Role::State1 => format!("8-bit exp_avg of {name}"),
            Role::State2 => format!("8-bit exp_avg_sq of {name}"),
            Role::Absmax => format!("absmax of {name}"),
            Role::Denominator => format!("denominator of {name}"),
            Role::Checkpoint => format!("state_dict's {name}"),
            Role::Int16 => format!("16-bit {name}"),
            Role::RowScale => format!("row scales of {name}"),
        }
    }

    pub(super) fn elements(self, dims: &Dims) -> u128 {
        let axes = self.tensor.row().shape;
        let elements = |axes: &[super::dims::Dim]| axes.iter().fold(1_u128, |n, &dim| n.saturating_mul(dims.get(dim)));
        match self.role {
            Role::Absmax => elements(axes).div_ceil(QUANTISATION_BLOCK),
            Role::RowScale => elements(axes.get(..1).unwrap_or(axes)),
            _ => elements(axes),
        }
    }

    /// Bytes of the elements, without the allocator's rounding; `None` on overflow of `u64`.
    #[must_use]
    pub fn bytes(self, dims: &Dims) -> Option<u64> {
        let bytes = u128::from(self.dtype(dims.compute).bytes());
        u64::try_from(bytes.checked_mul(self.elements(dims))?).ok()
    }
}
