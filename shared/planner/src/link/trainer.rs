//! Links of runs of other trainers than nanoGPT.
//!
//! `1&trainer=nanochat&options=--depth%3D12&gpu=RTX%204070`: the version, the trainer, its options as words, for Hugging
//! Face the model's config as JSON, then the GPU and the environment. Names and paths are omitted.

use serde_json::Value;

use super::{MAX_LINK_BYTES, VERSION, encode_options, is_option, percent_decode, push, read_option, shortened};
use crate::{
    session::Options,
    trainers::{
        arguments::Kind,
        input::{Input, Trainer},
    },
};

/// Key of the trainer in a link. Links without it are of nanoGPT.
pub const TRAINER: &str = "trainer";

/// A decoded link of a run of another trainer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrainerLink {
    /// The run.
    pub input: Input,
    /// The GPU and the environment.
    pub options: Options,
    /// Parts of the link that this version does not know.
    pub unknown: Vec<String>,
    /// Whether the link names a GPU or its memory.
    pub names_gpu: bool,
}

/// Encodes a fragment, without the `#`.
#[must_use]
pub fn encode(input: &Input, options: &Options) -> String {
    let mut fragment = VERSION.to_string();
    push(&mut fragment, TRAINER, input.trainer.name());
    let words = public_words(input);
    if !words.is_empty() {
        push(&mut fragment, "options", &words);
    }
    if let Some(config) = public_config(&input.config) {
        push(&mut fragment, "config", &config);
    }
    encode_options(options, &mut fragment);
    fragment
}

/// The options of a run without names and paths: options whose value is any text and does not change memory.
fn public_words(input: &Input) -> String {
    let mut public = input.clone();
    public.command = input.options_text();
    for key in input.trainer.keys().iter().filter(|key| key.kind == Kind::Text && !key.affects_memory) {
        public.set(key, key.default);
    }
    public.command.trim().to_owned()
}

/// A config without spaces and private keys, which start with an underscore. `None` if it is empty. A text that is not
/// JSON stays as it is, so that the link has the same error.
fn public_config(config: &str) -> Option<String> {
    let text = match serde_json::from_str(config) {
        Ok(Value::Object(keys)) => {
            let public = keys.into_iter().filter(|(key, _)| !key.starts_with('_')).collect();
            Value::Object(public).to_string()
        }
        _ => config.trim().to_owned(),
    };
    (!text.is_empty()).then_some(text)
}

/// Decodes a fragment, with or without its `#`. `None` if it is not of a trainer.
#[must_use]
pub fn decode(fragment: &str) -> Option<TrainerLink> {
    let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
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
            input(Trainer::Hf, "--bf=x", "{\"broken"),
        ] {
            let link = decode(&encode(&input, &options)).expect("a link of a trainer");
            assert_eq!((link.input, link.options, link.unknown), (input, options.clone(), Vec::new()));
            assert!(link.names_gpu);
        }
    }

    #[test]
    fn a_link_has_no_names_and_paths() {
        let config = "{\"_name_or_path\": \"/home/me/model\", \"hidden_size\": 64}";
        let input = input(Trainer::Hf, "python /home/me/train.py --output_dir=/home/me/out --bf16 --seed=3", config);
        let link = encode(&input, &Options::default());
        assert!(!link.contains("home"), "{link}");
        let decoded = decode(&link).expect("a link of a trainer").input;
        assert_eq!(decoded.command, "--bf16 --seed=3");
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
