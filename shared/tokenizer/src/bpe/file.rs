//! Parser of tokenizer files. It extracts tokens and merges, and rejects unsupported features that would change the
//! ids.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Number;

use super::{BpeError, MAX_TOKENS, TokenizerFile};

/// First word of `merges.txt`. The line contains a blank but is not a merge.
const VERSION: &str = "#version";
/// Marks an invalid id; above all valid ids.
const NO_ID: u32 = u32::MAX;

/// List of strings in one buffer: a vocabulary has fifty thousand.
#[derive(Debug, Default)]
struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        self.ends.iter().scan(0, |start, end| {
            let text = &self.text[*start..*end];
            *start = *end;
            Some(text)
        })
    }
}

/// Tokens of a vocabulary and their ids, not yet validated.
#[derive(Debug, Default)]
pub(super) struct VocabTokens {
    texts: Strings,
    ids: Vec<u32>,
    /// Whether the file has a list here, as for another kind of tokenizer.
    is_list: bool,
}

impl VocabTokens {
    pub(super) fn tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        self.texts.iter().zip(self.ids.iter().copied())
    }

    fn checked(self, file: TokenizerFile) -> Result<Self, BpeError> {
        if self.ids.len() > MAX_TOKENS { Err(BpeError::TooLarge { file }) } else { Ok(self) }
    }
}

/// Merges, not yet validated, in the order of learning.
#[derive(Debug, Default)]
pub(super) struct Merges {
    /// Left and right parts, alternating.
    texts: Strings,
    /// Number of the first merge that is not two tokens, from 1.
    bad: Option<u64>,
}

impl Merges {
    pub(super) fn len(&self) -> usize {
        self.texts.ends.len() / 2
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut texts = self.texts.iter();
        std::iter::from_fn(move || Some((texts.next()?, texts.next()?)))
    }

    /// Parses `left right`.
    fn push_line(&mut self, line: &str) {
        match line.split_once(' ') {
            Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
                self.texts.push(left);
                self.texts.push(right);
            }
            _ => self.push_bad(),
        }
    }

    fn push_bad(&mut self) {
        let number = self.len() as u64 + 1;
        self.bad.get_or_insert(number);
    }

    fn is_full(&self) -> bool {
        self.len() > MAX_TOKENS || self.bad.is_some()
    }

    fn checked(self, file: TokenizerFile) -> Result<Self, BpeError> {
        match self.bad {
            Some(merge) => Err(BpeError::BadMerge { file, merge }),
            None if self.len() > MAX_TOKENS => Err(BpeError::TooLarge { file }),
            None => Ok(self),
        }
    }
}

/// Appends a JSON string to the buffer without an intermediate allocation.
struct Push<'a>(&'a mut Strings);

impl<'de> DeserializeSeed<'de> for Push<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Push<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a token")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0.push(text);
        Ok(())
    }
}

struct VocabVisitor;

impl<'de> Visitor<'de> for VocabVisitor {
    type Value = VocabTokens;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tokens with their ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabTokens, A::Error> {
        let mut vocab = VocabTokens::default();
        // One more than the maximum shows that there are too many.
        while vocab.ids.len() <= MAX_TOKENS {
            if map.next_key_seed(Push(&mut vocab.texts))?.is_none() {
                return Ok(vocab);
            }
            let id = map.next_value::<Number>()?.as_u64().and_then(|id| u32::try_from(id).ok());
            vocab.ids.push(id.unwrap_or(NO_ID));
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(vocab)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<VocabTokens, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(VocabTokens { is_list: true, ..VocabTokens::default() })
    }
}

impl<'de> Deserialize<'de> for VocabTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VocabVisitor)
    }
}

struct MergesVisitor;

impl<'de> Visitor<'de> for MergesVisitor {
    type Value = Merges;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merges, A::Error> {
        let mut merges = Merges::default();
        while !merges.is_full() {
            if list.next_element_seed(PushMerge(&mut merges))?.is_none() {
                return Ok(merges);
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(merges)
    }
}

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(MergesVisitor)
    }
}

/// Parses the original form `"left right"`, or `["left", "right"]`, in which tokens may contain blanks.
struct PushMerge<'a>(&'a mut Merges);

impl<'de> DeserializeSeed<'de> for PushMerge<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PushMerge<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("two tokens")
    }

    fn visit_str<E: Error>(self, line: &str) -> Result<(), E> {
        self.0.push_line(line);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let number = self.0.len();
        let texts = &mut self.0.texts;
        let left = list.next_element_seed(Push(texts))?;
        let both = left.and(list.next_element_seed(Push(texts))?);
        let mut is_pair = both.is_some();
        while list.next_element::<IgnoredAny>()?.is_some() {
            is_pair = false;
        }
        if !is_pair {
            // It may contain an unpaired surrogate, which cannot be parsed.
            self.0.bad.get_or_insert(number as u64 + 1);
        }
        Ok(())
    }
}

/// The parts of `tokenizer.json` that affect the ids. `truncation` and `padding` do not: they are for batches.
#[derive(Deserialize)]
struct TokenizerJson {
    model: Option<Model>,
    added_tokens: Option<Vec<AddedToken>>,
    normalizer: Option<Component>,
    pre_tokenizer: Option<Component>,
    post_processor: Option<Component>,
    decoder: Option<Component>,
}

#[derive(Deserialize)]
struct Model {
    /// Type of the model. GPT-2's own file is older than this key.
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: Option<VocabTokens>,
    merges: Option<Merges>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: Number,
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

/// A processing step before or after the model.
#[derive(Deserialize)]
struct Component {
    #[serde(rename = "type")]
    kind: String,
    /// Steps of a `Sequence`.
    #[serde(alias = "processors", alias = "decoders", alias = "normalizers")]
    pretokenizers: Option<Vec<Component>>,
    add_prefix_space: Option<bool>,
    /// Whether GPT-2's regular expression splits the text.
    use_regex: Option<bool>,
}

impl Component {
    /// Returns the single step; a sequence of one step is that step.
    fn step(&self) -> &Self {
        match self.pretokenizers.as_deref() {
            Some([only]) if self.kind == "Sequence" => only,
            _ => self,
        }
    }

    fn is_byte_level(&self) -> bool {
        self.step().kind == "ByteLevel"
    }
}

/// Texts of added tokens and their ids, not yet validated.
type AddedTokens = Vec<(String, u32)>;

/// Parses a `tokenizer.json`.
pub(super) fn tokenizer_json(json: &[u8]) -> Result<(VocabTokens, Merges, AddedTokens), BpeError> {
    let file = TokenizerFile::TokenizerJson;
    let read: TokenizerJson = serde_json::from_slice(json).map_err(|error| unreadable(file, &error))?;
    let added = checked_steps(&read)?;
    let model = read.model.ok_or(BpeError::Lacks { part: "model" })?;
    let (vocab, merges) = checked_model(model)?;
    Ok((vocab.checked(file)?, merges.checked(file)?, added))
}

/// Rejects steps that GPT-2 does not have, and returns the added tokens.
fn checked_steps(read: &TokenizerJson) -> Result<AddedTokens, BpeError> {
    // Another model also has other steps, but is the more helpful error.
    if let Some(kind) = read.model.as_ref().and_then(|model| model.kind.as_ref()).filter(|kind| *kind != "BPE") {
        return Err(BpeError::other_model(kind));
    }
    if let Some(step) = &read.normalizer {
        return Err(BpeError::unsupported("normalizer", &step.kind));
    }
    let step = read.pre_tokenizer.as_ref().ok_or_else(|| BpeError::unsupported("pre_tokenizer", "null"))?;
    let steps = [
        ("pre_tokenizer", Some(step)),
        ("post_processor", read.post_processor.as_ref()),
        ("decoder", read.decoder.as_ref()),
    ];
    for (key, step) in steps {
        if let Some(other) = step.filter(|step| !step.is_byte_level()) {
            return Err(BpeError::unsupported(key, &other.step().kind));
        }
    }
    // In the other two steps this key concerns token positions in the text, not ids.
    if step.step().add_prefix_space == Some(true) {
        return Err(BpeError::unsupported("pre_tokenizer.add_prefix_space", "true"));
    }
    if step.step().use_regex == Some(false) {
        return Err(BpeError::unsupported("pre_tokenizer.use_regex", "false"));
    }
    let mut added = Vec::new();
    for token in read.added_tokens.iter().flatten() {
        let asked = [("single_word", token.single_word), ("lstrip", token.lstrip), ("rstrip", token.rstrip)];
        if let Some((key, _)) = asked.iter().find(|(_, is_asked)| *is_asked) {
            return Err(BpeError::unsupported(&format!("added_tokens.{key}"), &token.content));
        }
        let id = token.id.as_u64().and_then(|id| u32::try_from(id).ok());
        added.push((token.content.clone(), id.unwrap_or(NO_ID)));
    }
    Ok(added)
}

fn checked_model(model: Model) -> Result<(VocabTokens, Merges), BpeError> {
    if let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0) {
        return Err(BpeError::unsupported("model.dropout", &dropout.to_string()));
    }
    let affixes = [
        ("model.continuing_subword_prefix", model.continuing_subword_prefix),
        ("model.end_of_word_suffix", model.end_of_word_suffix),
    ];
    for (key, affix) in affixes {
        if let Some(affix) = affix.filter(|affix| !affix.is_empty()) {
            return Err(BpeError::unsupported(key, &affix));
        }
    }
    for (key, is_asked) in [("model.byte_fallback", model.byte_fallback), ("model.ignore_merges", model.ignore_merges)]
    {
        if is_asked == Some(true) {
            return Err(BpeError::unsupported(key, "true"));
        }
    }
    let vocab = model.vocab.filter(|vocab| !vocab.is_list).ok_or(BpeError::Lacks { part: "model.vocab" })?;
    let merges = model.merges.ok_or(BpeError::Lacks { part: "model.merges" })?;
    Ok((vocab, merges))
}

/// Parses a `vocab.json`.
pub(super) fn vocab_json(json: &[u8]) -> Result<VocabTokens, BpeError> {
    let file = TokenizerFile::Vocab;
    let vocab: VocabTokens = serde_json::from_slice(json).map_err(|error| unreadable(file, &error))?;
    if vocab.is_list {
        return Err(BpeError::Unreadable { file, line: 1, column: 1 });
    }
    vocab.checked(file)
}

/// Parses a `merges.txt`: one merge per line, with any line ending.
pub(super) fn merges_txt(bytes: &[u8]) -> Result<Merges, BpeError> {
    let file = TokenizerFile::Merges;
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = good.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        BpeError::Unreadable { file, line, column }
    })?;
    let mut merges = Merges::default();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || at == 0 && line.starts_with(VERSION) {
            continue;
        }
        merges.push_line(line);
        if merges.is_full() {
            break;
        }
    }
    merges.checked(file)
}

/// Returns an error with only the position: serde_json's messages are not translated.
fn unreadable(file: TokenizerFile, error: &serde_json::Error) -> BpeError {
    BpeError::Unreadable { file, line: error.line().max(1), column: error.column().max(1) }
}
