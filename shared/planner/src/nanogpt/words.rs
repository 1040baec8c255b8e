//! Short descriptions of a run as used in forums: "124M, batch 64", "GPT-2 medium, batch size 8, context 512".
//!
//! Every word must be recognized. An unknown word makes the text something else, so nothing is guessed.

use std::fmt::Write;

use crate::gpt::presets::{GPT2_FAMILY, Preset};

/// Maximum length in bytes of a description.
pub(super) const MAX_BYTES: usize = 300;

/// Words that are ignored between settings.
const FILLERS: [&str; 22] = [
    "a",
    "an",
    "and",
    "at",
    "for",
    "from",
    "gpu",
    "i",
    "model",
    "my",
    "nanogpt",
    "of",
    "on",
    "parameter",
    "parameters",
    "params",
    "run",
    "scratch",
    "the",
    "train",
    "training",
    "with",
];

/// Each key with its common names.
const KEYS: [(&str, &[&str]); 7] = [
    ("batch_size", &["batch", "batches", "batch_size", "batchsize", "bs", "bsz", "microbatch"]),
    ("block_size", &["block", "block_size", "blocksize", "context", "ctx", "seq", "seqlen", "seq_len", "sequence"]),
    (
        "gradient_accumulation_steps",
        &["accum", "accumulation", "grad_accum", "gradient_accumulation", "gradient_accumulation_steps"],
    ),
    ("n_layer", &["layer", "layers", "n_layer", "n_layers", "block_layers"]),
    ("n_head", &["head", "heads", "n_head", "n_heads"]),
    ("n_embd", &["channels", "embd", "embedding", "n_embd", "width"]),
    ("vocab_size", &["vocab", "vocab_size", "vocabulary"]),
];

/// Words that are part of a key's name, as in "batch size of 64" and "context length 512".
const KEY_FILLERS: [&str; 8] = ["size", "length", "len", "steps", "is", "of", "grad", "gradient"];

/// Returns the config that a text describes. Returns `None` if a word is unknown or nothing is set.
pub(super) fn config(text: &str) -> Option<String> {
    let mut config = String::new();
    if text.lines().any(is_assignment) {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    // A number and its key, in either order.
    let (mut number, mut key, mut names_family) = (None::<u64>, None::<&str>, false);
    for word in lower.split(|c: char| c.is_whitespace() || ",;:=+&/()".contains(c)).filter(|word| !word.is_empty()) {
        let word = word.trim_end_matches(['.', '!', '?']);
        let digits = word.trim_start_matches(|c: char| c.is_ascii_alphabetic() || c == '_');
        let (letters, digits) = word.split_at(word.len() - digits.len());
        if let Some(model) = model(word) {
            config.push_str(&shape(model));
            continue;
        }
        if matches!(word, "gpt2" | "gpt-2") {
            names_family = true;
            continue;
        }
        if let Some(line) = switch(word) {
            config.push_str(line);
            continue;
        }
        let found = match (letters, digits) {
            ("", digits) => (None, Some(digits.parse::<u64>().ok()?)),
            (letters, "") => (named(letters), None),
            // For example "bs64".
            (letters, digits) => (Some(named(letters)?), Some(digits.parse::<u64>().ok()?)),
        };
        match found {
            (None, None) if FILLERS.contains(&word) || KEY_FILLERS.contains(&word) => continue,
            (None, None) => return None,
            (found_key, found_number) => {
                // Two numbers or two keys in a row are ambiguous.
                if (key.is_some() && found_key.is_some()) || (number.is_some() && found_number.is_some()) {
                    return None;
                }
                (key, number) = (found_key.or(key), found_number.or(number));
            }
        }
        if let (Some(name), Some(value)) = (key, number) {
            writeln!(config, "{name} = {value}").ok()?;
            (key, number) = (None, None);
        }
    }
    // The family's name alone means its smallest model.
    if names_family && !config.contains("n_layer") {
        config.insert_str(0, &shape(GPT2_FAMILY[0]));
    }
    let is_whole = key.is_none() && number.is_none() && !config.is_empty();
    is_whole.then_some(config)
}

/// Whether a line is one Python assignment, such as `batchsize = 3`: nanoGPT ignores a name that it does not have.
fn is_assignment(line: &str) -> bool {
    let is_name = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    let (name, value) = line.split_once('=').unwrap_or_default();
    is_name(name.trim()) && is_name(value.trim())
}

fn shape(model: Preset) -> String {
    let Preset { n_layer, n_head, n_embd, .. } = model;
    format!("n_layer = {n_layer}\nn_head = {n_head}\nn_embd = {n_embd}\n")
}

fn named(word: &str) -> Option<&'static str> {
    KEYS.iter().find(|(_, words)| words.contains(&word)).map(|(key, _)| *key)
}

/// Returns a GPT-2 size by its name or its number of parameters.
fn model(word: &str) -> Option<Preset> {
    let size = word.trim_start_matches("gpt2").trim_start_matches("gpt-2").trim_start_matches('-');
    let index = match size {
        "117m" | "124m" | "125m" | "small" => 0,
        "345m" | "350m" | "355m" | "medium" => 1,
        "762m" | "774m" | "775m" | "large" => 2,
        "1.5b" | "1.56b" | "1542m" | "1558m" | "xl" => 3,
        _ => return None,
    };
    GPT2_FAMILY.get(index).copied()
}

/// Returns the setting of a word that is a setting on its own.
fn switch(word: &str) -> Option<&'static str> {
    Some(match word {
        "bf16" | "bfloat16" => "dtype = 'bfloat16'\n",
        "fp16" | "float16" => "dtype = 'float16'\n",
        "fp32" | "float32" => "dtype = 'float32'\n",
        "eager" => "compile = False\n",
        "compiled" => "compile = True\n",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{PastedKind, Value, from_pasted_text};
    use super::*;

    #[test]
    fn a_description_is_understood() {
        let small = "n_layer = 12\nn_head = 12\nn_embd = 768\n";
        for (text, expected) in [
            ("124M, batch 64", format!("{small}batch_size = 64\n")),
            ("GPT-2 124M, batch size of 64!", format!("{small}batch_size = 64\n")),
            ("batch 64, GPT-2", format!("{small}batch_size = 64\n")),
            ("gpt2 bs64", format!("{small}batch_size = 64\n")),
            ("350M; batch=8, context length 512", {
                "n_layer = 24\nn_head = 16\nn_embd = 1024\nbatch_size = 8\nblock_size = 512\n".to_owned()
            }),
            ("gpt2-xl bf16 eager", {
                "n_layer = 48\nn_head = 25\nn_embd = 1600\ndtype = 'bfloat16'\ncompile = False\n".to_owned()
            }),
            ("6 layers, 6 heads, width 384", "n_layer = 6\nn_head = 6\nn_embd = 384\n".to_owned()),
        ] {
            assert_eq!(config(text).as_deref(), Some(expected.as_str()), "{text}");
        }
    }

    #[test]
    fn partially_parsed_message_is_refused() {
        for text in [
            "",
            "hello",
            "124M on a toaster",
            "7b, batch 64",
            "batch",
            "64",
            "batch 64 32",
            "batch context 64",
            "the model",
            "batch 99999999999999999999999",
            "Killed",
            "batchsize = 3",
            "n_layers=2",
        ] {
            assert_eq!(config(text), None, "{text}");
        }
    }

    #[test]
    fn a_config_stays_one() {
        for text in ["batch_size = 64", "batch_size=64", "compile = f()", "", "# 124M, batch 64"] {
            assert_eq!(from_pasted_text("c.py", text).kind, PastedKind::Config, "{text}");
        }
        let pasted = from_pasted_text("c.py", "350M, batch 64");
        assert_eq!(pasted.kind, PastedKind::Words);
        let settings = pasted.read();
        assert_eq!(settings.problems.as_slice(), []);
        assert_eq!(
            (settings.value("n_layer"), settings.value("batch_size")),
            (Some(Value::Int(24)), Some(Value::Int(64)))
        );
    }
}
