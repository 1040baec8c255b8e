//! The header of a safetensors file: its tensors and their ranges.
//!
//! Checked for consistency and against the file's length, but not against a model.

use std::{collections::BTreeMap, fmt, ops::Range};

use headroom_text::{self as text, Key};
use headroom_tokenizer::order::sorted;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};

use super::{
    MAX_AXES,
    error::{WeightsError, shown, shown_shape},
};

/// Bytes of the header's length, at the start of the file.
pub const PREFIX_BYTES: usize = 8;

/// The maximum length of a header. A checkpoint of the deepest model takes a third of it; the format allows 100 MB.
pub const MAX_HEADER_BYTES: u64 = 16 << 20;

/// The maximum number of tensors. A checkpoint of the deepest model has 37,000.
pub const MAX_TENSORS: usize = 1 << 16;

/// The header's entry for metadata.
const METADATA: &str = "__metadata__";

/// A tensor's entry in a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The element type's name in the format.
    pub dtype: String,
    /// The shape, slowest axis first.
    pub shape: Vec<u64>,
    /// The byte range, from the file's start.
    pub range: Range<u64>,
}

/// A header whose tensors are contiguous in the file and match their shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    tensors: BTreeMap<String, TensorInfo>,
    metadata: BTreeMap<String, String>,
    file_bytes: u64,
}

/// The header's range, from the file's first [`PREFIX_BYTES`] bytes, or fewer if the file is shorter.
///
/// # Errors
/// The file is not a safetensors file, or its header is too long or truncated.
pub fn header_range(prefix: &[u8], file_bytes: u64) -> Result<Range<u64>, WeightsError> {
    if let Some(what) = other_format(prefix) {
        return Err(WeightsError::OtherFormat { what });
    }
    let Some(prefix) = prefix.first_chunk::<PREFIX_BYTES>() else {
        return Err(WeightsError::TooShort { file_bytes });
    };
    let header_bytes = u64::from_le_bytes(*prefix);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(match header_bytes < file_bytes {
            true => WeightsError::HeaderTooLong { header_bytes, max: MAX_HEADER_BYTES },
            false => WeightsError::UnknownFormat,
        });
    }
    let start = PREFIX_BYTES as u64;
    if start + header_bytes > file_bytes {
        return Err(WeightsError::HeaderCut { header_bytes, file_bytes });
    }
    Ok(start..start + header_bytes)
}

/// The format of a file that is not safetensors. The first bytes of each, as a length, exceed any header's.
fn other_format(prefix: &[u8]) -> Option<Key> {
    const FORMATS: [(&[u8], Key); 7] = [
        (b"PK\x03\x04", text::WEIGHTS_IS_CHECKPOINT),
        (b"\x80\x02\x8a\x0a", text::WEIGHTS_IS_OLD_CHECKPOINT),
        (b"GGUF", text::WEIGHTS_IS_GGUF),
        (b"\x89HDF", text::WEIGHTS_IS_HDF5),
        (b"version ", text::WEIGHTS_IS_LFS),
        (b"<!DOCTYP", text::WEIGHTS_IS_WEB_PAGE),
        (b"<html", text::WEIGHTS_IS_WEB_PAGE),
    ];
    FORMATS.iter().find(|(start, _)| prefix.starts_with(start)).map(|(_, what)| *what)
}

impl Header {
    /// Parses the bytes in [`header_range`] of a file with `file_bytes` bytes.
    ///
    /// # Errors
    /// The header is invalid, or does not match the file.
    pub fn parse(header: &[u8], file_bytes: u64) -> Result<Self, WeightsError> {
        let entries: Entries = serde_json::from_slice(header).map_err(|error| {
            // The parser's message may quote the file.
            WeightsError::Header { why: shown(&error.to_string()) }
        })?;
        if entries.tensors.len() > MAX_TENSORS {
            return Err(WeightsError::TooManyTensors { max: MAX_TENSORS });
        }
        let start = PREFIX_BYTES as u64 + header.len() as u64;
        let mut tensors = BTreeMap::new();
        for (name, entry) in entries.tensors {
            let info = entry.placed(&name, start, file_bytes)?;
            if tensors.insert(name.clone(), info).is_some() {
                return Err(WeightsError::Duplicate { tensor: shown(&name), other: None });
            }
        }
        let header = Self { tensors, metadata: entries.metadata, file_bytes };
        header.covers_the_data(start)?;
        Ok(header)
    }

    /// Checks that tensors are contiguous and the last ends at the end of the file, as the format requires.
    fn covers_the_data(&self, start: u64) -> Result<(), WeightsError> {
        let in_file: Vec<_> = self.tensors.iter().collect();
        let place = |info: &TensorInfo| (info.range.start, info.range.end);
        let in_file = sorted(&in_file, |(_, a), (_, b)| place(a).cmp(&place(b)));
        let (mut end, mut last) = (start, "");
        for (name, info) in in_file {
            if info.range.start < end {
                return Err(WeightsError::Overlap { tensor: shown(name), other: shown(last) });
            }
            if info.range.start > end {
                return Err(WeightsError::Gap { before: Some(shown(name)), bytes: info.range.start - end });
            }
            (end, last) = (info.range.end, name);
        }
        if end < self.file_bytes {
            return Err(WeightsError::Gap { before: None, bytes: self.file_bytes - end });
        }
        Ok(())
    }

    /// A header for tensors whose ranges come from another format.
    ///
    /// Each range must be within the file and match the tensor's shape.
    #[must_use]
    pub fn of_tensors(
        tensors: BTreeMap<String, TensorInfo>,
        metadata: BTreeMap<String, String>,
        file_bytes: u64,
    ) -> Self {
        Self { tensors, metadata, file_bytes }
    }

    /// The tensors, by name.
    #[must_use]
    pub fn tensors(&self) -> &BTreeMap<String, TensorInfo> {
        &self.tensors
    }

    /// The file's metadata.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The file's length in bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }
}

/// A tensor's unchecked entry.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl Entry {
    fn placed(self, name: &str, data_start: u64, file_bytes: u64) -> Result<TensorInfo, WeightsError> {
        let (start, end) = self.data_offsets;
        if end < start {
            return Err(WeightsError::Backwards { tensor: shown(name), start, end });
        }
        let Some(bits) = element_bits(&self.dtype) else {
            return Err(WeightsError::Dtype { tensor: shown(name), found: shown(&self.dtype) });
        };
        let bits = self.shape.iter().try_fold(bits, |bits, &axis| bits.checked_mul(u128::from(axis)));
        let needed = bits.map(|bits| bits.div_ceil(8)).and_then(|bytes| u64::try_from(bytes).ok());
        if needed != Some(end - start) || self.shape.len() > MAX_AXES {
            return Err(WeightsError::Size {
                tensor: shown(name),
                dtype: self.dtype,
                shape: shown_shape(&self.shape),
                needed,
                found: end - start,
            });
        }
        let place = |offset: u64| data_start.saturating_add(offset);
        if place(end) > file_bytes {
            return Err(WeightsError::Truncated { tensor: shown(name), end: place(end), file_bytes });
        }
        Ok(TensorInfo { dtype: self.dtype, shape: self.shape, range: place(start)..place(end) })
    }
}

/// Bits per element, for every type of the format. Types without support for weights may occur in buffers.
fn element_bits(dtype: &str) -> Option<u128> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// The header's entries in their order, possibly with duplicate names.
struct Entries {
    tensors: Vec<(String, Entry)>,
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Entries { tensors: Vec::new(), metadata: BTreeMap::new() };
                while let Some(name) = map.next_key::<String>()? {
                    let entry_error = |error: A::Error| A::Error::custom(format!("{}: {error}", shown(&name)));
                    if name == METADATA {
                        entries.metadata = map.next_value().map_err(entry_error)?;
                    } else if entries.tensors.len() <= MAX_TENSORS {
                        let entry = map.next_value().map_err(entry_error)?;
                        entries.tensors.push((name, entry));
                    } else {
                        // The caller reports the duplicate, as it has the message.
                        map.next_value::<serde::de::IgnoredAny>()?;
                    }
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
