//! The kinds of a model's layers: `layer_types`, `sliding_window` and `no_rope_layers` of a `config.json`.

use serde_json::Value;

use super::{ConfigError, Family, LayerKind, MAX_COUNT, flag, optional};

/// `sliding_window`: the window of the family's layers with sliding attention.
///
/// Source: `__post_init__` of the families' configurations.
pub fn sliding_window(family: Family, config: &Value) -> Result<Option<u64>, ConfigError> {
    const DEFAULT: u64 = 4096;
    let key = "sliding_window";
    let given = optional(config, key, MAX_COUNT)?;
    let default = if config.get(key).is_some() { None } else { Some(DEFAULT) };
    let is_used = flag(config, "use_sliding_window", false);
    Ok(match family {
        Family::Gemma2 | Family::Gemma3 | Family::Mistral => given.or(default),
        Family::Qwen2 | Family::Qwen3 => given.or(default).filter(|_| is_used),
        Family::SmolLm3 => given.filter(|_| is_used),
        Family::Gpt2 | Family::Llama => None,
    })
}

/// The list of a key, if the file has it.
fn list<'a>(config: &'a Value, key: &'static str, layers: u64) -> Result<Option<&'a Vec<Value>>, ConfigError> {
    let value = match config.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => value,
    };
    let list = value.as_array().filter(|list| list.len() as u64 == layers);
    let supported = "a list with num_hidden_layers elements";
    let unsupported =
        || ConfigError::Unsupported { key, value: value.to_string().chars().take(40).collect(), supported };
    Ok(Some(list.ok_or_else(unsupported)?))
}

/// The kind of each layer.
pub fn kinds(family: Family, config: &Value, layers: u64, has_window: bool) -> Result<Vec<LayerKind>, ConfigError> {
    let ropes = ropes(family, config, layers)?;
    let types = match family {
        Family::Gpt2 | Family::Llama | Family::Mistral => None,
        _ => list(config, "layer_types", layers)?,
    };
    let Some(types) = types else {
        let is_sliding = pattern(family, config)?;
        let kind = |(index, has_rope)| LayerKind { is_sliding: has_window && is_sliding(index, has_rope), has_rope };
        return Ok((0..).zip(ropes).map(kind).collect());
    };
    let kind = |(kind, has_rope): (&Value, bool)| match kind.as_str() {
        Some("full_attention") => Ok(LayerKind { is_sliding: false, has_rope }),
        Some("sliding_attention") if has_window => Ok(LayerKind { is_sliding: true, has_rope }),
        _ => Err(ConfigError::Unsupported {
            key: "layer_types",
            value: kind.to_string(),
            supported: "full_attention, and sliding_attention with a sliding_window",
        }),
    };
    types.iter().zip(ropes).map(kind).collect()
}

/// Whether each layer has rotary embeddings: `no_rope_layers` of SmolLM3, whose value 1 means that it has.
fn ropes(family: Family, config: &Value, layers: u64) -> Result<Vec<bool>, ConfigError> {
    const INTERVAL: u64 = 4;
    if family != Family::SmolLm3 {
        return Ok((0..layers).map(|_| true).collect());
    }
    if let Some(given) = list(config, "no_rope_layers", layers)? {
        return Ok(given.iter().map(|value| value.as_u64() != Some(0)).collect());
    }
    let interval = optional(config, "no_rope_layer_interval", MAX_COUNT)?.unwrap_or(INTERVAL);
    Ok((1..=layers).map(|number| !number.is_multiple_of(interval)).collect())
}

/// Which layers have a sliding window if `layer_types` is missing, by index and by whether the layer has rotary
/// embeddings.
fn pattern(family: Family, config: &Value) -> Result<impl Fn(u64, bool) -> bool, ConfigError> {
    let period = match family {
        Family::Gemma2 => 2,
        Family::Gemma3 => optional(config, "sliding_window_pattern", MAX_COUNT)?.unwrap_or(6),
        _ => 1,
    };
    let first = match family {
        Family::Qwen2 | Family::Qwen3 => optional(config, "max_window_layers", MAX_COUNT)?.unwrap_or(28),
        _ => 0,
    };
    Ok(move |index: u64, has_rope: bool| match family {
        Family::Gemma2 | Family::Gemma3 => !(index + 1).is_multiple_of(period),
        Family::Mistral => true,
        Family::Qwen2 | Family::Qwen3 => index >= first,
        Family::SmolLm3 => !has_rope,
        Family::Gpt2 | Family::Llama => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds_of(family: Family, config: &Value, layers: u64) -> Vec<LayerKind> {
        let window = sliding_window(family, config).expect("a valid window");
        kinds(family, config, layers, window.is_some()).expect("valid layers")
    }

    /// Indices of the layers with a sliding window.
    fn sliding(family: Family, config: &Value) -> Vec<usize> {
        let kinds = kinds_of(family, config, 6);
        (0..kinds.len()).filter(|&at| kinds[at].is_sliding).collect()
    }

    #[test]
    fn layer_types_follow_the_defaults_of_the_family() {
        assert_eq!(sliding(Family::Gemma3, &json!({})), [0, 1, 2, 3, 4]);
        assert_eq!(sliding(Family::Gemma3, &json!({ "sliding_window_pattern": 3 })), [0, 1, 3, 4]);
        assert_eq!(sliding(Family::Gemma2, &json!({})), [0, 2, 4]);
        assert_eq!(sliding(Family::Mistral, &json!({})).len(), 6);
        assert_eq!(sliding(Family::Mistral, &json!({ "sliding_window": null })), [0; 0]);
        assert_eq!(sliding(Family::Qwen2, &json!({ "sliding_window": 8, "max_window_layers": 4 })), [0; 0]);
        assert_eq!(sliding(Family::Qwen2, &json!({ "use_sliding_window": true, "max_window_layers": 4 })), [4, 5]);
        assert_eq!(sliding(Family::Llama, &json!({ "sliding_window": 8 })), [0; 0]);
    }

    #[test]
    fn given_layer_types_count() {
        let types = json!({ "layer_types": ["full_attention", "sliding_attention"] });
        let kinds = kinds_of(Family::Gemma3, &types, 2);
        assert_eq!(kinds.iter().map(|kind| kind.is_sliding).collect::<Vec<_>>(), [false, true]);
        let error = super::kinds(Family::Gemma3, &types, 3, true).expect_err("two types for three layers");
        assert!(error.to_string().contains("`layer_types`"), "{error}");
        let error = super::kinds(Family::Qwen3, &types, 2, false).expect_err("no window");
        assert!(error.to_string().contains("sliding_attention"), "{error}");
    }

    #[test]
    fn every_fourth_layer_of_smollm3_has_no_rotary_embeddings() {
        let ropes =
            |config: Value| kinds_of(Family::SmolLm3, &config, 4).iter().map(|kind| kind.has_rope).collect::<Vec<_>>();
        assert_eq!(ropes(json!({})), [true, true, true, false]);
        assert_eq!(ropes(json!({ "no_rope_layers": [0, 1, 1, 1] })), [false, true, true, true]);
    }
}
