//! `headroom sample`: a model goes on with a text, as it comes.

use std::{
    ffi::OsString,
    io::{self, Read as _},
    path::PathBuf,
};

use headroom_kernels::{
    decode::{DecodeError, Decoder, Storage},
    sampling::Sampling,
};
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, Parsed, Refusal, UsageError, Word, parse, refusal, shown},
    command::Command,
    print,
};
use crate::{
    data::tokenizer::{self, EncodeError, ReadError},
    train::{
        checkpoint::Which,
        pretrained::{Pretrained, PretrainedError, TokenizerError},
    },
};

/// Why there is no text.
#[derive(Debug, Error)]
pub enum Error {
    /// The model.
    #[error(transparent)]
    Weights(#[from] PretrainedError),
    /// What runs it.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A model whose tokenizer is not known.
    #[error("cannot sample {}: its tokenizer is not known", .path.display())]
    NoTokenizer {
        /// The file or folder.
        path: PathBuf,
    },
    /// The model's tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The tokenizer that was named.
    #[error("--tokenizer: {0}")]
    Named(ReadError),
    /// A tokenizer of another model.
    #[error("cannot sample: the tokenizer has {tokens} tokens, and the model {vocab_size}")]
    Vocabulary {
        /// The tokenizer's.
        tokens: u32,
        /// The model's.
        vocab_size: u64,
    },
    /// A prompt that the model has no tokens for.
    #[error("--prompt: {0}")]
    Prompt(#[from] EncodeError),
    /// A prompt from standard input.
    #[error("cannot read the prompt from standard input: {0}")]
    Input(io::Error),
    /// A prompt from standard input without a character.
    #[error("cannot sample: the prompt from standard input is empty")]
    EmptyInput,
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Weights(error) => error.hint(),
            Self::NoTokenizer { .. } => Some(
                "--tokenizer takes a tokenizer.json, nanoGPT's meta.pkl, a folder with one of them, or gpt2".to_owned(),
            ),
            Self::Vocabulary { .. } => {
                Some("--tokenizer takes the tokenizer that the model was trained with".to_owned())
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Request {
    ckpt: Option<PathBuf>,
    which: Which,
    tokenizer: Option<PathBuf>,
    /// None where nobody says it.
    prompt: Option<String>,
    max_new_tokens: u32,
    temperature: f32,
    top_k: u32,
    seed: u64,
}

impl Default for Request {
    /// nanoGPT's sample.py, but for its ten samples.
    fn default() -> Self {
        Self {
            ckpt: None,
            which: Which::default(),
            tokenizer: None,
            prompt: None,
            max_new_tokens: 500,
            temperature: 0.8,
            top_k: 200,
            seed: 1337,
        }
    }
}

const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "ckpt",
        value: Some("FOLDER"),
        doc: "A run's out_dir, a folder with model.safetensors, or a\nsafetensors file",
        set: |request, path| {
            request.ckpt = Some(path.into());
            Ok(())
        },
    },
    Flag {
        name: "which",
        value: Some("best|last"),
        doc: "Of a run's checkpoints, the one with the lowest validation\nloss, or the one saved last [default: best]",
        set: |request, word| {
            request.which = which(word)?;
            Ok(())
        },
    },
    Flag {
        name: "tokenizer",
        value: Some("PATH"),
        doc: "The model's tokenizer: a tokenizer.json, a meta.pkl, a folder\nwith one of them, or gpt2 [default: the model's own]",
        set: |request, path| {
            request.tokenizer = Some(path.into());
            Ok(())
        },
    },
    Flag {
        name: "prompt",
        value: Some("TEXT"),
        doc: "What the text begins with; - reads it from standard input\n[default: a new line, or a capital where the model knows none]",
        set: |request, text| {
            if text.is_empty() {
                return Err("a model goes on from one token at least".to_owned().into());
            }
            request.prompt = Some(text.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "max-new-tokens",
        value: Some("N"),
        doc: "How many tokens to add [default: 500]",
        set: |request, n| put(&mut request.max_new_tokens, n.parse().ok(), "a number of tokens", n),
    },
    Flag {
        name: "temperature",
        value: Some("X"),
        doc: "Above 1 wilder, below tamer; 0 takes the likeliest token\neach time [default: 0.8]",
        set: |request, x| {
            let parsed = x.parse().ok().filter(|x: &f32| x.is_finite() && *x >= 0.0);
            put(&mut request.temperature, parsed, "a temperature, 0 or more", x)
        },
    },
    Flag {
        name: "top-k",
        value: Some("N"),
        doc: "Choose among the N likeliest tokens; 0 for all [default: 200]",
        set: |request, n| put(&mut request.top_k, n.parse().ok(), "a number of tokens", n),
    },
    Flag {
        name: "seed",
        value: Some("N"),
        doc: "The same seed makes the same text [default: 1337]",
        set: |request, n| put(&mut request.seed, n.parse().ok(), "a seed, a whole number from 0", n),
    },
];

/// Of a run's checkpoints, the one that is meant.
pub fn which(word: &str) -> Result<Which, Refusal> {
    match word {
        "best" => Ok(Which::Best),
        "last" => Ok(Which::Last),
        _ => Err(format!("{word:?} is neither best nor last").into()),
    }
}

fn put<T>(to: &mut T, parsed: Option<T>, what: &str, given: &str) -> Result<(), Refusal> {
    *to = parsed.ok_or_else(|| Refusal::from(format!("{given:?} is not {what}")))?;
    Ok(())
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "sample",
    summary: "Generate text from a model",
    about: "Prints the prompt, then streams generated text.",
    usage: &["headroom sample --ckpt FOLDER [--prompt TEXT] [OPTIONS]"],
    options: || shown(FLAGS),
    notes: "Runs on the CPU, in float32.",
    exits: &[(0, "the text is written"), (1, "the model or the prompt cannot be used")],
    examples: &["headroom sample --ckpt out-stories --prompt \"Once upon a time\""],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The words cannot be used, or the model cannot be read or run.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let refuse = |_: &mut Request, word: Word| Err(refusal(COMMAND.name, FLAGS, word));
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == Parsed::Help {
        return COMMAND.print_help();
    }
    let path = request.ckpt.take().ok_or(UsageError::MissingValue { name: "ckpt", value: "FOLDER" })?;
    write(&request, path)
}

/// The prompt that stands for standard input.
const STDIN: &str = "-";
/// The longest prompt that is read from standard input, in bytes; a model sees `block_size` tokens of it.
const STDIN_BYTES_MAX: u64 = 1 << 20;

/// Reads the prompt from standard input; the new line that ends it is not part of it.
fn stdin() -> Result<String, Error> {
    let mut text = String::new();
    io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_string(&mut text).map_err(Error::Input)?;
    if text.len() as u64 > STDIN_BYTES_MAX {
        let why = format!("it has more than {} MiB", STDIN_BYTES_MAX >> 20);
        return Err(Error::Input(io::Error::new(io::ErrorKind::FileTooLarge, why)));
    }
    let prompt = text.strip_suffix('\n').unwrap_or(&text);
    let prompt = prompt.strip_suffix('\r').unwrap_or(prompt);
    if prompt.is_empty() { Err(Error::EmptyInput) } else { Ok(prompt.to_owned()) }
}

fn write(request: &Request, path: PathBuf) -> Result<Exit, super::Error> {
    let model = Pretrained::load(&path, request.which).map_err(Error::from)?;
    let tokenizer = match &request.tokenizer {
        Some(named) => tokenizer::read(named).map_err(Error::Named)?,
        None => model.tokenizer().map_err(Error::from)?.ok_or(Error::NoTokenizer { path })?,
    };
    let (tokens, vocab_size) = (tokenizer.vocab_size(), model.config.vocab_size());
    if u64::from(tokens) > vocab_size {
        return Err(Error::Vocabulary { tokens, vocab_size }.into());
    }
    for note in &model.notes {
        print::note(&format!("{note}\n"));
    }
    let beginning = || tokenizer.beginning().to_string();
    let words = match request.prompt.as_deref() {
        Some(STDIN) => stdin()?,
        Some(prompt) => prompt.to_owned(),
        None => beginning(),
    };
    let prompt = tokenizer.encode(&words).map_err(Error::from)?;
    let mut decoder = Decoder::new(&model.config, &model.params, Storage::F32).map_err(Error::from)?;
    // Twice in memory until here.
    drop(model.params);
    print::data(&words)?;
    decoder.prefill(&prompt).map_err(Error::from)?;
    let sampling = Sampling { temperature: request.temperature, top_k: request.top_k, seed: request.seed };
    let mut text = tokenizer.decoder();
    for draw in 0..request.max_new_tokens {
        let token = decoder.choose(&sampling, draw).map_err(Error::from)?;
        let mut piece = String::new();
        text.push(token, &mut piece);
        print::data(&piece)?;
        if draw + 1 < request.max_new_tokens {
            decoder.step(token).map_err(Error::from)?;
        }
    }
    let mut rest = String::new();
    text.finish(&mut rest);
    print::data(&format!("{rest}\n"))?;
    Ok(Exit::Success)
}
