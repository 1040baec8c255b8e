//! The words of `headroom plan`: its options as one table, and the rest as nanoGPT's own command line.

use std::ffi::{OsStr, OsString};

use headroom_shared::{
    memory::message::TorchVersion,
    nanogpt::defaults,
    session::Options,
    train_config::{Attention, CrossEntropy, Optimizer},
    units::{MIB, parse_size},
};

use crate::cli::{
    args::{Flag, Refusal, UsageError, Word, nearest, shown},
    command::{Command, Words},
};

/// What the words come to.
#[derive(Debug, Default)]
pub struct Request {
    /// The card, its surroundings, and what is patched into nanoGPT.
    pub options: Options,
    /// Whether `options.gpu` was given.
    pub names_gpu: bool,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether to print the link alone.
    pub link: bool,
    /// The text to read; `diagnose` alone takes one.
    pub text: Option<OsString>,
    /// nanoGPT's own command line, in its order.
    pub given: Vec<Given>,
}

/// One thing on nanoGPT's command line.
#[derive(Debug, PartialEq, Eq)]
pub enum Given {
    /// A config file's path.
    Config(OsString),
    /// `--key=value`, or what was meant to be one.
    Setting(String),
}

/// The patch that nanoGPT has no key for and that is written like one.
pub const EVAL_BATCH_SIZE: &str = "eval_batch_size";

/// The table of this command's options, in the order of the help.
pub const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "gpu",
        value: Some("NAME"),
        doc: "The card, as in \"RTX 4070\", rtx3060, \"A100 80GB\"\n[default: RTX 4070; `headroom gpus` lists all]",
        set: |request, name| {
            name.clone_into(&mut request.options.gpu);
            request.names_gpu = true;
            Ok(())
        },
    },
    Flag {
        name: "vram",
        value: Some("SIZE"),
        doc: "The card's memory, as in 11.69GiB: instead of a name,\nor where CUDA reports another total than the table",
        set: |request, size| put(&mut request.options.vram_bytes, Some(bytes(size, "GiB")?)),
    },
    Flag {
        name: "other-processes",
        value: Some("SIZE"),
        doc: "What other programs hold on the card [default: 0]",
        set: |request, size| put(&mut request.options.other_processes_bytes, bytes(size, "GiB")?),
    },
    Flag {
        name: "context-bytes",
        value: Some("SIZE"),
        doc: "The CUDA context [default: estimated by card]",
        set: |request, size| put(&mut request.options.context_bytes, Some(bytes(size, "MiB")?)),
    },
    Flag {
        name: "attention",
        value: Some("flash|math"),
        doc: "flash: scaled_dot_product_attention; math: nanoGPT's slow\nattention, which holds (B, NH, T, T) [default: flash]",
        set: |request, word| {
            let words = [("flash", Attention::Flash), ("math", Attention::Math)];
            put(&mut request.options.attention, choice(word, &words)?)
        },
    },
    Flag {
        name: "activation-checkpointing",
        value: None,
        doc: "Each block's activations are computed again in backward",
        set: |request, _| put(&mut request.options.activation_checkpointing, true),
    },
    Flag {
        name: "optimizer",
        value: Some("NAME"),
        doc: "adamw-fused, adamw-foreach or adamw-8bit [default: adamw-fused]",
        set: |request, word| {
            let words = [
                ("adamw-fused", Optimizer::AdamwFused),
                ("adamw-foreach", Optimizer::AdamwForeach),
                ("adamw-8bit", Optimizer::Adamw8bit),
            ];
            put(&mut request.options.optimizer, choice(word, &words)?)
        },
    },
    Flag {
        name: "cross-entropy",
        value: Some("KIND"),
        doc: "whole: over all tokens at once; chunked; or fused, as in\nLiger [default: whole]",
        set: |request, word| {
            let words =
                [("whole", CrossEntropy::Whole), ("chunked", CrossEntropy::Chunked), ("fused", CrossEntropy::Fused)];
            put(&mut request.options.cross_entropy, choice(word, &words)?)
        },
    },
    Flag {
        name: "del-eval-logits",
        value: None,
        doc: "`del logits` after each batch of estimate_loss",
        set: |request, _| put(&mut request.options.del_eval_logits, true),
    },
    Flag {
        name: "del-train-logits",
        value: None,
        doc: "`del logits` after each backward",
        set: |request, _| put(&mut request.options.del_train_logits, true),
    },
    Flag {
        name: "world-size",
        value: Some("N"),
        doc: "Processes of data parallelism, one card each [default: 1]",
        set: |request, n| match n.parse() {
            Ok(n) if n > 0 => put(&mut request.options.world_size, n),
            _ => Err(format!("{n:?} is no number of processes, 1 or more").into()),
        },
    },
    Flag {
        name: "expandable-segments",
        value: None,
        doc: "PYTORCH_ALLOC_CONF=expandable_segments:True",
        set: |request, _| put(&mut request.options.expandable_segments, true),
    },
    Flag {
        name: "torch",
        value: Some("VERSION"),
        doc: "The PyTorch whose messages are printed, and whose default\ndtype an older card gets [default: 2.11]",
        set: |request, version| {
            version.parse::<TorchVersion>().map_err(|error| error.to_string())?;
            version.clone_into(&mut request.options.torch);
            Ok(())
        },
    },
    Flag {
        name: "json",
        value: None,
        doc: "Print the plan as JSON, schema 1",
        set: |request, _| put(&mut request.json, true),
    },
    Flag {
        name: "link",
        value: None,
        doc: "Print only a link that opens this plan in the page of\n`headroom serve`",
        set: |request, _| put(&mut request.link, true),
    },
];

fn put<T>(to: &mut T, value: T) -> Result<(), Refusal> {
    *to = value;
    Ok(())
}

/// A size. A few bytes are a unit forgotten: `unit`, or MiB where the number is too large for that.
///
/// # Errors
/// It is none, or of a few bytes.
pub fn bytes(size: &str, unit: &str) -> Result<u64, Refusal> {
    let bytes = parse_size(size).map_err(|error| error.to_string())?;
    let number = size.trim();
    if bytes == 0 || bytes >= MIB || !number.ends_with(|last: char| last.is_ascii_digit() || last == '.') {
        return Ok(bytes);
    }
    let unit = if bytes < 512 { unit } else { "MiB" };
    Err(Refusal { why: format!("{number:?} is {bytes} bytes"), meant: Some(format!("{number}{unit}")) })
}

fn choice<T: Copy>(word: &str, words: &[(&str, T)]) -> Result<T, Refusal> {
    words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
        format!("{word:?} is none of {}", names.join(", ")).into()
    })
}

/// Whether `word` is the value of nanoGPT's setting `key`, which stands before it without `=`. `extra` is a whole number
/// beside nanoGPT's settings.
///
/// A config file ends in `.py`, and a setting that is True or False may stand alone, as in `--compile config.py`.
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
        // A negative number, which the reader refuses with its reason.
        _ => !word.starts_with('-') || word.parse::<f64>().is_ok(),
    }
}

/// What people write for a bool; nanoGPT takes the first two as they stand, and refuses the others.
const BOOLEANS: [&str; 8] = ["True", "False", "yes", "no", "on", "off", "1", "0"];

/// Takes what is none of our options.
///
/// # Errors
/// It was meant for us.
pub fn take_word(request: &mut Request, word: Word) -> Result<(), UsageError> {
    request.given.push(nanogpt_word("plan", FLAGS, EVAL_BATCH_SIZE, word)?);
    Ok(())
}

/// What is none of a command's options: a config file, a setting, or a mistake. `extra` is a key beside nanoGPT's.
///
/// # Errors
/// It has dashes, no value, and no name of nanoGPT's: then it was meant for the command.
pub fn nanogpt_word<T>(command: &'static str, flags: &[Flag<T>], extra: &str, word: Word) -> Result<Given, UsageError> {
    Ok(match word {
        // nanoGPT takes a word with `=` for a setting; its reader says that the dashes are missing.
        Word::Plain(word) => match word.into_string() {
            Ok(text) if text.contains('=') => Given::Setting(text),
            Ok(path) => Given::Config(path.into()),
            Err(path) => Given::Config(path),
        },
        Word::Other(text) => {
            let name = text.trim_start_matches('-');
            let is_setting = text.contains('=') || defaults::find(name).is_some() || name == extra;
            if !is_setting {
                let near = nearest(flags, &text).or_else(|| Some(format!("--{}=…", defaults::nearest(name)?)));
                return Err(UsageError::UnknownOption { command, option: text, value: None, near });
            }
            Given::Setting(text)
        }
    })
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "plan",
    summary: "Predict whether a run fits on a GPU",
    about: "\
Predicts whether a nanoGPT run fits on a GPU, where it would run out of memory, and how
much it needs.",
    usage: &["headroom plan [CONFIG.py …] [--key=value …] [OPTIONS]"],
    arguments: "\
Takes what `python train.py` of nanoGPT takes, in any order; later ones win:
  CONFIG.py      A config file. It is parsed, never executed
  --key=value    Any setting of nanoGPT, as in --batch_size=64 --compile=False, and
                 --vocab_size=N       [default: by the data set, else 50304]
                 --eval_batch_size=N  for a train.py patched to evaluate in other batches
  --key value    The same. A word that ends in .py is a config file, never a value, and
                 behind a True/False setting only a word such as True or False is one",
    options: || shown(FLAGS),
    takes_settings: true,
    words: Words::Files,
    notes: "Sizes are written as 11.69GiB, 800MiB, 12GB or in bytes.",
    exits: &[(0, "the run fits"), (1, "the run does not fit")],
    examples: &[
        "headroom plan config/train_gpt2.py --batch_size=64 --gpu \"RTX 4070\"",
        "headroom plan config/train_shakespeare_char.py --vram 6GiB --other-processes 800MiB --json",
    ],
    run: super::run,
    ..Command::EMPTY
};
