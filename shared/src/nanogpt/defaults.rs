//! Every setting of nanoGPT's `train.py` with its type and default. The one table; nothing else knows a default.
//!
//! Source: karpathy/nanoGPT `train.py` at commit 3adf61e. The words are ours, the values are the program's.

use super::value::Value;

/// What a setting is where nobody has set it.
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
    /// A `str` that depends on the GPU: `'bfloat16'` where it is supported, else `'float16'`.
    DtypeByDevice,
    /// An `int` that depends on the data set: its `meta.pkl`, else 50304.
    VocabByDataset,
    /// An `int` that is `batch_size` unless people have patched the key in.
    EvalBatchByTraining,
}

impl DefaultValue {
    /// Python's name of the type.
    #[must_use]
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) | Self::VocabByDataset | Self::EvalBatchByTraining => "int",
            Self::Float(_) => "float",
            Self::Str(_) | Self::DtypeByDevice => "str",
        }
    }

    /// The value, where it depends on nothing else.
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

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Its name in configs and after `--`.
    pub name: &'static str,
    /// Its type and its value where nobody sets it.
    pub default: DefaultValue,
}

const fn key(name: &'static str, default: DefaultValue) -> Key {
    Key { name, default }
}

/// Vocabulary size where the data set names none: GPT-2's 50257 rounded up to a multiple of 64.
pub const DEFAULT_VOCAB_SIZE: u64 = 50304;

/// All settings, in `train.py`'s order; last two that are ours: a patch of
/// its users, and `vocab_size`, which nanoGPT takes from the data set.
pub const KEYS: [Key; 35] = {
    use DefaultValue::{Bool, DtypeByDevice, EvalBatchByTraining, Float, Int, Str, VocabByDataset};
    [
        // Folder that checkpoints are written to.
        key("out_dir", Str("out")),
        // Steps from one evaluation to the next; the first is before step 0.
        key("eval_interval", Int(2000)),
        // Steps from one printed loss to the next.
        key("log_interval", Int(1)),
        // Batches per split in one evaluation.
        key("eval_iters", Int(200)),
        // Stop after the first evaluation.
        key("eval_only", Bool(false)),
        // Save after each evaluation, not only after the best.
        key("always_save_checkpoint", Bool(true)),
        // Where weights start: scratch, resume, or a GPT-2 size such as gpt2-xl.
        key("init_from", Str("scratch")),
        // Report to Weights & Biases.
        key("wandb_log", Bool(false)),
        // Project name there.
        key("wandb_project", Str("owt")),
        // Run name there.
        key("wandb_run_name", Str("gpt2")),
        // Folder under data/ with train.bin and val.bin.
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
        // Channels per token.
        key("n_embd", Int(768)),
        // Share of activations dropped in training.
        key("dropout", Float(0.0)),
        // Biases in linear and LayerNorm layers.
        key("bias", Bool(false)),
        // Highest learning rate.
        key("learning_rate", Float(6e-4)),
        // Optimizer steps in the whole run.
        key("max_iters", Int(600_000)),
        // AdamW's decay of matrices.
        key("weight_decay", Float(0.1)),
        // AdamW's decay of the first moment.
        key("beta1", Float(0.9)),
        // AdamW's decay of the second moment.
        key("beta2", Float(0.95)),
        // Largest gradient norm; 0.0 turns clipping off.
        key("grad_clip", Float(1.0)),
        // Lower the learning rate along a cosine.
        key("decay_lr", Bool(true)),
        // Steps over which the learning rate rises.
        key("warmup_iters", Int(2000)),
        // Step at which the learning rate reaches min_lr.
        key("lr_decay_iters", Int(600_000)),
        // Learning rate after the decay.
        key("min_lr", Float(6e-5)),
        // How several processes exchange gradients.
        key("backend", Str("nccl")),
        // Where to train: cuda, cuda:1, cpu, mps.
        key("device", Str("cuda")),
        // Type of autocast: float32, bfloat16 or float16.
        key("dtype", DtypeByDevice),
        // Pass the model through torch.compile.
        key("compile", Bool(true)),
        // Sequences per batch of an evaluation; a patch of nanoGPT's users.
        key("eval_batch_size", EvalBatchByTraining),
        // Entries of the vocabulary; nanoGPT reads it from the data set.
        key("vocab_size", VocabByDataset),
    ]
};

/// The setting of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Whether a key's value decides what memory a run takes: without it there is no plan.
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

/// The setting whose name is nearest, if it is near enough to have been meant.
#[must_use]
pub fn nearest(name: &str) -> Option<&'static str> {
    // Longer names than any key cannot be near one; the bound keeps the table below small.
    if name.len() > 40 {
        return None;
    }
    let allowed = if name.len() < 5 { 1 } else { 2 };
    let best = KEYS.iter().map(|key| (edits(name, key.name), key.name)).min_by_key(|(edits, _)| *edits)?;
    (best.0 <= allowed).then_some(best.1)
}

/// Single-byte edits between two names, Levenshtein's distance.
#[must_use]
pub fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
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
