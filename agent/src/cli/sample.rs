//! `headroom sample`: a model goes on with a text, as it comes.

use std::{ffi::OsString, path::PathBuf};

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
    data::tokenizer::{EncodeError, Tokenizer},
    train::pretrained::{Pretrained, PretrainedError},
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
    /// A model that nobody knows the words of.
    #[error("{} does not say how its tokens are made of text", .path.display())]
    NoTokenizer {
        /// The file or folder.
        path: PathBuf,
    },
    /// A character twice.
    #[error("{}: the vocabulary has {char:?} twice", .path.display())]
    Vocabulary {
        /// The file or folder.
        path: PathBuf,
        /// The character.
        char: char,
    },
    /// A prompt that the model has no tokens for.
    #[error("--prompt: {0}")]
    Prompt(#[from] EncodeError),
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Weights(error) => error.hint(),
            Self::NoTokenizer { .. } => {
                Some("a checkpoint of `headroom train`, or a model of GPT-2's vocabulary, says it".to_owned())
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Request {
    ckpt: Option<PathBuf>,
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
        Self { ckpt: None, prompt: None, max_new_tokens: 500, temperature: 0.8, top_k: 200, seed: 1337 }
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
        name: "prompt",
        value: Some("TEXT"),
        doc: "What the text begins with [default: a new line, or\na capital where the model knows none]",
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

fn write(request: &Request, path: PathBuf) -> Result<Exit, super::Error> {
    let model = Pretrained::load(&path).map_err(Error::from)?;
    let tokenizer = match &model.tokenizer {
        None => return Err(Error::NoTokenizer { path }.into()),
        Some(kept) => Tokenizer::of_kept(kept).map_err(|twice| Error::Vocabulary { path, char: twice.0 })?,
    };
    for note in &model.notes {
        print::note(&format!("{note}\n"));
    }
    let beginning = || tokenizer.beginning().to_string();
    let words = request.prompt.clone().unwrap_or_else(beginning);
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
