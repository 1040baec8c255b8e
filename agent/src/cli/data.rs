//! `headroom data prepare`: converts a text, or the built-in corpus, to a data set for nanoGPT.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use serde::Serialize;
use signal_hook::{consts::TERM_SIGNALS, flag};

use super::{
    Exit,
    args::{Flag, InvalidValue, ParsedArgs, UsageError, Word, parse, refusal, shown},
    command::{Command, Words},
    print,
};
pub use headroom_train::data::prepare::Error;
use headroom_train::data::{
    BUILTIN, corpus,
    dataset::{META, Split},
    prepare::{Kind, Outcome, PreparedDataset, Source, prepare},
};

/// Version of the JSON schema.
const SCHEMA: u32 = 1;

#[derive(Debug, Default)]
struct Request {
    file: Option<OsString>,
    kind: Kind,
    out: Option<PathBuf>,
    force: bool,
    json: bool,
}

const FLAGS: &[Flag<Request>] = &[
    Flag {
        name: "tokenizer",
        value: Some("char|gpt2"),
        doc: "char: one token per character; gpt2: GPT-2's 50,257 byte\npairs [default: char]",
        set: |request, name| {
            request.kind = kind(name)?;
            Ok(())
        },
    },
    Flag {
        name: "out",
        value: Some("FOLDER"),
        doc: "Output folder, such as data/stories; created if needed",
        set: |request, folder| {
            if folder.is_empty() {
                return Err("a folder has a name".to_owned().into());
            }
            request.out = Some(folder.into());
            Ok(())
        },
    },
    Flag {
        name: "force",
        value: None,
        doc: "Overwrite another data set in the folder",
        set: |request, _| {
            request.force = true;
            Ok(())
        },
    },
    Flag {
        name: "json",
        value: None,
        doc: "Print the written files as JSON, schema 1",
        set: |request, _| {
            request.json = true;
            Ok(())
        },
    },
];

fn kind(name: &str) -> Result<Kind, InvalidValue> {
    let known = [Kind::Char, Kind::Gpt2].into_iter().find(|kind| kind.name() == name);
    known.ok_or_else(|| InvalidValue::not_one_of(name, &[Kind::Char.name(), Kind::Gpt2.name()]))
}

/// JSON output.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: u32,
    folder: &'a Path,
    tokenizer: &'static str,
    vocab_size: u32,
    train: File,
    val: File,
    meta: Option<PathBuf>,
    /// `written`, `unchanged` or `replaced`.
    outcome: &'static str,
}

#[derive(Debug, Serialize)]
struct File {
    path: PathBuf,
    tokens: u64,
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "data",
    summary: "Prepare training data for nanoGPT",
    about: "Prepares training data in nanoGPT's layout.",
    usage: &["headroom data prepare FILE|builtin --out FOLDER [OPTIONS]"],
    subcommands: &[&PREPARE],
    examples: &["headroom data prepare builtin --out data/stories"],
    run: |args| COMMAND.dispatch(args, None),
    ..Command::EMPTY
};

/// The `data prepare` subcommand.
const PREPARE: Command = Command {
    name: "data prepare",
    summary: "Tokenise a text file for nanoGPT",
    about: "\
Tokenises a text as nanoGPT's prepare.py does: writes train.bin and val.bin with 16-bit
tokens, and meta.pkl for a character tokenizer. nanoGPT and `headroom train` read them.",
    usage: &["headroom data prepare FILE|builtin --out FOLDER [OPTIONS]"],
    arguments: "\
  FILE     UTF-8 text: a file of any size, or a pipe of up to 1 GiB; - is standard input.
           The first 90 % of its characters are for training
  builtin  4 MB of built-in short stories with names and sums",
    options: || shown(FLAGS),
    words: Words::Files,
    notes: "Prints the folder. The same input again changes nothing.",
    exits: &[(0, "the data set exists"), (1, "the text cannot be used, or the folder has another data set")],
    examples: &[
        "headroom data prepare builtin --out data/stories",
        "headroom data prepare input.txt --tokenizer gpt2 --out data/mine",
    ],
    run,
    ..Command::EMPTY
};

fn run(args: Vec<OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse(PREPARE.name, FLAGS, args, &mut request, take_word)? == ParsedArgs::Help {
        return PREPARE.print_help();
    }
    let missing = |what| UsageError::Missing { command: PREPARE.name, what };
    let file = request.file.ok_or_else(|| missing("FILE, or builtin"))?;
    let out = request.out.ok_or_else(|| missing("--out FOLDER"))?;
    obey_interrupts();
    let source = source(&file)?;
    let prepared = prepare(&source, request.kind, &out, request.force)?;
    let document = document(&prepared, request.kind, &out);
    if request.json {
        print::data(&(serde_json::to_string_pretty(&document).map_err(|error| unprintable(&error))? + "\n"))?;
    } else {
        print::data(&format!("{}\n", out.display()))?;
    }
    print::note(&said(&document));
    Ok(Exit::Success)
}

/// Lets Ctrl-C end the program even if a parent set it to be ignored, as a pipe may be endless.
fn obey_interrupts() {
    for &signal in TERM_SIGNALS {
        // Without a handler, the signal keeps its previous effect.
        let _ = flag::register_conditional_default(signal, Arc::new(AtomicBool::new(true)));
    }
}

fn source(file: &OsString) -> Result<Source, Error> {
    // A file with this name can be given as `./builtin`.
    if file == BUILTIN {
        return Ok(builtin());
    }
    // Likewise `./-`.
    if file == STDIN {
        return Source::of_stdin();
    }
    Source::of_path(Path::new(file))
}

/// Name of standard input.
const STDIN: &str = "-";

/// The built-in corpus.
pub fn builtin() -> Source {
    let bytes = corpus::corpus(corpus::SEED, corpus::BYTES).into_bytes();
    Source::Memory { name: BUILTIN.to_owned(), bytes }
}

/// Error for a directory name that is not UTF-8 and so not valid in JSON.
fn unprintable(error: &serde_json::Error) -> print::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string()).into()
}

fn take_word(request: &mut Request, word: Word) -> Result<(), UsageError> {
    match word {
        Word::Plain(file) if request.file.is_none() => {
            request.file = Some(file);
            Ok(())
        }
        other => Err(refusal(PREPARE.name, FLAGS, other)),
    }
}

fn document<'a>(prepared: &PreparedDataset, kind: Kind, out: &'a Path) -> Document<'a> {
    let file = |split: Split, tokens| File { path: out.join(split.file_name()), tokens };
    Document {
        schema: SCHEMA,
        folder: out,
        tokenizer: kind.name(),
        vocab_size: prepared.vocab_size,
        train: file(Split::Train, prepared.n_train_tokens),
        val: file(Split::Val, prepared.n_val_tokens),
        meta: prepared.has_meta.then(|| out.join(META)),
        outcome: match prepared.outcome {
            Outcome::Written => "written",
            Outcome::Unchanged => "unchanged",
            Outcome::Replaced => "replaced",
        },
    }
}

fn said(document: &Document) -> String {
    let first = match document.outcome {
        "unchanged" => "this data set is there already; nothing was written\n",
        "replaced" => "the data set that was there is replaced\n",
        _ => "",
    };
    let file = |file: &File| format!("{}: {} tokens\n", file.path.display(), grouped(file.tokens));
    let vocab_size = grouped(document.vocab_size.into());
    let (train, val) = (file(&document.train), file(&document.val));
    let vocabulary = match &document.meta {
        Some(meta) => format!("{}: a vocabulary of {vocab_size} characters\n", meta.display()),
        None => format!("GPT-2's vocabulary of {vocab_size} tokens; without a meta.pkl, nanoGPT takes 50,304\n"),
    };
    format!("{first}{train}{val}{vocabulary}")
}

/// Formats a number with thousands separators.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_the_size_of_the_corpus() {
        let size = format!("{} MB of built-in short stories", corpus::BYTES / 1_000_000);
        assert!(PREPARE.arguments.contains(&size), "{size}");
    }

    #[test]
    fn thousands_are_parted() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (50_257, "50,257"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
