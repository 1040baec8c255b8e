//! The parameters of a model, in PyTorch's order.

use super::Tensor;
use crate::gpt::GptConfig;

/// One parameter tensor of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Row of the tensor table.
    pub tensor: Tensor,
    /// Row of the gradient.
    pub gradient: Tensor,
    /// Index of the block, if the parameter belongs to one.
    pub layer: Option<u64>,
    /// Whether AdamW applies weight decay: to matrices, not to vectors (nanoGPT's `configure_optimizers`).
    pub decayed: bool,
}

/// Every parameter in the order of PyTorch's `named_parameters`; the tied `lm_head.weight` is `wte`.
#[must_use]
pub fn parameters(config: &GptConfig) -> Vec<Parameter> {
    let bias = config.bias();
    let matrix = |tensor, gradient, layer| Parameter { tensor, gradient, layer, decayed: true };
    let vector = |tensor, gradient, layer| Parameter { tensor, gradient, layer, decayed: false };
    let mut all = vec![matrix(Tensor::Wte, Tensor::Dwte, None), matrix(Tensor::Wpe, Tensor::Dwpe, None)];
    for layer in (0..config.n_layer()).map(Some) {
        let block = [
            vector(Tensor::Ln1W, Tensor::DvecC, layer),
            vector(Tensor::Ln1B, Tensor::DvecC, layer),
            matrix(Tensor::QkvW, Tensor::DqkvW, layer),
            vector(Tensor::QkvB, Tensor::DvecC3, layer),
            matrix(Tensor::AttProjW, Tensor::DattProjW, layer),
            vector(Tensor::AttProjB, Tensor::DvecC, layer),
            vector(Tensor::Ln2W, Tensor::DvecC, layer),
            vector(Tensor::Ln2B, Tensor::DvecC, layer),
            matrix(Tensor::FcW, Tensor::DfcW, layer),
            vector(Tensor::FcB, Tensor::DvecC4, layer),
            matrix(Tensor::FcProjW, Tensor::DfcProjW, layer),
            vector(Tensor::FcProjB, Tensor::DvecC, layer),
        ];
        all.extend(block.into_iter().filter(|p| bias || !is_bias(p.tensor)));
    }
    all.push(vector(Tensor::LnfW, Tensor::DvecC, None));
    if bias {
        all.push(vector(Tensor::LnfB, Tensor::DvecC, None));
    }
    all
}

const fn is_bias(tensor: Tensor) -> bool {
    matches!(
        tensor,
        Tensor::Ln1B | Tensor::QkvB | Tensor::AttProjB | Tensor::Ln2B | Tensor::FcB | Tensor::FcProjB | Tensor::LnfB
    )
}
