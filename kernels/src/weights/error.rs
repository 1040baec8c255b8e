//! What can be wrong with a file of weights, in words that name the tensor.

use headroom_shared::{
    gpt::GptConfigError,
    text::{self, Key, Text, count},
};
use thiserror::Error;

use crate::layout::TooLarge;

/// Why a file's weights were refused. Names and values from the file are shortened and escaped.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum WeightsError {
    /// No header fits.
    TooShort {
        /// The file's length.
        file_bytes: u64,
    },
    /// Another format, by its first bytes.
    OtherFormat {
        /// What it is.
        what: Key,
    },
    /// A header longer than any model's.
    HeaderTooLong {
        /// As the file says.
        header_bytes: u64,
        /// [`super::MAX_HEADER_BYTES`].
        max: u64,
    },
    /// A header longer than its file.
    HeaderCut {
        /// As the file says.
        header_bytes: u64,
        /// The file's length.
        file_bytes: u64,
    },
    /// A header that is not what it should be.
    Header {
        /// What the reader of JSON says.
        why: String,
    },
    /// More tensors than any model has.
    TooManyTensors {
        /// [`super::MAX_TENSORS`].
        max: usize,
    },
    /// One name, or two that mean the same.
    Duplicate {
        /// The tensor.
        tensor: String,
        /// The other's name, where it is not the same.
        other: Option<String>,
    },
    /// The elements do not take the bytes they are said to lie in.
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
    Backwards {
        /// The tensor.
        tensor: String,
        /// Its first byte.
        start: u64,
        /// The one behind its last.
        end: u64,
    },
    /// A tensor that the file does not reach.
    Truncated {
        /// The first of those.
        tensor: String,
        /// Where it ends, in the file.
        end: u64,
        /// The file's length.
        file_bytes: u64,
    },
    /// Two tensors in one place.
    Overlap {
        /// The later.
        tensor: String,
        /// The earlier.
        other: String,
    },
    /// Bytes of no tensor, which the format does not have.
    Gap {
        /// The next tensor; none at the file's end.
        before: Option<String>,
        /// How many.
        bytes: u64,
    },
    /// Numbers that are not read.
    Dtype {
        /// The tensor.
        tensor: String,
        /// As the file has it.
        found: String,
    },
    /// None of a GPT-2's tensors.
    NotGpt2 {
        /// How many there are.
        n_tensors: usize,
        /// The first by name, where there is one.
        first: Option<String>,
    },
    /// A tensor that the others ask for.
    Missing {
        /// The tensor.
        tensor: String,
        /// The shape it should have, where that is known.
        shape: Vec<u64>,
    },
    /// A tensor that no GPT-2 has.
    Surplus {
        /// The tensor.
        tensor: String,
        /// As the file has it.
        shape: Vec<u64>,
    },
    /// A tensor of another shape than the others ask for.
    Shape {
        /// The tensor.
        tensor: String,
        /// By the others.
        expected: Vec<u64>,
        /// As the file has it.
        found: Vec<u64>,
    },
    /// The shapes make no model.
    Config(#[from] GptConfigError),
    /// How many heads there are is in no tensor.
    UnknownHeads {
        /// Channels.
        n_embd: u64,
    },
    /// A file beside the weights that says otherwise.
    ConfigDisagrees {
        /// The key.
        key: &'static str,
        /// As the config says.
        said: u64,
        /// As the tensors have it.
        found: u64,
    },
    /// A model that computes something else with the same tensors.
    Unsupported {
        /// The key.
        key: &'static str,
        /// As the config says.
        value: String,
        /// What is computed.
        known: &'static str,
    },
    /// A `config.json` that is none.
    ConfigJson {
        /// What the reader says.
        why: String,
    },
    /// A `config.json` longer than any.
    ConfigJsonTooLong {
        /// Its length, or more than `max` where it was not read to its end.
        bytes: u64,
        /// [`super::MAX_CONFIG_JSON_BYTES`].
        max: u64,
    },
    /// What a file says of itself.
    Metadata {
        /// The key in `__metadata__`.
        key: &'static str,
        /// What the reader says.
        why: String,
    },
    /// A file that says of itself what its tensors do not.
    MetadataDisagrees {
        /// The key in `__metadata__`.
        metadata: &'static str,
        /// The key in that.
        key: &'static str,
        /// As the metadata say.
        said: String,
        /// As the tensors have it.
        found: String,
    },
    /// A weight that no training goes on from.
    NotFinite {
        /// The tensor.
        tensor: String,
        /// In the file's order.
        index: u64,
        /// NaN or an infinity.
        value: f32,
    },
    /// A model whose output layer is not its embedding.
    Untied {
        /// The output layer.
        tensor: String,
        /// The first that differs.
        index: u64,
    },
    /// A read that brought other bytes than were asked for.
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
    /// What is wrong.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::TooShort { file_bytes } => text::weights_too_short(count(*file_bytes)),
            Self::OtherFormat { what } => text::weights_other_format(*what),
            Self::HeaderTooLong { header_bytes, max } => {
                text::weights_header_too_long(count(*header_bytes), count(*max))
            }
            Self::HeaderCut { header_bytes, file_bytes } => {
                text::weights_header_cut(count(*header_bytes), count(*file_bytes))
            }
            Self::Header { why } => text::weights_header(&**why),
            Self::TooManyTensors { max } => text::weights_too_many_tensors(count(*max as u64)),
            Self::Duplicate { tensor, other: None } => text::weights_twice(&**tensor),
            Self::Duplicate { tensor, other: Some(other) } => text::weights_twice_as(&**tensor, &**other),
            Self::Size { tensor, dtype, shape, needed: Some(needed), found } => {
                text::weights_size(&**tensor, &**dtype, brackets(shape), count(*needed), count(*found))
            }
            Self::Size { tensor, dtype, shape, needed: None, found } => {
                text::weights_size_beyond(&**tensor, &**dtype, brackets(shape), count(*found))
            }
            Self::Backwards { tensor, start, end } => text::weights_backwards(&**tensor, count(*end), count(*start)),
            Self::Truncated { tensor, end, file_bytes } => {
                let missing = text::size(end.saturating_sub(*file_bytes));
                text::weights_truncated(&**tensor, count(*end), count(*file_bytes), missing)
            }
            Self::Overlap { tensor, other } => text::weights_overlap(&**tensor, &**other),
            Self::Gap { before: Some(before), bytes } => text::weights_gap(count(*bytes), &**before),
            Self::Gap { before: None, bytes } => text::weights_gap_at_end(count(*bytes)),
            Self::Dtype { tensor, found } => text::weights_dtype(&**tensor, &**found),
            Self::NotGpt2 { n_tensors, first: Some(first) } => {
                text::weights_not_gpt2(count(*n_tensors as u64), &**first)
            }
            Self::NotGpt2 { first: None, .. } => text::WEIGHTS_NO_TENSORS.into(),
            Self::Missing { tensor, shape } if shape.is_empty() => text::weights_missing(&**tensor),
            Self::Missing { tensor, shape } => text::weights_missing_of(&**tensor, brackets(shape)),
            Self::Surplus { tensor, shape } => text::weights_surplus(&**tensor, brackets(shape)),
            Self::Shape { tensor, expected, found } => {
                text::weights_shape(&**tensor, brackets(found), brackets(expected))
            }
            Self::Config(error) => text::weights_config(error.text()),
            Self::UnknownHeads { n_embd } => text::weights_unknown_heads(*n_embd),
            Self::ConfigDisagrees { key, said, found } => text::weights_config_disagrees(*key, *said, *found),
            Self::Unsupported { key, value, known } => text::weights_unsupported(*key, &**value, *known),
            Self::ConfigJson { why } => text::weights_config_json(&**why),
            Self::ConfigJsonTooLong { bytes, max } => text::weights_config_json_too_long(count(*bytes), count(*max)),
            Self::Metadata { key, why } => text::weights_metadata(*key, &**why),
            Self::MetadataDisagrees { metadata, key, said, found } => {
                text::weights_metadata_disagrees(*metadata, *key, &**said, &**found)
            }
            Self::NotFinite { tensor, index, value } => {
                text::weights_not_finite(&**tensor, not_finite(*value), count(*index))
            }
            Self::Untied { tensor, index } => text::weights_untied(&**tensor, count(*index)),
            Self::ShortRead { tensor, expected, found } => {
                text::weights_short_read(&**tensor, count(*found), count(*expected))
            }
            Self::TooLarge(error) => error.text(),
        }
    }

    /// What to try.
    #[must_use]
    pub const fn hint(&self) -> Option<Key> {
        match self {
            Self::TooShort { .. } | Self::HeaderCut { .. } | Self::Truncated { .. } => Some(text::WEIGHTS_HINT_COPY),
            Self::OtherFormat { .. } => Some(text::WEIGHTS_HINT_CONVERT),
            Self::Dtype { .. } => Some(text::WEIGHTS_HINT_DTYPE),
            Self::UnknownHeads { .. } => Some(text::WEIGHTS_HINT_HEADS),
            Self::ConfigDisagrees { .. } => Some(text::WEIGHTS_HINT_ONE_MODEL),
            Self::NotGpt2 { .. } | Self::Surplus { .. } => Some(text::WEIGHTS_HINT_GPT2),
            Self::Missing { .. } => Some(text::WEIGHTS_HINT_ONE_FILE),
            Self::Untied { .. } => Some(text::WEIGHTS_HINT_TIED),
            _ => None,
        }
    }
}

/// A shape as Python writes it.
fn brackets(shape: &[u64]) -> String {
    format!("{shape:?}")
}

/// What is no finite number. The standard library would bring a page its table of floats for three words.
fn not_finite(value: f32) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "inf",
        _ => "-inf",
    }
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
