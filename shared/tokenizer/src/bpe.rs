//! GPT-2's tokenizer: byte pair encoding.
//!
//! It follows OpenAI's encoder.py (<https://github.com/openai/gpt-2/blob/master/src/encoder.py>). A regular expression,
//! [`SPLIT_PATTERN`], splits a text into pieces, and each piece is merged pair by pair as UTF-8. The caller splits the
//! text with its regex engine, which every browser has. This module reads the vocabulary and merges.
//!
//! The pair with the lowest rank is merged first, one occurrence at a time from the left, as in Hugging Face's
//! tokenizers. encoder.py merges all occurrences of a pair at once. The results are equal if every pair was learnt
//! after its parts, which training ensures.

mod alphabet;
mod error;
mod file;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BinaryHeap};

use alphabet::bytes_of;
use file::{Merges, VocabTokens};

use crate::order::sorted;

pub use alphabet::byte_char;
pub use error::{BpeError, TokenizerFile};

/// Regular expression that splits a text into pieces: GPT-2's, in a form for both JavaScript's `RegExp` with the flags
/// `gu` and Rust's `fancy-regex`.
///
/// White space is matched by its Unicode property: JavaScript's `\s` includes U+FEFF, unlike GPT-2's, and lacks U+0085.
/// Every character of a text is in one of the pieces. Engines with different Unicode versions differ in recently added
/// characters.
pub const SPLIT_PATTERN: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+";

/// Maximum number of tokens, maximum number of merges, and upper bound of ids: four times the largest known vocabulary.
pub const MAX_TOKENS: usize = 1_000_000;
/// Maximum length of an added token in bytes. They are searched at every position of a text.
const MAX_ADDED_BYTES: usize = 256;
/// GPT-2's token for the end of a document. `vocab.json` does not mark it as special.
const END_OF_TEXT: &str = "<|endoftext|>";
/// Rank of a pair that does not merge. [`MAX_TOKENS`] excludes it for merges.
const NO_RANK: u32 = u32::MAX;
/// Index that means "no part".
const NO_PART: usize = usize::MAX;

/// Byte-level BPE tokenizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteBpe {
    /// Bytes of all tokens, in the order of the ids.
    bytes: Vec<u8>,
    /// End of each token's bytes, by id. Ids may have gaps.
    tokens: Vec<Token>,
    /// Token of each byte.
    byte_ids: Box<[u32; 256]>,
    /// Mergeable pairs, sorted by their ids for binary search. Unlike a hash map, no input makes it slow.
    pairs: Vec<Pair>,
    /// Token that a pair becomes, by rank.
    merged: Vec<u32>,
    /// Added tokens, sorted by text.
    added: Vec<(String, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    id: u32,
    /// End offset in [`ByteBpe::bytes`]. The token begins at the previous token's end.
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    left: u32,
    right: u32,
    /// Rank: the number of merges learnt before.
    rank: u32,
}

/// A part of a text from [`ByteBpe::split_special`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'t> {
    /// Ordinary text, to be split by [`SPLIT_PATTERN`].
    Text(&'t str),
    /// Id of an added token.
    Special(u32),
}

/// A part of a piece during merging; initially one byte.
#[derive(Clone, Copy)]
struct Node {
    id: u32,
    /// Rank of the pair formed with the next part.
    rank: u32,
    previous: usize,
    next: usize,
}

impl ByteBpe {
    /// Reads Hugging Face's `tokenizer.json`.
    ///
    /// # Errors
    /// Returns an error if the file has another format, is inconsistent, or uses an unsupported feature.
    pub fn from_tokenizer_json(json: &[u8]) -> Result<Self, BpeError> {
        let (vocab, merges, added) = file::tokenizer_json(json)?;
        Self::new([TokenizerFile::TokenizerJson; 2], &vocab, &merges, &added)
    }

    /// Reads `vocab.json` and `merges.txt`, named `encoder.json` and `vocab.bpe` by OpenAI.
    ///
    /// `<|endoftext|>` becomes an added token if it is in the vocabulary, because the files do not mark added tokens.
    ///
    /// # Errors
    /// Returns an error if the files have another format or are inconsistent.
    pub fn from_vocab_and_merges(vocab: &[u8], merges: &[u8]) -> Result<Self, BpeError> {
        let (vocab, merges) = (file::vocab_json(vocab)?, file::merges_txt(merges)?);
        let end = vocab.tokens().find(|(text, _)| *text == END_OF_TEXT).map(|(text, id)| (text.to_owned(), id));
        Self::new([TokenizerFile::Vocab, TokenizerFile::Merges], &vocab, &merges, end.as_slice())
    }

    /// Creates a tokenizer from the files' contents. `files` are the vocabulary's and the merges' file, for errors.
    fn new(
        files: [TokenizerFile; 2],
        vocab: &VocabTokens,
        merges: &Merges,
        added: &[(String, u32)],
    ) -> Result<Self, BpeError> {
        let added = sorted(added, Ord::cmp);
        let by_text = sorted_by_text(files[0], vocab)?;
        let id_of = |text: &str| find(&by_text, text);
        let (bytes, tokens) = token_table(files[0], &by_text, &added)?;
        let mut byte_ids = Box::new([0; 256]);
        for byte in 0..=u8::MAX {
            let id = id_of(byte_char(byte).encode_utf8(&mut [0; 4]));
            byte_ids[usize::from(byte)] = id.ok_or(BpeError::MissingByte { file: files[0], byte })?;
        }
        let (pairs, merged) = merge_table(files[1], merges, id_of)?;
        Ok(Self { bytes, tokens, byte_ids, pairs, merged, added })
    }

    /// Returns the number of tokens.
    #[must_use]
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the largest id plus one: the number of rows in a model's token embedding.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        self.tokens.last().map_or(0, |token| token.id + 1)
    }

    /// Returns a token's bytes, which may be an incomplete character.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        let at = self.tokens.binary_search_by_key(&id, |token| token.id).ok()?;
        let start = at.checked_sub(1).map_or(0, |before| self.tokens[before].end);
        self.bytes.get(start..self.tokens[at].end)
    }

    /// Decodes ids to bytes, with those of U+FFFD for an unknown id. The bytes may not be UTF-8 while a character is
    /// incomplete.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for id in ids {
            bytes.extend_from_slice(self.token_bytes(*id).unwrap_or("\u{fffd}".as_bytes()));
        }
        bytes
    }

    /// Iterates over added tokens such as `<|endoftext|>` and their ids, sorted by text.
    pub fn special(&self) -> impl ExactSizeIterator<Item = (&str, u32)> {
        self.added.iter().map(|(text, id)| (text.as_str(), *id))
    }

    /// Splits a text at the added tokens that it contains, as nanoGPT's sample.py reads `<|endoftext|>` in a prompt. Of
    /// two tokens at one position the longer one is used. No part is empty.
    #[must_use]
    pub fn split_special<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let (mut start, mut at) = (0, 0);
        while let Some(char) = text[at..].chars().next() {
            let Some((len, id)) = self.special_at(&text.as_bytes()[at..]) else {
                at += char.len_utf8();
                continue;
            };
            parts.extend((start < at).then(|| Part::Text(&text[start..at])));
            parts.push(Part::Special(id));
            at += len;
            start = at;
        }
        parts.extend((start < at).then(|| Part::Text(&text[start..at])));
        parts
    }

    /// Returns the longest added token at the start of the text: its length and id.
    fn special_at(&self, text: &[u8]) -> Option<(usize, u32)> {
        let (mut candidates, mut longest) = (&self.added[..], None);
        for (len, byte) in text.iter().enumerate() {
            // The candidates share the prefix read so far and are sorted by the next byte. A candidate that ends here
            // is first.
            let next = |(text, _): &(String, u32)| text.as_bytes().get(len).copied();
            let start = candidates.partition_point(|added| next(added) < Some(*byte));
            let end = candidates.partition_point(|added| next(added) <= Some(*byte));
            candidates = &candidates[start..end];
            let Some((text, id)) = candidates.first() else { break };
            if text.len() == len + 1 {
                longest = Some((text.len(), *id));
            }
        }
        longest
    }

    /// Appends the ids of a piece, a match of [`SPLIT_PATTERN`]. Any other text is encoded as one piece. Added tokens
    /// are encoded like ordinary text.
    ///
    /// Takes O(n log n) time for n bytes.
    pub fn encode_piece(&self, piece: &str, out: &mut Vec<u32>) {
        let bytes = piece.as_bytes();
        let part = |(at, byte): (usize, &u8)| Node {
            id: self.byte_ids[usize::from(*byte)],
            rank: NO_RANK,
            previous: at.checked_sub(1).unwrap_or(NO_PART),
            next: if at + 1 < bytes.len() { at + 1 } else { NO_PART },
        };
        let mut nodes: Vec<Node> = bytes.iter().enumerate().map(part).collect();
        for at in 0..nodes.len() {
            nodes[at].rank = self.rank_at(&nodes, at);
        }
        let ranked = |(at, node): (usize, &Node)| (node.rank != NO_RANK).then_some(Reverse((node.rank, at)));
        let mut queue: BinaryHeap<_> = nodes.iter().enumerate().filter_map(ranked).collect();
        while let Some(Reverse((rank, at))) = queue.pop() {
            let Node { rank: current, previous, next: right, .. } = nodes[at];
            if rank != current {
                // One of the two has been merged since.
                continue;
            }
            let next = nodes[right].next;
            nodes[right].rank = NO_RANK;
            (nodes[at].id, nodes[at].next) = (self.merged[rank as usize], next);
            if next != NO_PART {
                nodes[next].previous = at;
            }
            for at in [previous, at].into_iter().filter(|at| *at != NO_PART) {
                nodes[at].rank = self.rank_at(&nodes, at);
                queue.extend((nodes[at].rank != NO_RANK).then(|| Reverse((nodes[at].rank, at))));
            }
        }
        // The first part absorbs others and is never absorbed.
        let mut at = if nodes.is_empty() { NO_PART } else { 0 };
        while at != NO_PART {
            out.push(nodes[at].id);
            at = nodes[at].next;
        }
    }

    /// Returns the rank of a part and the next one.
    fn rank_at(&self, nodes: &[Node], at: usize) -> u32 {
        let Some(right) = nodes.get(nodes[at].next) else { return NO_RANK };
        let pair = (nodes[at].id, right.id);
        match self.pairs.binary_search_by_key(&pair, |pair| (pair.left, pair.right)) {
            Ok(found) => self.pairs[found].rank,
            Err(_) => NO_RANK,
        }
    }
}

fn find(by_text: &[(&str, u32)], text: &str) -> Option<u32> {
    by_text.binary_search_by_key(&text, |(text, _)| text).ok().map(|at| by_text[at].1)
}

/// Returns the vocabulary sorted by text, for binary search.
fn sorted_by_text(file: TokenizerFile, vocab: &VocabTokens) -> Result<Vec<(&str, u32)>, BpeError> {
    let by_text: Vec<(&str, u32)> = vocab.tokens().collect();
    let by_text = sorted(&by_text, Ord::cmp);
    if let Some((text, _)) = by_text.iter().find(|(_, id)| !is_id(*id)) {
        return Err(BpeError::id_range(file, text));
    }
    match by_text.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(BpeError::token_twice(file, pair[0].0)),
        None => Ok(by_text),
    }
}

fn is_id(id: u32) -> bool {
    (id as usize) < MAX_TOKENS
}

/// Builds the table of token bytes by id. `added` is sorted.
fn token_table(
    file: TokenizerFile,
    by_text: &[(&str, u32)],
    added: &[(String, u32)],
) -> Result<(Vec<u8>, Vec<Token>), BpeError> {
    let mut texts: Vec<(u32, &str, bool)> = by_text.iter().map(|(text, id)| (*id, *text, false)).collect();
    for (at, (text, id)) in added.iter().enumerate() {
        if text.is_empty() || text.len() > MAX_ADDED_BYTES {
            return Err(BpeError::unsupported("added_tokens", text));
        }
        let in_vocab = find(by_text, text);
        if at > 0 && added[at - 1].0 == *text || in_vocab.is_some_and(|other| other != *id) {
            return Err(BpeError::token_twice(file, text));
        }
        if !is_id(*id) {
            return Err(BpeError::id_range(file, text));
        }
        if in_vocab.is_none() {
            texts.push((*id, text, true));
        } else if bytes_of(text).is_some_and(|bytes| bytes != text.as_bytes()) {
            // Its id would be ambiguous: the literal text, or the bytes that its characters represent.
            return Err(BpeError::unsupported("added_tokens", text));
        }
    }
    if texts.len() > MAX_TOKENS {
        return Err(BpeError::TooLarge { file });
    }
    let texts = sorted(&texts, Ord::cmp);
    let (mut bytes, mut tokens) = (Vec::new(), Vec::with_capacity(texts.len()));
    for (at, (id, text, is_added)) in texts.iter().enumerate() {
        if at > 0 && texts[at - 1].0 == *id {
            return Err(BpeError::IdTwice { file, id: *id });
        }
        let is_added = *is_added || added.binary_search_by_key(text, |(text, _)| text).is_ok();
        match bytes_of(text).filter(|_| !is_added) {
            Some(own) if !own.is_empty() => bytes.extend(own),
            _ if is_added => bytes.extend_from_slice(text.as_bytes()),
            _ => return Err(BpeError::bad_token(file, text)),
        }
        tokens.push(Token { id: *id, end: bytes.len() });
    }
    Ok((bytes, tokens))
}

/// Builds the sorted list of mergeable pairs, and their results by rank.
fn merge_table(
    file: TokenizerFile,
    merges: &Merges,
    id_of: impl Fn(&str) -> Option<u32>,
) -> Result<(Vec<Pair>, Vec<u32>), BpeError> {
    let (mut pairs, mut merged) = (Vec::with_capacity(merges.len()), Vec::with_capacity(merges.len()));
    let mut whole = String::new();
    for ((left, right), rank) in merges.pairs().zip(0..) {
        let known = |text: &str| id_of(text).ok_or_else(|| BpeError::merge_unknown(file, rank, text));
        whole.clear();
        whole.extend([left, right]);
        pairs.push(Pair { left: known(left)?, right: known(right)?, rank });
        merged.push(known(&whole)?);
    }
    let pairs = sorted(&pairs, Ord::cmp);
    let twice = pairs.windows(2).find(|two| (two[0].left, two[0].right) == (two[1].left, two[1].right));
    match twice {
        Some(two) => Err(BpeError::MergeTwice { file, merge: u64::from(two[1].rank) + 1 }),
        None => Ok((pairs, merged)),
    }
}
