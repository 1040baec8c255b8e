//! GPT-2's tokenizer as the `tokenizer.json` that lies beside models, for pages: they read that file and carry none.
//!
//! tiktoken keeps a token's bytes and no merges. The merges are made of those: a token's two parts are what its bytes merge
//! to by the tokens that were learnt before it.

use std::{collections::HashMap, sync::LazyLock};

use headroom_shared::tokenizer::bpe::byte_char;
use serde_json::{Map, Value, json};

use super::{END_OF_TEXT, END_OF_TEXT_ID, gpt2};

/// 1.3 MB, made once a program, at the first question.
static FILE: LazyLock<Option<String>> = LazyLock::new(made);

/// The file, of the form that Hugging Face's GPT-2 has; none where tiktoken's table were not GPT-2's, which no version is
/// known for. The first call takes a fraction of a second.
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

/// What a token's bytes merge to by the tokens before it.
fn parts<'t>(ids: &HashMap<&[u8], usize>, token: &'t [u8], id: usize) -> Option<(&'t [u8], &'t [u8])> {
    let mut ends: Vec<usize> = (0..=token.len()).collect();
    while ends.len() > 3 {
        let merged = ends.windows(3).enumerate().filter_map(|(at, three)| {
            let id = ids.get(&token[three[0]..three[2]]).filter(|other| **other < id)?;
            Some((*id, at + 1))
        });
        // Every token was learnt as two.
        let (_, at) = merged.min()?;
        ends.remove(at);
    }
    Some(token.split_at(*ends.get(1)?))
}
