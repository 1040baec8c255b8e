//! THE table of tensors: every parameter, activation, gradient and workspace a training step stores, with its name,
//! shape, dtype, category and lifetime. Nothing else in the product states the size of a tensor.
//!
//! Shapes are slowest axis first. Names are nanoGPT's for parameters and llm.c's for activations.

use serde::{Deserialize, Serialize};

use crate::{
    dtype::Dtype,
    text::{self, Key, Text},
};

mod dims;
mod parameters;
mod stored;
mod table;

pub use dims::{ATTENTION_BLOCK, CROSS_ENTROPY_CHUNKS, Dims, EXCHANGE_BYTES, ResidentThreads};
pub use parameters::{Parameter, parameters};
pub use stored::{Role, Stored};
pub use table::Tensor;
use table::{Kind, Row, TABLE};

/// What a tensor is for; the colour it has in every chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Weights, their buffers, and what a checkpoint being resumed keeps.
    Parameters,
    /// Gradients of the weights, and what is on the way to become one.
    Gradients,
    /// AdamW's moments and step counts.
    OptimizerState,
    /// Autocast's copies of the weights in the training dtype.
    CastCache,
    /// What the blocks compute, and the gradients of that.
    Activations,
    /// Logits, log-probabilities, their gradients and the loss.
    LogitsAndLoss,
    /// Scratch memory of kernels.
    Workspace,
    /// Token indices and targets.
    Input,
}

impl Category {
    /// All, in the order in which charts stack them.
    pub const ALL: [Self; 8] = [
        Self::Parameters,
        Self::Gradients,
        Self::OptimizerState,
        Self::CastCache,
        Self::Activations,
        Self::LogitsAndLoss,
        Self::Workspace,
        Self::Input,
    ];

    /// The name the JSON contract uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::OptimizerState => "optimizer_state",
            Self::CastCache => "cast_cache",
            Self::Activations => "activations",
            Self::LogitsAndLoss => "logits_and_loss",
            Self::Workspace => "workspace",
            Self::Input => "input",
        }
    }

    /// The name for a person.
    #[must_use]
    pub const fn text(self) -> Key {
        match self {
            Self::Parameters => text::CATEGORY_PARAMETERS,
            Self::Gradients => text::CATEGORY_GRADIENTS,
            Self::OptimizerState => text::CATEGORY_OPTIMIZER_STATE,
            Self::CastCache => text::CATEGORY_CAST_CACHE,
            Self::Activations => text::CATEGORY_ACTIVATIONS,
            Self::LogitsAndLoss => text::CATEGORY_LOGITS_AND_LOSS,
            Self::Workspace => text::CATEGORY_WORKSPACE,
            Self::Input => text::CATEGORY_INPUT,
        }
    }
}

/// Why a tensor is alive as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// From the start of the run to its end.
    Run,
    /// From the first optimizer step to the end of the run.
    FromFirstStep,
    /// From backward until `zero_grad`.
    UntilZeroGrad,
    /// Autocast keeps it until the forward's end, autograd until its use in backward.
    CastCache,
    /// Computed in forward and saved because its backward needs it.
    SavedForBackward,
    /// A name of the forward function still holds it.
    ForwardLocal,
    /// A step on the way inside forward or backward.
    Intermediate,
    /// `logits` and `loss` of train.py keep the last iteration's values until they are assigned anew.
    NameInTrainPy,
    /// A kernel's scratch memory, given back at once.
    Scratch,
    /// The batch, until the next is fetched and its own backward has run.
    Batch,
}

/// The largest tensor a plan is made for, 32 TiB: above it sums over a whole run could leave `u64`.
pub const MAX_TENSOR_BYTES: u64 = 1 << 45;

/// Every block of PyTorch's caching allocator is a multiple of this (c10 `kMinBlockSize`).
pub const BLOCK_BYTES: u64 = 512;

/// The shape of a tensor, slowest axis first; at most four axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    dims: [u64; 4],
    rank: u8,
}

impl Shape {
    /// The axes.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }
}

impl Tensor {
    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// The name a person knows it by; a block's tensor goes without the block's number.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The full name, with nanoGPT's prefix where it belongs to block `layer`.
    #[must_use]
    pub fn full_name(self, layer: Option<u64>) -> String {
        match layer {
            Some(layer) => format!("transformer.h.{layer}.{}", self.name()),
            None => self.name().to_owned(),
        }
    }

    /// What it is for.
    #[must_use]
    pub fn category(self) -> Category {
        self.row().category
    }

    /// Why it is alive as long as it is.
    #[must_use]
    pub fn lifetime(self) -> Lifetime {
        self.row().lifetime
    }

    /// Its element type under that training dtype.
    #[must_use]
    pub fn dtype(self, compute: Dtype) -> Dtype {
        match self.row().kind {
            Kind::Compute => compute,
            Kind::Is(dtype) => dtype,
        }
    }

    /// Its shape in that run.
    #[must_use]
    pub fn shape(self, dims: &Dims) -> Shape {
        let symbols = self.row().shape;
        let mut shape = Shape { dims: [1; 4], rank: u8::try_from(symbols.len()).unwrap_or(4) };
        for (axis, &dim) in shape.dims.iter_mut().zip(symbols) {
            *axis = u64::try_from(dims.get(dim)).unwrap_or(u64::MAX);
        }
        shape
    }
}

/// The bytes every tensor of the table takes in the allocator: rounded up to 512, and at least 512.
#[derive(Clone, Debug)]
pub struct TensorBytes {
    rounded: Vec<u64>,
    /// Bytes of the one-byte moment and its scales, by row; only parameters' rows are ever asked for.
    elements: Vec<u64>,
}

/// A tensor of the run is larger than any plan is made for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.text())]
pub struct TensorTooLarge {
    /// The tensor's name.
    pub name: &'static str,
}

impl TensorTooLarge {
    /// What is wrong.
    #[must_use]
    pub fn text(&self) -> Text {
        text::tensor_too_large(self.name)
    }
}

impl TensorBytes {
    /// Evaluates the table for one run; `used` says which rows the run can store at all.
    ///
    /// # Errors
    /// A used tensor is above [`MAX_TENSOR_BYTES`].
    pub fn new(dims: &Dims, used: impl Fn(Tensor) -> bool) -> Result<Self, TensorTooLarge> {
        let mut rounded = Vec::with_capacity(Tensor::ALL.len());
        let mut elements = Vec::with_capacity(Tensor::ALL.len());
        for &tensor in Tensor::ALL {
            let stored = Stored::from(tensor);
            rounded.push(match stored.bytes(dims) {
                Some(bytes) if bytes <= MAX_TENSOR_BYTES => round_up(bytes),
                _ if used(tensor) => return Err(TensorTooLarge { name: tensor.name() }),
                _ => 0,
            });
            elements.push(u64::try_from(stored.elements(dims)).unwrap_or(0).min(MAX_TENSOR_BYTES));
        }
        Ok(Self { rounded, elements })
    }

    /// Bytes of a tensor in the allocator.
    #[must_use]
    pub fn of(&self, stored: Stored) -> u64 {
        let row = stored.tensor as usize;
        match stored.role {
            Role::State1 | Role::State2 => round_up(self.elements[row]),
            Role::Absmax => round_up(4 * self.elements[row].div_ceil(256)),
            _ => self.rounded[row],
        }
    }

    /// Elements of a tensor.
    #[must_use]
    pub fn elements(&self, tensor: Tensor) -> u64 {
        self.elements[tensor as usize]
    }
}

fn round_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES)
}
