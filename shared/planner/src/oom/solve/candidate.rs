//! Candidate runs of a search: common models with the batch sizes, sequence lengths and element types that people train
//! with.

use crate::{
    dtype::Dtype,
    gpt::presets::{GPT2_BLOCK_SIZE, GPT2_FAMILY, GPT2_VOCAB_SIZE, Preset},
    nanogpt::Value,
    session::SHAKESPEARE_CHAR,
};
use headroom_text::{self as text, Part, Text};

/// A commonly trained model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Model {
    /// Display name.
    pub label: &'static str,
    /// Number of blocks.
    pub n_layer: u64,
    /// Number of attention heads.
    pub n_head: u64,
    /// Embedding dimension.
    pub n_embd: u64,
    /// Source of its weights and its vocabulary.
    pub origin: Origin,
    /// Penalty for rarity; 0 for the most common model.
    odds: u32,
}

/// Source of a model's weights and vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// nanoGPT's default: random weights and GPT-2's padded vocabulary.
    Scratch,
    /// OpenAI's weights, loaded by this `init_from`, with biases and GPT-2's own vocabulary.
    Pretrained(&'static str),
    /// Random weights, the character vocabulary of `shakespeare_char` and the dropout of its config.
    Characters,
}

const fn scratch(label: &'static str, [n_layer, n_head, n_embd]: [u64; 3], odds: u32) -> Model {
    Model { label, n_layer, n_head, n_embd, origin: Origin::Scratch, odds }
}

const fn characters(label: &'static str, [n_layer, n_head, n_embd]: [u64; 3], odds: u32) -> Model {
    Model { label, n_layer, n_head, n_embd, origin: Origin::Characters, odds }
}

const fn gpt2(label: &'static str, preset: Preset, is_pretrained: bool, odds: u32) -> Model {
    let Preset { name, n_layer, n_head, n_embd } = preset;
    let origin = if is_pretrained { Origin::Pretrained(name) } else { Origin::Scratch };
    Model { label, n_layer, n_head, n_embd, origin, odds }
}

/// The models that are tried: GPT-2's family from scratch and with OpenAI's weights, nanoGPT's character model, and
/// intermediate shapes.
const MODELS: [Model; 17] = [
    gpt2("GPT-2 124M", GPT2_FAMILY[0], false, 0),
    gpt2("GPT-2 medium 350M", GPT2_FAMILY[1], false, 2),
    gpt2("GPT-2 large 774M", GPT2_FAMILY[2], false, 3),
    gpt2("GPT-2 XL 1.56B", GPT2_FAMILY[3], false, 3),
    gpt2("GPT-2 124M", GPT2_FAMILY[0], true, 3),
    gpt2("GPT-2 medium 350M", GPT2_FAMILY[1], true, 4),
    gpt2("GPT-2 large 774M", GPT2_FAMILY[2], true, 5),
    gpt2("GPT-2 XL 1.56B", GPT2_FAMILY[3], true, 3),
    characters("10.6M", [6, 6, 384], 2),
    characters("85M", [12, 12, 768], 6),
    characters("0.8M", [4, 4, 128], 6),
    scratch("30M", [6, 6, 384], 5),
    scratch("51M", [8, 8, 512], 6),
    scratch("64M", [12, 8, 512], 6),
    scratch("77M", [12, 9, 576], 6),
    scratch("101M", [8, 12, 768], 6),
    scratch("80M", [6, 12, 768], 6),
];

impl Model {
    /// Returns the size in bytes of the blocks' float32 matrices: a lower bound of the model's size.
    pub(super) const fn matrix_bytes(&self) -> u64 {
        4 * 12 * self.n_layer * self.n_embd * self.n_embd
    }
}

/// Sequence lengths, each with a penalty for rarity.
const BLOCK_SIZES: [(u64, u32); 7] = [(1024, 0), (512, 1), (256, 1), (2048, 2), (128, 3), (4096, 4), (64, 4)];

/// Batch sizes, in addition to every size up to 16.
const BATCH_SIZES: [u64; 30] = [
    18, 20, 22, 24, 28, 30, 32, 36, 40, 44, 48, 50, 56, 60, 64, 72, 80, 90, 96, 100, 112, 120, 128, 160, 192, 200, 256,
    320, 384, 512,
];

/// Returns the element types in the order in which they are tried, nanoGPT's default for the GPU first.
fn dtypes(default: Dtype) -> [(Dtype, u32); 3] {
    let other = if default == Dtype::Bfloat16 { Dtype::Float16 } else { Dtype::Bfloat16 };
    [(default, 0), (other, 4), (Dtype::Float32, 4)]
}

/// A candidate run. All other keys have nanoGPT's defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    /// Model.
    pub model: &'static Model,
    /// Sequences per micro-batch.
    pub batch_size: u64,
    /// Tokens per sequence.
    pub block_size: u64,
    /// Element type of training.
    pub dtype: Dtype,
    /// Whether the model is compiled.
    pub compile: bool,
}

impl Candidate {
    /// Returns all candidates, most common first.
    pub(super) fn all(default_dtype: Dtype, can_compile: bool) -> Vec<Self> {
        let mut found = Vec::new();
        for model in &MODELS {
            for (block_size, of_length) in BLOCK_SIZES {
                if matches!(model.origin, Origin::Pretrained(_)) && block_size > GPT2_BLOCK_SIZE {
                    continue;
                }
                for batch_size in (1..=16).chain(BATCH_SIZES) {
                    for (dtype, of_dtype) in dtypes(default_dtype) {
                        for compile in [true, false] {
                            if compile && !can_compile {
                                continue;
                            }
                            let odds = model.odds + of_length + of_batch(batch_size) + of_dtype + u32::from(!compile);
                            found.push((odds, Self { model, batch_size, block_size, dtype, compile }));
                        }
                    }
                }
            }
        }
        found.sort_by_key(|(odds, _)| *odds);
        found.into_iter().map(|(_, candidate)| candidate).collect()
    }

    /// Returns the run's nanoGPT keys with their values.
    pub(super) fn keys(&self) -> Vec<(&'static str, Value)> {
        let count = |n: u64| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
        let words = |words: &str| Value::Str(words.to_owned());
        let model = self.model;
        let mut keys = match model.origin {
            Origin::Pretrained(name) => vec![("init_from", words(name))],
            Origin::Scratch | Origin::Characters => vec![
                ("n_layer", count(model.n_layer)),
                ("n_head", count(model.n_head)),
                ("n_embd", count(model.n_embd)),
            ],
        };
        if model.origin == Origin::Characters {
            keys.extend([("dataset", words(SHAKESPEARE_CHAR)), ("dropout", Value::Float(0.2))]);
        }
        keys.extend([
            ("batch_size", count(self.batch_size)),
            ("block_size", count(self.block_size)),
            ("dtype", words(self.dtype.name())),
            ("compile", Value::Bool(self.compile)),
        ]);
        keys
    }

    /// Returns the keys that determine the width, the vocabulary and the mode, without the number of layers.
    pub(super) fn small_keys(&self) -> Vec<(&'static str, Value)> {
        let of_run = self.keys();
        let mut keys: Vec<_> = of_run.into_iter().filter(|(key, _)| !matches!(*key, "init_from" | "n_layer")).collect();
        if matches!(self.model.origin, Origin::Pretrained(_)) {
            let count = |n: u64| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
            let model = self.model;
            keys.extend([
                ("n_head", count(model.n_head)),
                ("n_embd", count(model.n_embd)),
                ("bias", Value::Bool(true)),
            ]);
            keys.push(("vocab_size", count(GPT2_VOCAB_SIZE)));
        }
        keys
    }

    /// Returns a short description of the run: `GPT-2 124M, batch 64 × 1024, compiled`. `how` lists its non-default
    /// properties in words.
    pub(super) fn text(&self, how: &[Text]) -> Text {
        let model = match self.model.origin {
            Origin::Scratch => Part::of(&self.model.label),
            Origin::Pretrained(_) => Part::of(&text::model_pretrained(self.model.label)),
            Origin::Characters => Part::of(&text::model_of_characters(self.model.label)),
        };
        let compiled = if self.compile { text::RUN_COMPILED } else { text::RUN_NOT_COMPILED };
        let mode = how.iter().fold(Text::from(compiled), |mode, more| text::run_and(mode, more.clone()));
        text::run_in_words(model, format!("{} × {}", self.batch_size, self.block_size), mode)
    }
}

/// Returns the penalty of a batch size: lowest for powers of two and nanoGPT's own 12, then for even sizes.
const fn of_batch(batch_size: u64) -> u32 {
    match batch_size {
        12 => 0,
        _ if batch_size.is_power_of_two() && batch_size <= 128 => 0,
        _ if batch_size.is_power_of_two() => 2,
        _ if batch_size.is_multiple_of(4) => 2,
        _ if batch_size.is_multiple_of(2) => 3,
        _ => 5,
    }
}
