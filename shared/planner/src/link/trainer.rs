//! Links of runs of other trainers than nanoGPT.
//!
//! `1&trainer=nanochat&options=--depth%3D12&gpu=RTX%204070`: the version, the trainer, its options as words, for Hugging
//! Face the model's config as JSON, then the GPU and the environment.
//!
//! Links are posted in forums. They contain only options that the trainer has, each once, without names and paths.
//! `omitted=` has the names of options that the trainer does not have.

use serde_json::Value;

use super::{
    MAX_LINK_BYTES, VERSION, encode_options, is_option, percent_decode, push, read_option, shortened, split_compared,
};
use crate::{
    session::Options,
    trainers::{
        arguments::Kind,
        input::{Given, Input, Trainer, quoted},
    },
};

/// Key of the trainer in a link. Links without it are of nanoGPT.
pub const TRAINER: &str = "trainer";

/// The config of a link whose config is not a JSON object.
const NO_CONFIG: &str = "?";

/// Key of the names of omitted options.
const OMITTED: &str = "omitted";

/// Maximum length of a value in a link, enough for the names of all layers.
const MAX_VALUE_BYTES: usize = 120;

/// A decoded link of a run of another trainer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainerLink {
    /// The run.
    pub input: Input,
    /// The GPU and the environment.
    pub options: Options,
    /// Parts of the link that this version does not know, and options that the link omits.
    pub unknown: Vec<String>,
    /// Whether the link names a GPU or its memory.
    pub names_gpu: bool,
}

impl TrainerLink {
    /// The options, on the GPU of the options before them unless the link names one.
    #[must_use]
    pub fn options_after(&self, before: &Options) -> Options {
        let options = self.options.clone();
        if self.names_gpu {
            return options;
        }
        Options { gpu: before.gpu.clone(), vram_bytes: before.vram_bytes, ..options }
    }
}

/// Encodes a fragment, without the `#`.
#[must_use]
pub fn encode(input: &Input, options: &Options) -> String {
    let mut fragment = VERSION.to_string();
    push(&mut fragment, TRAINER, input.trainer.name());
    let (words, omitted) = public_words(input);
    for (key, words) in [("options", words), (OMITTED, omitted)] {
        if !words.is_empty() {
            push(&mut fragment, key, &words.join(" "));
        }
    }
    if let Some(config) = public_config(&input.config) {
        push(&mut fragment, "config", &config);
    }
    encode_options(options, &mut fragment);
    fragment
}

/// The options of a run without names and paths, and the names of options that the trainer does not have. Of several
/// equal options, the last one counts.
fn public_words(input: &Input) -> (Vec<String>, Vec<String>) {
    let given = input.given();
    let is_last = |at: usize, key: &str| !given[at + 1..].iter().any(|later| later.key.is_some_and(|k| k.name == key));
    let (mut words, mut omitted) = (Vec::new(), Vec::new());
    for (at, Given { name, key, value, .. }) in given.iter().enumerate() {
        match key {
            Some(key) if key.kind == Kind::Text && !key.affects_memory => {}
            Some(key) if is_last(at, key.name) => match value {
                Some(value) if is_public(value) => words.push(format!("--{}={}", key.name, quoted(value))),
                Some(_) => omitted.push(format!("--{}", key.name)),
                None => words.push(format!("--{}", key.name)),
            },
            None if is_public(name) && !omitted.contains(name) => omitted.push(name.clone()),
            _ => {}
        }
    }
    (words, omitted)
}

/// Whether a text can be part of a link: a number, a word, or names separated by commas.
fn is_public(text: &str) -> bool {
    text.len() <= MAX_VALUE_BYTES && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-+.,".contains(c))
}

/// A config without private keys, which start with an underscore, and without paths. `None` if it is empty. A text that
/// is not a JSON object is replaced by one that is not either.
fn public_config(config: &str) -> Option<String> {
    if config.trim().is_empty() {
        return None;
    }
    let Ok(Value::Object(keys)) = serde_json::from_str(config) else { return Some(NO_CONFIG.to_owned()) };
    let public = keys.into_iter().filter(|(key, value)| !key.starts_with('_') && !has_path(value)).collect();
    Some(Value::Object(public).to_string())
}

/// Whether a value has a text with a slash.
fn has_path(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(['/', '\\']),
        Value::Array(values) => values.iter().any(has_path),
        Value::Object(keys) => keys.values().any(has_path),
        _ => false,
    }
}

/// Decodes a fragment, with or without its `#`, and without the run that it is compared with. `None` if it is not of a
/// trainer.
#[must_use]
pub fn decode(fragment: &str) -> Option<TrainerLink> {
    let (fragment, _) = split_compared(fragment.strip_prefix('#').unwrap_or(fragment));
    let mut parts = fragment.split('&');
    parts.next()?.parse::<u32>().ok().filter(|_| fragment.len() <= MAX_LINK_BYTES)?;
    let mut link = TrainerLink::default();
    let mut is_of_trainer = false;
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, "1"));
        let (key, value) = (percent_decode(key), percent_decode(value));
        let is_known = match key.as_str() {
            TRAINER => {
                let trainer = Trainer::ALL.into_iter().find(|trainer| trainer.name() == value);
                is_of_trainer |= trainer.is_some();
                link.input.trainer = trainer.unwrap_or_default();
                trainer.is_some()
            }
            "options" => {
                link.input.command = value;
                true
            }
            "config" => {
                link.input.config = pretty(&value);
                true
            }
            OMITTED => {
                link.unknown.extend(value.split_whitespace().map(shortened));
                true
            }
            key if is_option(key) => {
                link.names_gpu |= matches!(key, "gpu" | "vram");
                read_option(&mut link.options, key, &value)
            }
            _ => false,
        };
        if !is_known {
            link.unknown.push(shortened(part));
        }
    }
    is_of_trainer.then_some(link)
}

/// A config as people read it.
fn pretty(config: &str) -> String {
    let parsed: Result<Value, _> = serde_json::from_str(config);
    parsed.ok().and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| config.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(trainer: Trainer, command: &str, config: &str) -> Input {
        Input { trainer, command: command.to_owned(), config: config.to_owned() }
    }

    #[test]
    fn a_link_opens_the_same_run() {
        let options = Options { gpu: "RTX 3060".to_owned(), expandable_segments: true, ..Options::default() };
        for input in [
            input(Trainer::Nanochat, "--compile=False --depth=12", ""),
            input(Trainer::Hf, "--bf16 --lora_r=16", "{\n  \"hidden_size\": 64,\n  \"model_type\": \"llama\"\n}"),
            input(Trainer::Hf, "--lora_r=many", "?"),
        ] {
            let link = decode(&encode(&input, &options)).expect("a link of a trainer");
            assert_eq!((link.input, link.options, link.unknown), (input, options.clone(), Vec::new()));
            assert!(link.names_gpu);
        }
    }

    /// The run of the link of a run, and the options that the link omits.
    fn shared(input: &Input) -> (Input, Vec<String>) {
        let link = encode(input, &Options::default());
        assert!(!link.contains("home") && !link.contains("secret"), "{link}");
        let decoded = decode(&link).expect("a link of a trainer");
        (decoded.input, decoded.unknown)
    }

    #[test]
    fn a_link_has_no_names_and_paths() {
        let config = "{\"_name_or_path\": \"/home/me/model\", \"base\": [\"home/me\"], \"hidden_size\": 64}";
        let command = "python /home/me/train.py --output_dir=/home/me/out --bf16 --output_dir /home/me/secret \
                       --train_file=/home/me/secret.json --data secret/home --seed=3 /home/me/config.json \
                       --lora_r=/home/me/rank --home/secret --seed=4 --lora_target_modules=q_proj,v_proj";
        let (run, omitted) = shared(&input(Trainer::Hf, command, config));
        assert_eq!(run.command, "--bf16 --seed=4 --lora_target_modules=q_proj,v_proj");
        assert_eq!(run.config, "{\n  \"hidden_size\": 64\n}");
        assert_eq!(omitted, ["--train_file", "--data", "--lora_r"]);
        let (run, omitted) = shared(&input(Trainer::Hf, "--bf=x", "/home/me/config.json"));
        assert_eq!((run.command.as_str(), run.config.as_str(), &*omitted), ("", "?", &["--bf".to_owned()][..]));
        let command = "torchrun -m scripts.base_train -- --run home --depth 8 --depth 4 --model-tag=secret";
        assert_eq!(shared(&input(Trainer::Nanochat, command, "")).0.command, "--depth=4");
    }

    #[test]
    fn other_links_are_not_of_a_trainer() {
        for fragment in ["", "answer", "1&batch_size=4", "1&trainer=megatron"] {
            assert_eq!(decode(fragment), None, "{fragment}");
        }
        let link = decode("1&trainer=hf&later=1&gpu=RTX%203060").expect("a link of a trainer");
        assert_eq!(link.unknown, ["later=1"]);
    }
}
