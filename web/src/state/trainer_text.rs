//! Recognition of texts about runs of trainers other than nanoGPT: links, models, commands, logs and short requests.

use headroom_planner::{
    link::trainer::{TrainerLink, decode},
    nanogpt::{Format, recognize},
    trainers::{
        input::{Input, Trainer},
        launch::input_in,
        presets::{self, Preset},
    },
};

use super::{
    answer::Reading,
    trainer::{DEFAULT_HF, config_text},
};

/// A JSON object.
pub type Json = serde_json::Map<String, serde_json::Value>;

/// Maximum length of a request in words, in bytes. A longer text is a document that mentions a model.
const MAX_REQUEST_BYTES: usize = 300;

/// Options that quantize the base model as in QLoRA.
const QLORA: &str = " --load_in_4bit --bnb_4bit_quant_type=nf4 --bnb_4bit_compute_dtype=bfloat16";

/// Reads the run of a text, with the GPU of a link. `None` if the text is not about a run of these trainers. A GPT-2
/// `config.json` is not either, because nanoGPT trains that model too.
pub fn read(text: &str) -> Option<TrainerLink> {
    let json = json_object(text);
    let text = json.as_ref().and_then(linked_plan).unwrap_or(text).trim();
    let format = recognize(text);
    if let Some(Format::Link(fragment)) = &format {
        return open(fragment);
    }
    let is_config = json.as_ref().is_some_and(is_model) && !matches!(format, Some(Format::Settings(_)));
    let input = named_preset(text)
        .map(|preset| fine_tuning(config_text(preset)))
        .or_else(|| is_config.then(|| fine_tuning(text.to_owned())))
        .or_else(|| input_in(text)?.ok())
        .or_else(|| requested(text));
    input.map(|input| TrainerLink { input, ..TrainerLink::default() })
}

/// Opens a link to a run of these trainers. One without a model has the first of the presets, as in the calculator.
pub fn open(fragment: &str) -> Option<TrainerLink> {
    let mut link = decode(fragment)?;
    if link.input.trainer == Trainer::Hf && link.input.config.is_empty() {
        link.input.config = config_text(&presets::PRESETS[0]);
    }
    Some(link)
}

/// The text as a JSON object.
pub fn json_object(text: &str) -> Option<Json> {
    let text = text.trim();
    text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
}

/// The link in the JSON of a plan of another trainer than nanoGPT.
pub fn linked_plan(json: &Json) -> Option<&str> {
    json.get("schema")?;
    json.get("link")?.as_str()
}

/// Whether an object is the `config.json` of a model.
pub fn is_model(json: &Json) -> bool {
    ["model_type", "architectures"].iter().any(|key| json.contains_key(*key))
}

/// The fine-tuning of the model of a `config.json`, with default options.
pub fn fine_tuning(config: String) -> Input {
    Input { trainer: Trainer::Hf, command: DEFAULT_HF.to_owned(), config }
}

/// The model of a name such as `Qwen/Qwen3-0.6B`, or of the address of its page.
pub fn named_preset(text: &str) -> Option<&'static Preset> {
    let mut parts = path_of_model(text).split('/');
    let name = [parts.next(), parts.next()].into_iter().flatten().next_back()?;
    presets::find(name)
}

/// The path of the address of a model's page, or the text itself.
pub fn path_of_model(text: &str) -> &str {
    let text = text.trim().trim_end_matches('/');
    text.split_once("huggingface.co/").map_or(text, |(_, path)| path)
}

/// The fine-tuning that a request in words names, such as "fine-tune Qwen/Qwen3-1.7B with LoRA". `None` if it is a
/// description of a run of nanoGPT.
pub fn requested(text: &str) -> Option<Input> {
    if text.len() > MAX_REQUEST_BYTES {
        return None;
    }
    let is_part_of_name = |c: char| c.is_ascii_alphanumeric() || "/-_.:".contains(c);
    let words = || text.split(|c| !is_part_of_name(c)).map(|word| word.trim_end_matches(['.', ':']));
    let preset = words().find_map(named_preset)?;
    if Reading::of_text(text) == Reading::Run {
        return None;
    }
    let has = |names: &[&str]| words().any(|word| names.iter().any(|name| word.eq_ignore_ascii_case(name)));
    let mut input = fine_tuning(config_text(preset));
    if has(&["QLoRA", "4-bit", "4bit"]) {
        input.command.push_str(QLORA);
    } else if has(&["full", "fully"]) {
        input.command = input.command.replace(" --lora_r=16", "");
    }
    Some(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Option<String> {
        read(text).map(|link| link.input.command)
    }

    #[test]
    fn a_request_in_words_is_a_fine_tuning() {
        assert_eq!(command("fine-tune Qwen/Qwen3-1.7B with LoRA.").as_deref(), Some(DEFAULT_HF));
        assert_eq!(command("Llama-3.2-1B, QLoRA"), Some(DEFAULT_HF.to_owned() + QLORA));
        let full = command("Full fine-tuning of Qwen3-0.6B").expect("a run");
        assert!(!full.contains("lora"), "{full}");
        for text in ["full", "Qwen3-1.7B", "QLoRA"].map(|words| format!("{words} Qwen3-0.6B")) {
            let run = read(&text).expect("a run").input.read();
            assert!(run.is_ok(), "{text}: {run:?}");
        }
    }

    #[test]
    fn texts_of_nanogpt_and_documents_are_no_requests() {
        let document = format!("Qwen/Qwen3-0.6B {}", "is a model. ".repeat(40));
        for text in ["GPT2 124M, batch 64", "batch_size = 64  # as Qwen3-0.6B", "hello", "", &document] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_link_keeps_its_gpu() {
        let link = read("https://a.example/gpus.html#1&trainer=nanochat&options=--depth=4&gpu=L4").expect("a link");
        assert!(link.names_gpu);
        assert_eq!((link.input.command.as_str(), link.options.gpu.as_str()), ("--depth=4", "L4"));
        assert!(link.input.config.is_empty());
        let json = r##"{"schema": 1, "trainer": "hf", "link": "#1&trainer=hf&options=--bf16"}"##;
        assert_eq!(command(json).as_deref(), Some("--bf16"));
        assert!(read(json).is_some_and(|link| link.input.read().is_ok()), "the model of the calculator");
        assert_eq!(read("https://a.example/gpus.html#1&batch_size=4"), None);
    }

    #[test]
    fn a_config_and_a_command_are_runs() {
        let config = config_text(presets::find("Llama-3.2-1B").expect("a preset"));
        assert_eq!(read(&config).map(|link| link.input.config), Some(config));
        let link = read("python -m scripts.base_train --depth=4").expect("a command");
        assert_eq!(link.input.trainer, Trainer::Nanochat);
        let gpt2 = r#"{"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024}"#;
        assert_eq!(read(gpt2), None);
    }
}
