//! Models that people fine-tune, with the keys of their `config.json` that determine memory.
//!
//! Source: the `config.json` of each model's repository. The test compares the number of parameters with the published one.

use serde_json::Value;

/// A published model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Name of its repository, without the organisation.
    pub name: &'static str,
    /// Its `config.json`.
    config: &'static str,
}

impl Preset {
    /// The `config.json`.
    #[must_use]
    pub fn config(&self) -> Value {
        serde_json::from_str(self.config).unwrap_or_default()
    }

    /// The model with another number of layers.
    pub(crate) fn config_with_layers(&self, layers: u64) -> Value {
        let mut config = self.config();
        let key = if config.get("n_layer").is_some() { "n_layer" } else { "num_hidden_layers" };
        config[key] = layers.into();
        config
    }
}

/// The preset of a name, with or without the organisation, in any case.
#[must_use]
pub fn find(name: &str) -> Option<&'static Preset> {
    let name = name.rsplit('/').next().unwrap_or_default();
    PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(name))
}

/// The models, the smallest of a family first.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "Qwen3-0.6B",
        config: r#"{"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen3-1.7B",
        config: r#"{"model_type":"qwen3","hidden_size":2048,"intermediate_size":6144,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen3-4B",
        config: r#"{"model_type":"qwen3","hidden_size":2560,"intermediate_size":9728,"num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen3-8B",
        config: r#"{"model_type":"qwen3","hidden_size":4096,"intermediate_size":12288,"num_hidden_layers":36,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":false,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen3-14B",
        config: r#"{"model_type":"qwen3","hidden_size":5120,"intermediate_size":17408,"num_hidden_layers":40,"num_attention_heads":40,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"tie_word_embeddings":false,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen2.5-0.5B",
        config: r#"{"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,"num_attention_heads":14,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen2.5-1.5B",
        config: r#"{"model_type":"qwen2","hidden_size":1536,"intermediate_size":8960,"num_hidden_layers":28,"num_attention_heads":12,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen2.5-3B",
        config: r#"{"model_type":"qwen2","hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen2.5-7B",
        config: r#"{"model_type":"qwen2","hidden_size":3584,"intermediate_size":18944,"num_hidden_layers":28,"num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064,"tie_word_embeddings":false,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Qwen2.5-14B",
        config: r#"{"model_type":"qwen2","hidden_size":5120,"intermediate_size":13824,"num_hidden_layers":48,"num_attention_heads":40,"num_key_value_heads":8,"vocab_size":152064,"tie_word_embeddings":false,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Llama-3.2-1B",
        config: r#"{"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"vocab_size":128256,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Llama-3.2-3B",
        config: r#"{"model_type":"llama","hidden_size":3072,"intermediate_size":8192,"num_hidden_layers":28,"num_attention_heads":24,"num_key_value_heads":8,"head_dim":128,"vocab_size":128256,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Llama-3.1-8B",
        config: r#"{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,"tie_word_embeddings":false,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "TinyLlama-1.1B",
        config: r#"{"model_type":"llama","hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":22,"num_attention_heads":32,"num_key_value_heads":4,"vocab_size":32000,"tie_word_embeddings":false,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "SmolLM2-135M",
        config: r#"{"model_type":"llama","hidden_size":576,"intermediate_size":1536,"num_hidden_layers":30,"num_attention_heads":9,"num_key_value_heads":3,"vocab_size":49152,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "SmolLM2-360M",
        config: r#"{"model_type":"llama","hidden_size":960,"intermediate_size":2560,"num_hidden_layers":32,"num_attention_heads":15,"num_key_value_heads":5,"vocab_size":49152,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "SmolLM2-1.7B",
        config: r#"{"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_hidden_layers":24,"num_attention_heads":32,"num_key_value_heads":32,"vocab_size":49152,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Gemma-3-270m",
        config: r#"{"model_type":"gemma3_text","hidden_size":640,"intermediate_size":2048,"num_hidden_layers":18,"num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"vocab_size":262144,"sliding_window":512,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Gemma-3-1b",
        config: r#"{"model_type":"gemma3_text","hidden_size":1152,"intermediate_size":6912,"num_hidden_layers":26,"num_attention_heads":4,"num_key_value_heads":1,"head_dim":256,"vocab_size":262144,"sliding_window":512,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Gemma-2-2b",
        config: r#"{"model_type":"gemma2","hidden_size":2304,"intermediate_size":9216,"num_hidden_layers":26,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,"vocab_size":256000,"sliding_window":4096,"attn_logit_softcapping":50.0,"final_logit_softcapping":30.0,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "Mistral-7B-v0.3",
        config: r#"{"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32768,"sliding_window":null,"tie_word_embeddings":false,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "SmolLM3-3B",
        config: r#"{"model_type":"smollm3","hidden_size":2048,"intermediate_size":11008,"num_hidden_layers":36,"num_attention_heads":16,"num_key_value_heads":4,"vocab_size":128256,"tie_word_embeddings":true,"dtype":"bfloat16"}"#,
    },
    Preset {
        name: "GPT2",
        config: r#"{"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_positions":1024,"vocab_size":50257}"#,
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        gpt::tensors::Category,
        session::Options,
        trainers::{self, Run, TrainerRequest, hf},
    };

    /// Published numbers of parameters, rounded as published.
    const PARAMETERS: [(&str, f64, f64); 15] = [
        ("Qwen3-0.6B", 0.6e9, 0.05e9),
        ("Qwen3-1.7B", 1.7e9, 0.05e9),
        ("Qwen3-8B", 8.2e9, 0.05e9),
        ("Qwen2.5-0.5B", 0.49e9, 0.005e9),
        ("Qwen2.5-7B", 7.61e9, 0.01e9),
        ("Llama-3.2-1B", 1.23e9, 0.01e9),
        ("Llama-3.1-8B", 8.03e9, 0.005e9),
        ("TinyLlama-1.1B", 1.1e9, 0.005e9),
        ("SmolLM2-135M", 134.5e6, 0.1e6),
        ("Gemma-3-270m", 268.1e6, 0.1e6),
        ("Gemma-3-1b", 1.0e9, 0.005e9),
        ("Gemma-2-2b", 2.61e9, 0.01e9),
        ("Mistral-7B-v0.3", 7.25e9, 0.01e9),
        ("SmolLM3-3B", 3.08e9, 0.01e9),
        ("GPT2", 124.4e6, 0.1e6),
    ];

    /// Bytes of the parameters of a preset, over those of one.
    fn n_parameters(preset: &Preset) -> f64 {
        let words = ["--per_device_train_batch_size=1", "--max_length=16"].map(str::to_owned);
        let run = hf::Run::read(&preset.config(), &words).expect("a supported model");
        let machine = Options { gpu: "H200".to_owned(), ..Options::default() }.machine().expect("a known GPU");
        let request = TrainerRequest::new(Run::Hf(run), machine).expect("a supported GPU");
        let plan = trainers::plan(request).expect("a plan");
        // GPT-2's config names no dtype, so its weights are in float32.
        let size = if preset.config().get("dtype").is_some() { 2.0 } else { 4.0 };
        plan.peak.by_category[Category::Parameters as usize] as f64 / size
    }

    #[test]
    fn parameters_are_those_published() {
        for (name, published, error) in PARAMETERS {
            let n = n_parameters(find(name).expect("a preset"));
            assert!((n - published).abs() <= error, "{name}: {n}, published {published}");
        }
    }

    #[test]
    fn every_preset_is_planned() {
        for preset in PRESETS {
            assert!(n_parameters(preset) > 1e8, "{}", preset.name);
        }
        assert_eq!(find("Qwen/qwen3-4b").map(|preset| preset.name), Some("Qwen3-4B"));
        assert_eq!(find("Qwen3"), None);
    }
}
