//! The tensors that a program stores: nanoGPT's table, or those that the engine derived from a model.

use std::sync::Arc;

use crate::{
    dtype::Dtype,
    gpt::tensors::{Category, Dims, Lifetime, TensorBytes, TensorId, round_up},
};

/// Batch that determines a section's shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Batch {
    /// The training batch, `batch_size`.
    Train,
    /// The evaluation batch, `eval_batch_size`.
    Eval,
}

/// A tensor that the engine derived from a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DerivedTensor {
    /// Name for the user, with `*` for the number of its block.
    pub name: String,
    /// Module, as in PyTorch's `named_modules`, with `*` for the number of its block. A tensor outside of the model has
    /// the name of a part of the training script.
    pub module: String,
    /// Source line that allocates it, as in `model.py:67 forward`. Empty if it is unknown.
    pub source: Arc<str>,
    /// Category of the tensor.
    pub category: Category,
    /// Reason for its lifetime.
    pub lifetime: Lifetime,
    /// Shape, slowest axis first.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: Dtype,
    /// Size of the elements, without the allocator's rounding.
    pub bytes: u64,
}

/// Identity of a stored tensor. The tensors of several blocks have the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoredTensor {
    /// A tensor of nanoGPT's table.
    Gpt(TensorId),
    /// A tensor of another model.
    Derived(Arc<DerivedTensor>),
}

impl StoredTensor {
    /// Name for the user.
    #[must_use]
    pub fn name(&self, layer: Option<u64>) -> String {
        self.name_in(layer.map(|layer| layer.to_string()).as_deref())
    }

    /// Name in a block, or in several blocks such as `0–11`.
    #[must_use]
    pub fn name_in(&self, block: Option<&str>) -> String {
        match self {
            Self::Gpt(id) => id.name_in(block),
            Self::Derived(tensor) => tensor.name.replace('*', block.unwrap_or("*")),
        }
    }

    /// Module of the tensor or of its parameter. `block` is that of [`Self::name_in`].
    #[must_use]
    pub fn module_in(&self, block: Option<&str>) -> String {
        match self {
            Self::Gpt(id) => id.module_in(block),
            Self::Derived(tensor) => tensor.module.replace('*', block.unwrap_or("*")),
        }
    }

    /// Source line that allocates the tensor, as in `model.py:67 forward`. Empty if it is unknown.
    #[must_use]
    pub fn source(&self) -> &str {
        match self {
            Self::Gpt(_) => "",
            Self::Derived(tensor) => &tensor.source,
        }
    }

    /// Category of the tensor.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Gpt(id) => id.category(),
            Self::Derived(tensor) => tensor.category,
        }
    }

    /// Reason for the tensor's lifetime.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        match self {
            Self::Gpt(id) => id.lifetime(),
            Self::Derived(tensor) => tensor.lifetime,
        }
    }
}

/// Shapes and sizes of nanoGPT's tensors with both batches.
#[derive(Clone, Debug)]
pub struct GptTensors {
    /// Shapes of the training batch.
    pub dims: Dims,
    /// Shapes of the evaluation batch.
    pub eval_dims: Dims,
    /// Bytes of the training batch's tensors.
    pub bytes: TensorBytes,
    /// Bytes of the evaluation batch's tensors.
    pub eval_bytes: TensorBytes,
}

impl GptTensors {
    /// Shapes and sizes of a section's tensors.
    #[must_use]
    pub fn sizes(&self, batch: Batch) -> (&Dims, &TensorBytes) {
        match batch {
            Batch::Train => (&self.dims, &self.bytes),
            Batch::Eval => (&self.eval_dims, &self.eval_bytes),
        }
    }
}

/// The tensors of a program by the codes of its events.
#[derive(Clone, Debug)]
pub enum TensorTable {
    /// nanoGPT's table; a code is a [`TensorId::code`].
    Gpt(Box<GptTensors>),
    /// Tensors that the engine derived; a code is an index.
    Derived(Vec<Arc<DerivedTensor>>),
}

/// A stored tensor with its shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Identity of the tensor.
    pub stored: StoredTensor,
    /// Shape, slowest axis first.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: Dtype,
    /// Size in the allocator in bytes.
    pub bytes: u64,
}

/// Bytes and category of every code, looked up once per run instead of once per event.
pub(super) type Codes = Vec<(u64, u8)>;

impl TensorTable {
    /// Bytes in the allocator and category of every code, with the shapes of the training batch and of the evaluation
    /// batch.
    pub(super) fn codes(&self) -> [Codes; 2] {
        match self {
            Self::Gpt(tensors) => {
                let train = codes(&tensors.bytes);
                let eval = if tensors.eval_dims == tensors.dims { train.clone() } else { codes(&tensors.eval_bytes) };
                [train, eval]
            }
            Self::Derived(tensors) => {
                let codes: Codes =
                    tensors.iter().map(|tensor| (round_up(tensor.bytes), tensor.category as u8)).collect();
                [codes.clone(), codes]
            }
        }
    }

    /// Bytes in the allocator of the tensor with a code, or 0.
    #[must_use]
    pub fn bytes(&self, code: u16, batch: Batch) -> u64 {
        match self {
            Self::Gpt(tensors) => TensorId::from_code(code).map_or(0, |id| tensors.sizes(batch).1.of(id)),
            Self::Derived(tensors) => tensors.get(usize::from(code)).map_or(0, |tensor| round_up(tensor.bytes)),
        }
    }

    /// The tensor with a code; `None` if the table has none.
    #[must_use]
    pub fn get(&self, code: u16, batch: Batch) -> Option<TensorInfo> {
        match self {
            Self::Gpt(tensors) => {
                let id = TensorId::from_code(code)?;
                let (dims, bytes) = tensors.sizes(batch);
                Some(TensorInfo {
                    stored: StoredTensor::Gpt(id),
                    shape: id.shape(dims).as_slice().to_vec(),
                    dtype: id.dtype(dims.compute),
                    bytes: bytes.of(id),
                })
            }
            Self::Derived(tensors) => {
                let tensor = tensors.get(usize::from(code))?;
                Some(TensorInfo {
                    stored: StoredTensor::Derived(Arc::clone(tensor)),
                    shape: tensor.shape.clone(),
                    dtype: tensor.dtype,
                    bytes: round_up(tensor.bytes),
                })
            }
        }
    }
}

fn codes(bytes: &TensorBytes) -> Codes {
    let all = (0..TensorId::N_CODES).filter_map(|code| TensorId::from_code(u16::try_from(code).ok()?));
    all.map(|stored| (bytes.of(stored), stored.category() as u8)).collect()
}
