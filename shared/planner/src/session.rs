//! Resolves user input, config and options, into a [`Request`], for the command line and the page alike.
//!
//! Nothing is rejected silently, and an incomplete config is still planned if possible. Problems are returned as
//! findings in addition to the request, or instead of it.

mod machine;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::{
    dtype::Dtype,
    gpt::{
        GptConfig, GptShape,
        presets::{GPT2_BLOCK_SIZE, Preset},
    },
    hardware::{ComputeCapability, Device},
    memory::{
        message::{ParseTorchVersionError, TorchVersion},
        tuned::TunedAllocator,
    },
    nanogpt::{
        Problem, Settings, Severity, Source, Value,
        defaults::{self, DEFAULT_VOCAB_SIZE},
        read,
    },
    optimizer_spec::Optimizer,
    request::Request,
    train_config::{Attention, CrossEntropy, TrainConfig},
};
use headroom_text::{self as text, Text, decimal, units::KIB};
pub use machine::MachineError;
use machine::{device_of, machine_of};

/// Input that is not in nanoGPT's config: the GPU, its environment and common patches of nanoGPT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    /// Name of the GPU as entered by the user.
    pub gpu: String,
    /// Memory of the GPU in bytes, if there is no name or the amount differs from the name's.
    pub vram_bytes: Option<u64>,
    /// Memory that other processes hold on the GPU, in bytes.
    pub other_processes_bytes: u64,
    /// Size of the CUDA context in bytes, if it is known more precisely than by architecture.
    pub context_bytes: Option<u64>,
    /// Whether the allocator uses `expandable_segments:True`.
    pub expandable_segments: bool,
    /// Other settings of the allocator; the page has none.
    #[serde(skip)]
    pub tuned: Option<TunedAllocator>,
    /// PyTorch version that determines the wording of messages, such as 2.11.
    pub torch: String,
    /// Attention backend.
    pub attention: Attention,
    /// Whether each block is recomputed in backward.
    pub activation_checkpointing: bool,
    /// Optimizer implementation.
    pub optimizer: Optimizer,
    /// Implementation of the loss.
    pub cross_entropy: CrossEntropy,
    /// Whether logits are deleted after each batch of `estimate_loss`.
    pub del_eval_logits: bool,
    /// Whether logits are deleted after each backward.
    pub del_train_logits: bool,
    /// Number of data-parallel processes: torchrun's `--nproc_per_node` times the number of nodes.
    pub world_size: u64,
}

/// GPU of a plan if none is given: a common one among users.
pub const DEFAULT_GPU: &str = "RTX 4070";

/// Compute capability assumed for a GPU that is known only by its memory: the most common one.
pub const ASSUMED_CAPABILITY: ComputeCapability = ComputeCapability::new(8, 9);

/// Smallest memory of a GPU that is planned. A number below it lacks its unit: no GPU has as many GiB or MiB.
const VRAM_BYTES_MIN: u64 = 256 * KIB;

impl Default for Options {
    fn default() -> Self {
        Self {
            gpu: DEFAULT_GPU.to_owned(),
            vram_bytes: None,
            other_processes_bytes: 0,
            context_bytes: None,
            expandable_segments: false,
            tuned: None,
            torch: TorchVersion::RECORDED.to_string(),
            attention: Attention::Flash,
            activation_checkpointing: false,
            optimizer: Optimizer::AdamwFused,
            cross_entropy: CrossEntropy::Whole,
            del_eval_logits: false,
            del_train_logits: false,
            world_size: 1,
        }
    }
}

impl Options {
    /// Returns options for an installed GPU: `listed_as` in the table, if it is listed, with NVML's memory.
    ///
    /// CUDA's total is NVML's total minus the driver's reserved memory: an H100 for which `nvidia-smi -q` prints 81,559
    /// MiB, 551 of them reserved, has 81,008 MiB for PyTorch. A driver before 510 reports only the total; the table is
    /// then more accurate.
    #[must_use]
    pub fn on_gpu(listed_as: Option<&str>, total_bytes: Option<u64>, reserved_bytes: Option<u64>) -> Self {
        let measured = total_bytes.filter(|total| *total > 0);
        let vram_bytes = match reserved_bytes {
            Some(reserved) => measured.map(|total| total.saturating_sub(reserved)).filter(|bytes| *bytes > 0),
            None => measured.filter(|_| listed_as.is_none()),
        };
        Self { gpu: listed_as.unwrap_or_default().to_owned(), vram_bytes, ..Self::default() }
    }

    /// Returns the options of the same run on a GPU of the table.
    #[must_use]
    pub fn with_device(&self, device: &Device) -> Self {
        Self { gpu: device.name.to_string(), vram_bytes: None, ..self.clone() }
    }
}

/// A remark for the user about the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity; an error prevents a plan.
    pub severity: Severity,
    /// The nanoGPT key or option that the page highlights.
    pub key: &'static str,
    /// Message.
    pub message: Text,
    /// Position at which the key was set, if in a file.
    pub place: Option<ConfigPosition>,
}

/// A position in a config file, displayed as `config/x.py:12:9`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigPosition {
    /// Name of the file as given.
    pub source: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl std::fmt::Display for ConfigPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.source, self.line, self.column)
    }
}

/// nanoGPT's keys after overrides, as train.py's `config` has them.
#[derive(Clone, Debug, Default)]
pub struct RunConfig {
    values: Vec<(Cow<'static, str>, Value)>,
}

impl RunConfig {
    /// Returns the value of a key. A value that could not be read is [`Value::None`].
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Returns the text of a key, or `None` if its value is not a string.
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Iterates over keys and values: train.py's keys in its order, then the keys that train.py does not have.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (&**key, value))
    }
}

/// Result of resolving the input.
#[derive(Clone, Debug)]
pub struct ResolvedSession {
    /// Settings that were read. Their problems include file, line and column.
    pub settings: Settings,
    /// Findings beyond the problems of the settings.
    pub findings: Vec<Finding>,
    /// nanoGPT's keys after overrides, as the run would use them.
    pub config: RunConfig,
    /// Request to plan. `None` if a finding is an error or the settings are incomplete.
    pub request: Option<Request>,
}

/// Resolves sources and options.
#[must_use]
pub fn resolve(sources: &[Source], options: &Options) -> ResolvedSession {
    resolve_settings(read(sources), options)
}

/// Resolves settings that have already been read.
#[must_use]
pub fn resolve_settings(mut settings: Settings, options: &Options) -> ResolvedSession {
    check_parameters(&mut settings);
    let mut resolver = Resolver { settings, findings: Vec::new(), given_vocab_size: None };
    let device = resolver.device(options);
    let shape = resolver.shape();
    let torch = options.torch.parse().map_err(|e| resolver.error("torch", ParseTorchVersionError::text(&e))).ok();
    let assumed_torch = torch.unwrap_or(TorchVersion::RECORDED);
    resolver.unknown_torch(assumed_torch);
    let mut train = resolver.train(options, device.as_ref(), assumed_torch);
    for error in shape.errors() {
        // Of two conflicting keys, the one that was set.
        let key = if error.key() == "n_head" && !resolver.settings.is_set("n_head") { "n_embd" } else { error.key() };
        resolver.error(key, error.text());
    }
    let gpt = GptConfig::new(shape).ok();
    if let Some(device) = &device {
        train.compile = resolver.compiles(&train, device, assumed_torch);
        resolver.emulated_bfloat16(&train, device);
    }
    let errors = train.errors();
    let train = Some(train).filter(|_| errors.is_empty());
    errors.iter().for_each(|error| resolver.error(error.key(), error.text()));
    let config = resolver.config(&shape, train.as_ref());
    let request = match (gpt, train, device, torch) {
        (Some(gpt), Some(train), Some(device), Some(torch)) => Some(Request {
            gpt,
            train,
            machine: machine_of(options, device, torch),
            given_vocab_size: resolver.given_vocab_size,
        }),
        _ => None,
    };
    let blocked = resolver.findings.iter().any(|finding| finding.severity == Severity::Error);
    // An unknown value would be planned as nanoGPT's default, which is another run. After an error there is no run.
    let settings = &resolver.settings;
    let request = request.filter(|_| !blocked && settings.is_complete() && settings.problems.first_stop().is_none());
    ResolvedSession { settings: resolver.settings, findings: resolver.findings, config, request }
}

struct Resolver {
    settings: Settings,
    findings: Vec<Finding>,
    /// See [`Request::given_vocab_size`].
    given_vocab_size: Option<u64>,
}

impl Resolver {
    fn say(&mut self, severity: Severity, key: &'static str, message: impl Into<Text>) {
        let message = message.into();
        let place = self.place(key);
        self.findings.push(Finding { severity, key, message, place });
    }

    /// Returns the position at which a file sets the key. An argument has no position.
    fn place(&self, key: &str) -> Option<ConfigPosition> {
        let origin = self.settings.values.get(key)?.origin;
        let source = self.settings.source_name(&origin);
        // A stock config has no lines that the user could view.
        let is_file = !source.starts_with("--") && origin.line > 0;
        is_file.then(|| ConfigPosition { source: source.to_owned(), line: origin.line, column: origin.column })
    }

    fn error(&mut self, key: &'static str, message: impl Into<Text>) {
        self.say(Severity::Error, key, message);
    }

    /// Remarks on a version of PyTorch without rules of its own.
    fn unknown_torch(&mut self, torch: TorchVersion) {
        let known = torch.clamp(TorchVersion::OLDEST, TorchVersion::RECORDED);
        if torch != known {
            self.say(Severity::Warning, "torch", text::rules_of_torch(torch.to_string(), known.to_string()));
        }
    }

    fn device(&mut self, options: &Options) -> Option<Device> {
        if options.vram_bytes.is_some_and(|bytes| bytes < VRAM_BYTES_MIN) {
            self.error("vram", text::GPU_WITHOUT_MEMORY);
        }
        if options.gpu.trim().is_empty() && options.vram_bytes.is_some() {
            self.say(Severity::Note, "vram", text::assumed_capability(ASSUMED_CAPABILITY.to_string()));
        }
        device_of(options).map_err(|error| self.error("gpu", error)).ok()
    }

    /// Returns a count that has a default in nanoGPT's table.
    fn count(&mut self, key: &'static str) -> u64 {
        self.settings.get_u64(key).unwrap_or_default()
    }

    fn shape(&mut self) -> GptShape {
        let block_size = self.count("block_size");
        let dropout = self.settings.get_f64("dropout").unwrap_or_default();
        let init_from = self.settings.get_str("init_from").unwrap_or_default();
        if let Some(preset) = Preset::named(&init_from) {
            if block_size > GPT2_BLOCK_SIZE {
                let message = text::too_many_positions(init_from, GPT2_BLOCK_SIZE, block_size);
                self.error("block_size", message);
            }
            return preset.shape(block_size, dropout);
        }
        match init_from.as_str() {
            "scratch" => {}
            "resume" => self.say(Severity::Note, "init_from", text::RESUMES),
            other => self.error("init_from", text::unknown_init_from(other)),
        }
        GptShape {
            n_layer: self.count("n_layer"),
            n_head: self.count("n_head"),
            n_embd: self.count("n_embd"),
            block_size,
            vocab_size: self.vocab_size(),
            dropout,
            bias: self.settings.get_bool("bias").unwrap_or_default(),
        }
    }

    /// nanoGPT reads the vocabulary size from the data set's meta.pkl. Of its own data sets only one has that file.
    fn vocab_size(&mut self) -> u64 {
        let is_shakespeare = self.settings.get_str("dataset").as_deref() == Some(SHAKESPEARE_CHAR);
        if let Some(size) = self.settings.get_u64("vocab_size") {
            let of_data = if is_shakespeare { SHAKESPEARE_CHAR_VOCAB_SIZE } else { DEFAULT_VOCAB_SIZE };
            self.given_vocab_size = Some(size).filter(|size| *size != of_data);
            return size;
        }
        if is_shakespeare {
            let message = text::vocab_of_shakespeare(SHAKESPEARE_CHAR_VOCAB_SIZE);
            self.say(Severity::Note, "vocab_size", message);
            return SHAKESPEARE_CHAR_VOCAB_SIZE;
        }
        self.settings.vocab_size()
    }

    fn train(&mut self, options: &Options, device: Option<&Device>, torch: TorchVersion) -> TrainConfig {
        let dtype = self.settings.dtype(counts_as_bfloat16(device, torch));
        let dtype = match dtype.as_str() {
            "float32" => Dtype::Float32,
            "float16" => Dtype::Float16,
            "bfloat16" => Dtype::Bfloat16,
            other => {
                self.error("dtype", text::unknown_dtype(other));
                Dtype::Bfloat16
            }
        };
        let device = self.settings.get_str("device").unwrap_or_default();
        if !device.starts_with("cuda") && !device.is_empty() {
            self.say(Severity::Warning, "device", text::not_cuda(device));
        }
        let micro_steps = self.count("gradient_accumulation_steps");
        let world_size = options.world_size.max(1);
        if !micro_steps.is_multiple_of(world_size) {
            self.error("gradient_accumulation_steps", text::not_a_multiple(micro_steps, world_size));
        }
        TrainConfig {
            batch_size: self.count("batch_size"),
            gradient_accumulation_steps: (micro_steps / world_size).max(u64::from(micro_steps > 0)),
            dtype,
            compile: self.settings.get_bool("compile").unwrap_or_default(),
            eval_iters: self.count("eval_iters"),
            eval_interval: self.count("eval_interval"),
            eval_only: self.settings.get_bool("eval_only").unwrap_or_default(),
            max_iters: self.count("max_iters"),
            clips_gradients: self.settings.get_f64("grad_clip").unwrap_or_default() != 0.0,
            resumes: self.settings.get_str("init_from").as_deref() == Some("resume"),
            attention: options.attention,
            optimizer: options.optimizer,
            cross_entropy: options.cross_entropy,
            activation_checkpointing: options.activation_checkpointing,
            world_size,
            eval_batch_size: self.settings.get_u64("eval_batch_size"),
            del_eval_logits: options.del_eval_logits,
            del_train_logits: options.del_train_logits,
        }
    }

    /// Returns whether `torch.compile`, if requested, compiles the model.
    ///
    /// Sources: `create_backend` of torch/_inductor/scheduler.py raises an error below compute capability 7.0 (2.0 to
    /// 2.11; karpathy/nanoGPT#157). Since 2.4, `_check_triton_bf16_support` of torch/_inductor/compile_fx.py skips a
    /// frame that takes or returns bfloat16 below 8.0. nanoGPT's forward returns logits, and each block saves
    /// activations. Norms stay compiled, and so do whole blocks under `no_grad`; that takes no more memory than eager.
    fn compiles(&mut self, train: &TrainConfig, device: &Device, torch: TorchVersion) -> bool {
        let (name, capability) = (&*device.name, device.compute_capability);
        let unable = if !train.compile {
            return false;
        } else if torch < TorchVersion::new(2, 0) {
            text::no_compile_yet(torch.to_string())
        } else if !capability.architecture().has_triton {
            text::no_triton(name, capability.to_string())
        } else if train.dtype != Dtype::Bfloat16 || device.supports_bfloat16() {
            return true;
        } else if torch < TorchVersion::new(2, 4) {
            text::no_bfloat16_in_triton(torch.to_string(), name)
        } else {
            text::compile_skips_bfloat16(name, capability.to_string())
        };
        self.say(Severity::Warning, "compile", unable);
        false
    }

    fn emulated_bfloat16(&mut self, train: &TrainConfig, device: &Device) {
        if train.dtype != Dtype::Bfloat16 || device.supports_bfloat16() {
            return;
        }
        let message = text::emulated_bfloat16(&*device.name, device.compute_capability.to_string());
        self.say(Severity::Warning, "dtype", message);
    }

    /// Returns every nanoGPT key with the run's value, followed by unknown keys.
    fn config(&self, shape: &GptShape, train: Option<&TrainConfig>) -> RunConfig {
        let count = |count: u64| Value::Int(count.try_into().unwrap_or(i64::MAX));
        let mut values = Vec::new();
        for key in &defaults::KEYS {
            let value = match key.name {
                "n_layer" => count(shape.n_layer),
                "n_head" => count(shape.n_head),
                "n_embd" => count(shape.n_embd),
                "block_size" => count(shape.block_size),
                "vocab_size" => count(shape.vocab_size),
                "bias" => Value::Bool(shape.bias),
                "dtype" => train.map_or(Value::None, |train| Value::Str(train.dtype.name().to_owned())),
                name => self.settings.value(name).unwrap_or(Value::None),
            };
            // A key that exists only in patched programs is omitted unless it is set.
            if key.name != "eval_batch_size" || value != Value::None {
                values.push((Cow::Borrowed(key.name), value));
            }
        }
        let unknown = self.settings.unknown.iter();
        values.extend(unknown.map(|(name, setting)| (Cow::Owned(name.clone()), setting.value.clone())));
        RunConfig { values }
    }
}

/// Adds an error if a log prints another number of parameters than its settings have: another model was trained.
pub fn check_parameters(settings: &mut Settings) {
    if let Some(problem) = other_model(settings) {
        settings.problems.push_once(problem);
    }
}

fn other_model(settings: &Settings) -> Option<Problem> {
    let printed = settings.parameters.as_ref().filter(|_| settings.is_complete())?;
    let mut resolver = Resolver { settings: settings.clone(), findings: Vec::new(), given_vocab_size: None };
    let gpt = GptConfig::new(resolver.shape()).ok()?;
    let decimals = printed.split_once('.').map_or(0, |(_, digits)| digits.len());
    let planned = gpt.other_parameters(decimal::parse(printed)?, u32::try_from(decimals).ok()?)?;
    let what = "number of parameters";
    let planned = format!("{}M", decimal::fixed(planned, 2));
    Some(Problem {
        severity: Severity::Error,
        source: format!("{what}: {printed}M"),
        line: 0,
        column: 0,
        message: text::has_to_be(what, planned, text::verbatim(format!("{printed}M"))),
        hint: None,
    })
}

/// Returns the result of `torch.cuda.is_bf16_supported()`. Since 2.3 it includes emulation, which every GPU supports.
fn counts_as_bfloat16(device: Option<&Device>, torch: TorchVersion) -> bool {
    torch >= TorchVersion::new(2, 3) || device.is_none_or(Device::supports_bfloat16)
}

/// nanoGPT's only data set with a meta.pkl, which contains its vocabulary.
pub(crate) const SHAKESPEARE_CHAR: &str = "shakespeare_char";

/// Number of characters in nanoGPT's data/shakespeare_char, as counted by its prepare.py.
const SHAKESPEARE_CHAR_VOCAB_SIZE: u64 = 65;

#[cfg(test)]
mod tests;
