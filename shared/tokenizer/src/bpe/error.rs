//! Errors in a tokenizer's files, with messages that include the position and a remedy.

use std::fmt;

use super::MAX_TOKENS;
use headroom_text::{self as text, Text};

/// Maximum number of characters shown from a file.
const SHOWN_CHARS: usize = 40;

/// A tokenizer file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizerFile {
    /// Hugging Face's `tokenizer.json`, which contains everything.
    TokenizerJson,
    /// The vocabulary; OpenAI's `encoder.json`.
    Vocab,
    /// The merges; OpenAI's `vocab.bpe`.
    Merges,
}

impl TokenizerFile {
    /// Returns the file name used by Hugging Face.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenizerJson => "tokenizer.json",
            Self::Vocab => "vocab.json",
            Self::Merges => "merges.txt",
        }
    }
}

/// Reason why a tokenizer is invalid. Quotations from the file are shortened and escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BpeError {
    /// Invalid JSON, or JSON with another structure; for merges, invalid UTF-8.
    Unreadable {
        /// The affected file.
        file: TokenizerFile,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
    },
    /// `tokenizer.json` lacks this part.
    Lacks {
        /// The part's keys, separated by dots.
        part: &'static str,
    },
    /// A tokenizer of another kind.
    OtherModel {
        /// Value of `model.type`.
        kind: String,
    },
    /// An unsupported part that would change the ids.
    Unsupported {
        /// The part's key and value.
        part: String,
    },
    /// More than [`MAX_TOKENS`] tokens or merges.
    TooLarge {
        /// The affected file.
        file: TokenizerFile,
    },
    /// An id that is not an integer below [`MAX_TOKENS`].
    IdRange {
        /// The affected file.
        file: TokenizerFile,
        /// The token with this id.
        token: String,
    },
    /// A token with two ids.
    TokenTwice {
        /// The affected file.
        file: TokenizerFile,
        /// Text of the token.
        token: String,
    },
    /// An id with two tokens.
    IdTwice {
        /// The affected file.
        file: TokenizerFile,
        /// The repeated id.
        id: u32,
    },
    /// A token that does not represent bytes.
    BadToken {
        /// The affected file.
        file: TokenizerFile,
        /// Text of the token.
        token: String,
    },
    /// A byte without a token, so that a text with it cannot be encoded.
    MissingByte {
        /// The affected file.
        file: TokenizerFile,
        /// Value of the byte.
        byte: u8,
    },
    /// A merge that does not consist of two tokens.
    BadMerge {
        /// The affected file.
        file: TokenizerFile,
        /// Number of the merge, from 1.
        merge: u64,
    },
    /// A merge whose parts or result are not in the vocabulary.
    MergeUnknown {
        /// The affected file.
        file: TokenizerFile,
        /// Number of the merge, from 1.
        merge: u64,
        /// Text of the token.
        token: String,
    },
    /// A merge that is listed twice.
    MergeTwice {
        /// The affected file.
        file: TokenizerFile,
        /// Number of the later merge, from 1.
        merge: u64,
    },
}

impl BpeError {
    pub(super) fn unsupported(key: &str, value: &str) -> Self {
        Self::Unsupported { part: format!("{key}: {}", shown(value)) }
    }

    pub(super) fn other_model(kind: &str) -> Self {
        Self::OtherModel { kind: shown(kind) }
    }

    pub(super) fn id_range(file: TokenizerFile, token: &str) -> Self {
        Self::IdRange { file, token: shown(token) }
    }

    pub(super) fn token_twice(file: TokenizerFile, token: &str) -> Self {
        Self::TokenTwice { file, token: shown(token) }
    }

    pub(super) fn bad_token(file: TokenizerFile, token: &str) -> Self {
        Self::BadToken { file, token: shown(token) }
    }

    pub(super) fn merge_unknown(file: TokenizerFile, rank: u32, token: &str) -> Self {
        Self::MergeUnknown { file, merge: u64::from(rank) + 1, token: shown(token) }
    }

    /// Returns the error message.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Unreadable { file, line, column } => text::tokenizer_unreadable(file.name(), *line, *column),
            Self::Lacks { part } => text::tokenizer_lacks(*part),
            Self::OtherModel { kind } => text::tokenizer_other_model(kind.as_str()),
            Self::Unsupported { part } => text::tokenizer_unsupported(part.as_str()),
            Self::TooLarge { file } => text::tokenizer_too_large(file.name(), text::count(MAX_TOKENS as u64)),
            Self::IdRange { file, token } => {
                text::tokenizer_id_range(file.name(), token.as_str(), text::count(MAX_TOKENS as u64))
            }
            Self::TokenTwice { file, token } => text::tokenizer_token_twice(file.name(), token.as_str()),
            Self::IdTwice { file, id } => text::tokenizer_id_twice(file.name(), u64::from(*id)),
            Self::BadToken { file, token } => text::tokenizer_bad_token(file.name(), token.as_str()),
            Self::MissingByte { file, byte } => text::tokenizer_missing_byte(file.name(), format!("0x{byte:02x}")),
            Self::BadMerge { file, merge } => text::tokenizer_bad_merge(file.name(), text::count(*merge)),
            Self::MergeUnknown { file, merge, token } => {
                text::tokenizer_merge_unknown(file.name(), text::count(*merge), token.as_str())
            }
            Self::MergeTwice { file, merge } => text::tokenizer_merge_twice(file.name(), text::count(*merge)),
        }
    }
}

impl fmt::Display for BpeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

impl std::error::Error for BpeError {}

/// Shortens and escapes a part of a file for a message.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
