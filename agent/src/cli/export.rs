//! `headroom export`: writes a checkpoint as files for other programs.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use headroom_kernels::weights::{FileFormat, HALF_MAX, NamingScheme, keys, write_model};
use headroom_planner::{dtype::Dtype, gpt::presets::GPT2_VOCAB_SIZE};
use headroom_tokenizer::CharTokenizer;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::Command,
    print,
    sample::which,
};
use headroom_train::{
    checkpoint::{self, Checkpoint, CheckpointChoice, CheckpointError, Meta, State, pytorch},
    data::tokenizer::{self, Tokenizer},
    files::{Disk, is_disk_full, replace},
    pretrained::{CONFIG_FILE, MODEL_FILE, Pretrained, PretrainedError, TokenizerError},
};

/// GPT-2's end-of-text token.
const END_OF_TEXT: u64 = GPT2_VOCAB_SIZE - 1;

/// Why the export failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The checkpoint cannot be loaded.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// The checkpoint's tokenizer is invalid.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The output directory already has a model.
    #[error("cannot write {}: it exists already", .file.display())]
    Exists {
        /// Path of the existing file.
        file: PathBuf,
    },
    /// A weight exceeds the range of float16.
    #[error("a weight is {value:e}, and half precision ends at {HALF_MAX}")]
    BeyondHalf {
        /// Value of the weight.
        value: f32,
    },
    /// The directory or a file cannot be written.
    #[error("cannot write {}: {error}", .path.display())]
    Write {
        /// Path of the file or directory.
        path: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
}

impl Error {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Pretrained(error) => error.hint().map(|hint| hint.to_string()),
            Self::Exists { .. } => Some("name another folder with --out; nothing is overwritten".to_owned()),
            Self::BeyondHalf { .. } => Some("export it with --dtype float32".to_owned()),
            Self::Write { error, .. } if is_disk_full(error) => Some("the disk is full".to_owned()),
            Self::Tokenizer(_) | Self::Write { .. } => None,
        }
    }
}

#[derive(Debug, Default)]
struct Request {
    ckpt: Option<PathBuf>,
    which: CheckpointChoice,
    format: Format,
    half: bool,
    out: Option<PathBuf>,
}

/// Output format.
#[derive(Clone, Copy, Debug)]
enum Format {
    /// Safetensors with these tensor names.
    Safetensors(NamingScheme),
    /// nanoGPT's `ckpt.pt`.
    Pytorch,
}

impl Default for Format {
    fn default() -> Self {
        Self::Safetensors(NamingScheme::HuggingFace)
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
        name: "format",
        value: Some("hf|nanogpt|ckpt.pt"),
        doc: "hf: GPT2LMHeadModel of transformers, with config.json; nanogpt:\nnanoGPT's names and layout, as safetensors; ckpt.pt: nanoGPT's own\ncheckpoint for train.py and sample.py, with the optimizer of a run\n[default: hf]",
        set: |request, name| {
            request.format = match name {
                "hf" => Format::Safetensors(NamingScheme::HuggingFace),
                "nanogpt" => Format::Safetensors(NamingScheme::NanoGpt),
                pytorch::FILE => Format::Pytorch,
                _ => return Err(InvalidValue::not_one_of(name, &["hf", "nanogpt", pytorch::FILE])),
            };
            Ok(())
        },
    },
    Flag {
        name: "dtype",
        value: Some("float32|float16"),
        doc: "Type of the weights; float16 halves the size\n[default: float32]",
        set: |request, name| {
            request.half = match name {
                "float32" => false,
                "float16" => true,
                _ => return Err(InvalidValue::not_one_of(name, &["float32", "float16"])),
            };
            Ok(())
        },
    },
    Flag {
        name: "out",
        value: Some("FOLDER"),
        doc: "Output folder; must not contain a model",
        set: |request, path| {
            request.out = Some(path.into());
            Ok(())
        },
    },
];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "export",
    summary: "Export a checkpoint for other tools",
    about: "Exports a checkpoint to formats of other programs, and prints the written files.",
    usage: &["headroom export --ckpt FOLDER [--format hf|nanogpt|ckpt.pt] [--dtype float32|float16] --out FOLDER"],
    options: || shown(FLAGS),
    notes: "\
Hugging Face's format requires biases: a model without them gets zeros. The tokenizer
becomes a tokenizer.json, which `headroom sample` also reads.",
    exits: &[(0, "the files are written"), (1, "the checkpoint cannot be exported, or the folder has a model already")],
    examples: &[
        "headroom export --ckpt out-shakespeare-char --format hf --out my-gpt",
        "headroom export --ckpt out-stories --format ckpt.pt --which last --out out-nanogpt",
    ],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The arguments are invalid, the checkpoint cannot be read, or the directory cannot be written.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    let needed = |path: Option<PathBuf>, what| path.ok_or(UsageError::Missing { command: COMMAND.name, what });
    let ckpt = needed(request.ckpt, "--ckpt FOLDER, the folder of a run or a model")?;
    let out = needed(request.out, "--out FOLDER, the folder to write the model to")?;
    let naming = match request.format {
        Format::Safetensors(naming) => naming,
        Format::Pytorch if request.half => return Err(UsageError::Exclusive("format ckpt.pt", "dtype float16").into()),
        Format::Pytorch => {
            let file = write_pytorch(&ckpt, request.which, &out)?;
            print::data(&format!("{}\n", file.display()))?;
            return Ok(Exit::Success);
        }
    };
    let form = FileFormat { naming, half: request.half };
    let model = Pretrained::load(&ckpt, request.which).map_err(Error::from)?;
    let tokenizer = model.tokenizer().map_err(Error::from)?;
    let files = write(&model, tokenizer.as_ref(), form, &out)?;
    print::data(&files.iter().map(|file| format!("{}\n", file.display())).collect::<String>())?;
    print::note(&said(&model, tokenizer.as_ref(), naming, &out));
    Ok(Exit::Success)
}

fn refuse(_: &mut Request, word: Word) -> Result<(), UsageError> {
    Err(refusal(COMMAND.name, FLAGS, word))
}

/// Writes nanoGPT's checkpoint: the full state of a run, or for plain weights the state of a new run.
fn write_pytorch(ckpt: &Path, which: CheckpointChoice, out: &Path) -> Result<PathBuf, Error> {
    let of_run = if ckpt.is_dir() { checkpoint::chosen(ckpt, which) } else { Some(ckpt.to_path_buf()) };
    let loaded = of_run.map(|path| checkpoint::load(&path)).unwrap_or_else(|| checkpoint::load(ckpt));
    let checkpoint = match loaded {
        Ok(checkpoint) => checkpoint,
        Err(CheckpointError::NotOurs { .. } | CheckpointError::NotFound { .. }) => {
            let Pretrained { config: gpt, params, .. } = Pretrained::load(ckpt, which)?;
            let meta = Meta { gpt, config: Map::new(), state: State::default(), tokenizer: None };
            Checkpoint { meta, params, exp_avg: vec![], exp_avg_sq: vec![] }
        }
        Err(error) => return Err(PretrainedError::from(error).into()),
    };
    let file = out.join(pytorch::FILE);
    if file.exists() {
        return Err(Error::Exists { file });
    }
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        |error| Error::Write { path, error }
    };
    fs::create_dir_all(out).map_err(failed(out))?;
    // Like a checkpoint, the file contains the config of its run.
    let disk = Disk::private(out);
    let written = replace(&disk, pytorch::FILE, |file| pytorch::write(file, &checkpoint));
    written.map_err(failed(&file))?;
    Ok(file)
}

/// Writes the files, weights last, so a directory with weights is complete.
fn write(
    model: &Pretrained,
    tokenizer: Option<&Tokenizer>,
    form: FileFormat,
    out: &Path,
) -> Result<Vec<PathBuf>, Error> {
    let naming = form.naming;
    if form.half
        && let Some(&value) = model.params.iter().find(|value| value.abs() > HALF_MAX)
    {
        return Err(Error::BeyondHalf { value });
    }
    let mut texts = Vec::new();
    if naming == NamingScheme::HuggingFace {
        texts.push((CONFIG_FILE, config_json(model, tokenizer, form.half)));
        if let Some((tokenizer, config)) = tokenizer.and_then(tokenizer_files) {
            texts.push(("tokenizer.json", tokenizer));
            texts.push(("tokenizer_config.json", config));
        }
    }
    let names = texts.iter().map(|(name, _)| *name).chain([MODEL_FILE]);
    let files: Vec<PathBuf> = names.map(|name| out.join(name)).collect();
    if let Some(file) = files.iter().find(|file| file.exists()) {
        return Err(Error::Exists { file: file.clone() });
    }
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        |error| Error::Write { path, error }
    };
    fs::create_dir_all(out).map_err(failed(out))?;
    let disk = Disk::new(out);
    for (name, json) in texts {
        replace(&disk, name, |file| serde_json::to_writer_pretty(file, &json).map_err(Into::into))
            .map_err(failed(&out.join(name)))?;
    }
    let metadata = metadata(model, tokenizer, naming);
    replace(&disk, MODEL_FILE, |file| write_model(file, &model.config, &model.params, form, &metadata))
        .map_err(failed(&out.join(MODEL_FILE)))?;
    Ok(files)
}

/// Metadata of a file with nanoGPT's tensor names: facts that the tensors lack and that this program reads back.
fn metadata(model: &Pretrained, tokenizer: Option<&Tokenizer>, naming: NamingScheme) -> BTreeMap<String, String> {
    let mut metadata = BTreeMap::new();
    if naming == NamingScheme::NanoGpt {
        metadata.insert(keys::HEADROOM.to_owned(), "1".to_owned());
        // The config's fields match nanoGPT's `model_args`.
        metadata.insert(keys::MODEL_ARGS.to_owned(), json!(model.config).to_string());
        if let Some(tokenizer) = tokenizer.and_then(Tokenizer::kept) {
            metadata.insert(keys::TOKENIZER.to_owned(), json!(tokenizer).to_string());
        }
    }
    metadata
}

/// `GPT2Config` of transformers. The activation is the exact GELU, as in nanoGPT; OpenAI's own config has gelu_new.
fn config_json(model: &Pretrained, tokenizer: Option<&Tokenizer>, half: bool) -> Value {
    let config = &model.config;
    let dtype = if half { Dtype::Float16 } else { Dtype::Float32 };
    let end = (tokenizer == Some(&Tokenizer::Gpt2)).then_some(END_OF_TEXT);
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu",
        "n_layer": config.n_layer(),
        "n_head": config.n_head(),
        "n_embd": config.n_embd(),
        "n_inner": null,
        "n_positions": config.block_size(),
        "n_ctx": config.block_size(),
        "vocab_size": config.vocab_size(),
        "layer_norm_epsilon": 1e-5,
        "attn_pdrop": config.dropout(),
        "embd_pdrop": config.dropout(),
        "resid_pdrop": config.dropout(),
        "scale_attn_weights": true,
        "scale_attn_by_inverse_layer_idx": false,
        "reorder_and_upcast_attn": false,
        "tie_word_embeddings": true,
        "initializer_range": 0.02,
        "bos_token_id": end,
        "eos_token_id": end,
        "torch_dtype": dtype.name(),
    })
}

/// A tokenizer as Hugging Face's `tokenizer.json` and `tokenizer_config.json`. `None` for a tokenizer of another
/// program, whose own files are more complete.
fn tokenizer_files(tokenizer: &Tokenizer) -> Option<(Value, Value)> {
    const CLASS: &str = "PreTrainedTokenizerFast";
    match tokenizer {
        Tokenizer::Char(chars) => Some((char_json(chars), json!({ "tokenizer_class": CLASS }))),
        Tokenizer::Gpt2 => {
            let end = tokenizer::END_OF_TEXT;
            let config = json!({ "tokenizer_class": CLASS, "bos_token": end, "eos_token": end, "unk_token": end });
            Some((serde_json::from_str(tokenizer::tokenizer_json()?).ok()?, config))
        }
        Tokenizer::Bpe(_) => None,
    }
}

/// Hugging Face tokenizer with one token per character: byte pair encoding without merges.
fn char_json(chars: &CharTokenizer) -> Value {
    let vocab: Map<String, Value> =
        chars.vocab().iter().enumerate().map(|(id, char)| (char.to_string(), json!(id))).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": { "type": "Fuse" },
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "vocab": vocab,
            "merges": [],
        },
    })
}

/// Notes on the exported files.
fn said(model: &Pretrained, tokenizer: Option<&Tokenizer>, naming: NamingScheme, out: &Path) -> String {
    let mut text = String::new();
    for note in &model.notes {
        text.push_str(&format!("{note}\n"));
    }
    if naming == NamingScheme::HuggingFace {
        text.push_str(match tokenizer {
            Some(Tokenizer::Char(_) | Tokenizer::Gpt2) => "",
            Some(Tokenizer::Bpe(_)) => "no tokenizer was written: copy the files of the one beside the weights\n",
            None => "the checkpoint does not say its tokenizer, so that none was written\n",
        });
        text.push_str(&format!(
            "transformers loads it: GPT2LMHeadModel.from_pretrained({:?})\n",
            out.display().to_string()
        ));
    }
    text
}
