//! A model's `config.json`.

mod layers;

use serde_json::Value;
use thiserror::Error;

use super::Activation;

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
    /// The model is a mixture of experts.
    #[error(
        "cannot plan the model: `model_type` is {0}, a mixture of experts\nMixture-of-experts models are out of scope: which \
         expert gets a token depends on the data, and so does the memory"
    )]
    MixtureOfExperts(String),
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

/// `attn_implementation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionKind {
    /// `sdpa`: `scaled_dot_product_attention`.
    #[default]
    Sdpa,
    /// `eager`: separate products and softmax.
    Eager,
    /// `flash_attention_2`: the package flash-attn.
    FlashAttention2,
}

/// A family of models with one Python implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `Gemma2ForCausalLM`.
    Gemma2,
    /// `Gemma3ForCausalLM`.
    Gemma3,
    /// `GPT2LMHeadModel`.
    Gpt2,
    /// `LlamaForCausalLM`.
    Llama,
    /// `MistralForCausalLM`.
    Mistral,
    /// `Qwen2ForCausalLM`.
    Qwen2,
    /// `Qwen3ForCausalLM`.
    Qwen3,
    /// `SmolLM3ForCausalLM`.
    SmolLm3,
}

/// The families by `model_type`.
const FAMILIES: [(&str, Family); 8] = [
    ("gemma2", Family::Gemma2),
    ("gemma3_text", Family::Gemma3),
    ("gpt2", Family::Gpt2),
    ("llama", Family::Llama),
    ("mistral", Family::Mistral),
    ("qwen2", Family::Qwen2),
    ("qwen3", Family::Qwen3),
    ("smollm3", Family::SmolLm3),
];

impl Family {
    /// `model_type` of the supported families.
    pub const SUPPORTED: &str = "gemma2, gemma3_text, gpt2, llama, mistral, qwen2, qwen3, smollm3";

    /// Whether the family is Gemma 2 or 3: centered norms, four of them in each layer, and scaled embeddings.
    #[must_use]
    pub const fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }

    /// Whether queries and keys are normalized.
    #[must_use]
    pub const fn has_head_norms(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Gemma3)
    }

    /// Whether the config's `tie_word_embeddings` is true if it is missing.
    const fn ties_embeddings(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3 | Self::Gpt2 | Self::SmolLm3)
    }

    /// `num_key_value_heads` if it is missing; `None` for as many as heads of queries.
    const fn key_value_heads(self) -> Option<u64> {
        match self {
            Self::Llama | Self::Gpt2 => None,
            Self::Qwen2 | Self::Qwen3 => Some(32),
            Self::Mistral => Some(8),
            Self::Gemma2 | Self::Gemma3 | Self::SmolLm3 => Some(4),
        }
    }

    /// `head_dim` if it is missing; `None` for the share of `hidden_size`.
    const fn head_dim(self) -> Option<u64> {
        match self {
            Self::Gemma2 | Self::Gemma3 => Some(256),
            Self::Qwen3 => Some(128),
            _ => None,
        }
    }

    /// Linear layers that can have adapters.
    #[must_use]
    pub const fn linears(self) -> &'static [&'static str] {
        match self {
            Self::Gpt2 => &["c_attn", "c_proj", "c_fc"],
            _ => &["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        }
    }

    /// PEFT's `target_modules` of the family.
    ///
    /// Source: `TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING` in peft/utils/constants.py (0.21).
    #[must_use]
    pub const fn default_targets(self) -> &'static str {
        match self {
            Self::Gpt2 => "c_attn",
            _ => "q_proj,v_proj",
        }
    }
}

/// What differs between the layers of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerKind {
    /// Whether attention has a sliding window.
    pub is_sliding: bool,
    /// Whether queries and keys are rotated.
    pub has_rope: bool,
}

/// Keys of a `config.json` that determine memory.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Each layer's kind, of other families than GPT-2.
    pub layer_kinds: Vec<LayerKind>,
    /// `sliding_window`.
    pub sliding_window: Option<u64>,
    /// `attn_implementation`, which is not a key of the file.
    pub attention: AttentionKind,
    /// Whether `attn_logit_softcapping` is set, of Gemma 2. Only eager attention applies it.
    pub softcaps_attention: bool,
    /// Whether `final_logit_softcapping` is set, of Gemma.
    pub softcaps_logits: bool,
    /// `num_attention_heads`.
    pub heads: u64,
    /// `num_key_value_heads`.
    pub key_value_heads: u64,
    /// `head_dim`.
    pub head_dim: u64,
    /// Rows of the position embeddings, of GPT-2.
    pub positions: Option<u64>,
    /// `hidden_act`.
    pub activation: Activation,
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
    /// Whether `resid_pdrop` is above 0, of GPT-2.
    pub drops_residual: bool,
    /// Whether `embd_pdrop` is above 0, of GPT-2.
    pub drops_embeddings: bool,
}

/// Maximum of every count. Products of three counts and an element size are below 2^64.
const MAX_COUNT: u64 = 1 << 20;
/// Maximum of `num_hidden_layers`.
const MAX_LAYERS: u64 = 1024;

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

/// Whether a rate of dropout is above 0.
fn drops(config: &Value, key: &str, default: f64) -> bool {
    config.get(key).and_then(Value::as_f64).unwrap_or(default) > 0.0
}

/// Whether the model's layers have experts.
fn is_mixture_of_experts(name: &str, config: &Value) -> bool {
    const NAMES: [&str; 9] =
        ["mixtral", "gpt_oss", "deepseek_v2", "deepseek_v3", "dbrx", "jamba", "llama4", "llama4_text", "qwen3_next"];
    const KEYS: [&str; 3] = ["num_experts", "num_local_experts", "n_routed_experts"];
    let has_experts = |key: &&str| config.get(key).and_then(Value::as_u64).is_some_and(|count| count > 1);
    name.contains("moe") || NAMES.contains(&name) || KEYS.iter().any(has_experts)
}

fn family(config: &Value) -> Result<Family, ConfigError> {
    let key = "model_type";
    let name = config.get(key).and_then(Value::as_str).ok_or(ConfigError::Missing(key))?;
    if is_mixture_of_experts(name, config) {
        return Err(ConfigError::MixtureOfExperts(name.chars().take(40).collect()));
    }
    let found = FAMILIES.iter().find_map(|(other, family)| (*other == name).then_some(*family));
    found.ok_or_else(|| ConfigError::Unsupported { key, value: name.into(), supported: Family::SUPPORTED })
}

fn activation(config: &Value, key: &'static str, default: Activation) -> Result<Activation, ConfigError> {
    let Some(value) = config.get(key).filter(|value| !value.is_null()) else { return Ok(default) };
    let unsupported = || ConfigError::Unsupported { key, value: value.to_string(), supported: Activation::SUPPORTED };
    value.as_str().and_then(Activation::named).ok_or_else(unsupported)
}

/// Refuses a switch that changes the model's code.
fn refuse(config: &Value, key: &'static str) -> Result<(), ConfigError> {
    if flag(config, key, false) {
        return Err(ConfigError::Unsupported { key, value: "true".into(), supported: "false" });
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
        match family(config)? {
            Family::Gpt2 => Self::gpt2(config),
            family => Self::decoder(family, config),
        }
    }

    /// Keys and defaults of `GPT2Config`.
    fn gpt2(config: &Value) -> Result<Self, ConfigError> {
        refuse(config, "add_cross_attention")?;
        refuse(config, "reorder_and_upcast_attn")?;
        let count = |key| required(config, key, MAX_COUNT);
        let [hidden_size, heads] = [count("n_embd")?, count("n_head")?];
        check_multiple(["n_embd", "n_head"], [hidden_size, heads])?;
        Ok(Self {
            family: Family::Gpt2,
            vocab_size: count("vocab_size")?,
            hidden_size,
            intermediate_size: optional(config, "n_inner", MAX_COUNT)?.unwrap_or(4 * hidden_size),
            layers: required(config, "n_layer", MAX_LAYERS)?,
            layer_kinds: Vec::new(),
            sliding_window: None,
            attention: AttentionKind::default(),
            softcaps_attention: false,
            softcaps_logits: false,
            heads,
            key_value_heads: heads,
            head_dim: hidden_size / heads,
            positions: Some(count("n_positions")?),
            activation: activation(config, "activation_function", Activation::GeluNew)?,
            ties_embeddings: flag(config, "tie_word_embeddings", true),
            has_attention_bias: true,
            has_output_bias: true,
            has_mlp_bias: true,
            drops_attention: drops(config, "attn_pdrop", 0.1),
            drops_residual: drops(config, "resid_pdrop", 0.1),
            drops_embeddings: drops(config, "embd_pdrop", 0.1),
        })
    }

    /// Keys and defaults of `LlamaConfig` and of the families like it.
    fn decoder(family: Family, config: &Value) -> Result<Self, ConfigError> {
        refuse(config, "use_bidirectional_attention")?;
        check_rope(config)?;
        let count = |key| required(config, key, MAX_COUNT);
        let [hidden_size, heads] = [count("hidden_size")?, count("num_attention_heads")?];
        let key_value_heads = optional(config, "num_key_value_heads", MAX_COUNT)?;
        let key_value_heads = key_value_heads.or(family.key_value_heads()).unwrap_or(heads);
        check_multiple(["num_attention_heads", "num_key_value_heads"], [heads, key_value_heads])?;
        let head_dim = match optional(config, "head_dim", MAX_COUNT)?.or(family.head_dim()) {
            Some(head_dim) => head_dim,
            None => {
                check_multiple(["hidden_size", "num_attention_heads"], [hidden_size, heads])?;
                hidden_size / heads
            }
        };
        check_multiple(["head_dim", "2"], [head_dim, 2])?;
        let layers = required(config, "num_hidden_layers", MAX_LAYERS)?;
        let sliding_window = layers::sliding_window(family, config)?;
        let has_bias = flag(config, "attention_bias", false) && family != Family::Mistral;
        let is_set = |key: &str, default: bool| config.get(key).map_or(default, |value| !value.is_null());
        let (act, default) = match family {
            Family::Gemma2 | Family::Gemma3 => ("hidden_activation", Activation::Gelu),
            _ => ("hidden_act", Activation::Silu),
        };
        Ok(Self {
            family,
            vocab_size: count("vocab_size")?,
            hidden_size,
            intermediate_size: count("intermediate_size")?,
            layers,
            layer_kinds: layers::kinds(family, config, layers, sliding_window.is_some())?,
            sliding_window,
            attention: AttentionKind::default(),
            softcaps_attention: family == Family::Gemma2 && is_set("attn_logit_softcapping", true),
            softcaps_logits: family.is_gemma() && is_set("final_logit_softcapping", family == Family::Gemma2),
            heads,
            key_value_heads,
            head_dim,
            positions: None,
            activation: activation(config, act, default)?,
            ties_embeddings: flag(config, "tie_word_embeddings", family.ties_embeddings()),
            has_attention_bias: has_bias || family == Family::Qwen2,
            has_output_bias: has_bias && family != Family::Qwen2,
            has_mlp_bias: flag(config, "mlp_bias", false) && matches!(family, Family::Llama | Family::SmolLm3),
            drops_attention: drops(config, "attention_dropout", 0.0),
            drops_residual: false,
            drops_embeddings: false,
        })
    }
}

/// Types of rotary embeddings whose tensors have the default's sizes in every forward.
const ROPE_TYPES: [&str; 4] = ["default", "linear", "llama3", "yarn"];

/// Refuses rotary embeddings that are recomputed during training, or that rotate only some of the channels.
///
/// Source: transformers/modeling_rope_utils.py (5.17).
fn check_rope(config: &Value) -> Result<(), ConfigError> {
    let unsupported =
        |key, value: &Value, supported| Err(ConfigError::Unsupported { key, value: value.to_string(), supported });
    for key in ["rope_parameters", "rope_scaling"] {
        let Some(parameters) = config.get(key) else { continue };
        let of_layer_types = ["full_attention", "sliding_attention"].map(|kind| parameters.get(kind));
        for parameters in of_layer_types.into_iter().flatten().chain([parameters]) {
            let kind = parameters.get("rope_type").or_else(|| parameters.get("type"));
            if let Some(kind) = kind.filter(|kind| !kind.as_str().is_some_and(|kind| ROPE_TYPES.contains(&kind))) {
                return unsupported(key, kind, "default, linear, llama3, yarn");
            }
            if let Some(factor) = parameters.get("partial_rotary_factor").filter(|value| value.as_f64() != Some(1.0)) {
                return unsupported("partial_rotary_factor", factor, "1.0");
            }
        }
    }
    Ok(())
}
