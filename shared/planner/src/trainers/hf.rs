//! Hugging Face's `Trainer` on a causal language model: a `config.json`, and options with the names of
//! `TrainingArguments` and of PEFT's `LoraConfig`.
//!
//! Source: transformers 5.17 and PEFT 0.21.

use headroom_text as text;
use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    arguments::{ArgumentError, Key, Kind, Values, memory, other},
    fixes::{Move, Options},
};
use crate::{
    advice::Knob,
    dtype::Dtype,
    gpt::tensors::TensorTooLarge,
    memory::{context::GpuProperties, program::Program},
    models::hf::{
        Args, AttentionKind, Bitsandbytes, Checkpointing, Config, ConfigError, Family, Lora, Optimizer, Quantization,
        SavedModules, record,
    },
    torch::{FourBit, Recorder},
};

mod checks;
mod moves;

use checks::{
    check_flash_attention, check_length, check_modules_to_save, check_quantization, check_targets, refuse_unsupported,
};
use moves::moves;

const NUMBER: Kind = Kind::Integer(i64::MIN, i64::MAX);
const INTERVALS: Kind = Kind::Choice(&["no", "steps", "epoch"]);

/// Switches of mixed precision, with the dtype of autocast.
const HALVES: [(&str, Dtype); 2] = [("bf16", Dtype::Bfloat16), ("fp16", Dtype::Float16)];

/// Switches of `BitsAndBytesConfig`.
const QUANTIZATIONS: [&str; 2] = ["load_in_4bit", "load_in_8bit"];

const fn bitsandbytes(n_states: usize, is_8bit: bool, is_paged: bool) -> Optimizer {
    Optimizer::Bitsandbytes(Bitsandbytes { n_states, is_8bit, is_paged })
}

/// Optimizers of `--optim`.
const OPTIMIZERS: [(&str, Optimizer); 15] = [
    ("adamw_torch_fused", Optimizer::AdamwTorchFused),
    ("adamw_torch", Optimizer::AdamwTorch),
    ("sgd", Optimizer::Sgd),
    ("adafactor", Optimizer::Adafactor),
    ("adamw_bnb_8bit", bitsandbytes(2, true, false)),
    ("adamw_8bit", bitsandbytes(2, true, false)),
    ("paged_adamw_32bit", bitsandbytes(2, false, true)),
    ("paged_adamw_8bit", bitsandbytes(2, true, true)),
    ("lion_32bit", bitsandbytes(1, false, false)),
    ("lion_8bit", bitsandbytes(1, true, false)),
    ("paged_lion_32bit", bitsandbytes(1, false, true)),
    ("paged_lion_8bit", bitsandbytes(1, true, true)),
    ("rmsprop_bnb", bitsandbytes(1, false, false)),
    ("rmsprop_bnb_32bit", bitsandbytes(1, false, false)),
    ("rmsprop_bnb_8bit", bitsandbytes(1, true, false)),
];

const OPTIMIZER_NAMES: [&str; OPTIMIZERS.len()] = {
    let mut names = [""; OPTIMIZERS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = OPTIMIZERS[at].0;
        at += 1;
    }
    names
};

/// The options: those of `TrainingArguments` that people set, of `LoraConfig` with the prefix `lora_`, and of
/// `from_pretrained`.
pub const KEYS: &[Key] = &[
    memory("per_device_train_batch_size", "8", Kind::Integer(1, 1 << 16)),
    memory("per_device_eval_batch_size", "8", Kind::Integer(1, 1 << 16)),
    memory("gradient_accumulation_steps", "1", Kind::Integer(1, 256)),
    memory("max_length", "1024", Kind::Integer(2, 1 << 20)),
    memory("bf16", "False", Kind::Switch),
    memory("fp16", "False", Kind::Switch),
    memory("dtype", "auto", Kind::Choice(&["auto", "float32", "bfloat16"])),
    memory("optim", OPTIMIZER_NAMES[0], Kind::Choice(&OPTIMIZER_NAMES)),
    memory("gradient_checkpointing", "False", Kind::Switch),
    memory("use_reentrant", "False", Kind::Switch),
    memory("attn_implementation", "sdpa", Kind::Choice(&["sdpa", "eager", "flash_attention_2"])),
    memory("torch_compile", "False", Kind::Switch),
    memory("use_liger_kernel", "False", Kind::Switch),
    memory("eval_strategy", "no", INTERVALS),
    memory("lora_r", "0", Kind::Integer(0, 1 << 14)),
    memory("lora_dropout", "0.0", Kind::Float),
    memory("lora_target_modules", "", Kind::Text),
    memory("lora_modules_to_save", "", Kind::Text),
    memory("load_in_4bit", "False", Kind::Switch),
    memory("load_in_8bit", "False", Kind::Switch),
    memory("bnb_4bit_compute_dtype", "float32", Kind::Choice(&["float32", "bfloat16", "float16"])),
    memory("bnb_4bit_use_double_quant", "False", Kind::Switch),
    memory("bnb_4bit_quant_storage", "uint8", Kind::Choice(&["uint8", "float16", "bfloat16", "float32"])),
    other("bnb_4bit_quant_type", "fp4", Kind::Choice(&["fp4", "nf4"])),
    memory("attention_mask", "True", Kind::Switch),
    other("lora_alpha", "8", Kind::Float),
    other("adam_beta1", "0.9", Kind::Float),
    other("adam_beta2", "0.999", Kind::Float),
    other("adam_epsilon", "1e-8", Kind::Float),
    other("data_seed", "0", NUMBER),
    other("dataloader_num_workers", "0", NUMBER),
    other("dataloader_pin_memory", "True", Kind::Switch),
    other("dataset_name", "", Kind::Text),
    other("dataset_text_field", "text", Kind::Text),
    other("disable_tqdm", "False", Kind::Switch),
    other("eval_steps", "500", Kind::Float),
    other("hub_model_id", "", Kind::Text),
    other("learning_rate", "5e-5", Kind::Float),
    other("logging_dir", "", Kind::Text),
    other("logging_steps", "500", Kind::Float),
    other("logging_strategy", "steps", INTERVALS),
    other("lr_scheduler_type", "linear", Kind::Text),
    // Without clipping, the trainer computes the norm too.
    other("max_grad_norm", "1.0", Kind::Float),
    other("max_steps", "-1", NUMBER),
    other("model_name_or_path", "", Kind::Text),
    other("num_train_epochs", "3.0", Kind::Float),
    other("output_dir", "", Kind::Text),
    other("overwrite_output_dir", "False", Kind::Switch),
    other("push_to_hub", "False", Kind::Switch),
    other("remove_unused_columns", "True", Kind::Switch),
    other("report_to", "none", Kind::Text),
    other("run_name", "", Kind::Text),
    other("save_steps", "500", Kind::Float),
    other("save_strategy", "steps", INTERVALS),
    other("save_total_limit", "0", NUMBER),
    other("seed", "42", NUMBER),
    other("warmup_ratio", "0.0", Kind::Float),
    other("warmup_steps", "0", Kind::Float),
    other("weight_decay", "0.0", Kind::Float),
];

/// Why a run cannot be planned.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RunError {
    /// The model's config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An option.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
}

/// A run of `Trainer.train()`.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    args: Args,
    values: Values,
    model_type: String,
}

impl Run {
    /// Reads a model's `config.json` and the options.
    ///
    /// # Errors
    /// The model or an option is unknown or invalid, or Headroom does not plan such a run.
    pub fn read(config: &Value, words: &[String]) -> Result<Self, RunError> {
        let model = Config::new(config)?;
        let values = Values::read("TrainingArguments", KEYS, words)?;
        let weights = weights(config, &values)?;
        let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self::new(model, weights, values, model_type)?)
    }

    fn new(mut model: Config, weights: Dtype, values: Values, model_type: String) -> Result<Self, ArgumentError> {
        refuse_unsupported(&values)?;
        check_quantization(&values)?;
        check_targets(&values, model.family)?;
        check_modules_to_save(&values, model.family)?;
        check_length(&values, &model)?;
        model.attention = match values.text("attn_implementation") {
            "eager" => AttentionKind::Eager,
            "flash_attention_2" => AttentionKind::FlashAttention2,
            _ => AttentionKind::Sdpa,
        };
        let args = args(model, weights, &values);
        check_flash_attention(&values, &args)?;
        if args.autocast == Some(Dtype::Float16) && args.weights != Dtype::Float32 && args.quantization.is_none() {
            let cause = format!("the weights are {}; --dtype=float32 changes them", args.weights.name());
            return Err(values.unsupported("fp16", cause));
        }
        Ok(Self { args, values, model_type })
    }

    pub(super) fn with_options(&self, options: &[(&'static str, String)]) -> Option<Self> {
        let values = self.values.with(options);
        let weights = if values.text("dtype") == "bfloat16" { Dtype::Bfloat16 } else { self.args.weights };
        Self::new(self.args.config.clone(), weights, values, self.model_type.clone()).ok()
    }

    /// Changes that reduce the memory of the run on a GPU. `smaller` has the smaller values of a knob.
    pub(super) fn moves(&self, gpu: GpuProperties, smaller: impl Fn(Knob) -> Vec<Options>) -> Vec<Move> {
        moves(self, gpu.compute_capability.major >= 8, smaller)
    }

    pub(super) fn with_steps(&self, steps: u64) -> Self {
        let mut run = self.clone();
        run.args.steps = run.args.steps.min(steps);
        run
    }

    /// Remarks on the figures.
    pub(super) fn remarks(&self) -> Vec<text::Key> {
        let Args { quantization, checkpointing, optimizer, lora, .. } = &self.args;
        let is_8bit = *quantization == Some(Quantization::EightBit);
        let bitsandbytes = match optimizer {
            Optimizer::Bitsandbytes(optimizer) => Some(optimizer),
            _ => None,
        };
        let saves = lora.as_ref().is_some_and(|lora| lora.saved != SavedModules::default());
        let is_recorded = quantization.is_some() || bitsandbytes.is_some() || saves;
        [
            (quantization.is_none(), text::REMARK_HF_CONFIG),
            (quantization.is_some(), text::REMARK_HF_CHECKPOINT),
            (is_8bit, text::REMARK_HF_OUTLIERS),
            (is_8bit && *checkpointing == Some(Checkpointing::NonReentrant), text::REMARK_HF_HOLDS_INPUTS),
            (bitsandbytes.is_some_and(|optimizer| optimizer.is_paged), text::REMARK_HF_PAGED),
            (!is_recorded, text::REMARK_HF_MEASURED),
            (is_recorded, text::REMARK_HF_RECORDED),
        ]
        .into_iter()
        .filter_map(|(applies, remark)| applies.then_some(remark))
        .collect()
    }

    /// The arguments of the run on the engine.
    #[must_use]
    pub fn args(&self) -> &Args {
        &self.args
    }

    pub(super) fn values(&self) -> &Values {
        &self.values
    }

    pub(super) fn config(&self) -> Map<String, Value> {
        let Args { config, batch, length, accumulation, lora, .. } = &self.args;
        let text = |key: &str| (key.to_owned(), Value::from(self.values.text(key)));
        let switch = |key: &str| (key.to_owned(), Value::from(self.values.is_on(key)));
        let number = |key: &str, number: u64| (key.to_owned(), Value::from(number));
        let mut keys: Map<String, Value> = [
            ("model_type".to_owned(), Value::from(self.model_type.as_str())),
            number("hidden_size", config.hidden_size),
            number("num_hidden_layers", config.layers),
            number("vocab_size", config.vocab_size),
            number("per_device_train_batch_size", *batch),
            number("max_length", *length),
            number("gradient_accumulation_steps", *accumulation),
            ("dtype".to_owned(), self.args.weights.name().into()),
            switch("bf16"),
            switch("fp16"),
            text("attn_implementation"),
            text("optim"),
            ("gradient_checkpointing".to_owned(), checkpoints(&self.values).into()),
            switch("load_in_4bit"),
            switch("load_in_8bit"),
            number("lora_r", lora.as_ref().map_or(0, |lora| lora.rank)),
        ]
        .into_iter()
        .collect();
        if lora.is_some() {
            keys.insert("lora_target_modules".to_owned(), targets(&self.values, config.family).into());
        }
        keys
    }

    pub(super) const fn eval_batches(&self) -> u64 {
        self.args.evaluation_batches
    }

    pub(super) const fn n_micro_steps(&self) -> u64 {
        self.args.accumulation
    }

    pub(super) fn program(&self, gpu: GpuProperties) -> Result<Program, TensorTooLarge> {
        record(&self.args, gpu, Recorder::Gpu).program()
    }

    /// Why the run cannot be planned on a GPU, if so.
    pub(super) fn obstacle(&self, gpu: GpuProperties) -> Option<text::Key> {
        if gpu.compute_capability.major >= 8 {
            return None;
        }
        let Args { autocast, weights, quantization, config, .. } = &self.args;
        let compute = match quantization {
            Some(Quantization::FourBit { compute, .. }) => Some(*compute),
            _ => None,
        };
        if config.attention == AttentionKind::FlashAttention2 {
            return Some(text::OBSTACLE_FLASH_ATTENTION);
        }
        let is_bfloat16 = [*autocast, Some(*weights), compute].contains(&Some(Dtype::Bfloat16));
        is_bfloat16.then_some(text::OBSTACLE_BFLOAT16)
    }

    pub(super) fn knobs(&self) -> Vec<Knob> {
        let Args { config, batch, length, lora, .. } = &self.args;
        let rank = lora.iter().map(|lora| Knob { key: "lora_r", value: lora.rank, step: 8, max: 1024 });
        [
            Knob { key: "per_device_train_batch_size", value: *batch, step: 1, max: 1 << 12 },
            Knob { key: "max_length", value: *length, step: 128, max: config.positions.unwrap_or(1 << 17) },
        ]
        .into_iter()
        .chain(rank)
        .collect()
    }

    pub(super) fn with(&self, key: &str, value: u64) -> Self {
        let mut run = self.clone();
        match (key, &mut run.args.lora) {
            ("per_device_train_batch_size", _) => run.args.batch = value,
            ("max_length", _) => run.args.length = value,
            (_, Some(lora)) => lora.rank = value,
            _ => {}
        }
        run
    }
}

/// The layers that have adapters: `lora_target_modules`, or PEFT's choice for the family.
fn targets(values: &Values, family: Family) -> &str {
    let given = values.text("lora_target_modules");
    if given.is_empty() { family.default_targets() } else { given }
}

/// Names of `lora_modules_to_save`.
fn modules_to_save(values: &Values) -> impl Iterator<Item = &str> {
    values.text("lora_modules_to_save").split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Modules that can be saved: the embeddings of tokens, and the head.
const fn savable(family: Family) -> [&'static str; 2] {
    [if matches!(family, Family::Gpt2) { "wte" } else { "embed_tokens" }, "lm_head"]
}

fn saved_modules(values: &Values, family: Family) -> SavedModules {
    let [embeddings, head] = savable(family).map(|name| modules_to_save(values).any(|saved| saved == name));
    SavedModules { embeddings, head }
}

/// The dtype of the weights: that of the config, unless `--dtype` names one.
fn weights(config: &Value, values: &Values) -> Result<Dtype, ConfigError> {
    let given = values.text("dtype");
    let key = if config.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    let name = if given == "auto" { config.get(key).and_then(Value::as_str).unwrap_or("float32") } else { given };
    match name {
        "float32" => Ok(Dtype::Float32),
        "bfloat16" => Ok(Dtype::Bfloat16),
        other => Err(ConfigError::Unsupported {
            key,
            value: other.chars().take(40).collect(),
            supported: "float32, bfloat16; --dtype selects another one than the config's",
        }),
    }
}

/// Whether layers are checkpointed. `prepare_model_for_kbit_training` does so unless it is forbidden.
fn checkpoints(values: &Values) -> bool {
    let is_default = !values.is_given("gradient_checkpointing");
    values.is_on("gradient_checkpointing") || is_default && QUANTIZATIONS.iter().any(|key| values.is_on(key))
}

/// The dtype of an option that has one of its names as its value.
fn dtype(values: &Values, key: &str) -> Dtype {
    match values.text(key) {
        "bfloat16" => Dtype::Bfloat16,
        "float16" => Dtype::Float16,
        "uint8" => Dtype::Uint8,
        _ => Dtype::Float32,
    }
}

fn quantization(values: &Values) -> Option<Quantization> {
    let [is_4bit, is_8bit] = QUANTIZATIONS.map(|key| values.is_on(key));
    is_4bit.then(|| four_bit(values)).or(is_8bit.then_some(Quantization::EightBit))
}

fn four_bit(values: &Values) -> Quantization {
    let is_nested = values.is_on("bnb_4bit_use_double_quant");
    let format = FourBit { is_nested, storage: dtype(values, "bnb_4bit_quant_storage") };
    Quantization::FourBit { format, compute: dtype(values, "bnb_4bit_compute_dtype") }
}

fn args(config: Config, weights: Dtype, values: &Values) -> Args {
    let family = config.family;
    let targets = targets(values, family);
    let names = || targets.split(',').map(|name| name.trim().to_owned()).collect();
    let rank = values.count("lora_r");
    let lora = (rank > 0).then(|| Lora {
        rank,
        drops: values.float("lora_dropout") > 0.0,
        targets: (targets != "all-linear").then(names),
        saved: saved_modules(values, family),
    });
    let checkpointing =
        if values.is_on("use_reentrant") { Checkpointing::Reentrant } else { Checkpointing::NonReentrant };
    let optimizer = OPTIMIZERS.iter().find(|(name, _)| *name == values.text("optim"));
    Args {
        config,
        weights,
        autocast: HALVES.into_iter().find_map(|(key, dtype)| values.is_on(key).then_some(dtype)),
        batch: values.count("per_device_train_batch_size"),
        length: values.count("max_length"),
        checkpointing: checkpoints(values).then_some(checkpointing),
        quantization: quantization(values),
        lora,
        optimizer: optimizer.map_or(Optimizer::AdamwTorchFused, |(_, optimizer)| *optimizer),
        accumulation: values.count("gradient_accumulation_steps"),
        padding_mask: values.is_on("attention_mask"),
        evaluation_batches: if values.text("eval_strategy") == "no" { 0 } else { 2 },
        steps: 3,
    }
}
