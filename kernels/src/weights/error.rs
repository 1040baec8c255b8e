//! Errors in weight files, with messages that name the tensor.

use headroom_planner::gpt::GptConfigError;
use headroom_text::{self as text, Key, Text, count};
use thiserror::Error;

use crate::layout::TooLarge;

/// An error in a file of weights. Names and values from the file are shortened and escaped.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum WeightsError {
    /// The file is too short for a header.
    TooShort {
        /// The file's length in bytes.
        file_bytes: u64,
    },
    /// The file has another format, recognised by its first bytes.
    OtherFormat {
        /// The format.
        what: Key,
    },
    /// The file has no known format, or its start is damaged.
    UnknownFormat,
    /// The header exceeds the limit.
    HeaderTooLong {
        /// The header's length in bytes, according to the file.
        header_bytes: u64,
        /// The limit, [`super::MAX_HEADER_BYTES`].
        max: u64,
    },
    /// The header exceeds the file.
    HeaderCut {
        /// The header's length in bytes, according to the file.
        header_bytes: u64,
        /// The file's length in bytes.
        file_bytes: u64,
    },
    /// The header is invalid.
    Header {
        /// The JSON parser's message.
        why: String,
    },
    /// The file has too many tensors.
    TooManyTensors {
        /// The limit, [`super::MAX_TENSORS`].
        max: usize,
    },
    /// Two tensors have the same name, or different names for the same parameter.
    Duplicate {
        /// The tensor's name.
        tensor: String,
        /// The other tensor's name, if different.
        other: Option<String>,
    },
    /// A tensor's size disagrees with its shape and element type.
    Size {
        /// The tensor's name.
        tensor: String,
        /// The element type in the file.
        dtype: String,
        /// The shape in the file.
        shape: Vec<u64>,
        /// The size in bytes by element type and shape; `None` on overflow.
        needed: Option<u64>,
        /// The size in bytes by the offsets.
        found: u64,
    },
    /// A tensor's end offset is before its start.
    Backwards {
        /// The tensor's name.
        tensor: String,
        /// The start offset.
        start: u64,
        /// The end offset, exclusive.
        end: u64,
    },
    /// A tensor exceeds the file.
    Truncated {
        /// The first such tensor's name.
        tensor: String,
        /// The tensor's end in the file, in bytes.
        end: u64,
        /// The file's length in bytes.
        file_bytes: u64,
    },
    /// Two tensors overlap.
    Overlap {
        /// The later tensor's name.
        tensor: String,
        /// The earlier tensor's name.
        other: String,
    },
    /// Bytes between tensors or after the last, which the format does not allow.
    Gap {
        /// The name of the next tensor; `None` at the end of the file.
        before: Option<String>,
        /// The number of unused bytes.
        bytes: u64,
    },
    /// An element type is not supported.
    Dtype {
        /// The tensor's name.
        tensor: String,
        /// The element type in the file.
        found: String,
    },
    /// The file has no tensor of a GPT-2 model.
    NotGpt2 {
        /// The number of tensors in the file.
        n_tensors: usize,
        /// The first tensor's name, if any.
        first: Option<String>,
    },
    /// A required tensor is missing.
    Missing {
        /// The tensor's name.
        tensor: String,
        /// The expected shape; empty if unknown.
        shape: Vec<u64>,
    },
    /// A tensor is not part of GPT-2.
    Surplus {
        /// The tensor's name.
        tensor: String,
        /// The shape in the file.
        shape: Vec<u64>,
    },
    /// A tensor's shape disagrees with the others.
    Shape {
        /// The tensor's name.
        tensor: String,
        /// The expected shape.
        expected: Vec<u64>,
        /// The shape in the file.
        found: Vec<u64>,
    },
    /// The shapes form no valid config.
    Config(#[from] GptConfigError),
    UnknownHeads {
        /// The number of channels.
        n_embd: u64,
    },
    /// The `config.json` disagrees with the tensors.
    ConfigDisagrees {
        /// The key in `config.json`.
        key: &'static str,
        /// The value in `config.json`.
        said: u64,
        /// The value from the tensors' shapes.
        found: u64,
    },
    /// The model uses the same tensors for another computation.
    Unsupported {
        /// The key in `config.json`.
        key: &'static str,
        /// The value in `config.json`.
        value: String,
        /// The supported value.
        known: &'static str,
    },
    /// The `config.json` is invalid.
    ConfigJson {
        /// The JSON parser's message.
        why: String,
    },
    /// The `config.json` exceeds the limit.
    ConfigJsonTooLong {
        /// Its length in bytes, or a value above `max` if it was not read to its end.
        bytes: u64,
        /// The limit, [`super::MAX_CONFIG_JSON_BYTES`].
        max: u64,
    },
    /// The file's metadata are invalid.
    Metadata {
        /// The key in `__metadata__`.
        key: &'static str,
        /// The parser's message.
        why: String,
    },
    /// The file's metadata disagree with its tensors.
    MetadataDisagrees {
        /// The key in `__metadata__`.
        metadata: &'static str,
        /// The key within that value.
        key: &'static str,
        /// The value in the metadata.
        said: String,
        /// The value from the tensors' shapes.
        found: String,
    },
    /// A weight is infinite or NaN.
    NotFinite {
        /// The tensor's name.
        tensor: String,
        /// The weight's index in the file's order.
        index: u64,
        /// The weight: NaN or an infinity.
        value: f32,
    },
    /// The output layer differs from the embedding.
    Untied {
        /// The output layer's name.
        tensor: String,
        /// The index of the first different weight.
        index: u64,
    },
    /// A read returned the wrong number of bytes.
    ShortRead {
        /// The tensor's name.
        tensor: String,
        /// The expected number of bytes.
        expected: u64,
        /// The actual number of bytes.
        found: u64,
    },
    /// The weights exceed the address space.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl WeightsError {
    /// The error message.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::TooShort { file_bytes } => text::weights_too_short(count(*file_bytes)),
            Self::OtherFormat { what } => text::weights_other_format(*what),
            Self::UnknownFormat => text::WEIGHTS_UNKNOWN_FORMAT.into(),
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

    /// A hint for the user, if there is one.
    #[must_use]
    pub const fn hint(&self) -> Option<Key> {
        match self {
            Self::TooShort { .. } | Self::HeaderCut { .. } | Self::Truncated { .. } => Some(text::WEIGHTS_HINT_COPY),
            Self::OtherFormat { .. } | Self::UnknownFormat => Some(text::WEIGHTS_HINT_CONVERT),
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

/// A shape, formatted as in Python.
fn brackets(shape: &[u64]) -> String {
    format!("{shape:?}")
}

/// The name of a value that is not finite. The standard library's formatting would add its float tables to the page.
fn not_finite(value: f32) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "inf",
        _ => "-inf",
    }
}

/// The maximum number of characters shown of a name or text from a file.
const SHOWN_CHARS: usize = 100;

/// Formats a name or text from a file for a message: escaped and shortened to one line.
pub(super) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// The first axes of a shape, for a message.
pub(super) fn shown_shape(shape: &[u64]) -> Vec<u64> {
    shape.iter().copied().take(super::MAX_AXES).collect()
}
