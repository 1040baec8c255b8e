//! What a run is to do, out of nanoGPT's keys: once, here, with every value checked.

use std::path::PathBuf;

use headroom_shared::{
    gpt::{GptConfig, GptConfigError, GptShape},
    nanogpt::{Settings, defaults},
    text::{self, Key},
    train_config::MAX_COUNT,
};
use serde_json::{Map, Value as Json};
use thiserror::Error;

use super::{device::Wanted, schedule::Schedule};

/// The key of ours among nanoGPT's, which has the number in its code.
pub const SEED: &str = "seed";

/// nanoGPT's `torch.manual_seed(1337)`.
const DEFAULT_SEED: u64 = 1337;

/// Where weights come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitFrom {
    /// A fresh model.
    Scratch,
    /// The checkpoint in `out_dir`, with its optimizer.
    Resume,
    /// Weights on this machine, by the name or path that was given.
    Weights(String),
}

/// nanoGPT's `dtype`, where a key says it: what autocast computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// As the CPU does.
    Float32,
    /// As a card does.
    Bfloat16,
    /// As small as bfloat16, for cards without that; it is trained as bfloat16 is.
    Float16,
}

/// A run, as its keys say it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// The shape that the keys ask for; `vocab_size` is the data set's where no key says it.
    pub shape: GptShape,
    /// Whether a key says `vocab_size`.
    pub names_vocab_size: bool,
    /// Where weights come from.
    pub init_from: InitFrom,
    /// On what it is computed.
    pub device: Wanted,
    /// With what, where a key says it.
    pub precision: Option<Precision>,
    /// Sequences a micro-batch.
    pub batch_size: u64,
    /// Micro-batches an iteration.
    pub gradient_accumulation_steps: u64,
    /// The learning rate.
    pub schedule: Schedule,
    /// AdamW's.
    pub weight_decay: f64,
    /// AdamW's.
    pub beta1: f64,
    /// AdamW's.
    pub beta2: f64,
    /// The largest norm of all gradients; 0 for any.
    pub grad_clip: f64,
    /// The last iteration.
    pub max_iters: u64,
    /// Iterations from one evaluation to the next.
    pub eval_interval: u64,
    /// Batches of each half of the data in an evaluation.
    pub eval_iters: u64,
    /// Stop after the first evaluation.
    pub eval_only: bool,
    /// Save after every evaluation, not only after the best.
    pub always_save_checkpoint: bool,
    /// Iterations from one printed loss to the next.
    pub log_interval: u64,
    /// Where checkpoints go.
    pub out_dir: PathBuf,
    /// The data set's name or folder.
    pub dataset: String,
    /// What everything random is made of.
    pub seed: u64,
}

/// A value no run can have.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SettingsError {
    /// The shape.
    #[error(transparent)]
    Shape(#[from] GptConfigError),
    /// A count.
    #[error("{}", text::setting_count(*key, *value, *min, MAX_COUNT))]
    Count {
        /// nanoGPT's key.
        key: &'static str,
        /// What was given.
        value: u64,
        /// The smallest.
        min: u64,
    },
    /// A number.
    #[error("{}", text::setting_number(*key, value.to_string(), *range))]
    Number {
        /// nanoGPT's key.
        key: &'static str,
        /// What was given.
        value: f64,
        /// What it may be.
        range: Key,
    },
    /// Another device than there is.
    #[error("{}", text::setting_device(format!("{device:?}"), text::DEVICE_WORDS))]
    Device {
        /// What was given.
        device: String,
    },
    /// Another type than nanoGPT has.
    #[error("{}", text::setting_dtype(format!("{dtype:?}")))]
    Precision {
        /// What was given.
        dtype: String,
    },
    /// A seed that is no number.
    #[error("{}", text::SETTING_SEED)]
    Seed,
}

impl SettingsError {
    /// The key that it is about.
    #[must_use]
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Shape(error) => error.key(),
            Self::Count { key, .. } | Self::Number { key, .. } => key,
            Self::Device { .. } => "device",
            Self::Precision { .. } => "dtype",
            Self::Seed => SEED,
        }
    }

    /// What to try.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Device { .. } => Some(text::TRY_OTHER_DEVICE.to_string()),
            _ => None,
        }
    }
}

impl RunSettings {
    /// Reads the keys; what is wrong with their types is among `settings.problems` afterwards.
    ///
    /// # Errors
    /// A value that no run can have.
    pub fn read(settings: &mut Settings) -> Result<Self, SettingsError> {
        let seed = match settings.value(SEED) {
            None => DEFAULT_SEED,
            Some(_) => settings.get_u64(SEED).ok_or(SettingsError::Seed)?,
        };
        let read = Self {
            shape: shape(settings),
            names_vocab_size: settings.is_set("vocab_size"),
            init_from: match settings.get_str("init_from").unwrap_or_default().as_str() {
                "scratch" => InitFrom::Scratch,
                "resume" => InitFrom::Resume,
                other => InitFrom::Weights(other.to_owned()),
            },
            device: device(settings)?,
            precision: precision(settings)?,
            batch_size: count(settings, "batch_size", 1)?,
            gradient_accumulation_steps: count(settings, "gradient_accumulation_steps", 1)?,
            schedule: schedule(settings)?,
            weight_decay: number(settings, "weight_decay", at_least_0)?,
            beta1: number(settings, "beta1", below_1)?,
            beta2: number(settings, "beta2", below_1)?,
            grad_clip: number(settings, "grad_clip", at_least_0)?,
            max_iters: count(settings, "max_iters", 0)?,
            eval_interval: count(settings, "eval_interval", 1)?,
            eval_iters: count(settings, "eval_iters", 1)?,
            eval_only: settings.get_bool("eval_only").unwrap_or_default(),
            always_save_checkpoint: settings.get_bool("always_save_checkpoint").unwrap_or(true),
            log_interval: count(settings, "log_interval", 1)?,
            out_dir: settings.get_str("out_dir").unwrap_or_default().into(),
            dataset: settings.get_str("dataset").unwrap_or_default(),
            seed,
        };
        // Checked here so that a mistake is told before data are opened; the vocabulary may still change. A resumed run has
        // its checkpoint's shape.
        if read.init_from != InitFrom::Resume {
            GptConfig::new(read.shape)?;
        }
        Ok(read)
    }

    /// The keys again, as a checkpoint keeps them, with the device that computes.
    #[must_use]
    pub fn config(&self, settings: &Settings, device: &str) -> Map<String, Json> {
        let known = defaults::KEYS.iter().map(|key| key.name);
        let mut config: Map<String, Json> =
            known.filter_map(|key| Some((key.to_owned(), serde_json::to_value(settings.value(key)?).ok()?))).collect();
        // As they were, whatever nanoGPT's defaults say.
        config.insert(SEED.to_owned(), self.seed.into());
        // A new run's default folder may have been taken.
        config.insert("out_dir".to_owned(), self.out_dir.to_string_lossy().into());
        config.insert("device".to_owned(), device.into());
        config
    }
}

/// Where no key says it, the best there is.
fn device(settings: &mut Settings) -> Result<Wanted, SettingsError> {
    if !settings.is_set("device") {
        return Ok(Wanted::Auto);
    }
    let device = settings.get_str("device").unwrap_or_default();
    Wanted::read(&device).ok_or(SettingsError::Device { device })
}

fn precision(settings: &mut Settings) -> Result<Option<Precision>, SettingsError> {
    if !settings.is_set("dtype") {
        return Ok(None);
    }
    match settings.get_str("dtype").unwrap_or_default() {
        dtype if dtype == "float32" => Ok(Some(Precision::Float32)),
        dtype if dtype == "bfloat16" => Ok(Some(Precision::Bfloat16)),
        dtype if dtype == "float16" => Ok(Some(Precision::Float16)),
        dtype => Err(SettingsError::Precision { dtype }),
    }
}

fn shape(settings: &mut Settings) -> GptShape {
    let mut count = |key| settings.get_u64(key).unwrap_or_default();
    let [n_layer, n_head, n_embd, block_size] = ["n_layer", "n_head", "n_embd", "block_size"].map(&mut count);
    GptShape {
        n_layer,
        n_head,
        n_embd,
        block_size,
        vocab_size: settings.vocab_size(),
        dropout: settings.get_f64("dropout").unwrap_or_default(),
        bias: settings.get_bool("bias").unwrap_or_default(),
    }
}

fn schedule(settings: &mut Settings) -> Result<Schedule, SettingsError> {
    Ok(Schedule {
        learning_rate: number(settings, "learning_rate", at_least_0)?,
        decay_lr: settings.get_bool("decay_lr").unwrap_or(true),
        warmup_iters: count(settings, "warmup_iters", 0)?,
        lr_decay_iters: count(settings, "lr_decay_iters", 0)?,
        min_lr: number(settings, "min_lr", at_least_0)?,
    })
}

fn count(settings: &mut Settings, key: &'static str, min: u64) -> Result<u64, SettingsError> {
    let value = settings.get_u64(key).unwrap_or_default();
    if (min..=MAX_COUNT).contains(&value) { Ok(value) } else { Err(SettingsError::Count { key, value, min }) }
}

/// A range of numbers, and its words where one is outside.
type Range = fn(f64) -> Result<(), Key>;

fn at_least_0(value: f64) -> Result<(), Key> {
    if value >= 0.0 && value.is_finite() { Ok(()) } else { Err(text::RANGE_FROM_0) }
}

fn below_1(value: f64) -> Result<(), Key> {
    if (0.0..1.0).contains(&value) { Ok(()) } else { Err(text::RANGE_BELOW_1) }
}

fn number(settings: &mut Settings, key: &'static str, range: Range) -> Result<f64, SettingsError> {
    let value = settings.get_f64(key).unwrap_or_default();
    range(value).map_err(|range| SettingsError::Number { key, value, range })?;
    Ok(value)
}
