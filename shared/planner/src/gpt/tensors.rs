//! The tensor table: every parameter, activation, gradient and workspace of a training step, with its name, module,
//! shape, dtype, category and lifetime. No other module defines the size of a tensor.
//!
//! Shapes list the slowest axis first. Parameters have nanoGPT's names, activations llm.c's.

use serde::{Deserialize, Serialize};

use crate::{dtype::Dtype, gpt::GptConfig};
use headroom_text::{self as text, Key, Text};

mod dims;
mod module;
mod parameters;
mod stored;
mod table;

pub use dims::{
    ATTENTION_BLOCK, BUCKET_WORDS, CROSS_ENTROPY_CHUNKS, Dims, EXCHANGE_BYTES, ResidentThreads, TENSOR_WORDS,
    token_words,
};
pub(crate) use dims::{CUBLASLT_WORKSPACE_BYTES, flash_splits, fused_chunk_tokens};
pub use parameters::{Parameter, parameters};
pub use stored::{Role, TensorId};
pub use table::Tensor;
use table::{Kind, Row, TABLE};

impl Dims {
    /// Dimensions of a model in float32, independent of any GPU: Headroom's own kernels, `b` sequences of `block_size`,
    /// one thread.
    #[must_use]
    pub fn without_gpu(config: &GptConfig, b: u64) -> Self {
        Self {
            b,
            t: config.block_size(),
            c: config.n_embd(),
            h: config.n_head(),
            v: config.vocab_size(),
            compute: Dtype::Float32,
            cublas_workspace_bytes: 0,
            efficient_workspace_bytes: 0,
            cudnn_workspace_bytes: 0,
            n_parameter_tensors: parameters(config).len() as u64,
            n_parameters: config.n_parameters().unwrap_or(u64::MAX),
            n_layer: config.n_layer(),
            resident_threads: ResidentThreads { sm_count: 1, threads_per_sm: 1 },
            threads: 1,
            trainer_parts: 0,
        }
    }
}

/// Category of a tensor; determines its colour in every chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    /// Weights, their buffers, and tensors that a resumed checkpoint retains.
    Parameters,
    /// Gradients of the weights, and intermediate tensors of their computation.
    Gradients,
    /// AdamW's moments and step counts.
    OptimizerState,
    /// Autocast's copies of the weights in the training dtype.
    CastCache,
    /// Activations of the blocks, and their gradients.
    Activations,
    /// Logits, log-probabilities, their gradients and the loss.
    LogitsAndLoss,
    /// Scratch memory of kernels.
    Workspace,
    /// Token indices and targets.
    Input,
}

impl Category {
    /// All categories, in the order in which charts stack them.
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

    /// Name in the JSON schema.
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

    /// Translation key of the name.
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

/// Reason for a tensor's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// From the start of the run to its end.
    Run,
    /// From the first optimizer step to the end of the run.
    FromFirstStep,
    /// From backward to `zero_grad`.
    UntilZeroGrad,
    /// Autocast keeps the tensor until the end of the forward, autograd until its use in backward.
    CastCache,
    /// Computed in forward and saved for backward.
    SavedForBackward,
    /// Held by a local variable of the forward function.
    ForwardLocal,
    /// Intermediate result inside forward or backward.
    Intermediate,
    /// `logits` and `loss` of train.py keep the last iteration's values until the next assignment.
    NameInTrainPy,
    /// A kernel's scratch memory, freed immediately.
    Scratch,
    /// The batch, until the next batch is fetched and its own backward has run.
    Batch,
}

/// Maximum tensor size of a plan, 32 TiB; with larger tensors, sums over a whole run could overflow `u64`.
pub const MAX_TENSOR_BYTES: u64 = 1 << 45;

/// Granularity of blocks in PyTorch's caching allocator, in bytes (c10 `kMinBlockSize`).
pub const BLOCK_BYTES: u64 = 512;

/// The shape of a tensor, slowest axis first; at most four axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    dims: [u64; 4],
    rank: u8,
}

impl Shape {
    /// Axes of the shape, slowest first.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }
}

impl Tensor {
    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Name for the user; a block's tensor has no block number.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Full name, with nanoGPT's prefix if the tensor belongs to block `layer`.
    #[must_use]
    pub fn full_name(self, layer: Option<u64>) -> String {
        module::in_block(layer.map(|layer| layer.to_string()).as_deref(), self.name())
    }

    /// Category of the tensor.
    #[must_use]
    pub fn category(self) -> Category {
        self.row().category
    }

    /// Reason for the tensor's lifetime.
    #[must_use]
    pub fn lifetime(self) -> Lifetime {
        self.row().lifetime
    }

    /// Element type with training dtype `compute`.
    #[must_use]
    pub fn dtype(self, compute: Dtype) -> Dtype {
        match self.row().kind {
            Kind::Compute => compute,
            Kind::Is(dtype) => dtype,
        }
    }

    /// Shape in a run with these dimensions.
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

/// Sizes of all tensors of the table in the allocator: rounded up to 512 bytes, and at least 512.
#[derive(Clone, Debug)]
pub struct TensorBytes {
    rounded: Vec<u64>,
    /// Number of elements by row, from which the optimizer's state follows.
    elements: Vec<u64>,
}

/// Error: a tensor of the run exceeds [`MAX_TENSOR_BYTES`].
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.text())]
pub struct TensorTooLarge {
    /// Name of the tensor.
    pub name: &'static str,
}

impl TensorTooLarge {
    /// Error message.
    #[must_use]
    pub fn text(&self) -> Text {
        text::tensor_too_large(self.name)
    }
}

impl TensorBytes {
    /// Evaluates the table for one run; `used` selects the rows that the run can store.
    ///
    /// # Errors
    /// [`TensorTooLarge`] if a used tensor exceeds [`MAX_TENSOR_BYTES`].
    pub fn new(dims: &Dims, used: impl Fn(Tensor) -> bool) -> Result<Self, TensorTooLarge> {
        let mut rounded = Vec::with_capacity(Tensor::ALL.len());
        let mut elements = Vec::with_capacity(Tensor::ALL.len());
        for &tensor in Tensor::ALL {
            let stored = TensorId::from(tensor);
            rounded.push(match stored.bytes(dims) {
                Some(bytes) if bytes <= MAX_TENSOR_BYTES => round_up(bytes),
                _ if used(tensor) => return Err(TensorTooLarge { name: tensor.name() }),
                _ => 0,
            });
            elements.push(u64::try_from(stored.elements(dims)).unwrap_or(0).min(MAX_TENSOR_BYTES));
        }
        Ok(Self { rounded, elements })
    }

    /// Size of a tensor in the allocator, in bytes.
    #[must_use]
    pub fn of(&self, stored: TensorId) -> u64 {
        let row = stored.tensor as usize;
        stored.role.state_bytes(self.elements[row]).map_or(self.rounded[row], round_up)
    }

    /// Number of elements of a tensor.
    #[must_use]
    pub fn elements(&self, tensor: Tensor) -> u64 {
        self.elements[tensor as usize]
    }
}

pub(crate) fn round_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES)
}
