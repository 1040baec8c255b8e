//! The files of a tokenizer as they are written. Nothing is kept of them beyond their tokens and merges, and what would
//! change the ids in a way that is not computed is refused.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Number;

use super::{BpeError, MAX_TOKENS, TokenizerFile};

/// What `merges.txt` begins with; no merge, though it has a blank.
const VERSION: &str = "#version";
/// For an id that is none; it is above every id.
const NO_ID: u32 = u32::MAX;

/// Strings in one: a vocabulary has fifty thousand.
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

/// The tokens of a vocabulary and their ids, unchecked.
#[derive(Debug, Default)]
pub(super) struct Vocab {
    texts: Strings,
    ids: Vec<u32>,
    /// Another kind of tokenizer has a list here.
    is_list: bool,
}

impl Vocab {
    pub(super) fn tokens(&self) -> impl Iterator<Item = (&str, u32)> {
        self.texts.iter().zip(self.ids.iter().copied())
    }

    fn checked(self, file: TokenizerFile) -> Result<Self, BpeError> {
        if self.ids.len() > MAX_TOKENS { Err(BpeError::TooLarge { file }) } else { Ok(self) }
    }
}

/// The merges, unchecked, first learnt first.
#[derive(Debug, Default)]
pub(super) struct Merges {
    /// Left and right in turn.
    texts: Strings,
    /// The first that is not two tokens, from 1.
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

    /// Takes `left right`.
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

/// Puts a string of JSON behind others, without one of its own between.
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
    type Value = Vocab;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tokens with their ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
        let mut vocab = Vocab::default();
        // One more than there may be shows that there are too many.
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Vocab { is_list: true, ..Vocab::default() })
    }
}

impl<'de> Deserialize<'de> for Vocab {
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

/// Takes `"left right"` as it was written at first, or `["left", "right"]`, in which tokens may have blanks.
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
            // Half a pair may stand there, which nothing reads.
            self.0.bad.get_or_insert(number as u64 + 1);
        }
        Ok(())
    }
}

/// What of `tokenizer.json` bears on the ids. `truncation` and `padding` do not: they are for batches.
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
    /// GPT-2's own file is older than this key.
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    byte_fallback: Option<bool>,
    ignore_merges: Option<bool>,
    vocab: Option<Vocab>,
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

/// A step before or after the model.
#[derive(Deserialize)]
struct Component {
    #[serde(rename = "type")]
    kind: String,
    /// Of a `Sequence`.
    #[serde(alias = "processors", alias = "decoders", alias = "normalizers")]
    pretokenizers: Option<Vec<Component>>,
    add_prefix_space: Option<bool>,
    /// Whether GPT-2's expression cuts the text.
    use_regex: Option<bool>,
}

impl Component {
    /// The one step that it is; a sequence of one is that one.
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

/// Texts of added tokens and their ids, unchecked.
type Added = Vec<(String, u32)>;

/// Reads a `tokenizer.json`.
pub(super) fn tokenizer_json(json: &[u8]) -> Result<(Vocab, Merges, Added), BpeError> {
    let file = TokenizerFile::TokenizerJson;
    let read: TokenizerJson = serde_json::from_slice(json).map_err(|error| unreadable(file, &error))?;
    let added = checked_steps(&read)?;
    let model = read.model.ok_or(BpeError::Lacks { part: "model" })?;
    let (vocab, merges) = checked_model(model)?;
    Ok((vocab.checked(file)?, merges.checked(file)?, added))
}

/// Refuses a step that is none of GPT-2's, and gives the added tokens.
fn checked_steps(read: &TokenizerJson) -> Result<Added, BpeError> {
    // Another model has other steps too, and is the better reason.
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
    // The same key of the other two is about the places of tokens in the text, not about ids.
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

fn checked_model(model: Model) -> Result<(Vocab, Merges), BpeError> {
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

/// Reads a `vocab.json`.
pub(super) fn vocab_json(json: &[u8]) -> Result<Vocab, BpeError> {
    let file = TokenizerFile::Vocab;
    let vocab: Vocab = serde_json::from_slice(json).map_err(|error| unreadable(file, &error))?;
    if vocab.is_list {
        return Err(BpeError::Unreadable { file, line: 1, column: 1 });
    }
    vocab.checked(file)
}

/// Reads a `merges.txt`: a merge a line, whatever the lines end with.
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

/// Only the place: the reader's words are in one language.
fn unreadable(file: TokenizerFile, error: &serde_json::Error) -> BpeError {
    BpeError::Unreadable { file, line: error.line().max(1), column: error.column().max(1) }
}
