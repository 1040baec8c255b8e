//! `headroom export`: a checkpoint as files that other programs load.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use headroom_kernels::weights::{Form, HALF_MAX, Naming, keys, write_model};
use headroom_shared::{dtype::Dtype, gpt::presets::GPT2_VOCAB_SIZE, tokenizer::CharTokenizer};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, Parsed, UsageError, Word, parse, refusal, shown},
    command::Command,
    print,
    sample::which,
};
use crate::{
    data::tokenizer::{self, Tokenizer},
    train::{
        checkpoint::Which,
        files::{Disk, is_disk_full, replace},
        pretrained::{CONFIG_FILE, MODEL_FILE, Pretrained, PretrainedError, TokenizerError},
    },
};

/// The token that ends a text for GPT-2.
const END_OF_TEXT: u64 = GPT2_VOCAB_SIZE - 1;

/// Why nothing was exported.
#[derive(Debug, Error)]
pub enum Error {
    /// The checkpoint.
    #[error(transparent)]
    Pretrained(#[from] PretrainedError),
    /// The checkpoint's tokenizer.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// Somebody's model is there.
    #[error("{} is there already", .file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// A weight that has no place in half precision.
    #[error("a weight is {value:e}, and half precision ends at {HALF_MAX}")]
    BeyondHalf {
        /// The weight.
        value: f32,
    },
    /// The folder or a file.
    #[error("{} cannot be written: {error}", .path.display())]
    Write {
        /// The file or the folder.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Pretrained(error) => error.hint(),
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
    which: Which,
    format: Option<Naming>,
    half: bool,
    out: Option<PathBuf>,
}

const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "ckpt",
        value: Some("FOLDER"),
        doc: "A run's out_dir, a folder with model.safetensors, or such a file",
        set: |request, path| {
            request.ckpt = Some(path.into());
            Ok(())
        },
    },
    Flag {
        name: "which",
        value: Some("best|last"),
        doc: "Of a run's checkpoints, the one with the lowest validation loss,\nor the one saved last [default: best]",
        set: |request, word| {
            request.which = which(word)?;
            Ok(())
        },
    },
    Flag {
        name: "format",
        value: Some("hf|nanogpt"),
        doc: "hf: what transformers loads as GPT2LMHeadModel, with config.json;\nnanogpt: nanoGPT's names and layout, one file\n[default: hf]",
        set: |request, name| {
            request.format = Some(match name {
                "hf" => Naming::HuggingFace,
                "nanogpt" => Naming::NanoGpt,
                _ => return Err(format!("{name:?} is neither hf nor nanogpt").into()),
            });
            Ok(())
        },
    },
    Flag {
        name: "dtype",
        value: Some("float32|float16"),
        doc: "float16: half the size, each weight rounded to the nearest\n[default: float32]",
        set: |request, name| {
            request.half = match name {
                "float32" => false,
                "float16" => true,
                _ => return Err(format!("{name:?} is neither float32 nor float16").into()),
            };
            Ok(())
        },
    },
    Flag {
        name: "out",
        value: Some("FOLDER"),
        doc: "Where to write; a folder that has no model yet",
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
    about: "Writes a checkpoint as files that other programs load, and prints their names.",
    usage: &["headroom export --ckpt FOLDER [--format hf|nanogpt] [--dtype float32|float16] --out FOLDER"],
    options: || shown(FLAGS),
    notes: "\
A model without biases gets biases of zero in Hugging Face's format, which has no other.
Its tokenizer becomes a tokenizer.json, which `headroom sample` reads as well.",
    exits: &[(0, "the files are written"), (1, "the checkpoint cannot be exported, or the folder has a model already")],
    examples: &["headroom export --ckpt out-shakespeare-char --format hf --out my-gpt"],
    run,
    ..Command::EMPTY
};

/// Runs the command.
///
/// # Errors
/// The words cannot be used, the checkpoint cannot be read, or the folder not be written.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse(COMMAND.name, FLAGS, args, &mut request, refuse)? == Parsed::Help {
        return COMMAND.print_help();
    }
    let needed = |path: Option<PathBuf>, name| path.ok_or(UsageError::MissingValue { name, value: "FOLDER" });
    let (ckpt, out) = (needed(request.ckpt, "ckpt")?, needed(request.out, "out")?);
    let naming = request.format.unwrap_or(Naming::HuggingFace);
    let form = Form { naming, half: request.half };
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

/// Writes the files, the weights last: a folder that has them is complete.
fn write(model: &Pretrained, tokenizer: Option<&Tokenizer>, form: Form, out: &Path) -> Result<Vec<PathBuf>, Error> {
    let naming = form.naming;
    if form.half
        && let Some(&value) = model.params.iter().find(|value| value.abs() > HALF_MAX)
    {
        return Err(Error::BeyondHalf { value });
    }
    let mut texts = Vec::new();
    if naming == Naming::HuggingFace {
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
    let disk = Disk(out.to_path_buf());
    for (name, json) in texts {
        replace(&disk, name, |file| serde_json::to_writer_pretty(file, &json).map_err(Into::into))
            .map_err(failed(&out.join(name)))?;
    }
    let metadata = metadata(model, tokenizer, naming);
    replace(&disk, MODEL_FILE, |file| write_model(file, &model.config, &model.params, form, &metadata))
        .map_err(failed(&out.join(MODEL_FILE)))?;
    Ok(files)
}

/// What a file under nanoGPT's names says beside its tensors: what they do not, and this program reads back.
fn metadata(model: &Pretrained, tokenizer: Option<&Tokenizer>, naming: Naming) -> BTreeMap<String, String> {
    let mut metadata = BTreeMap::new();
    if naming == Naming::NanoGpt {
        metadata.insert(keys::HEADROOM.to_owned(), "1".to_owned());
        // The config's fields are nanoGPT's `model_args`.
        metadata.insert(keys::MODEL_ARGS.to_owned(), json!(model.config).to_string());
        if let Some(tokenizer) = tokenizer.and_then(Tokenizer::kept) {
            metadata.insert(keys::TOKENIZER.to_owned(), json!(tokenizer).to_string());
        }
    }
    metadata
}

/// `GPT2Config` of transformers. Its activation is the exact GELU, as nanoGPT's is; OpenAI's own says gelu_new.
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

/// A tokenizer as Hugging Face's `tokenizer.json` and `tokenizer_config.json`; `None` for one that another program made,
/// whose own files say more of it.
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

/// A tokenizer of Hugging Face with a token a character: byte pair encoding without a pair.
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

/// What there is to know of what was written.
fn said(model: &Pretrained, tokenizer: Option<&Tokenizer>, naming: Naming, out: &Path) -> String {
    let mut text = String::new();
    for note in &model.notes {
        text.push_str(&format!("{note}\n"));
    }
    if naming == Naming::HuggingFace {
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
