//! Operations: what ATen allocates in forward and in backward, and what autograd saves.

mod attention;
mod bitsandbytes;
mod linear;
mod loss;
mod norm;
mod pointwise;
mod reduction;
mod reentrant;
mod shape;

pub use bitsandbytes::{FourBit, Weight4Bit, Weight8Bit};
pub use loss::CrossEntropyInput;
pub(crate) use norm::embedding_backward_numbers;
pub(crate) use reduction::row_sum_bytes;

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
    /// Another extent of a tensor with this layout: `split`, a slice, an element, or padding. Its gradient has the name.
    Extent(&'static str, Layout),
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
    /// An operation of one input, whose backward allocates the gradient only, with this name.
    Unary(&'static str),
    /// `square`, or another power.
    Square,
    /// `mean` over the last axis, of a tensor with this layout.
    Mean(Layout),
    /// `rsqrt`.
    Rsqrt,
    /// `native_layer_norm`.
    LayerNorm,
    /// `_softmax`, of a tensor with this dtype.
    Softmax(Dtype),
    /// `_log_softmax`, of a tensor with this dtype.
    LogSoftmax(Dtype),
    /// `embedding` with a weight of this layout.
    Embedding(Layout),
    /// `addmm` with a bias, or `mm` without.
    Linear,
    /// `addmm` with a weight whose first axis is the input's.
    Addmm,
    /// `bmm` of factors with these layouts.
    Bmm([Layout; 2]),
    /// `matmul_4bit` with this weight.
    Matmul4Bit(Weight4Bit),
    /// bitsandbytes' `matmul` with this weight. The node holds the input.
    Matmul8Bit(Box<(Weight8Bit, Tensor)>),
    /// Repetition of the heads of a tensor with this layout.
    RepeatHeads(Layout),
    /// A fused kernel of `scaled_dot_product_attention`.
    Attention(attention::Fused),
    /// `nll_loss`.
    NllLoss,
    /// `torch.utils.checkpoint` with `use_reentrant=True`.
    Reentrant(reentrant::Call),
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

/// What a node holds after its backward.
#[derive(Debug)]
#[expect(dead_code, reason = "holding a reference is the purpose")]
pub enum Held {
    /// The input of a layer.
    Input(Tensor),
    /// A checkpointed call, with all arguments of its function.
    Call(reentrant::Call),
}

impl Op {
    /// What the node holds until the graph ends.
    pub fn into_held(self) -> Option<Held> {
        match self {
            Self::Matmul8Bit(of) => Some(Held::Input(of.1)),
            Self::Reentrant(call) => Some(Held::Call(call)),
            _ => None,
        }
    }

    /// Computes the gradients of the inputs.
    pub fn backward(&self, torch: &Torch, gradients: Gradients<'_>, saved: Vec<Option<Tensor>>) -> Vec<Option<Tensor>> {
        let Some(gradient) = gradients.outputs.iter().flatten().next() else { return Vec::new() };
        match self {
            Self::View(layout) => vec![Some(torch.reshaped(gradient, layout.sizes()))],
            Self::Transpose(axes) => vec![Some(gradient.with_layout(gradient.layout().transposed(*axes)))],
            Self::Copy => vec![Some(gradient.clone())],
            Self::Extent(name, layout) => vec![Some(torch.empty(name, layout.sizes(), gradient.dtype()))],
            Self::Cat(axis, sizes) => {
                let part = |&size: &u64| Some(gradient.with_layout(gradient.layout().sliced(*axis, size)));
                sizes.iter().map(part).collect()
            }
            Self::Sub => {
                let negated = gradients.needs(1).then(|| torch.like("negated gradient", gradient, gradient.dtype()));
                vec![gradients.needs(0).then(|| gradient.clone()), negated]
            }
            Self::Mul => torch.mul_backward(gradients, gradient),
            Self::Unary(name) => vec![Some(torch.like(name, gradient, gradient.dtype()))],
            Self::Square => torch.square_backward(gradient),
            Self::Mean(layout) => vec![Some(torch.empty("gradient of a mean", layout.sizes(), gradient.dtype()))],
            Self::Rsqrt => torch.rsqrt_backward(gradient),
            Self::Cast(from) => vec![Some(torch.like("gradient of a cast", gradient, *from))],
            Self::Add => gradients.needs.iter().map(|&needs| needs.then(|| gradient.clone())).collect(),
            Self::LayerNorm => torch.layer_norm_backward(gradients, gradient),
            Self::Softmax(dtype) => vec![Some(torch.softmax_backward(gradient, *dtype))],
            Self::LogSoftmax(dtype) => vec![Some(torch.like("gradient of softmax", gradient, *dtype))],
            Self::Embedding(weight) => vec![Some(torch.embedding_backward(weight, gradient))],
            Self::Linear => torch.linear_backward(gradients, gradient, &saved),
            Self::Addmm => torch.addmm_backward(gradients, gradient, &saved),
            Self::RepeatHeads(layout) => {
                vec![Some(torch.empty("gradient of repeated heads", layout.sizes(), gradient.dtype()))]
            }
            Self::Matmul4Bit(weight) => torch.matmul_4bit_backward(gradients, gradient, weight),
            Self::Matmul8Bit(of) => torch.matmul_8bit_backward(gradients, gradient, &of.0, &of.1),
            Self::Bmm(factors) => torch.bmm_backward(gradients, gradient, factors),
            Self::Attention(kernel) => torch.fused_attention_backward(kernel, gradient, &saved),
            Self::NllLoss => torch.nll_loss_backward(&saved),
            Self::Reentrant(call) => torch.reentrant_backward(call, gradient, saved.into_iter().next().flatten()),
            Self::LinearCrossEntropy(input) => torch.linear_cross_entropy_backward(*input, saved),
        }
    }
}
