//! Information about a model from outside its tensors: a Hugging Face `config.json`, or the user.

use headroom_text::decimal;
use serde_json::{Map, Value};

use super::error::{WeightsError, shown};

/// The maximum length of a `config.json` in bytes; GPT-2's has 665.
pub const MAX_CONFIG_JSON_BYTES: u64 = 1 << 20;

/// Values to compare the tensors with. Empty if nothing else is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The number of heads, which no tensor's shape contains.
    pub n_head: Option<u64>,
    /// Keys of `config.json` that shapes imply as well, with their values.
    pub(super) same: Vec<(&'static str, u64)>,
    /// Whether the model was trained with GELU's tanh approximation, as OpenAI's were.
    pub(super) is_gelu_approximate: bool,
}

impl Hints {
    /// Hints with the number of heads only.
    #[must_use]
    pub fn with_heads(n_head: u64) -> Self {
        Self { n_head: Some(n_head), ..Self::default() }
    }

    /// Parses a Hugging Face `config.json`.
    ///
    /// # Errors
    /// The text is not a JSON object, or the model is not supported.
    pub fn from_config_json(text: &[u8]) -> Result<Self, WeightsError> {
        if text.len() as u64 > MAX_CONFIG_JSON_BYTES {
            let (bytes, max) = (text.len() as u64, MAX_CONFIG_JSON_BYTES);
            return Err(WeightsError::ConfigJsonTooLong { bytes, max });
        }
        let why = |error: serde_json::Error| WeightsError::ConfigJson { why: shown(&error.to_string()) };
        let config: Map<String, Value> = serde_json::from_slice(text).map_err(why)?;
        is_known(&config, "model_type", "gpt2", &["gpt2"])?;
        let gelu = ["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast"];
        is_known(&config, "activation_function", "gelu", &gelu)?;
        for (key, known, value) in [
            ("scale_attn_weights", "true", true),
            ("scale_attn_by_inverse_layer_idx", "false", false),
            ("tie_word_embeddings", "true", true),
            ("add_cross_attention", "false", false),
        ] {
            if config.get(key).and_then(Value::as_bool).is_some_and(|said| said != value) {
                return Err(WeightsError::Unsupported { key, value: (!value).to_string(), known });
            }
        }
        let epsilon = config.get("layer_norm_epsilon").and_then(Value::as_f64);
        if let Some(epsilon) = epsilon.filter(|epsilon| (epsilon - 1e-5).abs() > 1e-12) {
            let value = decimal::shortest(epsilon);
            return Err(WeightsError::Unsupported { key: "layer_norm_epsilon", value, known: "1e-5" });
        }
        let number = |key: &'static str| Some((key, config.get(key)?.as_u64()?));
        Ok(Self {
            n_head: config.get("n_head").and_then(Value::as_u64),
            same: ["n_layer", "n_embd", "vocab_size", "n_positions"].into_iter().filter_map(number).collect(),
            is_gelu_approximate: config
                .get("activation_function")
                .is_none_or(|function| function.as_str() != Some("gelu")),
        })
    }
}

fn is_known(
    config: &Map<String, Value>,
    key: &'static str,
    known: &'static str,
    all: &[&str],
) -> Result<(), WeightsError> {
    let said = config.get(key).and_then(Value::as_str);
    match said.filter(|said| !all.contains(said)) {
        Some(said) => Err(WeightsError::Unsupported { key, value: shown(said), known }),
        None => Ok(()),
    }
}
