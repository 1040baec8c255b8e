//! A stored tensor: a row of the table, or the optimizer's companion of one.

use super::{Category, Dims, Lifetime, Shape, Tensor, module::in_block};
use crate::dtype::Dtype;

/// A row of the roles.
struct RoleRow {
    /// Beginning of the tensor's name.
    prefix: &'static str,
    /// Category and lifetime; `None` for those of the table's row.
    kept: Option<(Category, Lifetime)>,
    /// Element type; `None` if it depends on the run.
    dtype: Option<Dtype>,
    /// Whether it has one element per block of quantised elements.
    is_per_block: bool,
}

/// Elements that share a scale in bitsandbytes' block-wise quantisation.
const QUANTISATION_BLOCK: u64 = 256;

const VALUE: RoleRow = RoleRow { prefix: "", kept: None, dtype: None, is_per_block: false };

const fn parameter(prefix: &'static str, dtype: Dtype) -> RoleRow {
    RoleRow { prefix, kept: Some((Category::Parameters, Lifetime::Run)), dtype: Some(dtype), is_per_block: false }
}

const fn state(prefix: &'static str, dtype: Dtype) -> RoleRow {
    let kept = Some((Category::OptimizerState, Lifetime::FromFirstStep));
    RoleRow { prefix, kept, dtype: Some(dtype), is_per_block: false }
}

const fn temporary(prefix: &'static str, dtype: Dtype) -> RoleRow {
    let kept = Some((Category::OptimizerState, Lifetime::Intermediate));
    RoleRow { prefix, kept, dtype: Some(dtype), is_per_block: false }
}

macro_rules! roles {
    ($($(#[$doc:meta])* $role:ident = $row:expr;)*) => {
        /// Relation of a stored tensor to its row of the table: the tensor itself, or the optimizer's companion of a
        /// parameter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Role { $($(#[$doc])* $role,)* }

        impl Role {
            const ALL: &[Self] = &[$(Self::$role),*];
        }

        static ROLES: &[RoleRow] = &[$($row),*];
    };
}

roles! {
    /// The tensor itself.
    Value = VALUE;
    /// AdamW's first moment of a parameter.
    ExpAvg = state("exp_avg of ", Dtype::Float32);
    /// AdamW's second moment of a parameter.
    ExpAvgSq = state("exp_avg_sq of ", Dtype::Float32);
    /// The first moment with one byte per element.
    State1 = state("8-bit exp_avg of ", Dtype::Uint8);
    /// The second moment with one byte per element.
    State2 = state("8-bit exp_avg_sq of ", Dtype::Uint8);
    /// The scale of each block of a one-byte moment.
    Absmax = RoleRow { is_per_block: true, ..state("absmax of ", Dtype::Float32) };
    /// The square root of the second moment, which AdamW without `fused` holds during a step.
    Denominator = temporary("denominator of ", Dtype::Float32);
    /// The copy of a parameter in a resumed checkpoint's `state_dict`.
    Checkpoint = parameter("state_dict's ", Dtype::Float32);
    /// A matrix in 16-bit integers, a storage format of inference on the CPU.
    Int16 = parameter("16-bit ", Dtype::Int16);
    /// The scale of each row of a 16-bit integer matrix.
    RowScale = parameter("row scales of ", Dtype::Float32);
    /// A tensor in half precision, regardless of its row: bfloat16 if that is the training dtype, else float16.
    Half = VALUE;
}

impl Role {
    const fn row(self) -> &'static RoleRow {
        &ROLES[self as usize]
    }

    /// Bytes of an optimizer's companion of a parameter with `elements` elements; `None` for other roles.
    pub(crate) fn state_bytes(self, elements: u64) -> Option<u64> {
        match self.row() {
            RoleRow { kept: Some((Category::OptimizerState, _)), dtype: Some(dtype), is_per_block, .. } => {
                Some(dtype.bytes() * if *is_per_block { elements.div_ceil(QUANTISATION_BLOCK) } else { elements })
            }
            _ => None,
        }
    }
}

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
        self.role.row().kept.map_or_else(|| self.tensor.category(), |(category, _)| category)
    }

    /// Reason for the tensor's lifetime.
    #[must_use]
    pub fn lifetime(self) -> Lifetime {
        self.role.row().kept.map_or_else(|| self.tensor.lifetime(), |(_, lifetime)| lifetime)
    }

    /// Element type of the tensor.
    #[must_use]
    pub fn dtype(self, compute: Dtype) -> Dtype {
        match (self.role.row().dtype, self.role) {
            (Some(dtype), _) => dtype,
            (None, Role::Half) if compute == Dtype::Bfloat16 => Dtype::Bfloat16,
            (None, Role::Half) => Dtype::Float16,
            (None, _) => self.tensor.dtype(compute),
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
        self.name_in(layer.map(|layer| layer.to_string()).as_deref())
    }

    /// Name in a block, or in several blocks such as `0–11`.
    #[must_use]
    pub fn name_in(self, block: Option<&str>) -> String {
        [self.role.row().prefix, &in_block(block, self.tensor.name())].concat()
    }

    /// Module of the tensor or of its parameter, as in PyTorch's `named_modules`. Tensors outside of the model have the name of a
    /// part of the training loop. `block` is that of [`Self::name_in`].
    #[must_use]
    pub fn module_in(self, block: Option<&str>) -> String {
        self.tensor.row().module.name(block)
    }

    pub(super) fn elements(self, dims: &Dims) -> u128 {
        let axes = self.tensor.row().shape;
        let elements = |axes: &[super::dims::Dim]| axes.iter().fold(1_u128, |n, &dim| n.saturating_mul(dims.get(dim)));
        match self.role {
            Role::RowScale => elements(axes.get(..1).unwrap_or(axes)),
            role if role.row().is_per_block => elements(axes).div_ceil(u128::from(QUANTISATION_BLOCK)),
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
