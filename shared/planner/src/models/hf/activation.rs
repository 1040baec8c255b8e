//! Activation functions: `ACT2FN`.
//!
//! Source: transformers/activations.py (5.17).

use crate::torch::{Tensor, Torch};

/// An activation function, as far as it determines memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `silu`.
    Silu,
    /// `gelu` or `gelu_pytorch_tanh`: one kernel.
    Gelu,
    /// `gelu_new`: one kernel for each operation of its formula.
    GeluNew,
}

/// Names of the activation functions.
const NAMES: [(&str, Activation); 4] = [
    ("silu", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu_pytorch_tanh", Activation::Gelu),
    ("gelu_new", Activation::GeluNew),
];

impl Activation {
    /// Names of the supported functions.
    pub const SUPPORTED: &str = "silu, gelu, gelu_pytorch_tanh, gelu_new";

    /// The function with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find_map(|(other, activation)| (*other == name).then_some(*activation))
    }

    pub(super) fn forward(self, torch: &Torch, x: &Tensor) -> Tensor {
        match self {
            Self::Silu => torch.silu(x),
            Self::Gelu => torch.gelu(x),
            Self::GeluNew => gelu_new(torch, x),
        }
    }
}

/// `0.5 * x * (1.0 + torch.tanh(sqrt(2.0 / pi) * (x + 0.044715 * torch.pow(x, 3.0))))`.
fn gelu_new(torch: &Torch, x: &Tensor) -> Tensor {
    let half = torch.scale(x);
    let cubed = torch.scale(&torch.pow(x));
    let sum = torch.add(x, &cubed);
    drop(cubed);
    let scaled = torch.scale(&sum);
    drop(sum);
    let tanh = torch.function("tanh", &scaled);
    drop(scaled);
    let factor = torch.offset(&tanh);
    drop(tanh);
    let product = torch.mul(&half, &factor);
    drop(half);
    drop(factor);
    product
}
