//! Property tests for arbitrary input: no panics, bounded time, and a patch changes only what it should.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A config in nanoGPT's style that uses every form the parser evaluates.
const BASE: &str = include_str!("../../../../tests/golden/nanogpt_configs/every_form.py");
/// All nanoGPT keys with their defaults.
const EVERY_KEY: &str = include_str!("../../../../tests/golden/nanogpt_configs/every_key.py");

fn read_text(text: &str) -> Settings {
    read(&[Source::File { name: "c.py".into(), text: text.into() }])
}

fn plain_values(settings: &Settings) -> BTreeMap<String, String> {
    let all = settings.values.iter().chain(settings.unknown.iter());
    all.map(|(key, setting)| (key.clone(), setting.value.to_string())).collect()
}

/// Reads `text` in every possible way.
fn exercise(text: &str) {
    let mut settings = read(&[
        Source::File { name: "c.py".into(), text: text.into() },
        Source::Override { text: text.into() },
        Source::Override { text: format!("--batch_size={text}") },
    ]);
    for key in &defaults::KEYS {
        settings.get_u64(key.name);
        settings.get_f64(key.name);
        settings.get_bool(key.name);
        settings.get_str(key.name);
    }
    assert!(settings.problems.as_slice().len() <= MAX_PROBLEMS);
    for problem in settings.problems.as_slice() {
        assert!(!problem.to_string().is_empty());
    }
    for setting in settings.values.iter().chain(settings.unknown.iter()).map(|(_, setting)| setting) {
        let span = setting.origin.span;
        let source = if setting.origin.source == 2 { format!("--batch_size={text}") } else { text.into() };
        assert!(source.get(span.start..span.end).is_some(), "a span off the text's characters: {span:?}");
    }
    let _ = from_pasted_text("pasted", text).read();
}

/// Returns whether every bracket and string is closed. Python rejects other texts, and how much of them is understood
/// depends on their end.
fn is_closed(text: &str) -> bool {
    let mut lexer = lexer::Lexer::new(text);
    while lexer.next().kind != lexer::Kind::End {}
    !lexer.line_by_line && lexer.recover_unclosed().is_none()
}

/// Patches `text` and compares the settings before and after.
fn patch_holds(text: &str, batch_size: i64, dtype: &str) {
    let changes = [("batch_size", Value::Int(batch_size), "fits"), ("dtype", Value::Str(dtype.into()), "half")];
    let patched = patch(text, &changes);
    let before = read_text(text);
    if !is_closed(text) {
        return;
    }
    let mut expected = plain_values(&before);
    for (key, value, _) in &changes {
        expected.insert((*key).into(), value.to_string());
    }
    assert_eq!(plain_values(&read_text(&patched)), expected, "{text:?} became {patched:?}");
}

/// Fragments that produce difficult combinations.
const PIECES: &[&str] = &[
    "batch_size",
    "dtype",
    "n_head",
    "x",
    " = ",
    "=",
    " += 1",
    "12",
    "0x1f",
    "1e5",
    "'a'",
    "\"",
    "'''",
    "\"\"\"",
    "f'{",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ";",
    "\n",
    "\r\n",
    "\r",
    "\\\n",
    "\\",
    "    ",
    "\t",
    "\u{c}",
    "#",
    " if ",
    " else ",
    " not ",
    " in ",
    " is ",
    " and ",
    "lambda ",
    "for ",
    "def f():\n",
    "if x:\n  ",
    "-",
    "**",
    "//",
    "%",
    "é",
    "“",
    "\u{feff}",
    "int(",
    "str(",
    "max(",
    ".real",
    "True",
    "None",
    "import os\n",
    "batch_size = 4\n",
    "dtype = 'float32'\n",
    "$",
    "\0",
];

fn soup() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..40).prop_map(|pieces| pieces.concat())
}

/// `BASE` with some characters replaced, removed or duplicated.
fn mutated() -> impl Strategy<Value = String> {
    prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(PIECES), 0..4_usize), 1..8).prop_map(
        |edits| {
            let mut chars: Vec<String> = BASE.chars().map(String::from).collect();
            for (at, piece, removed) in edits {
                let start = at.index(chars.len());
                let end = (start + removed).min(chars.len());
                chars.splice(start..end, [piece.to_owned()]);
            }
            chars.concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_text_is_read(text in any::<String>()) {
        exercise(&text);
    }

    #[test]
    fn any_mixture_of_pieces_is_read(text in soup()) {
        exercise(&text);
    }

    #[test]
    fn a_damaged_config_is_read(text in mutated()) {
        exercise(&text);
    }

    #[test]
    fn a_patch_changes_only_what_it_says(text in soup(), batch_size in any::<i64>(), dtype in any::<String>()) {
        patch_holds(&text, batch_size, &dtype);
    }

    #[test]
    fn a_patch_of_a_damaged_config_holds(text in mutated()) {
        patch_holds(&text, 3, "float16");
    }

    /// After any sequence of changes, a line has at most one of Headroom's comments, and none if it was changed without
    /// a reason.
    #[test]
    fn comments_of_ours_never_double(
        text in soup(),
        edits in prop::collection::vec((prop::sample::select(vec!["batch_size", "dtype", "n_head"]), 0..100_i64, 0..3_usize), 1..8),
    ) {
        let own = text.matches("# headroom:").count();
        prop_assume!(own == 0);
        let mut patched = text;
        for (key, value, why) in &edits {
            let why = ["", "fits GeForce RTX 4070", "fits L4"][*why];
            patched = patch(&patched, &[(*key, Value::Int(*value), why)]);
            for line in patched.lines() {
                prop_assert!(line.matches("# headroom:").count() <= 1, "{patched:?}");
            }
            if !is_closed(&patched) {
                continue;
            }
            let ours = patched.lines().find(|line| line.trim_start().starts_with(&format!("{key} = {value}")));
            if let Some(line) = ours.filter(|_| why.is_empty()) {
                prop_assert!(!line.contains("# headroom:"), "{patched:?}");
            }
        }
    }

    #[test]
    fn a_written_value_reads_back(number in any::<f64>(), whole in any::<i64>(), text in any::<String>()) {
        prop_assume!(!number.is_nan() && text.len() < 200);
        for value in [Value::Float(number), Value::Int(whole), Value::Str(text)] {
            let settings = read_text(&format!("x = {value}"));
            prop_assert_eq!(settings.value("x"), Some(value));
        }
    }
}

/// Reads and patches an input of the maximum size. Quadratic time would exceed nextest's limit of five minutes.
#[track_caller]
fn read_and_patch(name: &str, text: &str) {
    assert!(text.len() <= MAX_SOURCE_BYTES, "{name}");
    read_text(text);
    let _ = patch(text, &[("batch_size", Value::Int(1), "w")]);
    let _ = from_pasted_text("p", text).read();
    let _ = read(&[Source::Override { text: text.into() }]);
}

#[test]
fn the_largest_inputs_finish() {
    for piece in [
        "(",
        "x=(\n",
        "[",
        "-",
        "not ",
        "2**",
        "9**9**",
        "1+",
        "x=",
        "x=1;",
        "x=x+x;",
        "'",
        "'''",
        "\"\"\"'''\n",
        "'a'",
        "x\n",
        "\\",
        "\\\n",
        "if x:\n ",
        "a,",
        "x=a,",
        "f(",
        "1<",
        "x if ",
        "é",
        "x='''",
        "$",
        "\r",
        "#",
        "=",
        ".a",
        "python train.py '\n",
        "```\n",
        "lambda:",
        "batch_size=4\n",
        "x=(\n'''",
        "Overriding: ",
        "Overriding config with a:\n",
        "1or ",
        "max(1,",
    ] {
        // In a debug build a smaller text suffices.
        let size = if cfg!(debug_assertions) { MAX_SOURCE_BYTES / 200 } else { MAX_SOURCE_BYTES };
        read_and_patch(piece, &piece.repeat(size / piece.len()));
    }
    let distinct: String =
        (0..if cfg!(debug_assertions) { 2_000 } else { 100_000 }).map(|i| format!("k{i}=y{i}=f{i}(\n1)\n")).collect();
    read_and_patch("distinct names", &distinct);
}

#[test]
fn deep_nesting_is_refused_in_words() {
    for text in ["(".repeat(100_000), format!("x = {}", "2**".repeat(100_000)), format!("x = {}1", "-".repeat(100_000))]
    {
        let settings = read_text(&text);
        assert!(settings.problems.has_errors());
        assert!(settings.problems.as_slice().len() < 3);
    }
}

#[test]
fn a_longer_source_is_refused_in_words() {
    let settings = read_text(&"#".repeat(MAX_SOURCE_BYTES + 1));
    assert_eq!(settings.problems.as_slice()[0].to_string(), "c.py: this text is longer than 5 MB and is not read");
}

#[test]
fn more_sources_than_there_can_be_are_refused_in_words() {
    let settings = read(&vec![Source::Override { text: "--batch_size=1".into() }; MAX_SOURCES + 1]);
    assert_eq!(
        settings.problems.as_slice()[0].to_string(),
        "command line: only the first 256 of 257 files and arguments are read"
    );
}

#[test]
fn every_key_of_nanogpt_is_read_with_its_default() {
    let settings = read_text(EVERY_KEY);
    assert_eq!(settings.problems.as_slice(), []);
    assert_eq!(settings.unknown.len(), 0);
    for key in &defaults::KEYS {
        let read = settings.values.get(key.name).map(|s| &s.value);
        match key.default.value() {
            Some(default) => assert_eq!(read, Some(&default), "{}", key.name),
            None => assert!(read.is_some(), "{}", key.name),
        }
        let mut argument = String::from("--");
        argument.push_str(key.name);
        argument.push('=');
        argument.push_str(&read.map(ToString::to_string).unwrap_or_default());
        let settings = super::read(&[Source::Override { text: argument.clone() }]);
        assert_eq!(settings.problems.as_slice(), [], "{argument}");
        assert_eq!(settings.values.get(key.name).map(|s| &s.value), read, "{argument}");
    }
}

#[test]
fn every_form_is_read_as_python_reads_it() {
    let settings = read_text(BASE);
    let values: BTreeMap<String, String> = plain_values(&settings);
    let expected: Vec<(&str, &str)> = vec![
        ("batch_size", "24"),
        ("block_size", "1024"),
        ("compile", "False"),
        ("dropout", "0.1"),
        ("dtype", "'float16'"),
        ("gradient_accumulation_steps", "20"),
        ("learning_rate", "0.0006"),
        ("lr_decay_iters", "600000"),
        ("max_iters", "600000"),
        ("min_lr", "5.9999999999999995e-05"),
        ("n_embd", "768"),
        ("n_head", "12"),
        ("n_layer", "12"),
        ("out_dir", "'out-größe-768'"),
        ("tokens_per_iter", "491520"),
        ("wandb_project", "'two words'"),
    ];
    let expected: BTreeMap<String, String> = expected.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
    assert_eq!(values, expected);
    patch_holds(BASE, 8, "bfloat16");
}
