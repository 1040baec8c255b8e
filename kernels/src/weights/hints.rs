//! What is known of a model from elsewhere than its tensors: a `config.json` of Hugging Face, or a person.

use headroom_shared::decimal;
use serde_json::{Map, Value};

use super::error::{WeightsError, shown};

/// The longest `config.json` that is read; GPT-2's has 665 bytes.
pub const MAX_CONFIG_JSON_BYTES: u64 = 1 << 20;

/// What to hold the tensors against. Empty where nothing else is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Heads, which no tensor's shape says.
    pub n_head: Option<u64>,
    /// Keys of `config.json` that the shapes say too.
    pub(super) same: Vec<(&'static str, u64)>,
    /// Whether the model was trained with the approximation of GELU by tanh, as OpenAI's were.
    pub(super) is_gelu_approximate: bool,
}

impl Hints {
    /// Heads that somebody gives.
    #[must_use]
    pub fn with_heads(n_head: u64) -> Self {
        Self { n_head: Some(n_head), ..Self::default() }
    }

    /// Reads a `config.json` of Hugging Face.
    ///
    /// # Errors
    /// It is no JSON object, or the model is not one that this program computes.
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
