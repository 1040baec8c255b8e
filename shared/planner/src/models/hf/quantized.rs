//! Quantized models: `BitsAndBytesConfig`, the loading of a checkpoint, and `prepare_model_for_kbit_training`.
//!
//! Source: transformers 5.17 (core_model_loading.py, modeling_utils.py, integrations/bitsandbytes.py),
//! bitsandbytes 0.50 (nn/modules.py) and PEFT 0.21 (utils/other.py).

use std::cell::RefCell;

use crate::{
    dtype::Dtype,
    torch::{FourBit, Tensor, Torch, Weight4Bit, Weight8Bit},
};

/// `BitsAndBytesConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantization {
    /// `load_in_4bit`.
    FourBit {
        /// The format of the weights.
        format: FourBit,
        /// `bnb_4bit_compute_dtype`.
        compute: Dtype,
    },
    /// `load_in_8bit`.
    EightBit,
}

impl Quantization {
    /// Bytes that the loading expects for a weight with this number of elements.
    fn expected_bytes(self, elements: u64) -> u64 {
        match self {
            Self::FourBit { .. } => elements / 2,
            Self::EightBit => elements,
        }
    }
}

/// A checkpoint that is loaded with quantization.
#[derive(Debug)]
pub struct Checkpoint<'t> {
    pub torch: &'t Torch,
    quantization: Quantization,
    dtype: Dtype,
    /// The code of 8 bits, which bitsandbytes keeps.
    code: RefCell<Option<Tensor>>,
}

impl<'t> Checkpoint<'t> {
    pub fn new(torch: &'t Torch, quantization: Quantization, dtype: Dtype) -> Self {
        Self { torch, quantization, dtype, code: RefCell::default() }
    }

    /// `caching_allocator_warmup`, for weights that are quantized and for others, in elements.
    pub fn warm_up(&self, quantized: u64, others: u64) {
        let bytes = self.quantization.expected_bytes(quantized) + others * self.dtype.bytes();
        drop(self.torch.empty("reservation for the weights", &[bytes / 2], Dtype::Float16));
    }

    /// Loads a parameter of the model on the meta device.
    pub fn load(&self, name: &'static str, parameter: &mut Tensor) {
        *parameter = self.torch.parameter_like(name, parameter, self.dtype);
    }

    /// Loads the weight of a linear layer and quantizes it.
    ///
    /// The weight of a `Conv1D` is transposed.
    pub fn load_quantized(&self, weight: &Tensor, is_conv1d: bool, bias: Option<Tensor>) -> QuantizedLinear {
        let torch = self.torch;
        let mut full = torch.empty("weight", weight.sizes(), self.dtype);
        if is_conv1d {
            full = torch.transpose(&full, [0, 1]);
        }
        let weight = match self.quantization {
            Quantization::FourBit { format, compute } => {
                Weight::FourBit(torch.quantize_4bit(&full, format, &mut self.code.borrow_mut()), compute)
            }
            Quantization::EightBit => Weight::EightBit(torch.quantize_8bit(&full)),
        };
        QuantizedLinear { weight, bias: RefCell::new(bias) }
    }

    /// The code of 8 bits, which outlives the checkpoint.
    pub fn into_code(self) -> Option<Tensor> {
        self.code.into_inner()
    }
}

#[derive(Clone, Debug)]
enum Weight {
    /// With the dtype of products.
    FourBit(Weight4Bit, Dtype),
    EightBit(Weight8Bit),
}

/// `Linear4bit` or `Linear8bitLt`.
#[derive(Clone, Debug)]
pub struct QuantizedLinear {
    weight: Weight,
    /// The bias, which the first forward converts to the dtype of the product.
    bias: RefCell<Option<Tensor>>,
}

impl QuantizedLinear {
    /// The dtype in which PEFT creates adapters.
    pub fn adapter_dtype(&self) -> Dtype {
        match self.weight {
            Weight::FourBit(_, compute) => compute,
            Weight::EightBit(_) => Dtype::Float32,
        }
    }

    /// Whether PEFT copies the output before it adds that of an adapter.
    pub fn copies_output(&self) -> bool {
        matches!(self.weight, Weight::FourBit(..))
    }

    pub fn bias(&mut self) -> Option<&mut Tensor> {
        self.bias.get_mut().as_mut()
    }

    /// `Linear4bit.forward` or `Linear8bitLt.forward`.
    pub fn forward(&self, torch: &Torch, x: &Tensor) -> Tensor {
        let convert_bias = |dtype| {
            if let Some(bias) = &mut *self.bias.borrow_mut() {
                torch.cast_parameter(bias, dtype);
            }
        };
        match &self.weight {
            Weight::FourBit(weight, compute) => {
                let inp_dtype = x.dtype();
                let x = torch.cast(x, *compute);
                convert_bias(x.dtype());
                let product = torch.matmul_4bit(&x, weight, self.bias.borrow().as_ref());
                torch.cast(&product, inp_dtype)
            }
            Weight::EightBit(weight) => {
                convert_bias(x.dtype());
                torch.matmul_8bit(x, weight)
            }
        }
    }
}
