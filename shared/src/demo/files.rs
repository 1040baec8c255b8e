//! Files that a person gives the demo, told apart by their names: the page and its worker do it by one rule.

/// What a file is to a model, as far as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Weights.
    Safetensors,
    /// Weights, for all its name says: their reader says what it is instead.
    Unknown,
    /// What Hugging Face says of the model.
    Config,
    /// The tokenizer in one file.
    TokenizerJson,
    /// The tokenizer's tokens.
    Vocab,
    /// The tokenizer's merges.
    Merges,
    /// What lies beside a model and is not read.
    Beside,
}

impl Role {
    /// By a file's name, without its folder.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "config.json" => Self::Config,
            "tokenizer.json" => Self::TokenizerJson,
            "vocab.json" | "encoder.json" => Self::Vocab,
            "merges.txt" | "vocab.bpe" => Self::Merges,
            name if name.ends_with(".safetensors") => Self::Safetensors,
            name if is_beside(name) => Self::Beside,
            _ => Self::Unknown,
        }
    }

    /// Whether it may be a model's weights: with others, another model begins.
    #[must_use]
    pub const fn is_weights(self) -> bool {
        matches!(self, Self::Safetensors | Self::Unknown)
    }
}

fn is_beside(name: &str) -> bool {
    const ENDINGS: [&str; 6] = [".json", ".txt", ".bpe", ".py", ".md", ".pkl"];
    name.starts_with('.') || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_weights_is_told_from_what_lies_beside() {
        for (name, role) in [
            ("model.safetensors", Role::Safetensors),
            ("CKPT.SafeTensors", Role::Safetensors),
            ("pytorch_model.bin", Role::Unknown),
            ("ckpt.pt", Role::Unknown),
            ("safetensors", Role::Unknown),
            ("", Role::Unknown),
            ("config.json", Role::Config),
            ("Tokenizer.json", Role::TokenizerJson),
            ("encoder.json", Role::Vocab),
            ("vocab.bpe", Role::Merges),
            ("model.safetensors.index.json", Role::Beside),
            ("generation_config.json", Role::Beside),
            ("README.md", Role::Beside),
            (".gitattributes", Role::Beside),
            (".DS_Store", Role::Beside),
            ("train.py", Role::Beside),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
            assert_eq!(role.is_weights(), matches!(role, Role::Safetensors | Role::Unknown), "{name}");
        }
    }
}
