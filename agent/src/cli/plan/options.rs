//! Arguments of `headroom plan`: an option table, and the rest as nanoGPT's command line.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use headroom_planner::{
    hardware::Device,
    nanogpt::defaults,
    optimizer_spec::Optimizer,
    session::Options,
    train_config::{Attention, CrossEntropy},
};

pub use super::machine::bytes;
use super::{
    machine::{ALL, PlanArguments, put},
    trainer,
};
use crate::cli::{
    args::{Flag, InvalidValue, UsageError, Word, nearest, shown},
    command::{Command, Words},
};

/// Parsed arguments.
#[derive(Debug, Default)]
pub struct Request {
    /// GPU, environment and patches of nanoGPT.
    pub options: Options,
    /// Whether `options.gpu` was given.
    pub names_gpu: bool,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether to print only the link.
    pub link: bool,
    /// GPUs of the table, for `fit` only.
    pub gpus: Option<Vec<&'static Device>>,
    /// File to which the run is written as a snapshot of PyTorch.
    pub snapshot: Option<PathBuf>,
    /// Text to read, for `diagnose` only.
    pub text: Option<OsString>,
    /// nanoGPT's command line, in order.
    pub given: Vec<NanogptArgument>,
}

impl PlanArguments for Request {
    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn json(&mut self) -> &mut bool {
        &mut self.json
    }

    fn note_gpu(&mut self) {
        self.names_gpu = true;
    }

    fn request_link(&mut self) {
        self.link = true;
    }

    fn write_snapshot(&mut self, file: &str) {
        self.snapshot = Some(file.into());
    }

    fn gpus(&mut self) -> &mut Option<Vec<&'static Device>> {
        &mut self.gpus
    }
}

impl Request {
    /// Whether `--gpu all` was given.
    pub fn is_for_all_gpus(&self) -> bool {
        self.names_gpu && self.options.gpu.eq_ignore_ascii_case(ALL)
    }
}

/// One argument of nanoGPT's command line.
#[derive(Debug, PartialEq, Eq)]
pub enum NanogptArgument {
    /// Path of a config file.
    Config(OsString),
    /// `--key=value`, possibly malformed.
    Setting(String),
}

/// Patch that is written like a key but is not one of nanoGPT's.
pub const EVAL_BATCH_SIZE: &str = "eval_batch_size";

/// Names of all optimizers, the default first.
pub const OPTIMIZER_NAMES: [&str; Optimizer::ALL.len()] = {
    let mut names = [""; Optimizer::ALL.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = Optimizer::ALL[i].spec().name;
        i += 1;
    }
    names
};

/// A text that is joined at compile time.
struct JoinedText {
    bytes: [u8; 256],
    len: usize,
}

impl JoinedText {
    const fn with(mut self, text: &str) -> Self {
        let mut i = 0;
        while i < text.len() {
            self.bytes[self.len] = text.as_bytes()[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    const fn text(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "",
        }
    }
}

/// "Optimizer: a, b or c", with the default.
static OPTIMIZER_DOC: JoinedText = {
    let mut doc = JoinedText { bytes: [0; 256], len: 0 }.with("Optimizer: ").with(OPTIMIZER_NAMES[0]);
    let mut i = 1;
    while i < OPTIMIZER_NAMES.len() {
        doc = doc.with(if i + 1 < OPTIMIZER_NAMES.len() { ", " } else { " or " }).with(OPTIMIZER_NAMES[i]);
        i += 1;
    }
    doc.with("\n[default: ").with(OPTIMIZER_NAMES[0]).with("]")
};

/// Option table, in the order of the help.
pub const FLAGS: &[Flag<Request>] = &[
    Flag::GPU,
    Flag::VRAM,
    Flag::OTHER_PROCESSES,
    Flag::CONTEXT_BYTES,
    Flag {
        name: "attention",
        value: Some("flash|math"),
        doc: "Attention backend. flash: scaled_dot_product_attention;\nmath: nanoGPT's slow attention, which stores (B, NH, T, T)\n[default: flash]",
        set: |request, word| {
            let words = [("flash", Attention::Flash), ("math", Attention::Math)];
            put(&mut request.options.attention, choice(word, &words)?)
        },
    },
    Flag {
        name: "activation-checkpointing",
        value: None,
        doc: "Recompute each block's activations in the backward pass",
        set: |request, _| put(&mut request.options.activation_checkpointing, true),
    },
    Flag {
        name: "optimizer",
        value: Some("NAME"),
        doc: OPTIMIZER_DOC.text(),
        set: |request, word| {
            let words: Vec<_> = Optimizer::ALL.iter().map(|optimizer| (optimizer.spec().name, *optimizer)).collect();
            put(&mut request.options.optimizer, choice(word, &words)?)
        },
    },
    Flag {
        name: "cross-entropy",
        value: Some("KIND"),
        doc: "Cross-entropy: whole (all tokens at once), chunked, or\nfused as in Liger [default: whole]",
        set: |request, word| {
            let words =
                [("whole", CrossEntropy::Whole), ("chunked", CrossEntropy::Chunked), ("fused", CrossEntropy::Fused)];
            put(&mut request.options.cross_entropy, choice(word, &words)?)
        },
    },
    Flag {
        name: "del-eval-logits",
        value: None,
        doc: "Delete the logits after each evaluation batch\n(`del logits` in estimate_loss)",
        set: |request, _| put(&mut request.options.del_eval_logits, true),
    },
    Flag {
        name: "del-train-logits",
        value: None,
        doc: "Delete the logits after each backward pass (`del logits`)",
        set: |request, _| put(&mut request.options.del_train_logits, true),
    },
    Flag {
        name: "world-size",
        value: Some("N"),
        doc: "Data-parallel processes (DDP), one GPU each [default: 1]",
        set: |request, n| match n.parse() {
            Ok(n) if n > 0 => put(&mut request.options.world_size, n),
            _ => Err(format!("{n:?} is not a number of processes, 1 or more").into()),
        },
    },
    Flag::EXPANDABLE_SEGMENTS,
    Flag::ALLOC_CONF,
    Flag::TORCH,
    Flag::JSON,
    Flag::SNAPSHOT,
    // The last one: `headroom fit` has all others.
    Flag::LINK,
];

fn choice<T: Copy>(word: &str, words: &[(&str, T)]) -> Result<T, InvalidValue> {
    words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        InvalidValue::not_one_of(word, &names)
    })
}

/// Whether `word` is the value of nanoGPT's setting `key`, which precedes it without `=`. `extra` is an additional
/// integer key.
///
/// A config file ends in `.py`, and a setting that is True or False may have no value, as in `--compile config.py`.
pub fn is_value(key: &str, word: &OsStr, extra: &str) -> bool {
    let Some(word) = word.to_str() else { return false };
    let type_name = match defaults::find(key) {
        Some(key) => key.default.type_name(),
        None if key == extra => "int",
        None => return false,
    };
    if word.starts_with("--") || word.contains('=') || word.to_ascii_lowercase().ends_with(".py") {
        return false;
    }
    match type_name {
        "bool" => BOOLEANS.iter().any(|known| known.eq_ignore_ascii_case(word)),
        "str" => !word.starts_with('-'),
        // The config reader rejects a negative number with its reason.
        _ => !word.starts_with('-') || word.parse::<f64>().is_ok(),
    }
}

/// Common spellings of a bool. nanoGPT accepts the first two and rejects the others.
const BOOLEANS: [&str; 8] = ["True", "False", "yes", "no", "on", "off", "1", "0"];

/// Takes a word that is not an option of this command.
///
/// # Errors
/// The word looks like a mistyped option.
pub fn take_word(request: &mut Request, word: Word) -> Result<(), UsageError> {
    request.given.push(nanogpt_word("plan", FLAGS, EVAL_BATCH_SIZE, word)?);
    Ok(())
}

/// Parses a word that is not an option: a config file, a setting, or a mistake. `extra` is a key beside nanoGPT's.
///
/// # Errors
/// The word has dashes, no value, and is not a key of nanoGPT, so it is a mistyped option.
pub fn nanogpt_word<T>(
    command: &'static str,
    flags: &[Flag<T>],
    extra: &str,
    word: Word,
) -> Result<NanogptArgument, UsageError> {
    Ok(match word {
        // nanoGPT treats a word with `=` as a setting; the reader reports the missing dashes.
        Word::Plain(word) => match word.into_string() {
            Ok(text) if text.contains('=') => NanogptArgument::Setting(text),
            Ok(path) => NanogptArgument::Config(path.into()),
            Err(path) => NanogptArgument::Config(path),
        },
        Word::Other(text) => {
            let name = text.trim_start_matches('-');
            let is_setting = text.contains('=') || defaults::find(name).is_some() || name == extra;
            if !is_setting {
                let near = nearest(flags, &text).or_else(|| Some(format!("--{}=…", defaults::nearest(name)?)));
                return Err(UsageError::UnknownOption { command, option: text, value: None, near });
            }
            NanogptArgument::Setting(text)
        }
    })
}

/// nanoGPT's command line, for the help.
pub const ARGUMENTS: &str = "\
Accepts the arguments of nanoGPT's `python train.py` in any order; later ones override:
  CONFIG.py      A config file. It is parsed, never executed
  --key=value    A nanoGPT setting, such as --batch_size=64 or --compile=False; also
                 --vocab_size=N       [default: from the data set, else 50304]
                 --eval_batch_size=N  if train.py is patched to use another evaluation batch
  --key value    The same. A word that ends in .py is always a config file. After a
                 True/False setting, only a truth value counts as its value";

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "plan",
    summary: "Predict whether a run fits on a GPU",
    about: "\
Predicts how much GPU memory a nanoGPT run needs, whether it fits, and where it would run
out of memory.",
    usage: &["headroom plan [CONFIG.py …] [--key=value …] [OPTIONS]"],
    arguments: ARGUMENTS,
    options: || shown(FLAGS),
    takes_settings: true,
    words: Words::Files,
    subcommands: &[&trainer::NANOCHAT, &trainer::HF],
    notes: "\
A SIZE is 11.69GiB, 800MiB, 12GB or a number of bytes.

`--gpu all` plans the run on every known GPU and lists where it fits, the most common first.

`headroom plan nanochat` plans nanochat's pretraining, `headroom plan hf` the fine-tuning of a
Hugging Face model.

A run on another device, such as --device=cpu, needs no memory of a CUDA GPU. Its plan and
exit status are those of the same run on a CUDA GPU, and the answer begins with this.",
    exits: &[(0, "the run fits, with `--gpu all` at least one GPU"), (1, "the run does not fit")],
    examples: &[
        "headroom plan config/train_gpt2.py --batch_size=64 --gpu \"RTX 4070\"",
        "headroom plan config/train_gpt2.py --gpu all",
        "headroom plan config/train_shakespeare_char.py --vram 6GiB --other-processes 800MiB --json",
    ],
    run: super::run,
};
