//! Names of tensors in files: nanoGPT's, Hugging Face's, and those of Headroom's checkpoints.

use headroom_planner::gpt::tensors::Tensor;

/// The naming scheme and layout of a model's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamingScheme {
    /// nanoGPT's: linear layers as (OC, C).
    NanoGpt,
    /// Hugging Face's: the blocks' linear layers as (C, OC), which its `Conv1D` multiplies from the left.
    HuggingFace,
}

/// A section of a Headroom checkpoint, by the prefix of its tensors' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The weights, without prefix.
    Params,
    /// AdamW's first moments.
    ExpAvg,
    /// AdamW's second moments.
    ExpAvgSq,
}

impl Section {
    /// All sections, in the file's order.
    pub const ALL: [Self; 3] = [Self::Params, Self::ExpAvg, Self::ExpAvgSq];

    /// The section's name in PyTorch.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Params => "params",
            Self::ExpAvg => "exp_avg",
            Self::ExpAvgSq => "exp_avg_sq",
        }
    }

    /// A parameter's tensor name in this section.
    #[must_use]
    pub fn tensor_name(self, parameter: &str) -> String {
        match self {
            Self::Params => parameter.to_owned(),
            Self::ExpAvg | Self::ExpAvgSq => format!("{}.{parameter}", self.name()),
        }
    }
}

/// The last tensor of a Headroom checkpoint: checksums of the bytes before it.
pub const CHECKSUMS: &str = "headroom.crc32";

/// The parameters of a block.
const OF_BLOCK: [Tensor; 12] = [
    Tensor::Ln1W,
    Tensor::Ln1B,
    Tensor::QkvW,
    Tensor::QkvB,
    Tensor::AttProjW,
    Tensor::AttProjB,
    Tensor::Ln2W,
    Tensor::Ln2B,
    Tensor::FcW,
    Tensor::FcB,
    Tensor::FcProjW,
    Tensor::FcProjB,
];

/// The role of a tensor in a file, from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum TensorPosition {
    Parameter(Tensor, Option<u64>),
    /// The output layer, which equals the embedding.
    LmHead,
    /// A block's causal mask, which the program computes itself.
    Mask(u64),
    /// The value that a mask assigns to masked scores.
    MaskedBias(u64),
}

/// Name prefixes from `torch.compile` and data parallelism.
const WRAPPERS: [&str; 2] = ["_orig_mod.", "module."];

/// The role of a tensor with this name; `None` if unknown.
pub(super) fn place(name: &str) -> Option<TensorPosition> {
    let mut name = name;
    while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)) {
        name = rest;
    }
    if name == "lm_head.weight" {
        return Some(TensorPosition::LmHead);
    }
    let name = name.strip_prefix("transformer.").unwrap_or(name);
    match name {
        "wte.weight" => return Some(TensorPosition::Parameter(Tensor::Wte, None)),
        "wpe.weight" => return Some(TensorPosition::Parameter(Tensor::Wpe, None)),
        "ln_f.weight" => return Some(TensorPosition::Parameter(Tensor::LnfW, None)),
        "ln_f.bias" => return Some(TensorPosition::Parameter(Tensor::LnfB, None)),
        _ => {}
    }
    let (layer, name) = name.strip_prefix("h.")?.split_once('.')?;
    let layer = layer_number(layer)?;
    match name {
        "attn.bias" => Some(TensorPosition::Mask(layer)),
        "attn.masked_bias" => Some(TensorPosition::MaskedBias(layer)),
        _ => {
            let tensor = OF_BLOCK.into_iter().find(|tensor| tensor.name() == name)?;
            Some(TensorPosition::Parameter(tensor, Some(layer)))
        }
    }
}

/// Parses a number as PyTorch writes it, without sign or leading zeros.
fn layer_number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

/// Whether a tensor is a linear layer of a block, which Hugging Face stores transposed.
pub(super) const fn is_conv1d(tensor: Tensor) -> bool {
    matches!(tensor, Tensor::QkvW | Tensor::AttProjW | Tensor::FcW | Tensor::FcProjW)
}

/// Whether a tensor is a bias, which is optional.
pub(super) const fn is_bias(tensor: Tensor) -> bool {
    matches!(
        tensor,
        Tensor::Ln1B | Tensor::QkvB | Tensor::AttProjB | Tensor::Ln2B | Tensor::FcB | Tensor::FcProjB | Tensor::LnfB
    )
}
