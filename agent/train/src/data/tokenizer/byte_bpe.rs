//! Compares the byte pair encoding of `headroom_tokenizer` with `tiktoken-rs` on GPT-2's own vocabulary, from the file
//! that the agent generates from tiktoken's table.

use std::sync::LazyLock;

use fancy_regex::Regex;
use headroom_tokenizer::bpe::{ByteBpe, Part, SPLIT_PATTERN};
use serde_json::Value;

use super::{END_OF_TEXT, END_OF_TEXT_ID, GPT2_VOCAB_SIZE, gpt2, tokenizer_json};
use crate::data::corpus;

static FILES: LazyLock<(String, String)> = LazyLock::new(files);
static OURS: LazyLock<ByteBpe> = LazyLock::new(|| {
    let (vocab, merges) = &*FILES;
    ByteBpe::from_vocab_and_merges(vocab.as_bytes(), merges.as_bytes()).expect("GPT-2's tokenizer")
});
static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new(SPLIT_PATTERN).expect("a pattern"));

/// Returns GPT-2's `vocab.json` and `merges.txt`, extracted from the single file.
fn files() -> (String, String) {
    let file: Value = serde_json::from_str(tokenizer_json().expect("GPT-2's table")).expect("JSON");
    let merges = file["model"]["merges"].as_array().expect("a list").iter().map(|pair| pair.as_str().expect("text"));
    let merges: Vec<&str> = ["#version: 0.2"].into_iter().chain(merges).collect();
    (file["model"]["vocab"].to_string(), merges.join("\n") + "\n")
}

fn encode_ordinary(tokenizer: &ByteBpe, text: &str, ids: &mut Vec<u32>) {
    let mut end = 0;
    for piece in PATTERN.find_iter(text) {
        let piece = piece.expect("the pattern matches");
        assert_eq!(piece.start(), end, "a character between pieces");
        end = piece.end();
        tokenizer.encode_piece(piece.as_str(), ids);
    }
    assert_eq!(end, text.len());
}

fn is_the_same(text: &str) {
    let mut ids = Vec::new();
    encode_ordinary(&OURS, text, &mut ids);
    assert_eq!(ids, gpt2().encode_ordinary(text), "{text:?}");
    assert_eq!(OURS.decode(&ids), text.as_bytes(), "{text:?}");
}

#[test]
fn every_token_is_its_own() {
    assert_eq!((OURS.vocab_size(), OURS.n_tokens()), (GPT2_VOCAB_SIZE, GPT2_VOCAB_SIZE as usize));
    assert_eq!(OURS.special().collect::<Vec<_>>(), [(END_OF_TEXT, END_OF_TEXT_ID)]);
    for id in 0..GPT2_VOCAB_SIZE {
        let bytes = OURS.token_bytes(id).expect("a token");
        assert_eq!(bytes, gpt2().decode_bytes(&[id]).expect("a token"));
        // A token's own text may be encoded as other tokens, but both tokenizers must agree.
        if let Ok(text) = std::str::from_utf8(bytes) {
            is_the_same(text);
        }
    }
}

#[test]
fn the_built_in_corpus_has_the_same_ids() {
    let text = corpus::corpus(corpus::SEED, 300_000);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() > 3000, "{} lines", lines.len());
    for line in lines {
        is_the_same(line);
    }
    is_the_same(&text);
}

#[test]
fn any_language_has_the_same_ids() {
    for text in [
        "",
        "I'll they'Re WE'VE she'D can't don'T 'sun 'S 's'll''d",
        "I’m naïve — “quoted” … 50% of ½ ² Ⅷ ٣٤ 四百",
        "👩‍👩‍👧‍👦🏳️‍🌈 🦀🦀 e\u{301}\u{301} a\u{308}o\u{308} \u{1f1e9}\u{1f1ea}",
        "训练一个语言模型，需要多少显存？ カタカナとひらがな、漢字。 한국어 텍스트",
        "हिन्दी ภาษาไทย עברית العربية Ελληνικά Русский",
        "a\u{85}b\u{85}\u{85}c \u{85} d",
        "\u{feff}a\u{feff} \u{feff}\u{feff}b",
        "a\u{a0}\u{a0}b \u{2003} c\u{2028}\u{2029}d\u{3000}e\u{200b}f\u{180e}g\u{1c}\u{1d}\u{1e}\u{1f}h",
        "  two   three    four\t\ttabs\t \n\n \n\r\n end  ",
        "\0\u{1}\u{7f}\u{80}\u{9f}\u{ad}\u{ffff}\u{10ffff}\u{e000}",
        "x=1;y+=2\n\tif(a&&b){return !c;} // ---- ====\n",
    ] {
        is_the_same(text);
        is_the_same(&text.to_uppercase());
        is_the_same(&format!(" {text}\n{text} "));
    }
    is_the_same(&"a".repeat(2000));
    is_the_same(&"ha ".repeat(2000));
    is_the_same(&"=".repeat(2000));
}

#[test]
fn random_text_has_the_same_ids() {
    let mut state = 7_u64;
    // Knuth's generator; its high bits suffice for drawing characters.
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let pool: Vec<char> = " \n\t\u{85}\u{a0}\u{feff}'''sdmtlvreSLabc01éßſ中の🦀\u{301}.,!".chars().collect();
    for round in 0..5000 {
        let mut text = String::new();
        for _ in 0..below(30) {
            let code = if round % 4 == 0 { below(0x11_0000) } else { below(pool.len() as u64) };
            let code = u32::try_from(code).expect("below a million or so");
            text.extend(if round % 4 == 0 { char::from_u32(code) } else { pool.get(code as usize).copied() });
        }
        is_the_same(&text);
    }
}

#[test]
fn a_prompt_may_spell_the_end_of_a_text() {
    for prompt in ["a<|endoftext|>", "<|endoftext|><|endoftext|> b", "<|endoftext|", "no end"] {
        let mut ids = Vec::new();
        for part in OURS.split_special(prompt) {
            match part {
                Part::Text(text) => encode_ordinary(&OURS, text, &mut ids),
                Part::Special(id) => ids.push(id),
            }
        }
        assert_eq!(ids, gpt2().encode_with_special_tokens(prompt));
        assert_eq!(OURS.decode(&ids), prompt.as_bytes());
    }
}

/// The alphabet is that of encoder.py: printable bytes represent themselves and have GPT-2's first ids.
#[test]
fn one_file_is_the_same_tokenizer() {
    let file = tokenizer_json().expect("GPT-2's table");
    assert_eq!(ByteBpe::from_tokenizer_json(file.as_bytes()).as_ref(), Ok(&*OURS));
    let file: Value = serde_json::from_str(file).expect("JSON");
    let merges = file["model"]["merges"].as_array().expect("a list");
    assert_eq!((merges.len(), merges[0].as_str(), merges[1].as_str()), (50_000, Some("Ġ t"), Some("Ġ a")));
    let vocab = file["model"]["vocab"].as_object().expect("a table");
    assert_eq!(vocab.len(), GPT2_VOCAB_SIZE as usize);
    for (token, id) in [("!", 0), ("ÿ", 187), ("Ā", 188), ("Ċ", 198), ("Ġ", 220), ("Ġthe", 262), (END_OF_TEXT, 50_256)]
    {
        assert_eq!(vocab[token], id, "{token}");
    }
}
