//! Tests with small vocabularies against a slow, simple implementation. The agent's tests use GPT-2's vocabulary.

use proptest::{collection::vec, prelude::*};
use serde_json::{Map, Value, json};

use super::*;
use headroom_languages::table;
use headroom_text::LANGUAGES;

/// A vocabulary of every byte at its own id, followed by the results of merges, each text once.
fn vocab(merges: &[(String, String)]) -> Map<String, Value> {
    let mut vocab: Map<String, Value> = (0..=u8::MAX).map(|byte| (byte_char(byte).to_string(), json!(byte))).collect();
    for (left, right) in merges {
        let id = vocab.len();
        vocab.entry(format!("{left}{right}")).or_insert_with(|| json!(id));
    }
    vocab
}

fn pairs(merges: &[(&str, &str)]) -> Vec<(String, String)> {
    merges.iter().map(|(left, right)| ((*left).to_owned(), (*right).to_owned())).collect()
}

/// A file like GPT-2's own, with `<|endoftext|>` after the other tokens.
fn file(merges: &[(&str, &str)]) -> Value {
    let mut vocab = vocab(&pairs(merges));
    let end = vocab.len();
    vocab.insert(END_OF_TEXT.to_owned(), json!(end));
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{
            "id": end, "special": true, "content": END_OF_TEXT,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": true,
        }],
        "normalizer": null,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true },
        "post_processor": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false },
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true },
        "model": {
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": false,
            "vocab": vocab,
            "merges": merges.iter().map(|(left, right)| format!("{left} {right}")).collect::<Vec<_>>(),
        },
    })
}

const MERGES: [(&str, &str); 5] = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "hell"), ("Ã", "©")];

fn good() -> ByteBpe {
    read(&file(&MERGES)).expect("a tokenizer")
}

fn read(file: &Value) -> Result<ByteBpe, BpeError> {
    ByteBpe::from_tokenizer_json(file.to_string().as_bytes())
}

/// Reads the valid file with `value` at the JSON pointer `pointer`.
fn with(pointer: &str, value: Value) -> Result<ByteBpe, BpeError> {
    let mut file = file(&MERGES);
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match file.pointer_mut(parent).expect("a place") {
        Value::Array(list) => list[key.parse::<usize>().expect("an index")] = value,
        Value::Object(map) => drop(map.insert(key.to_owned(), value)),
        other => panic!("{other} holds nothing"),
    }
    read(&file)
}

fn encode(tokenizer: &ByteBpe, piece: &str) -> Vec<u32> {
    let mut ids = Vec::new();
    tokenizer.encode_piece(piece, &mut ids);
    ids
}

/// Merges the pair of lowest rank at its leftmost position, repeatedly.
fn merged_plainly(tokenizer: &ByteBpe, piece: &str) -> Vec<u32> {
    let mut ids: Vec<u32> = piece.bytes().map(|byte| tokenizer.byte_ids[usize::from(byte)]).collect();
    let rank = |pair: &[u32]| {
        let found = tokenizer.pairs.iter().find(|known| [known.left, known.right] == pair[..]);
        found.map(|known| known.rank)
    };
    loop {
        let ranked = ids.windows(2).enumerate().filter_map(|(at, pair)| Some((rank(pair)?, at)));
        let Some((rank, at)) = ranked.min() else { return ids };
        ids.splice(at..at + 2, [tokenizer.merged[rank as usize]]);
    }
}

#[test]
fn pieces_merge_in_the_order_of_the_list() {
    let tokenizer = good();
    assert_eq!((tokenizer.n_tokens(), tokenizer.vocab_size()), (262, 262));
    assert_eq!(encode(&tokenizer, "hello"), [258, u32::from(b'o')]);
    assert_eq!(encode(&tokenizer, " hello"), [259, u32::from(b'o')]);
    assert_eq!(encode(&tokenizer, "lllé"), [257, u32::from(b'l'), 260]);
    assert!(encode(&tokenizer, "").is_empty());
    assert_eq!(tokenizer.decode(&[259, 111, 260, 261]), " helloé<|endoftext|>".as_bytes());
    assert_eq!(tokenizer.token_bytes(0xc3), Some(&[0xc3][..]), "half a character");
    assert_eq!((tokenizer.token_bytes(262), tokenizer.decode(&[u32::MAX])), (None, "\u{fffd}".as_bytes().to_vec()));
}

/// Hugging Face's tokenizers search for the lowest merge again after each one. Merges in another order show the
/// difference.
#[test]
fn one_place_merges_at_a_time() {
    let tokenizer = read(&file(&[("ab", "a"), ("a", "b")])).expect("a tokenizer");
    assert_eq!(encode(&tokenizer, "abab"), [256, u32::from(b'b')]);
}

#[test]
fn both_forms_of_files_are_one_tokenizer() {
    let pair = |(left, right): &(&str, &str)| json!([left, right]);
    let as_pairs = with("/model/merges", MERGES.iter().map(pair).collect()).expect("pairs");
    let typed = with("/model/type", json!("BPE")).expect("the key of later files");
    let sequence = json!({ "type": "Sequence", "pretokenizers": [{ "type": "ByteLevel", "add_prefix_space": false }] });
    let in_sequence = with("/pre_tokenizer", sequence).expect("a sequence of one");
    let file = file(&MERGES);
    let lines = |end: &str| {
        let lines: String = MERGES.iter().map(|(left, right)| format!("{left} {right}{end}")).collect();
        format!("#version: 0.2{end}{lines}")
    };
    let vocab = file["model"]["vocab"].to_string();
    let two_files = ByteBpe::from_vocab_and_merges(vocab.as_bytes(), lines("\n").as_bytes());
    let of_windows = ByteBpe::from_vocab_and_merges(vocab.as_bytes(), lines("\r\n").as_bytes());
    let headless = lines("\n").replace("#version: 0.2\n", "");
    let headless = ByteBpe::from_vocab_and_merges(vocab.as_bytes(), headless.as_bytes());
    for other in
        [as_pairs, typed, in_sequence, two_files.expect("two"), of_windows.expect("two"), headless.expect("two")]
    {
        assert_eq!(other, good());
    }
}

#[test]
fn added_tokens_are_found_in_a_text() {
    let added = |texts: &[&str]| {
        let token = |(text, id): (&&str, u32)| json!({ "id": id, "content": text });
        let list: Value = texts.iter().zip(1000..).map(token).collect();
        with("/added_tokens", list).expect("a tokenizer")
    };
    let tokenizer = good();
    assert_eq!(tokenizer.special().collect::<Vec<_>>(), [(END_OF_TEXT, 261)]);
    let parts = tokenizer.split_special("<|endoftext|>é<|<|endoftext|>\n");
    assert_eq!(parts, [Part::Special(261), Part::Text("é<|"), Part::Special(261), Part::Text("\n")]);
    assert_eq!(tokenizer.split_special(""), []);
    let several = added(&["<a>", "<a><b>", "  ", "é ", "<a><b><c>"]);
    assert_eq!(several.vocab_size(), 1005);
    assert_eq!(several.decode(&[1003, 1002]), "é   ".as_bytes(), "their own text, not bytes' characters");
    let parts = several.split_special("<a><b><c<a>x   é ");
    assert_eq!(
        parts,
        [
            Part::Special(1001),
            Part::Text("<c"),
            Part::Special(1000),
            Part::Text("x"),
            Part::Special(1002),
            Part::Text(" "),
            Part::Special(1003)
        ]
    );
    assert_eq!(added(&[]).split_special("<|endoftext|>"), [Part::Text("<|endoftext|>")]);
}

#[test]
fn unsupported_operation_is_refused() {
    let sequence = |kinds: &[&str]| {
        let steps: Vec<Value> = kinds.iter().map(|kind| json!({ "type": kind })).collect();
        json!({ "type": "Sequence", "pretokenizers": steps })
    };
    for (pointer, value, said) in [
        ("/normalizer", json!({ "type": "NFC" }), "`normalizer: NFC`"),
        ("/pre_tokenizer", Value::Null, "`pre_tokenizer: null`"),
        ("/pre_tokenizer", json!({ "type": "Metaspace", "replacement": "▁" }), "`pre_tokenizer: Metaspace`"),
        ("/pre_tokenizer", sequence(&["Digits", "ByteLevel"]), "`pre_tokenizer: Sequence`"),
        ("/pre_tokenizer", sequence(&["Digits"]), "`pre_tokenizer: Digits`"),
        ("/pre_tokenizer", sequence(&[]), "`pre_tokenizer: Sequence`"),
        ("/pre_tokenizer/add_prefix_space", json!(true), "add_prefix_space: true`"),
        ("/pre_tokenizer/use_regex", json!(false), "use_regex: false`"),
        ("/post_processor", json!({ "type": "TemplateProcessing" }), "`post_processor: TemplateProcessing`"),
        ("/decoder", json!({ "type": "WordPiece" }), "`decoder: WordPiece`"),
        ("/added_tokens/0/lstrip", json!(true), "`added_tokens.lstrip: <|endoftext|>`"),
        ("/added_tokens/0/content", json!(""), "`added_tokens: `"),
        ("/added_tokens/0", json!({ "id": 0xe9, "content": "é" }), "`added_tokens: é`"),
        ("/added_tokens/0/content", json!("x".repeat(257)), "xxx…`"),
        ("/model/dropout", json!(0.1), "`model.dropout: 0.1`"),
        ("/model/end_of_word_suffix", json!("</w>"), "`model.end_of_word_suffix: </w>`"),
        ("/model/byte_fallback", json!(true), "`model.byte_fallback: true`"),
        ("/model/ignore_merges", json!(true), "`model.ignore_merges: true`"),
        ("/model/type", json!("Unigram"), "a Unigram tokenizer"),
    ] {
        let message = with(pointer, value).expect_err(said).to_string();
        assert!(message.contains(said), "{pointer}: {message}");
    }
    let message =
        with("/model", json!({ "type": "Unigram", "vocab": [["a", -1.5]], "unk_id": 0 })).expect_err("a list");
    assert_eq!(message, BpeError::other_model("Unigram"));
    with("/decoder", Value::Null).expect("bytes are bytes without one, too");
}

#[test]
fn contradictions_are_refused() {
    let file = TokenizerFile::TokenizerJson;
    let token = |text: &str| text.to_owned();
    for (pointer, value, error) in [
        ("/model", Value::Null, BpeError::Lacks { part: "model" }),
        ("/model/merges", Value::Null, BpeError::Lacks { part: "model.merges" }),
        ("/model/vocab", json!(["a"]), BpeError::Lacks { part: "model.vocab" }),
        ("/model/vocab/x", json!(-1), BpeError::IdRange { file, token: token("x") }),
        ("/model/vocab/x", json!(1.5), BpeError::IdRange { file, token: token("x") }),
        ("/model/vocab/x", json!(MAX_TOKENS), BpeError::IdRange { file, token: token("x") }),
        ("/model/vocab/x", json!(u64::MAX), BpeError::IdRange { file, token: token("x") }),
        ("/model/vocab/x", json!(7), BpeError::IdTwice { file, id: 7 }),
        ("/model/vocab/▁x", json!(500), BpeError::BadToken { file, token: token("▁x") }),
        ("/model/vocab/", json!(500), BpeError::BadToken { file, token: String::new() }),
        ("/model/merges/1", json!("l"), BpeError::BadMerge { file, merge: 2 }),
        ("/model/merges/1", json!("l l l"), BpeError::BadMerge { file, merge: 2 }),
        ("/model/merges/1", json!(["l"]), BpeError::BadMerge { file, merge: 2 }),
        ("/model/merges/1", json!(["l", "l", "l"]), BpeError::BadMerge { file, merge: 2 }),
        ("/model/merges/1", json!(["l", "x"]), BpeError::MergeUnknown { file, merge: 2, token: token("lx") }),
        ("/model/merges/4", json!("h e"), BpeError::MergeTwice { file, merge: 5 }),
        ("/added_tokens/0/id", json!(12), BpeError::TokenTwice { file, token: token(END_OF_TEXT) }),
        ("/added_tokens/0/content", json!("new"), BpeError::IdTwice { file, id: 261 }),
    ] {
        assert_eq!(with(pointer, value), Err(error), "{pointer}");
    }
    let twice = br#"{"a":1,"\u0061":2}"#;
    let (file, merges) = (TokenizerFile::Vocab, TokenizerFile::Merges);
    let of_two = ByteBpe::from_vocab_and_merges;
    assert_eq!(of_two(twice, b""), Err(BpeError::TokenTwice { file, token: token("a") }));
    assert_eq!(of_two(b"{}", b""), Err(BpeError::MissingByte { file, byte: 0 }));
    assert_eq!(of_two(b"[]", b""), Err(BpeError::Unreadable { file, line: 1, column: 1 }));
    assert_eq!(of_two(b"{", b""), Err(BpeError::Unreadable { file, line: 1, column: 1 }));
    assert_eq!(of_two(b"{}", b"a b\na \xff"), Err(BpeError::Unreadable { file: merges, line: 2, column: 3 }));
    assert_eq!(of_two(b"{}", b"a b\n#version c d\n"), Err(BpeError::BadMerge { file: merges, merge: 2 }));
    let deep = "[".repeat(1 << 20);
    assert!(matches!(ByteBpe::from_tokenizer_json(deep.as_bytes()), Err(BpeError::Unreadable { .. })));
    let cut = &self::file(&MERGES).to_string()[..500];
    assert!(matches!(ByteBpe::from_tokenizer_json(cut.as_bytes()), Err(BpeError::Unreadable { line: 1, .. })));
}

#[test]
fn a_vocabulary_has_a_limit() {
    let (file, max) = (TokenizerFile::Merges, MAX_TOKENS);
    let many: String = (0..=max).map(|merge| format!("{merge} x\n")).collect();
    assert_eq!(ByteBpe::from_vocab_and_merges(b"{}", many.as_bytes()), Err(BpeError::TooLarge { file }));
    let many: Vec<String> = (0..=max).map(|id| format!("\"{id}\":{id}")).collect();
    let many = format!("{{{}}}", many.join(","));
    let error = ByteBpe::from_vocab_and_merges(many.as_bytes(), b"").expect_err("too many");
    assert!(error.to_string().starts_with("vocab.json has more than 1,000,000 entries"), "{error}");
}

/// In every language, a message quotes the file and ends with a sentence that says what to do.
#[test]
fn errors_say_what_to_do() {
    let file = TokenizerFile::Merges;
    let long = BpeError::token_twice(file, &"\u{1b}x".repeat(100));
    for language in &LANGUAGES {
        let said = table(language.code).say(&long.text());
        assert!(said.contains("merges.txt") && said.contains(r"\u{1b}x") && said.contains('…'), "{said}");
        assert!(said.len() < 600 && !said.contains(char::is_control), "{said}");
    }
    let missing = BpeError::MissingByte { file, byte: 0xfe }.to_string();
    assert!(
        missing.contains("0xfe") && missing.ends_with("Use merges.txt from the folder of a GPT-2 model."),
        "{missing}"
    );
}

/// With tokens of every power of two, every byte takes part in twenty merges.
#[test]
fn megabyte_piece_is_tokenized() {
    let powers: Vec<String> = (0..20).map(|power| "a".repeat(1 << power)).collect();
    let merges: Vec<(&str, &str)> = powers[..16].iter().map(|text| (text.as_str(), text.as_str())).collect();
    let tokenizer = read(&file(&merges)).expect("a tokenizer");
    let piece = "a".repeat(1 << 20);
    let ids = encode(&tokenizer, &piece);
    assert_eq!(ids, [271; 16]);
    assert!(tokenizer.decode(&ids) == piece.as_bytes());
    let piece = "ab".repeat(1 << 19);
    assert_eq!(encode(&tokenizer, &piece).len(), 1 << 20);
}

/// Added tokens with a long common prefix, in a text that matches the prefix everywhere.
#[test]
fn search_for_many_added_tokens_finds_them() {
    let token = |len: usize| json!({ "id": 1000 + len, "content": "a".repeat(len) + "b" });
    let tokenizer = with("/added_tokens", (1..256).map(token).collect()).expect("a tokenizer");
    assert_eq!(tokenizer.split_special(&"a".repeat(1 << 16)).len(), 1);
    let ids = [Part::Text("a"), Part::Special(1255)];
    assert_eq!(tokenizer.split_special(&format!("{}b", "a".repeat(256))), ids);
}

proptest! {
    /// Merges of the tokens so far, shuffled into any order of learning.
    #[test]
    fn encoded_text_decodes(
        seeds in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40),
        order in any::<u64>(),
        text in "[a-e é🦀]{0,60}|\\PC{0,20}",
    ) {
        let mut known: Vec<String> = "abcdeĠÃ©ðŁ¦Ģ".chars().map(String::from).collect();
        let mut merges: Vec<(String, String)> = Vec::new();
        for (left, right) in seeds {
            let merge = (left.get(&known).clone(), right.get(&known).clone());
            // Each merge at most doubles a token's length.
            if merge.0.len() + merge.1.len() < 64 && !merges.contains(&merge) {
                known.push(format!("{}{}", merge.0, merge.1));
                merges.push(merge);
            }
        }
        if order % 2 == 1 && !merges.is_empty() {
            let len = merges.len();
            merges.rotate_left(usize::try_from(order % len as u64).expect("within"));
            merges.reverse();
        }
        let lines: String = merges.iter().map(|(left, right)| format!("{left} {right}\n")).collect();
        let vocab = Value::Object(vocab(&merges)).to_string();
        let tokenizer = ByteBpe::from_vocab_and_merges(vocab.as_bytes(), lines.as_bytes()).expect("a tokenizer");
        let ids = encode(&tokenizer, &text);
        prop_assert_eq!(&ids, &merged_plainly(&tokenizer, &text));
        prop_assert_eq!(tokenizer.decode(&ids), text.as_bytes());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, text: String) {
        for read in [ByteBpe::from_tokenizer_json(&bytes), ByteBpe::from_vocab_and_merges(&bytes, text.as_bytes())] {
            prop_assert!(read.is_err_and(|error| !error.to_string().is_empty()));
        }
    }
}
