//! Runs and models to start from.

use headroom_planner::{
    gpt::presets::{GPT2_FAMILY, Preset},
    nanogpt::{Value, stock},
};
use headroom_text::{self as text, Key};

/// A complete run, which replaces the text.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The label in the list.
    pub label: Key,
    /// The config.
    pub text: &'static str,
}

/// Runs to start from, as nanoGPT's own configs set them.
pub const RUNS: [Run; 4] = [
    Run { label: text::RUN_GPT2, text: stock::TRAIN_GPT2.run },
    Run { label: text::RUN_SHAKESPEARE, text: stock::TRAIN_SHAKESPEARE_CHAR.run },
    Run { label: text::RUN_FINETUNE, text: stock::FINETUNE_SHAKESPEARE.run },
    Run { label: text::RUN_DEFAULTS, text: "" },
];

/// A model trained from scratch. It sets the shape keys and leaves the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The label in the list.
    pub label: &'static str,
    /// The number of blocks.
    pub n_layer: u64,
    /// The number of heads.
    pub n_head: u64,
    /// The number of channels.
    pub n_embd: u64,
}

const fn gpt2(label: &'static str, preset: Preset) -> Model {
    Model { label, n_layer: preset.n_layer, n_head: preset.n_head, n_embd: preset.n_embd }
}

/// Shapes by name. The parameter counts are for nanoGPT without biases and with the padded vocabulary.
pub const MODELS: [Model; 8] = [
    Model { label: "baby GPT 10.6M", n_layer: 6, n_head: 6, n_embd: 384 },
    Model { label: "52M", n_layer: 12, n_head: 7, n_embd: 448 },
    Model { label: "64M", n_layer: 12, n_head: 8, n_embd: 512 },
    Model { label: "77M", n_layer: 12, n_head: 9, n_embd: 576 },
    gpt2("GPT-2 124M", GPT2_FAMILY[0]),
    gpt2("GPT-2 medium 350M", GPT2_FAMILY[1]),
    gpt2("GPT-2 large 774M", GPT2_FAMILY[2]),
    gpt2("GPT-2 XL 1.56B", GPT2_FAMILY[3]),
];

impl Model {
    /// The index of the model with that shape.
    pub fn of(n_layer: u64, n_head: u64, n_embd: u64) -> Option<usize> {
        MODELS.iter().position(|model| (model.n_layer, model.n_head, model.n_embd) == (n_layer, n_head, n_embd))
    }

    /// The keys that it sets. `loaded` is whether the run currently loads OpenAI's weights, which would override them.
    pub fn changes(&self, loaded: bool) -> Vec<(&'static str, Value)> {
        let int = |n: u64| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
        let mut changes =
            vec![("n_layer", int(self.n_layer)), ("n_head", int(self.n_head)), ("n_embd", int(self.n_embd))];
        if loaded {
            changes.push(("init_from", Value::Str("scratch".to_owned())));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::answer::PlannedSession;

    #[test]
    fn every_run_is_read_without_a_problem_and_planned() {
        for run in RUNS {
            let answer = PlannedSession::of_text(run.text);
            assert_eq!(answer.resolved.settings.problems.as_slice(), [], "{}", run.label);
            assert!(answer.plan().is_some(), "{}", run.label);
        }
    }

    #[test]
    fn labels_tell_the_parameters() {
        for (label, millions) in [("52M", 52), ("64M", 64), ("77M", 77), ("GPT-2 124M", 124)] {
            let model = MODELS.iter().find(|model| model.label == label).expect("in the list");
            let (l, c) = (model.n_layer, model.n_embd);
            let parameters = 50_304 * c + 1024 * c + l * (12 * c * c + 2 * c) + c;
            assert_eq!((parameters + 500_000) / 1_000_000, millions, "{label}");
        }
    }

    #[test]
    fn a_model_is_known_by_its_shape() {
        assert_eq!(Model::of(12, 12, 768).map(|index| MODELS[index].label), Some("GPT-2 124M"));
        assert_eq!(Model::of(12, 12, 769), None);
    }
}
