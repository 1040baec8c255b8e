//! Classification of the demo's input files by name, shared by the page and its worker.

/// Role of a file in a model, judged by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Weights.
    Safetensors,
    /// Weights, as far as the name shows. Their parser reports the actual format.
    Unknown,
    /// The model's config from Hugging Face.
    Config,
    /// The tokenizer as a single file.
    TokenizerJson,
    /// The tokenizer's vocabulary.
    Vocab,
    /// The tokenizer's merges.
    Merges,
    /// A file that accompanies a model and is ignored.
    Beside,
}

impl Role {
    /// Returns the role for a file name without its directory.
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

    /// Returns whether the file may contain a model's weights. Such a file starts another model.
    #[must_use]
    pub const fn is_weights(self) -> bool {
        matches!(self, Self::Safetensors | Self::Unknown)
    }
}

fn is_beside(name: &str) -> bool {
    const ENDINGS: [&str; 14] = [
        ".json", ".txt", ".bpe", ".py", ".md", ".pkl", ".log", ".csv", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".webp",
    ];
    name.starts_with('.') || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_files_are_distinguished_from_others() {
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
            ("loss.PNG", Role::Beside),
            ("train.log", Role::Beside),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
            assert_eq!(role.is_weights(), matches!(role, Role::Safetensors | Role::Unknown), "{name}");
        }
    }
}
