//! Tensors of a pickle of `torch.save`: calls that rebuild a tensor as a view of a storage outside the pickle.

use headroom_tokenizer::pickle::{Call, Id, Pickle, Value};

use super::PytorchError;

/// The storage that holds a tensor's elements in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The name of its file below `data/`.
    pub key: String,
    /// The name of PyTorch's class, such as `FloatStorage`.
    pub class: String,
}

/// A tensor: a view of a storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The storage with its elements.
    pub storage: Storage,
    /// The index of its first element in the storage.
    pub offset: u64,
    /// The size of each axis, slowest first.
    pub shape: Vec<u64>,
    /// The distance between consecutive indices of each axis, in elements.
    pub stride: Vec<u64>,
}

impl Tensor {
    /// Reads the tensor of a value. `None` for other values.
    ///
    /// # Errors
    /// It has no storage or no shape.
    pub fn read(pickle: &Pickle, value: &Value) -> Result<Option<Self>, PytorchError> {
        let Some(mut call) = call_of(value) else { return Ok(None) };
        if pickle.called(call) == Some("torch._utils _rebuild_parameter") {
            let tensor = pickle.items(pickle.value(call.args)).next().and_then(call_of);
            call = tensor.ok_or(PytorchError::Tensor)?;
        }
        match pickle.called(call) {
            Some("torch._utils _rebuild_tensor_v2" | "torch._utils _rebuild_tensor") => {
                Self::rebuilt(pickle, call).map(Some).ok_or(PytorchError::Tensor)
            }
            _ => Ok(None),
        }
    }

    fn rebuilt(pickle: &Pickle, call: &Call) -> Option<Self> {
        let mut args = pickle.items(pickle.value(call.args));
        let (storage, offset, shape, stride) = (args.next()?, args.next()?, args.next()?, args.next()?);
        let numbers = |list: &Value| match list {
            Value::List(items) => items.iter().map(|item| number(pickle.value(*item))).collect::<Option<Vec<u64>>>(),
            _ => None,
        };
        let Value::Persistent(name) = storage else { return None };
        Some(Self {
            storage: Storage::named(pickle, *name)?,
            offset: number(offset)?,
            shape: numbers(shape)?,
            stride: numbers(stride)?,
        })
    }
}

impl Storage {
    /// Reads the persistent id of a storage.
    fn named(pickle: &Pickle, id: Id) -> Option<Self> {
        let mut words = pickle.items(pickle.value(id));
        match (words.next()?, words.next()?, words.next()?) {
            (Value::Text(kind), Value::Global(class), Value::Text(key)) if kind == "storage" => {
                let class = class.rsplit(' ').next().unwrap_or_default().to_owned();
                Some(Self { key: key.clone(), class })
            }
            _ => None,
        }
    }
}

fn number(value: &Value) -> Option<u64> {
    if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None }
}

fn call_of(value: &Value) -> Option<&Call> {
    if let Value::Call(call) = value { Some(call) } else { None }
}
