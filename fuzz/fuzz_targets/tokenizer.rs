//! Fuzzes tokenizer files: any bytes as `tokenizer.json`, as `vocab.json` and `merges.txt`, as changes to a valid file,
//! as merges with a text, and as nanoGPT's `meta.pkl`. Each input is parsed or rejected with a short message. Encoded
//! text decodes to the same bytes.
#![no_main]

use std::sync::LazyLock;

use headroom_tokenizer::{
    CharTokenizer,
    bpe::{BpeError, ByteBpe, MAX_TOKENS, Part},
    meta::{Meta, MetaError},
};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};

/// Maximum length of a message: quotations from the file are shortened.
const MAX_MESSAGE_BYTES: usize = 1_000;
/// Maximum length of a merged token: each merge may double the length.
const MAX_TOKEN_CHARS: usize = 64;
/// Maximum number of merges compared with the slow implementation.
const MAX_MERGES: usize = 64;

/// A valid file to modify.
static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut vocab: Map<String, Value> = alphabet().zip(0..).map(|(char, id)| (char.into(), json!(id))).collect();
    vocab.insert("he".to_owned(), json!(256));
    vocab.insert("Ġhe".to_owned(), json!(257));
    let file = json!({
        "added_tokens": [{ "id": 258, "content": "<|endoftext|>" }],
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false },
        "decoder": { "type": "ByteLevel" },
        "model": { "type": "BPE", "vocab": vocab, "merges": ["h e", ["Ġ", "he"]] },
    });
    file.to_string().into_bytes()
});

/// A valid pickle to modify.
static PICKLED: LazyLock<Vec<u8>> = LazyLock::new(|| Meta::of_chars(&CharTokenizer::of_text("héllo\n 世")));

/// The characters that represent bytes, in another order than the bytes.
fn alphabet() -> impl Iterator<Item = char> {
    ('!'..='~').chain('¡'..='¬').chain('®'..='ÿ').chain('\u{100}'..='\u{143}')
}

fn is_brief_message(error: &BpeError) {
    let message = error.to_string();
    assert!(message.len() <= MAX_MESSAGE_BYTES, "{} bytes", message.len());
    assert!(!message.contains(|char: char| char.is_control()), "{message:?}");
}

fn is_read_or_refused(read: Result<ByteBpe, BpeError>, text: &str, file_bytes: usize) {
    let tokenizer = match read {
        Ok(tokenizer) => tokenizer,
        Err(error) => return is_brief_message(&error),
    };
    let (n_tokens, vocab_size) = (tokenizer.n_tokens(), tokenizer.vocab_size());
    assert!(n_tokens <= file_bytes && n_tokens <= vocab_size as usize && vocab_size as usize <= MAX_TOKENS);
    assert!(tokenizer.token_bytes(vocab_size - 1).is_some_and(|bytes| !bytes.is_empty()));
    for (special, id) in tokenizer.special() {
        assert_eq!(tokenizer.token_bytes(id), Some(special.as_bytes()));
    }
    let mut ids = Vec::new();
    for part in tokenizer.split_special(text) {
        match part {
            Part::Text(text) => tokenizer.encode_piece(text, &mut ids),
            Part::Special(id) => ids.push(id),
        }
    }
    assert!(ids.len() <= text.len());
    assert_eq!(tokenizer.decode(&ids), text.as_bytes());
}

/// Checks that a pickle gives values, or an error with a position.
fn is_unpickled_or_refused(bytes: &[u8]) {
    let meta = match Meta::parse(bytes) {
        Ok(meta) => meta,
        Err(error) => {
            assert!(!matches!(error, MetaError::Pickle(error) if error.at > bytes.len()), "{error}");
            assert!(error.to_string().len() <= MAX_MESSAGE_BYTES);
            return;
        }
    };
    match meta.chars {
        Ok(chars) => {
            assert!(chars.vocab_size() <= bytes.len() && chars.vocab_size() <= meta.vocab_size as usize);
            let again = Meta::parse(&Meta::of_chars(&chars)).map(|meta| meta.chars);
            assert!(chars.vocab_size() == 0 || again == Ok(Ok(chars)));
        }
        Err(error) => assert!(error.to_string().len() <= MAX_MESSAGE_BYTES),
    }
}

/// Returns a valid file with bytes changed, each given by a position and a value, and truncated.
fn changed(good: &[u8], data: &[u8]) -> Vec<u8> {
    let mut file = good.to_vec();
    for change in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        match file.get_mut(at) {
            Some(byte) => *byte = change[2],
            None => file.truncate(at % (2 * good.len())),
        }
    }
    file
}

/// Builds merges of the tokens so far, given by two bytes each up to a zero, and encodes the text after it.
fn is_merged_in_order(data: &[u8]) {
    let (made_of, text) = halves(data);
    let text = String::from_utf8_lossy(text);
    let mut tokens: Vec<String> = alphabet().map(String::from).collect();
    let mut merges: Vec<(usize, usize, usize)> = Vec::new();
    for pair in made_of.chunks_exact(2).take(MAX_MERGES) {
        // Byte values from 0xc0 select from the last tokens.
        let place =
            |byte: u8| if byte < 0xc0 { usize::from(byte) } else { tokens.len() - 1 - usize::from(byte - 0xc0) };
        let (left, right) = (place(pair[0]), place(pair[1]));
        let token = format!("{}{}", tokens[left], tokens[right]);
        let is_known = merges.iter().any(|merge| (merge.0, merge.1) == (left, right));
        if !is_known && token.chars().count() <= MAX_TOKEN_CHARS {
            let id = tokens.iter().position(|other| *other == token).unwrap_or(tokens.len());
            if id == tokens.len() {
                tokens.push(token);
            }
            merges.push((left, right, id));
        }
    }
    let lines: String = merges.iter().map(|merge| format!("{} {}\n", tokens[merge.0], tokens[merge.1])).collect();
    let vocab: Map<String, Value> = tokens.iter().cloned().zip((0..).map(|id| json!(id))).collect();
    let vocab = Value::Object(vocab).to_string();
    let tokenizer = ByteBpe::from_vocab_and_merges(vocab.as_bytes(), lines.as_bytes()).expect("a good tokenizer");

    let mut ids = Vec::new();
    tokenizer.encode_piece(&text, &mut ids);
    assert_eq!(tokenizer.decode(&ids), text.as_bytes());

    // Repeatedly merges the pair of lowest rank at its leftmost position, starting with bytes, which are the first
    // tokens.
    let byte_id = |byte: u8| (0..256).find(|id| tokenizer.token_bytes(*id) == Some(&[byte])).expect("every byte");
    let byte_ids: Vec<usize> = (0..=u8::MAX).map(|byte| byte_id(byte) as usize).collect();
    let mut plain: Vec<usize> = text.bytes().map(|byte| byte_ids[usize::from(byte)]).collect();
    // A merge may be enabled only by one that was learnt later.
    while let Some(merge) = merges.iter().find(|merge| plain.windows(2).any(|pair| pair == [merge.0, merge.1])) {
        let at = plain.windows(2).position(|pair| pair == [merge.0, merge.1]).expect("it was found");
        plain.splice(at..at + 2, [merge.2]);
    }
    assert!(ids.iter().map(|id| *id as usize).eq(plain));
}

/// Splits the data at the first zero byte.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    let middle = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    (&data[..middle], data.get(middle + 1..).unwrap_or_default())
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    is_read_or_refused(ByteBpe::from_tokenizer_json(data), &text, data.len());
    let (vocab, merges) = halves(data);
    is_read_or_refused(ByteBpe::from_vocab_and_merges(vocab, merges), &text, data.len());
    let file = changed(&GOOD, data);
    is_read_or_refused(ByteBpe::from_tokenizer_json(&file), &text, file.len());
    is_unpickled_or_refused(data);
    is_unpickled_or_refused(&changed(&PICKLED, data));
    is_merged_in_order(data);
});
