//! What can be wrong with a file of weights, in words that name the tensor.

use headroom_shared::gpt::GptConfigError;
use thiserror::Error;

use crate::layout::TooLarge;

/// Why a file's weights were refused. Names and values from the file are shortened and escaped.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum WeightsError {
    /// No header fits.
    #[error("the file has {file_bytes} bytes, too few for safetensors: it is cut short, or something else")]
    TooShort {
        /// The file's length.
        file_bytes: u64,
    },
    /// Another format, by its first bytes.
    #[error("the file is {what}, not safetensors")]
    OtherFormat {
        /// What it is.
        what: &'static str,
    },
    /// A header longer than any model's.
    #[error(
        "the file says that its header has {header_bytes} bytes, and {max} are the most that are read: it is no safetensors file, or a broken one"
    )]
    HeaderTooLong {
        /// As the file says.
        header_bytes: u64,
        /// [`super::MAX_HEADER_BYTES`].
        max: u64,
    },
    /// A header longer than its file.
    #[error(
        "the header has {header_bytes} bytes by the file's first eight, and the file {file_bytes} in all: it is cut short"
    )]
    HeaderCut {
        /// As the file says.
        header_bytes: u64,
        /// The file's length.
        file_bytes: u64,
    },
    /// A header that is not what it should be.
    #[error("the header cannot be read: {why}")]
    Header {
        /// What the reader of JSON says.
        why: String,
    },
    /// More tensors than any model has.
    #[error("the header lists more than {max} tensors")]
    TooManyTensors {
        /// [`super::MAX_TENSORS`].
        max: usize,
    },
    /// One name, or two that mean the same.
    #[error("{tensor} is in the file twice{}", as_other(.other))]
    Duplicate {
        /// The tensor.
        tensor: String,
        /// The other's name.
        other: String,
    },
    /// The elements do not take the bytes they are said to lie in.
    #[error(
        "{tensor} is {dtype} {shape:?}, which takes {}, and the header gives it {found}",
        .needed.map_or_else(|| "more bytes than a file can have".to_owned(), |bytes| format!("{bytes} bytes"))
    )]
    Size {
        /// The tensor.
        tensor: String,
        /// As the file has it.
        dtype: String,
        /// As the file has it.
        shape: Vec<u64>,
        /// By dtype and shape.
        needed: Option<u64>,
        /// By its offsets.
        found: u64,
    },
    /// Offsets that run backwards.
    #[error("{tensor} ends at byte {end} of the data, before its start at {start}")]
    Backwards {
        /// The tensor.
        tensor: String,
        /// Its first byte.
        start: u64,
        /// The one behind its last.
        end: u64,
    },
    /// A tensor that the file does not reach.
    #[error("{tensor} ends at byte {end}, and the file has {file_bytes}: it is cut short by {} or more", .end - .file_bytes)]
    Truncated {
        /// The first of those.
        tensor: String,
        /// Where it ends, in the file.
        end: u64,
        /// The file's length.
        file_bytes: u64,
    },
    /// Two tensors in one place.
    #[error("{tensor} begins before {other} ends: the header is broken")]
    Overlap {
        /// The later.
        tensor: String,
        /// The earlier.
        other: String,
    },
    /// Bytes of no tensor, which the format does not have.
    #[error(
        "{bytes} bytes before {before} belong to no tensor: the header is broken, or the file is not this header's"
    )]
    Gap {
        /// The next tensor, or the file's end.
        before: String,
        /// How many.
        bytes: u64,
    },
    /// Numbers that are not read.
    #[error("{tensor} is stored as {found}; F32, F16 and BF16 are read")]
    Dtype {
        /// The tensor.
        tensor: String,
        /// As the file has it.
        found: String,
    },
    /// None of a GPT-2's tensors.
    #[error("no tensor is named as a GPT-2's: transformer.wte.weight is not there, but {} others, {first} the first", .n_tensors)]
    NotGpt2 {
        /// How many there are.
        n_tensors: usize,
        /// The first by name.
        first: String,
    },
    /// A tensor that the others ask for.
    #[error("{tensor} is missing{}", of_shape(.shape))]
    Missing {
        /// The tensor.
        tensor: String,
        /// The shape it should have, where that is known.
        shape: Vec<u64>,
    },
    /// A tensor that no GPT-2 has.
    #[error("{tensor} {shape:?} is no tensor of a GPT-2: this is a model of another kind")]
    Surplus {
        /// The tensor.
        tensor: String,
        /// As the file has it.
        shape: Vec<u64>,
    },
    /// A tensor of another shape than the others ask for.
    #[error("{tensor} is {found:?}, and by the others it should be {expected:?}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// By the others.
        expected: Vec<u64>,
        /// As the file has it.
        found: Vec<u64>,
    },
    /// The shapes make no model.
    #[error("the tensors' shapes make no model: {0}")]
    Config(#[from] GptConfigError),
    /// How many heads there are is in no tensor.
    #[error(
        "the weights do not say how many heads there are, and {n_embd} channels make no heads of 64 as GPT-2 has them"
    )]
    UnknownHeads {
        /// Channels.
        n_embd: u64,
    },
    /// A file beside the weights that says otherwise.
    #[error("{key} is {said} by config.json, and {found} by the tensors' shapes: they are not of one model")]
    ConfigDisagrees {
        /// The key.
        key: &'static str,
        /// As the config says.
        said: u64,
        /// As the tensors have it.
        found: u64,
    },
    /// A model that computes something else with the same tensors.
    #[error("config.json has {key} = {value}: this program computes GPT-2 with {key} = {known} only")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// As the config says.
        value: String,
        /// What is computed.
        known: &'static str,
    },
    /// A `config.json` that is none.
    #[error("config.json cannot be read: {why}")]
    ConfigJson {
        /// What the reader says.
        why: String,
    },
    /// What a file of ours says of itself.
    #[error("the file's {key} cannot be read: {why}")]
    Metadata {
        /// The key in `__metadata__`.
        key: &'static str,
        /// What the reader says.
        why: String,
    },
    /// A weight that no training goes on from.
    #[error("{tensor} has {value} at element {index}: the training diverged, or the file is broken")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// In the file's order.
        index: u64,
        /// NaN or an infinity.
        value: f32,
    },
    /// A model whose output layer is not its embedding.
    #[error(
        "{tensor} differs from the embedding at element {index}: in GPT-2 they are one, and this program has no other"
    )]
    Untied {
        /// The output layer.
        tensor: String,
        /// The first that differs.
        index: u64,
    },
    /// A read that brought other bytes than were asked for.
    #[error("{tensor}: {found} bytes were read where {expected} belong: the file changed while it was read")]
    ShortRead {
        /// The tensor.
        tensor: String,
        /// As asked for.
        expected: u64,
        /// As read.
        found: u64,
    },
    /// The weights fit no address.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl WeightsError {
    /// What to try.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TooShort { .. } | Self::HeaderCut { .. } | Self::Truncated { .. } => {
                Some("download or copy the file again, and compare its size with the source's")
            }
            Self::OtherFormat { .. } => Some(
                "save the weights as safetensors: safetensors.torch.save_file(state_dict, \"model.safetensors\"), with a tied lm_head.weight left out",
            ),
            Self::Dtype { .. } => Some("convert the model to float32, float16 or bfloat16"),
            Self::UnknownHeads { .. } => {
                Some("put the model's config.json beside it, or write n_head into the file's metadata")
            }
            Self::ConfigDisagrees { .. } => Some("take both files from one folder of one model"),
            Self::NotGpt2 { .. } | Self::Surplus { .. } => {
                Some("GPT-2 and what nanoGPT trains can be read; no adapters, and no other architecture")
            }
            Self::Missing { .. } => Some("a model in several files has to be put together into one first"),
            Self::Untied { .. } => Some("train or fine-tune with the two tied, as nanoGPT and GPT-2 do"),
            _ => None,
        }
    }
}

fn as_other(other: &str) -> String {
    if other.is_empty() { String::new() } else { format!(", the second time as {other}") }
}

fn of_shape(shape: &[u64]) -> String {
    if shape.is_empty() { String::new() } else { format!("; it should be there as {shape:?}") }
}

/// The longest name or text from a file that is shown.
const SHOWN_CHARS: usize = 100;

/// A name or text from a file for a message: escaped and not longer than a line.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The first axes of a shape for a message.
pub(super) fn shown_shape(shape: &[u64]) -> Vec<u64> {
    shape.iter().copied().take(super::header::MAX_AXES).collect()
}
