//! Every setting of nanoGPT's `train.py` with its type and default. This table is the only place with defaults.
//!
//! Source: karpathy/nanoGPT `train.py` at commit 3adf61e. The descriptions are Headroom's; the values are nanoGPT's.

use strsim::levenshtein;

use super::value::Value;
use crate::{
    gpt::{MAX_DIMENSION, MAX_N_LAYER},
    train_config::MAX_COUNT,
};

/// Default value of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefaultValue {
    /// A `bool`.
    Bool(bool),
    /// An `int`.
    Int(i64),
    /// A `float`.
    Float(f64),
    /// A `str`.
    Str(&'static str),
    /// A `str` that depends on the GPU: `'bfloat16'` if supported, else `'float16'`.
    DtypeByDevice,
    /// An `int` that depends on the data set: the vocabulary size in `meta.pkl`, else 50304.
    VocabByDataset,
    /// An `int` that equals `batch_size` unless the key, which users patch in, is set.
    EvalBatchByTraining,
}

impl DefaultValue {
    /// Returns Python's name of the type.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::VocabByDataset | Self::EvalBatchByTraining => "int",
            Self::Float(_) => "float",
            Self::Str(_) | Self::DtypeByDevice => "str",
        }
    }

    /// Returns the default, or `None` if it depends on the GPU, the data set or another key.
    #[must_use]
    pub fn value(self) -> Option<Value> {
        match self {
            Self::Bool(b) => Some(Value::Bool(b)),
            Self::Int(i) => Some(Value::Int(i)),
            Self::Float(f) => Some(Value::Float(f)),
            Self::Str(s) => Some(Value::Str(s.into())),
            Self::DtypeByDevice | Self::VocabByDataset | Self::EvalBatchByTraining => None,
        }
    }
}

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Name in configs and after `--`.
    pub name: &'static str,
    /// Type and default value.
    pub default: DefaultValue,
}

const fn key(name: &'static str, default: DefaultValue) -> Key {
    Key { name, default }
}

/// Vocabulary size if the data set defines none: GPT-2's 50257 rounded up to a multiple of 64.
pub const DEFAULT_VOCAB_SIZE: u64 = 50304;

/// All settings, in the order of `train.py`. The last two are added: a common patch, and `vocab_size`, which nanoGPT
/// reads from the data set.
pub const KEYS: [Key; 35] = {
    use DefaultValue::{Bool, DtypeByDevice, EvalBatchByTraining, Float, Int, Str, VocabByDataset};
    [
        // Directory for checkpoints.
        key("out_dir", Str("out")),
        // Steps between evaluations; the first evaluation is before step 0.
        key("eval_interval", Int(2000)),
        // Steps between printed losses.
        key("log_interval", Int(1)),
        // Batches per split in one evaluation.
        key("eval_iters", Int(200)),
        // Stop after the first evaluation.
        key("eval_only", Bool(false)),
        // Save after each evaluation, not only after the best.
        key("always_save_checkpoint", Bool(true)),
        // Initial weights: scratch, resume, or a GPT-2 size such as gpt2-xl.
        key("init_from", Str("scratch")),
        // Report to Weights & Biases.
        key("wandb_log", Bool(false)),
        // Project name in Weights & Biases.
        key("wandb_project", Str("owt")),
        // Run name in Weights & Biases.
        key("wandb_run_name", Str("gpt2")),
        // Directory under data/ with train.bin and val.bin.
        key("dataset", Str("openwebtext")),
        // Micro-batches per optimizer step, over all GPUs together.
        key("gradient_accumulation_steps", Int(40)),
        // Sequences per micro-batch on one GPU.
        key("batch_size", Int(12)),
        // Tokens per sequence.
        key("block_size", Int(1024)),
        // Transformer blocks.
        key("n_layer", Int(12)),
        // Attention heads; must divide n_embd.
        key("n_head", Int(12)),
        // Embedding dimension.
        key("n_embd", Int(768)),
        // Dropout probability.
        key("dropout", Float(0.0)),
        // Biases in linear and LayerNorm layers.
        key("bias", Bool(false)),
        // Maximum learning rate.
        key("learning_rate", Float(6e-4)),
        // Optimizer steps in the whole run.
        key("max_iters", Int(600_000)),
        // AdamW's weight decay of matrices.
        key("weight_decay", Float(0.1)),
        // AdamW's decay rate of the first moment.
        key("beta1", Float(0.9)),
        // AdamW's decay rate of the second moment.
        key("beta2", Float(0.95)),
        // Maximum gradient norm; 0.0 disables clipping.
        key("grad_clip", Float(1.0)),
        // Decay the learning rate along a cosine.
        key("decay_lr", Bool(true)),
        // Warm-up steps of the learning rate.
        key("warmup_iters", Int(2000)),
        // Step at which the learning rate reaches min_lr.
        key("lr_decay_iters", Int(600_000)),
        // Minimum learning rate, after the decay.
        key("min_lr", Float(6e-5)),
        // Communication backend for gradients.
        key("backend", Str("nccl")),
        // Device to train on: cuda, cuda:1, cpu, mps.
        key("device", Str("cuda")),
        // Data type of autocast: float32, bfloat16 or float16.
        key("dtype", DtypeByDevice),
        // Compile the model with torch.compile.
        key("compile", Bool(true)),
        // Sequences per evaluation batch; a common patch of nanoGPT.
        key("eval_batch_size", EvalBatchByTraining),
        // Vocabulary size; nanoGPT reads it from the data set.
        key("vocab_size", VocabByDataset),
    ]
};

/// Returns the setting with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Returns whether a run's memory depends on this key. Without the key's value there is no plan.
#[must_use]
pub fn decides_memory(name: &str) -> bool {
    matches!(
        name,
        "n_layer"
            | "n_head"
            | "n_embd"
            | "block_size"
            | "batch_size"
            | "gradient_accumulation_steps"
            | "dropout"
            | "bias"
            | "vocab_size"
            | "dtype"
            | "compile"
            | "init_from"
            | "grad_clip"
            | "max_iters"
            | "eval_iters"
            | "eval_interval"
            | "eval_only"
            | "eval_batch_size"
    )
}

/// Returns the minimum and the maximum of a count.
#[must_use]
pub fn range(name: &str) -> (u64, u64) {
    match name {
        "n_layer" => (1, MAX_N_LAYER),
        "n_head" | "n_embd" | "block_size" | "vocab_size" => (1, MAX_DIMENSION),
        "eval_iters" | "max_iters" | "warmup_iters" | "lr_decay_iters" => (0, MAX_COUNT),
        _ => (1, MAX_COUNT),
    }
}

/// Returns the setting with the most similar name, if it is similar enough to be a typo.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    // A name longer than every key cannot be a typo of one. The bound keeps the comparison cheap.
    if name.len() > 40 {
        return None;
    }
    let allowed = if name.len() < 5 { 1 } else { 2 };
    let best = KEYS.iter().map(|key| (levenshtein(name, key.name), key.name)).min_by_key(|(edits, _)| *edits)?;
    (best.0 <= allowed).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (i, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..i].iter().all(|other| other.name != key.name), "{} stands twice", key.name);
        }
    }

    /// Compares with the assignments of train.py at commit 3adf61e154c3fe3fca428ad6bc3818b27a3b8291, in its order.
    #[test]
    fn defaults_are_those_of_train_py() {
        const TRAIN: &str = "out_dir = 'out'; eval_interval = 2000; log_interval = 1; eval_iters = 200; eval_only = False; \
            always_save_checkpoint = True; init_from = 'scratch'; wandb_log = False; wandb_project = 'owt'; \
            wandb_run_name = 'gpt2'; dataset = 'openwebtext'; gradient_accumulation_steps = 5 * 8; batch_size = 12; \
            block_size = 1024; n_layer = 12; n_head = 12; n_embd = 768; dropout = 0.0; bias = False; \
            learning_rate = 6e-4; max_iters = 600000; weight_decay = 1e-1; beta1 = 0.9; beta2 = 0.95; grad_clip = 1.0; \
            decay_lr = True; warmup_iters = 2000; lr_decay_iters = 600000; min_lr = 6e-5; backend = 'nccl'; \
            device = 'cuda'; compile = True";
        let text = TRAIN.to_owned();
        let settings = super::super::read(&[super::super::Source::File { name: "train.py".into(), text }]);
        let with_value: Vec<&Key> = KEYS.iter().filter(|key| key.default.value().is_some()).collect();
        assert_eq!(settings.values.len(), with_value.len());
        for key in with_value {
            let value = settings.values.get(key.name).map(|setting| setting.value.clone());
            assert_eq!(value, key.default.value(), "{}", key.name);
        }
        let names: Vec<&str> = TRAIN.split("; ").filter_map(|assignment| assignment.split(" = ").next()).collect();
        let ours: Vec<&str> = KEYS.iter().map(|key| key.name).filter(|name| names.contains(name)).collect();
        assert_eq!(ours, names, "the order of train.py");
    }

    #[test]
    fn a_misspelt_name_finds_its_key() {
        assert_eq!(nearest("batchsize"), Some("batch_size"));
        assert_eq!(nearest("batch-size"), Some("batch_size"));
        assert_eq!(nearest("n_layers"), Some("n_layer"));
        assert_eq!(nearest("learning_rte"), Some("learning_rate"));
    }

    #[test]
    fn a_helper_name_finds_none() {
        for name in ["num_tokens", "n", "gpus", "", "run_name_of_today", &"x".repeat(5000)] {
            assert_eq!(nearest(name), None, "{name}");
        }
    }
}
