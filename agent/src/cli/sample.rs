//! `headroom sample`: generates text from a model as a stream.

use std::{
    ffi::OsString,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use headroom_kernels::{
    decode::{DecodeError, Decoder, Storage},
    sampling::Sampling,
};
use headroom_tokenizer::RepeatedChar;
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::Command,
    print,
};
use headroom_train::{
    checkpoint::CheckpointChoice,
    data::tokenizer::{self, EncodeError, ReadError, Tokenizer},
    pretrained::{Pretrained, PretrainedError, TokenizerError},
};

/// Why no text was generated.
#[derive(Debug, Error)]
pub enum Error {
    /// The model cannot be loaded.
    #[error(transparent)]
    Weights(#[from] PretrainedError),
    /// The decoder failed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The model's tokenizer is unknown.
    #[error("cannot sample {}: its tokenizer is not known", .path.display())]
    NoTokenizer {
        /// Path of the model.
        path: PathBuf,
    },
    /// The model's tokenizer is invalid.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The named tokenizer cannot be read.
    #[error("--tokenizer: {0}")]
    Named(ReadError),
    /// The tokenizer belongs to another model.
    #[error("cannot sample: the tokenizer has {tokens} tokens, but the model has {vocab_size}")]
    Vocabulary {
        /// Vocabulary size of the tokenizer.
        tokens: u32,
        /// Vocabulary size of the model.
        vocab_size: u64,
    },
    /// The prompt cannot be encoded.
    #[error("--prompt: {0}")]
    Prompt(#[from] EncodeError),
    /// The prompt cannot be read from standard input.
    #[error("cannot read the prompt from standard input: {0}")]
    Input(io::Error),
    /// The prompt from standard input is empty.
    #[error("cannot sample: the prompt from standard input is empty")]
    EmptyInput,
}

impl Error {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Weights(error) => error.hint().map(|hint| hint.to_string()),
            Self::NoTokenizer { .. } => Some(
                "--tokenizer takes a tokenizer.json, nanoGPT's meta.pkl, a checkpoint, a folder with one of them, or gpt2"
                    .to_owned(),
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
    which: CheckpointChoice,
    tokenizer: Option<PathBuf>,
    /// `None` if not given.
    prompt: Option<String>,
    max_new_tokens: u32,
    temperature: f32,
    top_k: u32,
    seed: u64,
}

impl Default for Request {
    /// Defaults of nanoGPT's sample.py, except for its ten samples.
    fn default() -> Self {
        Self {
            ckpt: None,
            which: CheckpointChoice::default(),
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
        doc: "Checkpoint of a run: lowest validation loss, or saved last\n[default: best]",
        set: |request, word| {
            request.which = which(word)?;
            Ok(())
        },
    },
    Flag {
        name: "tokenizer",
        value: Some("PATH"),
        doc: "Tokenizer: a tokenizer.json, a meta.pkl, a checkpoint, a folder\nwith one of them, or gpt2 [default: the model's own]",
        set: |request, path| {
            request.tokenizer = Some(path.into());
            Ok(())
        },
    },
    Flag {
        name: "prompt",
        value: Some("TEXT"),
        doc: "Prompt; - reads standard input [default: a new line, or a\ncapital letter if the model has no new line]",
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
        doc: "Number of tokens to generate [default: 500]",
        set: |request, n| put(&mut request.max_new_tokens, n.parse().ok(), "a number of tokens", n),
    },
    Flag {
        name: "temperature",
        value: Some("X"),
        doc: "Sampling temperature; 0 always selects the likeliest token\n[default: 0.8]",
        set: |request, x| {
            let parsed = x.parse().ok().filter(|x: &f32| x.is_finite() && *x >= 0.0);
            put(&mut request.temperature, parsed, "a temperature, 0 or more", x)
        },
    },
    Flag {
        name: "top-k",
        value: Some("N"),
        doc: "Sample from the N likeliest tokens; 0 for all [default: 200]",
        set: |request, n| put(&mut request.top_k, n.parse().ok(), "a number of tokens", n),
    },
    Flag {
        name: "seed",
        value: Some("N"),
        doc: "Seed of the random numbers; the same seed repeats the text\n[default: 1337]",
        set: |request, n| put(&mut request.seed, n.parse().ok(), "a seed, a whole number from 0", n),
    },
];

/// Parses which checkpoint of a run to use.
pub fn which(word: &str) -> Result<CheckpointChoice, InvalidValue> {
    match word {
        "best" => Ok(CheckpointChoice::Best),
        "last" => Ok(CheckpointChoice::Last),
        _ => Err(InvalidValue::not_one_of(word, &["best", "last"])),
    }
}

fn put<T>(to: &mut T, parsed: Option<T>, what: &str, given: &str) -> Result<(), InvalidValue> {
    *to = parsed.ok_or_else(|| InvalidValue::from(format!("{given:?} is not {what}")))?;
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
/// The arguments are invalid, or the model cannot be read or run.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let refuse = |_: &mut Request, word: Word| Err(refusal(COMMAND.name, FLAGS, word));
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    let path = request
        .ckpt
        .take()
        .ok_or(UsageError::Missing { command: COMMAND.name, what: "--ckpt FOLDER, the folder of a run or a model" })?;
    write(&request, path)
}

/// Value of `--prompt` for standard input.
const STDIN: &str = "-";
/// Limit of a prompt from standard input, in bytes. The model uses `block_size` tokens of it.
const STDIN_BYTES_MAX: u64 = 1 << 20;

/// Reads the prompt from standard input, without its final newline.
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

/// Tokenizer of a file or directory: of a tokenizer file, else of a checkpoint.
fn named_tokenizer(path: &Path) -> Result<Tokenizer, Error> {
    let is_weights = path.extension().is_some_and(|extension| extension == "safetensors");
    if !is_weights {
        match tokenizer::read(path) {
            Err(ReadError::None(_)) => {}
            read => return read.map_err(Error::Named),
        }
    }
    let none = || Error::Named(ReadError::None(path.to_path_buf()));
    let stated = match Pretrained::stated_tokenizer(path) {
        Err(PretrainedError::NoWeights { .. }) => return Err(none()),
        stated => stated?.ok_or_else(none)?,
    };
    let repeated = |char: RepeatedChar| TokenizerError::Repeated { path: path.to_path_buf(), char: char.0 };
    Ok(Tokenizer::of_kept(&stated).map_err(repeated)?)
}

fn write(request: &Request, path: PathBuf) -> Result<Exit, super::Error> {
    let model = Pretrained::load(&path, request.which).map_err(Error::from)?;
    let tokenizer = match &request.tokenizer {
        Some(named) => named_tokenizer(named)?,
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
    // The decoder has its own copy.
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
