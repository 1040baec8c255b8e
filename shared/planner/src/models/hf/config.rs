//! A model's `config.json`.

use serde_json::Value;
use thiserror::Error;

/// An error of a `config.json`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A key is missing.
    #[error("cannot read the model's config: `{0}` is missing")]
    Missing(&'static str),
    /// A key is not a count.
    #[error("cannot read the model's config: `{key}` is {value}, not a whole number")]
    NotACount {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// A count is 0, or larger than any model has.
    #[error("cannot read the model's config: `{key}` is {value}, not between 1 and {max}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
        /// The maximum.
        max: u64,
    },
    /// A size is not a multiple of another.
    #[error("cannot read the model's config: `{key}` is {value}, not a multiple of `{divisor}`, {by}")]
    NotAMultiple {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
        /// Key of the divisor.
        divisor: &'static str,
        /// Value of the divisor.
        by: u64,
    },
    /// The planner does not model this value.
    #[error("cannot plan the model: `{key}` is {value}\nSupported values: {supported}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// Supported values.
        supported: &'static str,
    },
}

/// A family of models with one Python implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `LlamaForCausalLM`.
    Llama,
    /// `Qwen2ForCausalLM`.
    Qwen2,
    /// `Qwen3ForCausalLM`.
    Qwen3,
}

/// Keys of a `config.json` that determine memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// `model_type`.
    pub family: Family,
    /// `vocab_size`.
    pub vocab_size: u64,
    /// `hidden_size`.
    pub hidden_size: u64,
    /// `intermediate_size`.
    pub intermediate_size: u64,
    /// `num_hidden_layers`.
    pub layers: u64,
    /// `num_attention_heads`.
    pub heads: u64,
    /// `num_key_value_heads`.
    pub key_value_heads: u64,
    /// `head_dim`.
    pub head_dim: u64,
    /// `tie_word_embeddings`.
    pub ties_embeddings: bool,
    /// `attention_bias`, of q, k and v.
    pub has_attention_bias: bool,
    /// `attention_bias`, of the output projection.
    pub has_output_bias: bool,
    /// `mlp_bias`.
    pub has_mlp_bias: bool,
    /// Whether `attention_dropout` is above 0.
    pub drops_attention: bool,
}

/// Maximum of every count. Products of three counts and an element size are below 2^64.
const MAX_COUNT: u64 = 1 << 20;
/// Maximum of `num_hidden_layers`.
const MAX_LAYERS: u64 = 1024;
/// Names of the supported families.
const FAMILIES: &str = "llama, qwen2, qwen3";

fn optional(config: &Value, key: &'static str, max: u64) -> Result<Option<u64>, ConfigError> {
    let value = match config.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let count = value.as_u64().ok_or_else(|| ConfigError::NotACount { key, value: value.to_string() })?;
    if (1..=max).contains(&count) { Ok(Some(count)) } else { Err(ConfigError::OutOfRange { key, value: count, max }) }
}

fn required(config: &Value, key: &'static str, max: u64) -> Result<u64, ConfigError> {
    optional(config, key, max)?.ok_or(ConfigError::Missing(key))
}

fn flag(config: &Value, key: &str, default: bool) -> bool {
    config.get(key).and_then(Value::as_bool).unwrap_or(default)
}

fn family(config: &Value) -> Result<Family, ConfigError> {
    let key = "model_type";
    match config.get(key).and_then(Value::as_str).ok_or(ConfigError::Missing(key))? {
        "llama" => Ok(Family::Llama),
        "qwen2" => Ok(Family::Qwen2),
        "qwen3" => Ok(Family::Qwen3),
        other => Err(ConfigError::Unsupported { key, value: other.into(), supported: FAMILIES }),
    }
}

/// Refuses settings of a model that the planner does not have.
fn check_supported(config: &Value) -> Result<(), ConfigError> {
    let is_silu = config.get("hidden_act").is_none_or(|value| value == "silu");
    if !is_silu {
        let value = config["hidden_act"].to_string();
        return Err(ConfigError::Unsupported { key: "hidden_act", value, supported: "silu" });
    }
    if flag(config, "use_sliding_window", false) {
        let value = "true".into();
        return Err(ConfigError::Unsupported { key: "use_sliding_window", value, supported: "false" });
    }
    Ok(())
}

fn check_multiple([key, divisor]: [&'static str; 2], [value, by]: [u64; 2]) -> Result<(), ConfigError> {
    if value.is_multiple_of(by) { Ok(()) } else { Err(ConfigError::NotAMultiple { key, value, divisor, by }) }
}

impl Config {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// [`ConfigError`] if a key is missing or out of range, or if the planner does not have the model.
    pub fn new(config: &Value) -> Result<Self, ConfigError> {
        let family = family(config)?;
        check_supported(config)?;
        let count = |key| required(config, key, MAX_COUNT);
        let [hidden_size, heads] = [count("hidden_size")?, count("num_attention_heads")?];
        let key_value_heads = optional(config, "num_key_value_heads", MAX_COUNT)?.unwrap_or(heads);
        check_multiple(["num_attention_heads", "num_key_value_heads"], [heads, key_value_heads])?;
        let head_dim = match optional(config, "head_dim", MAX_COUNT)? {
            Some(head_dim) => head_dim,
            None => {
                check_multiple(["hidden_size", "num_attention_heads"], [hidden_size, heads])?;
                hidden_size / heads
            }
        };
        check_multiple(["head_dim", "2"], [head_dim, 2])?;
        let has_bias = flag(config, "attention_bias", false);
        Ok(Self {
            family,
            vocab_size: count("vocab_size")?,
            hidden_size,
            intermediate_size: count("intermediate_size")?,
            layers: required(config, "num_hidden_layers", MAX_LAYERS)?,
            heads,
            key_value_heads,
            head_dim,
            ties_embeddings: flag(config, "tie_word_embeddings", false),
            has_attention_bias: has_bias || family == Family::Qwen2,
            has_output_bias: has_bias && family != Family::Qwen2,
            has_mlp_bias: flag(config, "mlp_bias", false) && family == Family::Llama,
            drops_attention: config.get("attention_dropout").and_then(Value::as_f64).is_some_and(|p| p > 0.0),
        })
    }
}
