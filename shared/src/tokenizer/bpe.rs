//! GPT-2's tokenizer: byte pairs, merged in the order in which they were learnt.
//!
//! As OpenAI's encoder.py does it (<https://github.com/openai/gpt-2/blob/master/src/encoder.py>): a text is cut into
//! pieces by a regular expression, [`SPLIT_PATTERN`], and each piece, as UTF-8, is merged pair by pair. Cutting is left to
//! whoever has an engine for the expression, which a browser has of itself; reading the vocabulary and merging are here.
//!
//! Of two pairs the one that was learnt first goes first, one place at a time from the left, as in Hugging Face's
//! tokenizers. encoder.py merges all places of a pair at once. That is the same wherever a pair was learnt after its parts,
//! as training has it.

mod alphabet;
mod error;
mod file;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BinaryHeap};

use alphabet::bytes_of;
use file::{Merges, Vocab};

use crate::order::sorted;

pub use alphabet::byte_char;
pub use error::{BpeError, TokenizerFile};

/// What cuts a text into pieces: GPT-2's expression, for JavaScript's `RegExp` with the flags `gu` and for Rust's
/// `fancy-regex` alike.
///
/// White space is named by its Unicode property: JavaScript's `\s` has U+FEFF, which GPT-2's has not, and lacks U+0085.
/// Every character of a text is in one of the pieces. Engines of different years differ in characters that Unicode has since
/// added.
pub const SPLIT_PATTERN: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+";

/// The most tokens, the most merges, and what every id is below: four times the largest vocabulary that models have.
pub const MAX_TOKENS: usize = 1_000_000;
/// The longest added token. A text is searched for them at each of its places.
const MAX_ADDED_BYTES: usize = 256;
/// GPT-2's token that ends a document. `vocab.json` does not say that it is no ordinary one.
const END_OF_TEXT: &str = "<|endoftext|>";
/// The rank of a pair that does not merge. No merge has it, by [`MAX_TOKENS`].
const NO_RANK: u32 = u32::MAX;
/// The place of a part that is not there.
const NO_PART: usize = usize::MAX;

/// Bytes to tokens and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByteBpe {
    /// Every token's bytes, in the order of the ids.
    bytes: Vec<u8>,
    /// By id, which may have gaps: where its bytes end.
    tokens: Vec<Token>,
    /// The token of each byte.
    byte_ids: Box<[u32; 256]>,
    /// Which pairs merge, by their ids. Sorted to be searched in: no input makes that slow, as it might a hash map.
    pairs: Vec<Pair>,
    /// What a pair becomes, by rank.
    merged: Vec<u32>,
    /// The added tokens, by their texts.
    added: Vec<(String, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    id: u32,
    /// In [`ByteBpe::bytes`]; it begins where the one before it ends.
    end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    left: u32,
    right: u32,
    /// How many merges were learnt before.
    rank: u32,
}

/// A part of a text as [`ByteBpe::split_special`] finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'t> {
    /// Ordinary text, to be cut by [`SPLIT_PATTERN`].
    Text(&'t str),
    /// An added token's id.
    Special(u32),
}

/// A part of a piece while it is merged: one byte at first.
#[derive(Clone, Copy)]
struct Node {
    id: u32,
    /// Of the pair that it makes with the next one.
    rank: u32,
    previous: usize,
    next: usize,
}

impl ByteBpe {
    /// Reads Hugging Face's `tokenizer.json`.
    ///
    /// # Errors
    /// It is no such file, contradicts itself, or asks for something that is not computed here.
    pub fn from_tokenizer_json(json: &[u8]) -> Result<Self, BpeError> {
        let (vocab, merges, added) = file::tokenizer_json(json)?;
        Self::new([TokenizerFile::TokenizerJson; 2], &vocab, &merges, &added)
    }

    /// Reads `vocab.json` and `merges.txt`, which OpenAI calls `encoder.json` and `vocab.bpe`.
    ///
    /// `<|endoftext|>` is an added token wherever it is in the vocabulary: the files name none.
    ///
    /// # Errors
    /// They are no such files, or contradict themselves or each other.
    pub fn from_vocab_and_merges(vocab: &[u8], merges: &[u8]) -> Result<Self, BpeError> {
        let (vocab, merges) = (file::vocab_json(vocab)?, file::merges_txt(merges)?);
        let end = vocab.tokens().find(|(text, _)| *text == END_OF_TEXT).map(|(text, id)| (text.to_owned(), id));
        Self::new([TokenizerFile::Vocab, TokenizerFile::Merges], &vocab, &merges, end.as_slice())
    }

    /// Of what the files hold. `files` are the vocabulary's and the merges', for errors.
    fn new(
        files: [TokenizerFile; 2],
        vocab: &Vocab,
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

    /// How many tokens there are.
    #[must_use]
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// One more than the largest id: how many rows a model's table of tokens needs.
    #[must_use]
    pub fn vocab_size(&self) -> u32 {
        self.tokens.last().map_or(0, |token| token.id + 1)
    }

    /// A token's bytes, which may be half a character.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        let at = self.tokens.binary_search_by_key(&id, |token| token.id).ok()?;
        let start = at.checked_sub(1).map_or(0, |before| self.tokens[before].end);
        self.bytes.get(start..self.tokens[at].end)
    }

    /// The bytes of ids; those of U+FFFD for an id that no token has. They need not be UTF-8 before a model ends a
    /// character that it has begun.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for id in ids {
            bytes.extend_from_slice(self.token_bytes(*id).unwrap_or("\u{fffd}".as_bytes()));
        }
        bytes
    }

    /// Added tokens and their ids, like `<|endoftext|>`, sorted by text.
    pub fn special(&self) -> impl ExactSizeIterator<Item = (&str, u32)> {
        self.added.iter().map(|(text, id)| (text.as_str(), *id))
    }

    /// A text around the added tokens that it spells, as nanoGPT's sample.py reads `<|endoftext|>` in a prompt. Of two at
    /// one place it is the longer one; no part is empty.
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

    /// The longest added token that the text begins with, and its length.
    fn special_at(&self, text: &[u8]) -> Option<(usize, u32)> {
        let (mut candidates, mut longest) = (&self.added[..], None);
        for (len, byte) in text.iter().enumerate() {
            // They agree with the text so far, and are sorted by what follows; one that ends here is the first.
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

    /// Adds the ids of a piece, which is a match of [`SPLIT_PATTERN`]; of any text, taken as one piece. An added token is
    /// spelt out like any other word.
    ///
    /// Takes n log n for n bytes, whatever they are.
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
                // One of the two has become part of another since.
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
        // The first part takes others in and is never taken in.
        let mut at = if nodes.is_empty() { NO_PART } else { 0 };
        while at != NO_PART {
            out.push(nodes[at].id);
            at = nodes[at].next;
        }
    }

    /// The rank of a part and the next one.
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

/// The vocabulary to be searched in by text.
fn sorted_by_text(file: TokenizerFile, vocab: &Vocab) -> Result<Vec<(&str, u32)>, BpeError> {
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

/// Every token's bytes, by id. `added` is sorted.
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
            // Its id would be two things: the text that is spelt so, and the bytes that those characters stand for.
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

/// The pairs that merge, sorted, and what they become, by rank.
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
