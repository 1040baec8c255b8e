//! Operations: what ATen allocates in forward and in backward, and what autograd saves.

mod attention;
mod linear;
mod loss;
mod norm;
mod pointwise;
mod shape;

pub use loss::CrossEntropyInput;

use super::{Torch, layout::Layout, tensor::Tensor};
use crate::dtype::Dtype;

/// The differentiable operation of a node, with what its backward needs besides saved tensors.
#[derive(Clone, Debug)]
pub enum Op {
    /// `view`, of a tensor with this layout.
    View(Layout),
    /// `transpose` of two axes, counted from the last one.
    Transpose([usize; 2]),
    /// `contiguous` with a copy.
    Copy,
    /// `split` along the last axis, of a tensor with this layout.
    Split(Layout),
    /// `constant_pad_nd` of the last axis, of a tensor with this layout.
    Pad(Layout),
    /// A slice or a selected element, of a tensor with this layout.
    Slice(Layout),
    /// `cat` of two tensors along an axis counted from the last one, with their sizes there.
    Cat(usize, [u64; 2]),
    /// `to`, from this dtype.
    Cast(Dtype),
    /// Sum of two tensors.
    Add,
    /// Difference of two tensors.
    Sub,
    /// Product of two tensors.
    Mul,
    /// A function whose backward needs its result: `sigmoid`, `tanh` or `relu`.
    OfResult,
    /// `square`.
    Square,
    /// Product with, or quotient by, a Python number.
    Scale,
    /// `native_dropout`.
    Dropout,
    /// `masked_fill`.
    MaskedFill,
    /// `gelu`.
    Gelu,
    /// `_fused_rms_norm` without a weight.
    RmsNorm,
    /// `native_layer_norm`.
    LayerNorm,
    /// `_softmax` or `_log_softmax`, of a tensor with this dtype.
    Softmax(Dtype),
    /// `embedding` with a weight of this layout.
    Embedding(Layout),
    /// `addmm` with a bias, or `mm` without.
    Linear,
    /// `bmm`.
    Bmm,
    /// A fused kernel of `scaled_dot_product_attention`.
    Attention(attention::Fused),
    /// `nll_loss`.
    NllLoss,
    /// A cross-entropy that computes the logits by itself.
    LinearCrossEntropy(CrossEntropyInput),
}

/// Gradients that a node receives, and those that it must compute.
#[derive(Clone, Copy, Debug)]
pub struct Gradients<'a> {
    /// Gradient of each output.
    pub outputs: &'a [Option<Tensor>],
    /// Whether each input requires a gradient.
    pub needs: &'a [bool],
}

impl Gradients<'_> {
    fn needs(&self, input: usize) -> bool {
        self.needs.get(input) == Some(&true)
    }
}

impl Op {
    /// Computes the gradients of the inputs.
    pub fn backward(&self, torch: &Torch, gradients: Gradients<'_>, saved: Vec<Option<Tensor>>) -> Vec<Option<Tensor>> {
        let Some(gradient) = gradients.outputs.iter().flatten().next() else { return Vec::new() };
        match self {
            Self::View(layout) => vec![Some(torch.reshaped(gradient, layout.sizes()))],
            Self::Transpose(axes) => vec![Some(gradient.with_layout(gradient.layout().transposed(*axes)))],
            Self::Copy => vec![Some(gradient.clone())],
            Self::Split(layout) => vec![Some(torch.empty("gradient of split", layout.sizes(), gradient.dtype()))],
            Self::Pad(layout) => vec![Some(torch.empty("gradient of padding", layout.sizes(), gradient.dtype()))],
            Self::Slice(layout) => vec![Some(torch.empty("gradient of a slice", layout.sizes(), gradient.dtype()))],
            Self::Cat(axis, sizes) => {
                let part = |&size: &u64| Some(gradient.with_layout(gradient.layout().sliced(*axis, size)));
                sizes.iter().map(part).collect()
            }
            Self::Sub => {
                let negated = gradients.needs(1).then(|| torch.like("negated gradient", gradient, gradient.dtype()));
                vec![gradients.needs(0).then(|| gradient.clone()), negated]
            }
            Self::Mul => torch.mul_backward(gradients, gradient),
            Self::OfResult => vec![Some(torch.like("gradient of a function", gradient, gradient.dtype()))],
            Self::Square => torch.square_backward(gradient),
            Self::RmsNorm => vec![Some(torch.like("gradient of rms_norm", gradient, gradient.dtype()))],
            Self::Cast(from) => vec![Some(torch.like("gradient of a cast", gradient, *from))],
            Self::Add => gradients.needs.iter().map(|&needs| needs.then(|| gradient.clone())).collect(),
            Self::Scale => vec![Some(torch.like("gradient of a product with a number", gradient, gradient.dtype()))],
            Self::Dropout => vec![Some(torch.like("gradient of dropout", gradient, gradient.dtype()))],
            Self::MaskedFill => vec![Some(torch.like("gradient of masked_fill", gradient, gradient.dtype()))],
            Self::Gelu => vec![Some(torch.like("gradient of gelu", gradient, gradient.dtype()))],
            Self::LayerNorm => torch.layer_norm_backward(gradients, gradient),
            Self::Softmax(dtype) => vec![Some(torch.like("gradient of softmax", gradient, *dtype))],
            Self::Embedding(weight) => vec![Some(torch.embedding_backward(weight, gradient))],
            Self::Linear => torch.linear_backward(gradients, gradient, &saved),
            Self::Bmm => torch.bmm_backward(gradients, gradient, &saved),
            Self::Attention(kernel) => torch.fused_attention_backward(kernel, gradient, &saved),
            Self::NllLoss => torch.nll_loss_backward(&saved),
            Self::LinearCrossEntropy(input) => torch.linear_cross_entropy_backward(*input, saved),
        }
    }
}
