//! A run's settings, parsed from nanoGPT's keys, with every value checked.

use std::path::PathBuf;

use headroom_planner::{
    gpt::{GptConfig, GptConfigError, GptShape},
    nanogpt::{Settings, defaults},
    train_config::MAX_COUNT,
};
use headroom_text::{self as text, Key, Text};
use serde_json::{Map, Value as Json};
use thiserror::Error;

use super::{device::DeviceSpec, schedule::Schedule};

/// Headroom's additional key; nanoGPT has the number in its code.
pub const SEED: &str = "seed";

/// nanoGPT's `torch.manual_seed(1337)`.
const DEFAULT_SEED: u64 = 1337;

/// The source of the initial weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitFrom {
    /// A new model with random weights.
    Scratch,
    /// The checkpoint in `out_dir`, with its optimizer.
    Resume,
    /// Weights on this machine, by name or path.
    Weights(String),
}

/// nanoGPT's `dtype`, if set: the element type of autocast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// float32, as on the CPU.
    Float32,
    /// bfloat16, as on a GPU.
    Bfloat16,
    /// float16, for GPUs without bfloat16; trained as bfloat16.
    Float16,
}

/// A run's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// The model's shape; `vocab_size` is the data set's unless a key sets it.
    pub shape: GptShape,
    /// Whether a key sets `vocab_size`.
    pub names_vocab_size: bool,
    /// The source of the initial weights.
    pub init_from: InitFrom,
    /// The requested device.
    pub device: DeviceSpec,
    /// The element type of autocast, if a key sets it.
    pub precision: Option<Precision>,
    /// Sequences per micro-batch.
    pub batch_size: u64,
    /// Micro-batches per iteration.
    pub gradient_accumulation_steps: u64,
    /// The learning rate.
    pub schedule: Schedule,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// AdamW's beta1.
    pub beta1: f64,
    /// AdamW's beta2.
    pub beta2: f64,
    /// The limit of the global gradient norm; 0 for none.
    pub grad_clip: f64,
    /// The last iteration.
    pub max_iters: u64,
    /// Iterations between evaluations.
    pub eval_interval: u64,
    /// Batches per evaluation for each of the two splits.
    pub eval_iters: u64,
    /// Whether to stop after the first evaluation.
    pub eval_only: bool,
    /// Whether to save after every evaluation, not only after the best.
    pub always_save_checkpoint: bool,
    /// Iterations between printed losses.
    pub log_interval: u64,
    /// The directory of the checkpoints.
    pub out_dir: PathBuf,
    /// The data set's name or directory.
    pub dataset: String,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// An invalid value of a setting.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{}", self.text())]
pub enum SettingsError {
    /// The model's shape is invalid.
    Shape(#[from] GptConfigError),
    /// A count is out of range.
    Count {
        /// nanoGPT's key.
        key: &'static str,
        /// The given value.
        value: u64,
        /// The smallest valid value.
        min: u64,
    },
    /// A number is out of range.
    Number {
        /// nanoGPT's key.
        key: &'static str,
        /// The given value.
        value: f64,
        /// The description of the valid range.
        range: Key,
    },
    /// An unknown device.
    Device {
        /// The given value.
        device: String,
    },
    /// A `dtype` that nanoGPT does not have.
    Precision {
        /// The given value.
        dtype: String,
    },
    /// The seed is not an integer.
    Seed,
}

impl SettingsError {
    /// Returns the error as a text.
    #[must_use]
    pub fn text(&self) -> Text {
        match self {
            Self::Shape(error) => error.text(),
            Self::Count { key, value, min } => text::setting_count(*key, *value, *min, MAX_COUNT),
            Self::Number { key, value, range } => text::setting_number(*key, value.to_string(), *range),
            Self::Device { device } => text::setting_device(format!("{device:?}"), text::DEVICE_WORDS),
            Self::Precision { dtype } => text::setting_dtype(format!("{dtype:?}")),
            Self::Seed => text::SETTING_SEED.into(),
        }
    }

    /// Returns the key with the invalid value.
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

    /// Returns a suggestion for the user.
    #[must_use]
    pub fn hint(&self) -> Option<Text> {
        match self {
            Self::Device { .. } => Some(text::TRY_OTHER_DEVICE.into()),
            _ => None,
        }
    }
}

impl RunSettings {
    /// Reads the keys. Type errors are added to `settings.problems`.
    ///
    /// # Errors
    /// A value is invalid.
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
        // Checked here so that an error is reported before data are opened; the vocabulary size may still change. A
        // resumed run has its checkpoint's shape.
        if read.init_from != InitFrom::Resume {
            GptConfig::new(read.shape)?;
        }
        Ok(read)
    }

    /// Returns the keys as a checkpoint stores them, with the device that is used.
    #[must_use]
    pub fn config(&self, settings: &Settings, device: &str) -> Map<String, Json> {
        let known = defaults::KEYS.iter().map(|key| key.name);
        let mut config: Map<String, Json> =
            known.filter_map(|key| Some((key.to_owned(), serde_json::to_value(settings.value(key)?).ok()?))).collect();
        // Stored explicitly, because nanoGPT has no key for it.
        config.insert(SEED.to_owned(), self.seed.into());
        // A new run's default directory may have been in use, so that another was chosen.
        config.insert("out_dir".to_owned(), self.out_dir.to_string_lossy().into());
        config.insert("device".to_owned(), device.into());
        config
    }
}

/// Reads `device`; without the key it is `auto`.
fn device(settings: &mut Settings) -> Result<DeviceSpec, SettingsError> {
    if !settings.is_set("device") {
        return Ok(DeviceSpec::Auto);
    }
    let device = settings.get_str("device").unwrap_or_default();
    DeviceSpec::read(&device).ok_or(SettingsError::Device { device })
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

/// A check of a number, which returns the description of the valid range on failure.
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
