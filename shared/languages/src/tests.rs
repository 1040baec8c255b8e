//! Compares the texts of every language with the English ones.

mod named;

use super::*;
use headroom_text::{
    COPY_CARD, GPU_MEMORY_FULL, JAX, NAME, NOT_FETCHED, Text, count, fits, gpu_head, gpu_limit, may_set, names,
    not_evaluated, reads_config, several_tensors, size, tensor_too_large, weights_not_gpt2, weights_out_of_memory,
    weights_too_short, with_hint,
};
use std::{fmt::Write, fs, path::Path};

fn read(language: &Language) -> Vec<Entry<'static>> {
    source::entries(file(language)).unwrap_or_else(|error| panic!("{}.txt, {error}", language.code))
}

/// Writes the list of keys as `headroom-text` reads it.
fn key_list() -> String {
    let mut list =
        "# Keys of all texts. `HEADROOM_WRITE_GOLDEN=1 cargo test -p headroom-languages key_list` generates \
                    this file from en.txt.\n"
            .to_owned();
    let mut section = vec![];
    for entry in read(&LANGUAGES[0]) {
        if entry.pages != section {
            section.clone_from(&entry.pages);
            writeln!(list, "\n[{}]", section.join(" ")).expect("a string takes everything");
        }
        list.push_str(entry.name);
        if !entry.arguments.is_empty() {
            write!(list, "({})", entry.arguments.join(", ")).expect("a string takes everything");
        }
        list.push('\n');
    }
    list
}

#[test]
fn key_list_is_that_of_the_english_texts() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/keys.txt");
    if std::env::var_os("HEADROOM_WRITE_GOLDEN").is_some() {
        fs::write(&path, key_list()).expect("the list is writable");
    }
    let list = fs::read_to_string(&path).expect("the list is readable");
    assert!(
        list == key_list(),
        "shared/text/keys.txt differs from shared/languages/en.txt; its first line says how to write it"
    );
    // What was compiled is the list as well.
    let english = read(&LANGUAGES[0]);
    let names: Vec<&str> = english.iter().map(|entry| entry.name).collect();
    assert_eq!(names, NAMES, "compiled from another list: run the test again");
}

#[test]
fn text_is_displayed_in_english() {
    assert_eq!(JAX.to_string(), english().word(JAX));
    assert_eq!(Text::from(JAX).to_string(), english().word(JAX));
}

fn placeholders(entry: &Entry<'_>) -> Vec<String> {
    let inside = entry.text.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let mut names: Vec<String> = inside.map(|name| name.split(':').next().unwrap_or_default().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn no_language_lacks_a_text_or_has_one_more() {
    let english: Vec<&str> = read(&LANGUAGES[0]).iter().map(|entry| entry.name).collect();
    for (at, name) in english.iter().enumerate() {
        assert!(!english[..at].contains(name), "{name} stands twice");
    }
    for language in &LANGUAGES[1..] {
        let own: Vec<&str> = read(language).iter().map(|entry| entry.name).collect();
        assert_eq!(own, english, "{}.txt has other texts, or in another order", language.code);
    }
}

#[test]
fn every_language_says_every_argument() {
    let english = read(&LANGUAGES[0]);
    for language in &LANGUAGES {
        for (entry, original) in read(language).iter().zip(&english) {
            let place = format!("{}.txt, {}", language.code, entry.name);
            assert_eq!((&entry.arguments, &entry.pages), (&original.arguments, &original.pages), "{place}");
            assert_eq!(placeholders(entry), placeholders(original), "{place}");
            source::numbered(entry.text, &entry.arguments).unwrap_or_else(|error| panic!("{place}: {error}"));
        }
    }
}

/// Names that users type or search for are the same in every language.
#[test]
fn translations_address_the_reader_in_one_way() {
    const INFORMAL: [&str; 8] = ["du", "dich", "dir", "dein", "deine", "deinen", "deinem", "deiner"];
    let source = |code: &str| file(LANGUAGES.iter().find(|language| language.code == code).expect("a language"));
    let german = source("de").to_lowercase();
    // `out_dir` is one word.
    let informal = german.split(|c: char| !c.is_alphabetic() && c != '_').filter(|word| INFORMAL.contains(word));
    assert_eq!(informal.collect::<Vec<_>>(), Vec::<&str>::new());
    assert!(!source("zh").contains('您'));
}

#[test]
fn names_of_programs_stay_as_they_are() {
    const NAMES: [&str; 16] = [
        "nanoGPT",
        "PyTorch",
        "torch.compile",
        "train.py",
        "estimate_loss",
        "batch_size",
        "bfloat16",
        "float16",
        "zero_grad",
        "bitsandbytes",
        "CUDA_LAUNCH_BLOCKING=1",
        "expandable_segments:True",
        "WebAssembly",
        "llm.c",
        "/dev/shm",
        "11.69GiB",
    ];
    let english = read(&LANGUAGES[0]);
    for language in &LANGUAGES[1..] {
        for (entry, original) in read(language).iter().zip(&english) {
            for name in NAMES.iter().filter(|name| original.text.contains(**name)) {
                assert!(entry.text.contains(name), "{}.txt, {} lacks {name}", language.code, entry.name);
            }
        }
    }
}

/// An untranslated sentence would equal the English one. Equal texts must be short or consist only of names.
#[test]
fn no_sentence_was_left_in_english() {
    let english = read(&LANGUAGES[0]);
    for language in &LANGUAGES[1..] {
        let same = |pair: &(Entry<'_>, &Entry<'_>)| pair.0.text == pair.1.text;
        let own = read(language);
        let left: Vec<&str> = own
            .into_iter()
            .zip(&english)
            .filter(same)
            .map(|(entry, _)| entry)
            .filter(|entry| entry.text.split(' ').filter(|word| !word.contains(['{', '_', '.', '('])).count() > 3)
            .map(|entry| entry.name)
            .collect();
        assert!(left.is_empty(), "{}.txt: {left:?}", language.code);
    }
}

#[test]
fn argument_order_follows_language() {
    let nothing = Table::unpacked("\n\n");
    assert_eq!(nothing.say(&fits("1")), NOT_FETCHED, "a text that was not fetched is seen, and no panic");
    assert_eq!(fits(size(3 << 29)).to_string(), "Fits: 1.50 GiB left");
    assert_eq!(may_set(not_evaluated("x"), names(["a", "b"])).to_string(), "`x` is not evaluated; it may set a, b");
    let german = table("de");
    assert!(german.say(&fits(size(3 << 29))).contains("1,50 GiB"), "{}", german.say(&fits(size(3 << 29))));
    let cut = weights_too_short(count(1_234_567));
    assert!(german.say(&cut).contains(" 1.234.567 ") && cut.to_string().contains(" 1,234,567 "), "{cut}");
    assert_eq!((german.grouped(1_234_567), english().grouped(1_234)), ("1.234.567".to_owned(), "1,234".to_owned()));
}

#[test]
fn one_is_distinguished_from_many() {
    assert_eq!(reads_config(1_u64).to_string(), "Read 1 nanoGPT setting from a config.");
    assert_eq!(reads_config(2_u64).to_string(), "Read 2 nanoGPT settings from a config.");
    let several = |n: u64| several_tensors("1 GiB", "logits", n).to_string();
    assert!(several(1).contains("of one more tensor") && several(3).contains("of 3 more tensors"));
}

#[test]
fn a_text_travels_to_another_program() {
    let nested =
        with_hint(weights_not_gpt2(2_usize, "a b\u{1}c"), gpu_limit(gpu_head(2048_u64), "max", 64_u64, 16_u64));
    for text in
        [nested, may_set(not_evaluated("x"), names(["a", "b"])), weights_out_of_memory(size(3 << 29)), JAX.into()]
    {
        let packed = text.packed();
        assert_eq!(Text::unpacked(&packed).as_ref(), Some(&text), "{packed:?}");
        assert!(!text.to_string().contains(NOT_FETCHED), "{text}");
    }
    for refused in ["", " ", "7", "x", "x 7", "-1 ", "+1 ", " 1 ", "65536 ", "the GPU was lost"] {
        assert_eq!(Text::unpacked(refused), None, "{refused:?}");
    }
}

#[test]
fn a_page_fetches_its_own_texts_and_no_others() {
    let fetched = Table::unpacked(&packed(&LANGUAGES[0], "budget"));
    assert_eq!(fetched.word(COPY_CARD), "Forum card");
    assert_eq!(fetched.word(JAX), NOT_FETCHED);
    let fetched = Table::unpacked(&packed(&LANGUAGES[0], "diagnose"));
    assert_eq!((fetched.word(COPY_CARD), fetched.word(NAME)), (NOT_FETCHED, "Headroom"));
    assert!(fetched.word(JAX).starts_with("JAX"));
    let fetched = Table::unpacked(&packed(&LANGUAGES[3], "demo"));
    assert!(fetched.word(GPU_MEMORY_FULL).starts_with("Der VRAM "), "{}", fetched.word(GPU_MEMORY_FULL));
    let outside = fetched.say(&tensor_too_large("x"));
    assert_ne!((fetched.word(JAX), &*outside), (NOT_FETCHED, NOT_FETCHED), "what an engine's errors wrap is in [all]");
}
