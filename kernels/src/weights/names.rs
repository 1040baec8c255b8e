//! Names of tensors in files: nanoGPT's, Hugging Face's, and those of a checkpoint of ours.

use headroom_shared::gpt::tensors::Tensor;

/// Whose names and layouts a model's file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// nanoGPT's: linear layers as (OC, C).
    NanoGpt,
    /// Hugging Face's: the blocks' linear layers as (C, OC), which its `Conv1D` multiplies from the left.
    HuggingFace,
}

/// A part of a checkpoint of ours: what its tensors' names begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The weights, whose names begin with nothing.
    Params,
    /// AdamW's first moments.
    ExpAvg,
    /// AdamW's second moments.
    ExpAvgSq,
}

impl Section {
    /// All, in the order they lie in a file.
    pub const ALL: [Self; 3] = [Self::Params, Self::ExpAvg, Self::ExpAvgSq];

    /// PyTorch's name of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Params => "params",
            Self::ExpAvg => "exp_avg",
            Self::ExpAvgSq => "exp_avg_sq",
        }
    }

    /// A parameter's name in this part.
    #[must_use]
    pub fn tensor_name(self, parameter: &str) -> String {
        match self {
            Self::Params => parameter.to_owned(),
            Self::ExpAvg | Self::ExpAvgSq => format!("{}.{parameter}", self.name()),
        }
    }
}

/// The last tensor of a checkpoint of ours: checksums of what lies before it.
pub const CHECKSUMS: &str = "headroom.crc32";

/// A block's tensors that are parameters.
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

/// What a tensor of a file is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Parameter(Tensor, Option<u64>),
    /// The output layer, which is the embedding.
    LmHead,
    /// A block's causal mask, which the program computes.
    Mask(u64),
    /// What a mask puts into the place of hidden scores.
    MaskedBias(u64),
}

/// Prefixes of `torch.compile` and of data parallelism.
const WRAPPERS: [&str; 2] = ["_orig_mod.", "module."];

/// What a name means.
pub(super) fn place(name: &str) -> Option<Place> {
    let mut name = name;
    while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)) {
        name = rest;
    }
    if name == "lm_head.weight" {
        return Some(Place::LmHead);
    }
    let name = name.strip_prefix("transformer.").unwrap_or(name);
    match name {
        "wte.weight" => return Some(Place::Parameter(Tensor::Wte, None)),
        "wpe.weight" => return Some(Place::Parameter(Tensor::Wpe, None)),
        "ln_f.weight" => return Some(Place::Parameter(Tensor::LnfW, None)),
        "ln_f.bias" => return Some(Place::Parameter(Tensor::LnfB, None)),
        _ => {}
    }
    let (layer, name) = name.strip_prefix("h.")?.split_once('.')?;
    let layer = layer_number(layer)?;
    match name {
        "attn.bias" => Some(Place::Mask(layer)),
        "attn.masked_bias" => Some(Place::MaskedBias(layer)),
        _ => {
            let tensor = OF_BLOCK.into_iter().find(|tensor| tensor.name() == name)?;
            Some(Place::Parameter(tensor, Some(layer)))
        }
    }
}

/// A number as PyTorch writes it: nothing before its first digit.
fn layer_number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

/// Whether a tensor is one of the blocks' linear layers, which Hugging Face stores the other way round.
pub(super) const fn is_conv1d(tensor: Tensor) -> bool {
    matches!(tensor, Tensor::QkvW | Tensor::AttProjW | Tensor::FcW | Tensor::FcProjW)
}

/// Whether a tensor is a bias, which a model may do without.
pub(super) const fn is_bias(tensor: Tensor) -> bool {
    matches!(
        tensor,
        Tensor::Ln1B | Tensor::QkvB | Tensor::AttProjB | Tensor::Ln2B | Tensor::FcB | Tensor::FcProjB | Tensor::LnfB
    )
}
