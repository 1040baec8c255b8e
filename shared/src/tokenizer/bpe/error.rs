//! What can be wrong with a tokenizer's files, in a text that names the place and what to do.

use std::fmt;

use super::MAX_TOKENS;
use crate::text::{self, Text};

/// The longest piece of a file that is shown.
const SHOWN_CHARS: usize = 40;

/// A file that a tokenizer is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenizerFile {
    /// Hugging Face's, which has everything.
    TokenizerJson,
    /// The vocabulary alone, OpenAI's `encoder.json`.
    Vocab,
    /// The merges alone, OpenAI's `vocab.bpe`.
    Merges,
}

impl TokenizerFile {
    /// The name by which Hugging Face has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenizerJson => "tokenizer.json",
            Self::Vocab => "vocab.json",
            Self::Merges => "merges.txt",
        }
    }
}

/// Why a tokenizer was refused. What comes from the file is shortened and escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BpeError {
    /// No JSON, or JSON of something else; for merges, no UTF-8.
    Unreadable {
        /// The file.
        file: TokenizerFile,
        /// From 1.
        line: usize,
        /// From 1, in bytes.
        column: usize,
    },
    /// `tokenizer.json` has no such part.
    Lacks {
        /// Its keys with points between them.
        part: &'static str,
    },
    /// Another kind of tokenizer.
    OtherModel {
        /// As `model.type` says.
        kind: String,
    },
    /// A part that would change the ids and that is not computed here.
    Unsupported {
        /// Its key and its value.
        part: String,
    },
    /// More than [`MAX_TOKENS`] tokens or merges.
    TooLarge {
        /// The file.
        file: TokenizerFile,
    },
    /// An id that is no whole number below [`MAX_TOKENS`].
    IdRange {
        /// The file.
        file: TokenizerFile,
        /// The token that has it.
        token: String,
    },
    /// A token that two ids would have.
    TokenTwice {
        /// The file.
        file: TokenizerFile,
        /// The token.
        token: String,
    },
    /// An id that two tokens would have.
    IdTwice {
        /// The file.
        file: TokenizerFile,
        /// The id.
        id: u32,
    },
    /// A token that stands for no bytes.
    BadToken {
        /// The file.
        file: TokenizerFile,
        /// The token.
        token: String,
    },
    /// A byte that no token is, so that a text with it would have no ids.
    MissingByte {
        /// The file.
        file: TokenizerFile,
        /// The byte.
        byte: u8,
    },
    /// A merge that is not two tokens.
    BadMerge {
        /// The file.
        file: TokenizerFile,
        /// Which one, from 1.
        merge: u64,
    },
    /// A merge of a token, or into one, that the vocabulary lacks.
    MergeUnknown {
        /// The file.
        file: TokenizerFile,
        /// Which one, from 1.
        merge: u64,
        /// The token.
        token: String,
    },
    /// A merge that has two ranks.
    MergeTwice {
        /// The file.
        file: TokenizerFile,
        /// The later one, from 1.
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

    /// What a person reads.
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

/// A piece of a file for a message.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
