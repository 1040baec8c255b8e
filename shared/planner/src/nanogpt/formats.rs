//! Other formats that users paste instead of a nanoGPT config: a link to a run, the JSON of a plan, a Hugging Face
//! `config.json`, YAML.

mod json;

use self::json::Json;
use super::{MAX_SOURCE_BYTES, defaults, is_name, shortened};
use crate::hardware::find;
use headroom_text::{self as text, Text};

/// A text in a format other than a nanoGPT config, command or log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// A link to a run: its fragment without `#`.
    Link(String),
    /// The JSON of a plan, as `headroom plan --json` prints it.
    Plan {
        /// The plan's settings as a config.
        config: String,
        /// The plan's GPU, in the syntax of the GPU field. Empty if the plan has none.
        gpu: String,
        /// Memory of that GPU in bytes, if its name does not determine it.
        vram_bytes: Option<u64>,
    },
    /// JSON that sets nanoGPT's keys, or a Hugging Face config of a GPT-2 model, converted to a config.
    Settings(String),
    /// JSON or YAML that cannot be planned, with the reason and a hint.
    Unsupported(Text, Option<Text>),
}

/// Recognizes a text by its form. Returns `None` if it must be read as a config, a command or a log.
#[must_use]
pub fn recognize(text: &str) -> Option<Format> {
    let text = text.trim();
    if text.len() > MAX_SOURCE_BYTES {
        return None;
    }
    if text.starts_with('{') {
        return Json::read(text).map(|object| of_json(&object));
    }
    let link = fragment(text).map(|fragment| Format::Link(fragment.to_owned()));
    link.or_else(|| is_yaml(text).then(|| Format::Unsupported(text::IS_YAML.into(), None)))
}

/// Returns the fragment of a link to a run, from a whole URL or a bare fragment.
fn fragment(text: &str) -> Option<&str> {
    let is_address = ["http://", "https://", "//"].iter().any(|start| text.starts_with(start));
    let fragment = match text.split_once('#') {
        Some((before, fragment)) if is_address || before.is_empty() => fragment,
        None if !is_address => text,
        _ => return None,
    };
    let after_version = fragment.trim_start_matches(|c: char| c.is_ascii_digit());
    let has_version = after_version.len() < fragment.len() && after_version.starts_with('&');
    (has_version && !text.contains(char::is_whitespace)).then_some(fragment)
}

fn of_json(object: &Json) -> Format {
    if let (Some(_), Some(config)) = (object.get("schema"), object.get("config")) {
        let device = |key: &str| object.get("device").and_then(|device| device.get(key));
        let name = device("name").and_then(Json::as_str).unwrap_or_default();
        let total_bytes = device("total_bytes").and_then(Json::as_u64);
        let known = find(name).ok();
        let is_reported_by_name = known.is_some_and(|known| Some(known.total_bytes) == total_bytes);
        return Format::Plan {
            config: config_of(config),
            gpu: known.map_or_else(String::new, |known| known.name.to_string()),
            vram_bytes: total_bytes.filter(|_| !is_reported_by_name),
        };
    }
    if let Some(model) = model_name(object) {
        return if model.eq_ignore_ascii_case("gpt2") { gpt2(object) } else { unsupported(&model) };
    }
    let config = config_of(object);
    if config.is_empty() {
        Format::Unsupported(text::JSON_WITHOUT_SETTINGS.into(), Some(text::JSON_OF_SETTINGS.into()))
    } else {
        Format::Settings(config)
    }
}

fn unsupported(model: &str) -> Format {
    Format::Unsupported(text::other_model(shortened(model)), None)
}

/// Returns the display name of the architecture in a Hugging Face config.
fn model_name(object: &Json) -> Option<String> {
    let class = match object.get("architectures") {
        Some(Json::List(classes)) => classes.first().and_then(Json::as_str),
        _ => None,
    };
    let model_type = object.get("model_type").and_then(Json::as_str);
    if model_type == Some("gpt2") {
        return Some("gpt2".to_owned());
    }
    let name = class.map(|class| {
        let suffixes = ["ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForMaskedLM", "Model"];
        suffixes.iter().find_map(|suffix| class.strip_suffix(suffix)).unwrap_or(class)
    });
    name.or(model_type).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns nanoGPT's keys for a GPT-2 of Hugging Face. Missing values have the defaults of `GPT2Config`.
fn gpt2(object: &Json) -> Format {
    let count = |name: &str, default: u64| object.get(name).and_then(Json::as_u64).unwrap_or(default);
    let n_embd = count("n_embd", 768);
    let n_inner = count("n_inner", n_embd.saturating_mul(4));
    if Some(n_inner) != n_embd.checked_mul(4) {
        return unsupported(&format!("GPT-2 (n_inner = {n_inner})"));
    }
    let keys = [
        ("n_layer", count("n_layer", 12)),
        ("n_head", count("n_head", 12)),
        ("n_embd", n_embd),
        ("block_size", count("n_positions", count("n_ctx", 1024))),
        ("vocab_size", count("vocab_size", 50257)),
    ];
    let config = keys.iter().fold(String::new(), |config, (key, value)| config + &format!("{key} = {value}\n"));
    Format::Settings(config + "bias = True\n")
}

/// Returns an object's non-default nanoGPT keys as a config, in nanoGPT's order.
fn config_of(object: &Json) -> String {
    let mut config = String::new();
    for key in defaults::KEYS.iter().filter(|key| is_name(key.name)) {
        if let Some(Json::Scalar(value)) = object.get(key.name)
            && key.default.value().as_ref() != Some(value)
        {
            config.push_str(&format!("{} = {value}\n", key.name));
        }
    }
    config
}

/// Minimum number of keys in YAML: a single line with a colon may be an error message. One of nanoGPT's keys is enough.
const MIN_YAML_KEYS: usize = 2;

/// Returns whether every line is a key with a colon, an item or a comment, as in YAML but not in Python.
fn is_yaml(text: &str) -> bool {
    let (mut n_keys, mut is_ours) = (0, false);
    for line in text.lines().map(str::trim_end) {
        let is_indented = line.starts_with(' ');
        let is_structure =
            line.is_empty() || is_indented || line.starts_with('#') || line.starts_with("- ") || line == "---";
        let parts = line.trim_start_matches([' ', '-']).split_once(':');
        match parts.filter(|(key, value)| is_name(key) && (value.is_empty() || value.starts_with(' '))) {
            // An annotated assignment in Python.
            Some((_, value)) if value.contains('=') => return false,
            Some((key, _)) if !key.ends_with("Error") => {
                n_keys += usize::from(!is_indented);
                is_ours |= defaults::find(key).is_some();
            }
            _ if is_structure => {}
            _ => return false,
        }
    }
    n_keys >= MIN_YAML_KEYS || (n_keys > 0 && is_ours)
}

#[cfg(test)]
mod tests {
    use super::super::{PastedKind, from_pasted_text};
    use super::*;

    #[test]
    fn link_is_recognized_by_its_fragment() {
        let fragment = "1&batch_size=64&gpu=L4";
        for text in [
            fragment.to_owned(),
            format!("#{fragment}"),
            format!("https://example.org/headroom/?lang=de#{fragment}\n"),
            format!("//example.org/headroom/#{fragment}"),
            format!("http://127.0.0.1:8420/#{fragment}"),
        ] {
            assert_eq!(recognize(&text), Some(Format::Link(fragment.to_owned())), "{text}");
        }
        for text in ["64", "#1", "# 1&2", "https://example.org/#answer", "1 & 2", "batch_size = 1 # 1&b=2", ""] {
            assert_eq!(recognize(text), None, "{text}");
        }
    }

    #[test]
    fn plan_json_opens_its_config_and_gpu() {
        let json = |total: u64, name: &str| {
            format!(
                "{{\"schema\": 1, \"config\": {{\"batch_size\": 64, \"n_layer\": 12, \"compile\": false, \"dtype\": \
                 \"float16\", \"learning_rate\": 0.001, \"out_dir\": \"mine\"}}, \"device\": {{\"name\": \"{name}\", \
                 \"total_bytes\": {total}}}}}"
            )
        };
        let device = find("L4").expect("in the table");
        let config = "out_dir = 'mine'\nbatch_size = 64\nlearning_rate = 0.001\ndtype = 'float16'\ncompile = False\n";
        for (total, name, gpu, vram_bytes) in [
            (device.total_bytes, "L4", "L4", None),
            (1 << 33, "L4", "L4", Some(1 << 33)),
            (1 << 33, "a GPU of somebody", "", Some(1 << 33)),
        ] {
            let expected = Format::Plan { config: config.to_owned(), gpu: gpu.to_owned(), vram_bytes };
            assert_eq!(recognize(&json(total, name)), Some(expected), "{name}");
        }
    }

    #[test]
    fn hugging_face_gpt2_becomes_a_config() {
        let text = r#"{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 24, "n_head": 16,
            "n_embd": 1024, "n_positions": 512, "n_ctx": 512, "vocab_size": 50257, "n_inner": null}"#;
        let config = "n_layer = 24\nn_head = 16\nn_embd = 1024\nblock_size = 512\nvocab_size = 50257\nbias = True\n";
        assert_eq!(recognize(text), Some(Format::Settings(config.to_owned())));
        let pasted = from_pasted_text("config.json", text);
        assert_eq!((pasted.kind, pasted.read().get_u64("n_layer")), (PastedKind::Json, Some(24)));
        let defaults = recognize("{\"model_type\": \"gpt2\"}");
        let config = "n_layer = 12\nn_head = 12\nn_embd = 768\nblock_size = 1024\nvocab_size = 50257\nbias = True\n";
        assert_eq!(defaults, Some(Format::Settings(config.to_owned())));
    }

    #[test]
    fn json_of_nanogpt_keys_becomes_a_config() {
        let text = "{\"batch_size\": 8, \"n_layer\": 12, \"bias\": true, \"mine\": [1]}";
        assert_eq!(recognize(text), Some(Format::Settings("batch_size = 8\nbias = True\n".to_owned())));
    }

    #[test]
    fn other_formats_have_no_plan_and_a_reason() {
        for (text, why) in [
            (
                "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 32000}",
                "this is a Llama config; Headroom plans nanoGPT models",
            ),
            ("{\"model_type\": \"gpt_neox\"}", "this is a gpt_neox config; Headroom plans nanoGPT models"),
            (
                "{\"model_type\": \"gpt2\", \"n_inner\": 5}",
                "this is a GPT-2 (n_inner = 5) config; Headroom plans nanoGPT models",
            ),
            ("{\"a\": 1}", "this JSON has no nanoGPT settings"),
            ("{}", "this JSON has no nanoGPT settings"),
            ("batch_size: 8\nmodel:\n  n_layer: 6\n", "this is YAML; write each setting as key = value"),
            ("batch_size: 8", "this is YAML; write each setting as key = value"),
            ("model:\n  n_layer: 6\n", "this is YAML; write each setting as key = value"),
        ] {
            let pasted = from_pasted_text("pasted", text);
            let settings = pasted.read();
            let said: Vec<String> = settings.problems.as_slice().iter().map(|p| p.message.to_string()).collect();
            assert_eq!((pasted.kind, said), (PastedKind::Unsupported, vec![why.to_owned()]), "{text}");
            assert!(!settings.is_complete());
        }
    }

    #[test]
    fn config_command_and_error_are_of_no_other_format() {
        for text in [
            "batch_size = 8\n",
            "batch_size: int = 8\nn_layer: int = 6\n",
            "try:\n    batch_size = 8\nexcept ValueError:\n    pass\n",
            "ValueError: no",
            "python train.py --batch_size=8",
            "RuntimeError: CUDA out of memory.\nValueError: no\n",
            "tokens per iteration will be: 1\n",
            "{not json",
            "[1, 2]",
        ] {
            assert_eq!(recognize(text), None, "{text}");
        }
    }

    #[test]
    fn floats_of_json_are_read_as_written() {
        let text = "{\"learning_rate\": 6e-5, \"dropout\": 0.15, \"grad_clip\": 0.5}";
        let config = "dropout = 0.15\nlearning_rate = 6e-05\ngrad_clip = 0.5\n";
        assert_eq!(recognize(text), Some(Format::Settings(config.to_owned())));
    }
}
