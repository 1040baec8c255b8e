//! Products with a frozen weight that bitsandbytes stores in 4 or 8 bits, and its quantization.
//!
//! Source: bitsandbytes 0.50, functional.py, autograd/_functions.py and backends/cuda/ops.py.

use std::rc::Rc;

use super::{Gradients, Op};
use crate::{
    dtype::Dtype,
    torch::{Tensor, Torch},
};

/// Values that share a scale.
const BLOCK: u64 = 64;
/// Scales that share a scale, with double quantization.
const NESTED_BLOCK: u64 = 256;
/// Values of a code of 8 bits.
const CODE: u64 = 256;

/// How weights are stored in 4 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FourBit {
    /// `bnb_4bit_use_double_quant`: whether the scales are quantized too.
    pub is_nested: bool,
    /// `bnb_4bit_quant_storage`: the dtype that holds the packed values.
    pub storage: Dtype,
}

/// A weight in 4 bits.
#[derive(Clone, Debug)]
pub struct Weight4Bit {
    /// Outputs and inputs.
    sizes: [u64; 2],
    /// Dtype of the weight before its quantization, in which backward restores it.
    dtype: Dtype,
    is_nested: bool,
    /// The packed values and the `QuantState`.
    _tensors: Rc<[Tensor]>,
}

/// A weight in 8 bits.
#[derive(Clone, Debug)]
pub struct Weight8Bit {
    /// Outputs and inputs.
    sizes: [u64; 2],
    /// The scales and the weight.
    _tensors: Rc<[Tensor]>,
}

impl Weight4Bit {
    /// Blocks of the weight.
    fn blocks(&self) -> u64 {
        self.sizes[0].saturating_mul(self.sizes[1]).div_ceil(BLOCK)
    }
}

impl Torch {
    /// `quantize_4bit(weight)` of a weight (output, input). The first call makes the code of the scales.
    #[must_use]
    pub fn quantize_4bit(&self, weight: &Tensor, format: FourBit, code: &mut Option<Tensor>) -> Weight4Bit {
        let sizes = [1, 0].map(|n| weight.layout().from_last(n));
        let contiguous = self.contiguous(weight);
        let elements = weight.layout().elements();
        let scales = |name, n: u64| self.buffer(name, &[n], Dtype::Float32);
        let blocks = elements.div_ceil(BLOCK);
        let absmax = scales("absmax", blocks);
        let packed = self.buffer("weight in 4 bits", &[(elements + 1) / (2 * format.storage.bytes())], format.storage);
        let table = scales("code of 4 bits", 16);
        let magnitudes = self.empty("magnitudes", &[16], Dtype::Float32);
        let maximum = self.empty("maximum", &[], Dtype::Float32);
        drop((magnitudes, maximum));
        let mut tensors = vec![packed, table];
        if format.is_nested {
            tensors.extend(self.quantize_absmax(blocks, code));
            drop(absmax);
        } else {
            tensors.push(absmax);
        }
        drop(contiguous);
        Weight4Bit { sizes, dtype: weight.dtype(), is_nested: format.is_nested, _tensors: tensors.into() }
    }

    /// Double quantization of scales: their mean, their scales, their values, and a copy of the code.
    fn quantize_absmax(&self, blocks: u64, code: &mut Option<Tensor>) -> [Tensor; 4] {
        let scales = |name, n: u64| self.buffer(name, &[n], Dtype::Float32);
        let offset = self.buffer("offset of absmax", &[], Dtype::Float32);
        let _centered = self.empty("centered absmax", &[blocks], Dtype::Float32);
        code.get_or_insert_with(|| scales("code of 8 bits", CODE));
        let nested = scales("absmax of absmax", blocks.div_ceil(NESTED_BLOCK));
        let quantized = self.buffer("absmax in 8 bits", &[blocks], Dtype::Uint8);
        [offset, nested, quantized, scales("code of 8 bits", CODE)]
    }

    /// `matmul_4bit(x, weight, bias)`.
    #[must_use]
    pub fn matmul_4bit(&self, x: &Tensor, weight: &Weight4Bit, bias: Option<&Tensor>) -> Tensor {
        let recording = self.record(&[x]);
        let mut out = self.gemm_4bit(&x.detached(), weight, bias);
        recording.finish(Op::Matmul4Bit(weight.clone()), &mut [&mut out]);
        out
    }

    /// `gemm_4bit`: restores the weight in the dtype of the input, unless the input has few rows.
    fn gemm_4bit(&self, x: &Tensor, weight: &Weight4Bit, bias: Option<&Tensor>) -> Tensor {
        let scales = |name| self.empty(name, &[weight.blocks()], Dtype::Float32);
        let dequantized = weight.is_nested.then(|| [scales("absmax without offset"), scales("absmax")]);
        let restored = self.empty("restored weight", &weight.sizes, x.dtype());
        let out = self.linear(x, &restored, bias);
        if let Some([without_offset, absmax]) = dequantized {
            drop((absmax, without_offset));
        }
        out
    }

    /// `torch.matmul(gradient, dequantize_4bit(weight))`.
    pub(super) fn matmul_4bit_backward(
        &self,
        gradients: Gradients<'_>,
        gradient: &Tensor,
        weight: &Weight4Bit,
    ) -> Vec<Option<Tensor>> {
        let restored = self.dequantize_4bit(weight);
        let restored = self.cast(&restored, gradient.dtype());
        vec![gradients.needs(0).then(|| self.product(gradient, &restored))]
    }

    /// `torch.matmul(x, matrix)` of a tensor and a matrix.
    fn product(&self, x: &Tensor, matrix: &Tensor) -> Tensor {
        let sizes = self.rows(x).layout().narrowed(matrix.layout().from_last(0));
        let out = self.empty("gradient of linear", sizes.sizes(), x.dtype());
        self.cublas_workspace();
        if sizes.sizes().len() == 2 { out } else { out.into_view() }
    }

    fn dequantize_4bit(&self, weight: &Weight4Bit) -> Tensor {
        let _absmax = weight.is_nested.then(|| self.empty("absmax", &[weight.blocks()], Dtype::Float32));
        self.empty("restored weight", &weight.sizes, weight.dtype)
    }

    /// Quantizes a weight (output, input) with a scale for each row.
    #[must_use]
    pub fn quantize_8bit(&self, weight: &Tensor) -> Weight8Bit {
        let sizes = [1, 0].map(|n| weight.layout().from_last(n));
        let _half = self.empty("weight in float16", &sizes, Dtype::Float16);
        let scb = self.buffer("scales of rows", &sizes[..1], Dtype::Float32);
        let cb = self.buffer("weight in 8 bits", &sizes, Dtype::Int8);
        Weight8Bit { sizes, _tensors: Rc::new([scb, cb]) }
    }

    /// `MatMul8bitLt` with a threshold for outliers, of which the input has none. A bias is added in place.
    #[must_use]
    pub fn matmul_8bit(&self, x: &Tensor, weight: &Weight8Bit) -> Tensor {
        let recording = self.record(&[x]);
        let [inputs, outputs] = [x.layout().from_last(0), weight.sizes[0]];
        let rows = x.layout().elements() / inputs.max(1);
        let held = self.rows(&x.detached());
        let [_scales, _quantized] = self.quantize_rows(&held, [rows, inputs]);
        let product = self.empty("product in int32", &[rows, outputs], Dtype::Int32);
        let half = self.empty("product in float16", &[rows, outputs], Dtype::Float16);
        let out = if x.dtype() == Dtype::Float16 { half } else { self.empty("linear", half.sizes(), x.dtype()) };
        drop(product);
        let mut out = out.with_layout(x.layout().narrowed(outputs).dense());
        recording.finish(Op::Matmul8Bit(Box::new((weight.clone(), held))), &mut [&mut out]);
        out
    }

    /// `int8_vectorwise_quant`: the scales of rows, and the rows in 8 bits.
    fn quantize_rows(&self, x: &Tensor, sizes: [u64; 2]) -> [Tensor; 2] {
        let _half = (x.dtype() != Dtype::Float16).then(|| self.empty("input in float16", &sizes, Dtype::Float16));
        let scales = self.empty("scales of rows", &sizes[..1], Dtype::Float32);
        let quantized = self.empty("input in 8 bits", &sizes, Dtype::Int8);
        let magnitudes = self.empty("magnitudes", &sizes, Dtype::Float16);
        let _outliers = self.empty("outliers", &sizes, Dtype::Bool);
        drop(magnitudes);
        drop(self.empty("whether there are outliers", &[], Dtype::Bool));
        [scales, quantized]
    }

    /// Restores the weight in the dtype of the input.
    pub(super) fn matmul_8bit_backward(
        &self,
        gradients: Gradients<'_>,
        gradient: &Tensor,
        weight: &Weight8Bit,
        x: &Tensor,
    ) -> Vec<Option<Tensor>> {
        let gradient = self.contiguous(gradient);
        let restored = self.empty("restored weight", &weight.sizes, x.dtype());
        drop(self.empty("scales of rows", &[weight.sizes[0], 1], Dtype::Float32));
        let gradient = self.cast(&gradient, x.dtype());
        vec![gradients.needs(0).then(|| self.product(&gradient, &restored))]
    }
}
