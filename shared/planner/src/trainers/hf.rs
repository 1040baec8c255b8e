//! Hugging Face's `Trainer` on a causal language model: a `config.json`, and options with the names of
//! `TrainingArguments` and of PEFT's `LoraConfig`.
//!
//! Source: transformers 5.17 and PEFT 0.21.

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
    models::hf::{Args, AttentionKind, Checkpointing, Config, ConfigError, Family, Lora, Optimizer, record},
    torch::Recorder,
};

mod moves;

use moves::moves;

const NUMBER: Kind = Kind::Integer(i64::MIN, i64::MAX);
const INTERVALS: Kind = Kind::Choice(&["no", "steps", "epoch"]);

/// Switches of mixed precision, with the dtype of autocast.
const HALVES: [(&str, Dtype); 2] = [("bf16", Dtype::Bfloat16), ("fp16", Dtype::Float16)];

/// Optimizers of `--optim`.
const OPTIMIZERS: [(&str, Optimizer); 4] = [
    ("adamw_torch_fused", Optimizer::AdamwTorchFused),
    ("adamw_torch", Optimizer::AdamwTorch),
    ("sgd", Optimizer::Sgd),
    ("adafactor", Optimizer::Adafactor),
];

const OPTIMIZER_NAMES: [&str; OPTIMIZERS.len()] = [OPTIMIZERS[0].0, OPTIMIZERS[1].0, OPTIMIZERS[2].0, OPTIMIZERS[3].0];

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

/// What the figures include.
pub const REMARKS: &[&str] = &[
    "Every sequence has max_length tokens. The model starts on the GPU in its dtype, as from_config makes it; loading \
     a checkpoint can take more for a moment.",
    "On 20 runs on an H200, allocated memory is within 0.19 % and reserved memory within 4.8 % of the measured figures.",
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
        check_targets(&values, model.family)?;
        check_length(&values, &model)?;
        if values.text("attn_implementation") == "eager" {
            model.attention = AttentionKind::Eager;
        }
        let args = args(model, weights, &values);
        if args.autocast == Some(Dtype::Float16) && args.weights != Dtype::Float32 {
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

    pub(super) fn args(&self) -> &Args {
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
            switch("gradient_checkpointing"),
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

    pub(super) fn program(&self, gpu: GpuProperties) -> Result<Program, TensorTooLarge> {
        record(&self.args, gpu, Recorder::Gpu).program()
    }

    /// Why the run cannot be planned on a GPU, if so.
    pub(super) fn obstacle(&self, gpu: GpuProperties) -> Option<&'static str> {
        let is_bfloat16 = self.args.autocast == Some(Dtype::Bfloat16) || self.args.weights == Dtype::Bfloat16;
        (is_bfloat16 && gpu.compute_capability.major < 8)
            .then_some("below compute capability 8.0 it emulates bfloat16, which is not derived yet")
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

/// Refuses runs whose events the engine does not derive.
fn refuse_unsupported(values: &Values) -> Result<(), ArgumentError> {
    let switches = [
        ("torch_compile", "compiled runs of Hugging Face models are not derived yet"),
        ("use_liger_kernel", "Liger's kernels are not derived yet"),
        ("load_in_4bit", "quantized weights are not derived yet"),
        ("load_in_8bit", "quantized weights are not derived yet"),
    ];
    for (key, cause) in switches {
        if values.is_on(key) {
            return Err(values.unsupported(key, cause));
        }
    }
    if values.text("attn_implementation") == "flash_attention_2" {
        return Err(values.unsupported("attn_implementation", "sdpa and eager are derived"));
    }
    if values.is_on("fp16") && values.is_on("bf16") {
        return Err(values.unsupported("fp16", "--bf16 is set too, and TrainingArguments accepts one of them"));
    }
    if !values.text("lora_modules_to_save").is_empty() {
        return Err(values.unsupported("lora_modules_to_save", "copies of whole modules are not derived yet"));
    }
    let batches = ["per_device_eval_batch_size", "per_device_train_batch_size"].map(|key| values.count(key));
    if values.text("eval_strategy") != "no" && batches[0] != batches[1] {
        let cause = "an evaluation is derived only if per_device_eval_batch_size is per_device_train_batch_size";
        return Err(values.unsupported("eval_strategy", cause));
    }
    Ok(())
}

/// Refuses sequences that are longer than the model's position embeddings, with which training fails.
fn check_length(values: &Values, model: &Config) -> Result<(), ArgumentError> {
    match model.positions {
        Some(positions) if values.count("max_length") > positions => {
            let expected = format!("at most {positions}, the positions of the model");
            Err(ArgumentError::invalid("max_length", values.text("max_length"), expected))
        }
        _ => Ok(()),
    }
}

/// The layers that have adapters: `lora_target_modules`, or PEFT's choice for the family.
fn targets(values: &Values, family: Family) -> &str {
    let given = values.text("lora_target_modules");
    if given.is_empty() { family.default_targets() } else { given }
}

fn check_targets(values: &Values, family: Family) -> Result<(), ArgumentError> {
    let (targets, linears) = (targets(values, family), family.linears());
    if targets != "all-linear" && !targets.split(',').all(|name| linears.contains(&name.trim())) {
        let expected = format!("all-linear, or names of {}", linears.join(", "));
        return Err(ArgumentError::invalid("lora_target_modules", targets, expected));
    }
    Ok(())
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

fn args(config: Config, weights: Dtype, values: &Values) -> Args {
    let targets = targets(values, config.family);
    let names = || targets.split(',').map(|name| name.trim().to_owned()).collect();
    let rank = values.count("lora_r");
    let lora = (rank > 0).then(|| Lora {
        rank,
        drops: values.float("lora_dropout") > 0.0,
        targets: (targets != "all-linear").then(names),
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
        checkpointing: values.is_on("gradient_checkpointing").then_some(checkpointing),
        lora,
        optimizer: optimizer.map_or(Optimizer::AdamwTorchFused, |(_, optimizer)| *optimizer),
        accumulation: values.count("gradient_accumulation_steps"),
        padding_mask: values.is_on("attention_mask"),
        evaluation_batches: if values.text("eval_strategy") == "no" { 0 } else { 2 },
        steps: 3,
    }
}
