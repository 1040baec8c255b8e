//! Generates GPT-2's tokenizer as a `tokenizer.json`. Pages read this file and include no vocabulary of their own.
//!
//! tiktoken stores the bytes of tokens but no merges. The merges are reconstructed: the two parts of a token are the
//! result of merging its bytes with the tokens learnt before it.

use std::{collections::HashMap, sync::LazyLock};

use headroom_tokenizer::bpe::byte_char;
use serde_json::{Map, Value, json};

use super::{END_OF_TEXT, END_OF_TEXT_ID, gpt2};

/// The file of 1.3 MB, generated once per process at the first call.
static FILE: LazyLock<Option<String>> = LazyLock::new(made);

/// Returns the file in the format of Hugging Face's GPT-2. The first call takes a fraction of a second. Returns `None`
/// if tiktoken's table is not GPT-2's, which is true of no known version.
pub fn tokenizer_json() -> Option<&'static str> {
    FILE.as_deref()
}

fn made() -> Option<String> {
    let tokens: Option<Vec<Vec<u8>>> = (0..END_OF_TEXT_ID).map(|id| gpt2().decode_bytes(&[id]).ok()).collect();
    let tokens = tokens?;
    let ids: HashMap<&[u8], usize> = tokens.iter().enumerate().map(|(id, token)| (&token[..], id)).collect();
    let written = |token: &[u8]| token.iter().copied().map(byte_char).collect::<String>();
    let (mut vocab, mut merges) = (Map::new(), Vec::new());
    for (id, token) in tokens.iter().enumerate() {
        vocab.insert(written(token), json!(id));
        if token.len() > 1 {
            let (left, right) = parts(&ids, token, id)?;
            merges.push(format!("{} {}", written(left), written(right)));
        }
    }
    vocab.insert(END_OF_TEXT.to_owned(), json!(END_OF_TEXT_ID));
    let file = json!({
        "version": "1.0",
        "added_tokens": [{ "id": END_OF_TEXT_ID, "content": END_OF_TEXT, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": true, "special": true }],
        "normalizer": null,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "post_processor": null,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": { "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "vocab": Value::Object(vocab), "merges": merges },
    });
    Some(file.to_string())
}

/// Returns the parts into which the tokens before `id` merge a token's bytes.
fn parts<'t>(ids: &HashMap<&[u8], usize>, token: &'t [u8], id: usize) -> Option<(&'t [u8], &'t [u8])> {
    let mut ends: Vec<usize> = (0..=token.len()).collect();
    while ends.len() > 3 {
        let merged = ends.windows(3).enumerate().filter_map(|(at, three)| {
            let id = ids.get(&token[three[0]..three[2]]).filter(|other| **other < id)?;
            Some((*id, at + 1))
        });
        // Every token was learnt as a pair.
        let (_, at) = merged.min()?;
        ends.remove(at);
    }
    Some(token.split_at(*ends.get(1)?))
}
