//! Candidate runs: common models with the batches, lengths, dtypes and optimizers that people train with.

use super::growth::PROBE;
use crate::{
    models::hf::Config,
    oom::Origin,
    trainers::{
        Run, hf,
        input::{Input, Trainer},
        nanochat,
        presets::{PRESETS, Preset},
    },
};

/// A model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Model {
    /// nanochat, by its depth.
    Nanochat(u64),
    /// A published model.
    Hf(&'static Preset),
}

/// Depths of nanochat, each with a penalty for rarity.
const DEPTHS: [(u64, u32); 11] =
    [(20, 0), (12, 0), (4, 1), (8, 1), (6, 2), (10, 2), (16, 2), (24, 1), (26, 1), (32, 1), (14, 3)];

/// Dtypes of weights and autocast, each with a penalty for rarity. The weights of every published model are in bfloat16,
/// but for GPT-2's.
const PRECISIONS: [(&[(&str, &str)], u32); 5] = [
    (&[("dtype", "bfloat16"), ("bf16", "True")], 0),
    (&[("dtype", "float32"), ("bf16", "True")], 0),
    (&[("dtype", "bfloat16")], 1),
    (&[("dtype", "float32")], 2),
    (&[("dtype", "float32"), ("fp16", "True")], 1),
];

/// Layers with adapters, each with a penalty for rarity; `None` without adapters, and empty for PEFT's choice.
const ADAPTERS: [(Option<&str>, u32); 3] = [(None, 0), (Some(""), 1), (Some("all-linear"), 1)];

/// Ranks of adapters, each with a penalty for rarity.
const RANKS: [(u64, u32); 6] = [(16, 0), (8, 0), (32, 1), (64, 1), (4, 2), (128, 3)];

/// Optimizers besides the default.
const OPTIMIZERS: [&str; 2] = ["adamw_torch", "adafactor"];

/// Sequence lengths, each with a penalty for rarity.
const LENGTHS: [(u64, u32); 9] =
    [(1024, 0), (2048, 0), (512, 0), (4096, 1), (256, 2), (8192, 2), (128, 3), (1536, 4), (3072, 4)];
/// Batch sizes, each with a penalty for rarity.
const BATCHES: [(u64, u32); 13] =
    [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (32, 1), (64, 2), (3, 3), (6, 3), (12, 3), (24, 3), (5, 4), (10, 4)];

/// Sizes of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub layers: u64,
    pub hidden: u64,
    /// `intermediate_size`.
    pub inner: u64,
    /// Widths of the model's tensors: of the hidden states, the MLP, the vocabulary, and the heads.
    pub widths: [u64; 6],
}

impl Shape {
    fn of_nanochat(depth: u64) -> Self {
        let (hidden, inner) = (64 * depth, 256 * depth);
        Self { layers: depth, hidden, inner, widths: [hidden, inner, 32_768, hidden, hidden, hidden] }
    }

    fn of_hf(config: &Config) -> Self {
        let Config { layers, hidden_size: hidden, intermediate_size: inner, vocab_size, head_dim, .. } = *config;
        let [q, kv] = [config.heads, config.key_value_heads].map(|heads| heads * head_dim);
        Self { layers, hidden, inner, widths: [hidden, inner, vocab_size, q, kv, 3 * hidden] }
    }
}

/// A model and how it is trained, apart from its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mode {
    /// The model.
    pub model: Model,
    pub shape: Shape,
    precision: usize,
    adapters: usize,
    odds: u32,
}

impl Mode {
    /// The modes that a traceback allows, without adapters.
    pub(super) fn all(origin: Option<Origin>) -> impl Iterator<Item = Self> {
        let of_nanochat = !matches!(origin, Some(Origin::Transformers { .. }));
        let depths = DEPTHS.into_iter().filter(move |_| of_nanochat);
        let nanochat = depths.map(|(depth, odds)| Self {
            model: Model::Nanochat(depth),
            shape: Shape::of_nanochat(depth),
            precision: 0,
            adapters: 0,
            odds,
        });
        let model_type = match origin {
            Some(Origin::Transformers { model_type, .. }) => model_type,
            _ => None,
        };
        let of_hf = origin != Some(Origin::Nanochat);
        let shape = move |preset: &'static Preset| {
            let config = preset.config();
            let has_type =
                model_type.is_none_or(|model_type| config.get("model_type").is_some_and(|t| *t == model_type));
            let config = Config::new(&config).ok().filter(|_| of_hf && has_type)?;
            Some((preset, Shape::of_hf(&config)))
        };
        let hf = PRESETS.iter().filter_map(shape).flat_map(|(preset, shape)| {
            let precisions = PRECISIONS.iter().enumerate();
            precisions.map(move |(precision, (_, odds))| Self {
                model: Model::Hf(preset),
                shape,
                precision,
                adapters: 0,
                odds: *odds,
            })
        });
        nanochat.chain(hf)
    }

    /// The mode without adapters and with each kind, as far as a traceback allows.
    pub(super) fn with_adapters(self, origin: Option<Origin>) -> impl Iterator<Item = Self> {
        let is_peft = matches!(origin, Some(Origin::Transformers { peft: true, .. }));
        let n = if matches!(self.model, Model::Hf(_)) { ADAPTERS.len() } else { 1 };
        let adapters = usize::from(is_peft)..n;
        adapters.map(move |adapters| Self { adapters, odds: self.odds + ADAPTERS[adapters].1, ..self })
    }

    /// Penalty for rarity.
    pub(super) const fn odds(&self) -> u32 {
        self.odds
    }

    /// A lower bound of the bytes of the weights: the matrices of the MLPs.
    pub(super) fn matrix_bytes(&self) -> u64 {
        let Shape { layers, hidden, inner, .. } = self.shape;
        let is_nanochat = matches!(self.model, Model::Nanochat(_));
        let is_float32 = is_nanochat || PRECISIONS[self.precision].0.contains(&("dtype", "float32"));
        (if is_float32 { 4 } else { 2 }) * 2 * layers * hidden * inner
    }

    /// Number of ranks of each batch among the candidates.
    pub(super) const fn n_ranks(&self) -> usize {
        if self.adapters > 0 { RANKS.len() } else { 1 }
    }

    /// The mode with every common batch, length and rank. The ranks of a batch are consecutive.
    pub(super) fn candidates(self, checkpointing: bool) -> impl Iterator<Item = Candidate> {
        let ranks: &[(u64, u32)] = if self.adapters > 0 { &RANKS } else { &[(0, 0)] };
        LENGTHS.into_iter().flat_map(move |(length, first)| {
            BATCHES.into_iter().flat_map(move |(batch, second)| {
                ranks.iter().map(move |&(rank, third)| Candidate {
                    mode: self,
                    numbers: [batch, length, rank],
                    checkpointing,
                    odds: self.odds + first + second + third,
                    further: vec![],
                    is_usual: true,
                })
            })
        })
    }
}

/// A candidate run. All other options have their defaults.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// Model, dtypes and adapters.
    pub mode: Mode,
    /// Batch, length and rank of the adapters.
    numbers: [u64; 3],
    checkpointing: bool,
    odds: u32,
    /// Further options, which replace those of the mode.
    further: Vec<(&'static str, &'static str)>,
    /// Whether it has no further options.
    pub is_usual: bool,
}

impl Candidate {
    /// The run of a mode with the numbers of [`PROBE`].
    pub(super) fn probe(mode: Mode, checkpointing: bool) -> Self {
        Self { mode, numbers: PROBE, checkpointing, odds: 0, further: vec![], is_usual: true }
    }

    pub(super) const fn odds(&self) -> u32 {
        self.odds
    }

    /// Batch, length and rank of the adapters.
    pub(super) const fn numbers(&self) -> [u64; 3] {
        self.numbers
    }

    fn with(&self, key: &'static str, value: &'static str) -> Self {
        Self { further: vec![(key, value)], is_usual: false, ..self.clone() }
    }

    /// The candidate, and the same run with another optimizer.
    pub(super) fn variants(&self) -> Vec<Self> {
        let mut variants = vec![self.clone()];
        if self.mode.adapters == 0 && matches!(self.mode.model, Model::Hf(_)) {
            variants.extend(OPTIMIZERS.map(|optimizer| self.with("optim", optimizer)));
        }
        variants
    }

    /// Options that a message may not show, with their value and the run with another one.
    pub(super) fn hidden(&self) -> Vec<(&'static str, String, Self)> {
        if matches!(self.mode.model, Model::Nanochat(_)) {
            return vec![];
        }
        let words = self.options();
        let value = |key: &str, default: &str| {
            words.iter().find(|(name, _)| *name == key).map_or_else(|| default.to_owned(), |(_, value)| value.clone())
        };
        let other = |key, value| {
            let mut other = self.clone();
            other.further.retain(|(name, _)| *name != key);
            other.further.push((key, value));
            other
        };
        let optimizer = value("optim", "adamw_torch_fused");
        vec![
            ("optim", optimizer, other("optim", "sgd")),
            ("gradient_accumulation_steps", "1".to_owned(), other("gradient_accumulation_steps", "8")),
        ]
    }

    /// The options of the trainer.
    pub(super) fn options(&self) -> Vec<(&'static str, String)> {
        let [batch, length, rank] = self.numbers.map(|n| n.to_string());
        match self.mode.model {
            Model::Nanochat(depth) => vec![
                ("compile", "False".to_owned()),
                ("depth", depth.to_string()),
                ("device-batch-size", batch),
                ("max-seq-len", length),
            ],
            Model::Hf(_) => {
                let mut options = vec![("per_device_train_batch_size", batch), ("max_length", length)];
                if let Some(targets) = ADAPTERS[self.mode.adapters].0 {
                    options.push(("lora_r", rank));
                    options.extend((!targets.is_empty()).then(|| ("lora_target_modules", targets.to_owned())));
                }
                let fixed = PRECISIONS[self.mode.precision].0.iter();
                let checkpointing = self.checkpointing.then_some(("gradient_checkpointing", "True"));
                for (key, value) in fixed.copied().chain(checkpointing).chain(self.further.iter().copied()) {
                    options.retain(|(name, _)| *name != key);
                    options.push((key, value.to_owned()));
                }
                options
            }
        }
    }

    /// The options as words of a command. A switch that is on has no value.
    pub(super) fn words(&self) -> Vec<String> {
        let word = |(key, value): (&str, String)| match value.as_str() {
            "True" => format!("--{key}"),
            value => format!("--{key}={value}"),
        };
        self.options().into_iter().map(word).collect()
    }

    /// The run, or the same one with another number of layers. `None` if the trainer rejects it.
    pub(super) fn run(&self, layers: Option<u64>) -> Option<Run> {
        let mut words = self.words();
        match self.mode.model {
            Model::Nanochat(depth) => {
                if let Some(layers) = layers {
                    words.push(format!("--depth={layers}"));
                    words.push(format!("--aspect-ratio={}", 64 * depth / layers));
                    words.push(format!("--total-batch-size={}", 2 * self.numbers[0] * self.numbers[1]));
                }
                nanochat::Run::read(&words).ok().map(Run::Nanochat)
            }
            Model::Hf(preset) => {
                let config = layers.map_or_else(|| preset.config(), |layers| preset.config_with_layers(layers));
                hf::Run::read(&config, &words).ok().map(Run::Hf)
            }
        }
    }

    /// The run as a user enters it.
    pub(super) fn input(&self) -> Input {
        let (trainer, config) = match self.mode.model {
            Model::Nanochat(_) => (Trainer::Nanochat, String::new()),
            Model::Hf(preset) => (Trainer::Hf, preset.config().to_string()),
        };
        Input { trainer, command: self.words().join(" "), config }
    }

    /// The run in one line.
    pub(super) fn text(&self) -> String {
        let [batch, length, _] = self.numbers;
        let is_batch = |(key, _): &(&str, String)| {
            matches!(*key, "per_device_train_batch_size" | "max_length" | "device-batch-size" | "max-seq-len" | "depth")
        };
        let word =
            |(key, value): (&str, String)| if value == "True" { key.to_owned() } else { format!("{key} {value}") };
        let options = self.options().into_iter().filter(|option| !is_batch(option) && option.0 != "compile").map(word);
        let model = match self.mode.model {
            Model::Nanochat(depth) => format!("nanochat d{depth}"),
            Model::Hf(preset) => preset.name.to_owned(),
        };
        [model, format!("{batch} × {length}")].into_iter().chain(options).collect::<Vec<_>>().join(", ")
    }

    /// Name of the published model.
    pub(super) const fn model_name(&self) -> Option<&'static str> {
        match self.mode.model {
            Model::Nanochat(_) => None,
            Model::Hf(preset) => Some(preset.name),
        }
    }
}
