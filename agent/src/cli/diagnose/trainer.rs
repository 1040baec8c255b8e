//! `headroom diagnose TRAINER`: explains an out-of-memory error of a run of another trainer than nanoGPT.

use std::ffi::{OsStr, OsString};

use headroom_planner::{
    oom::{
        diagnosis::{TrainerDiagnosis, diagnose_trainer},
        solve::TrainerSolution,
    },
    session::Options,
    trainers::{Run, input::Trainer as Kind},
};

use super::{arithmetic, differences, matches, other_messages, read_text};
use crate::cli::{
    self, Exit,
    args::{Flag, shown},
    command::{Command, Words},
    plan,
    plan::trainer::{self, Arguments, BASE_TRAIN, HF_TRAINER, Trainer, remarks, what_helps},
    print,
    style::Style,
};

/// The file with the message.
const MESSAGE: Flag<Arguments> = Flag {
    name: "message",
    value: Some("FILE"),
    doc: "Text that contains the error [default: the log with the\nrun, or standard input, as with -]",
    set: |arguments, path| {
        arguments.message = Some(path.into());
        Ok(())
    },
};

const FLAGS: &[Flag<Arguments>] = &[
    MESSAGE,
    Flag::GPU,
    Flag::VRAM,
    Flag::OTHER_PROCESSES,
    Flag::CONTEXT_BYTES,
    Flag::EXPANDABLE_SEGMENTS,
    Flag::TORCH,
    Flag::JSON,
];

const EXITS: &[(u8, &str)] = &[(0, "the text is read")];

/// `headroom diagnose nanochat`.
pub const NANOCHAT: Command = Command {
    name: "diagnose nanochat",
    summary: "Explain an out-of-memory error of nanochat",
    about: "\
Explains an out-of-memory error of nanochat's `scripts.base_train`: which tensor, in which
phase, and what to change. The GPU is the one of the message.",
    usage: &[
        "headroom diagnose nanochat --compile=False [--key=value …] [OPTIONS] [FILE]",
        "headroom diagnose nanochat --compile=False [OPTIONS] -- COMMAND",
    ],
    arguments: BASE_TRAIN.arguments,
    options: || shown(FLAGS),
    words: Words::Files,
    exits: EXITS,
    examples: &[
        "headroom diagnose nanochat --compile=False --depth=20 --message message.txt",
        "headroom diagnose nanochat --compile=False train.log",
    ],
    run: |args| run(&NANOCHAT, args, BASE_TRAIN),
    ..Command::EMPTY
};

/// `headroom diagnose hf`.
pub const HF: Command = Command {
    name: "diagnose hf",
    summary: "Explain an out-of-memory error of a fine-tuning of a Hugging Face model",
    about: "\
Explains an out-of-memory error of `transformers.Trainer` on a causal language model, also
with LoRA: which tensor, in which phase, and what to change. The GPU is the one of the message.",
    usage: &["headroom diagnose hf MODEL [--key=value …] [OPTIONS]"],
    arguments: HF_TRAINER.arguments,
    options: || shown(FLAGS),
    words: Words::Files,
    exits: EXITS,
    examples: &["headroom diagnose hf Qwen3-0.6B --bf16 --per_device_train_batch_size=8 --message message.txt"],
    run: |args| run(&HF, args, HF_TRAINER),
    ..Command::EMPTY
};

fn run(command: &'static Command, args: Vec<OsString>, trainer: Trainer) -> Result<Exit, cli::Error> {
    let Some((run, arguments)) = trainer::read(command, FLAGS, args, trainer)? else {
        return command.print_help();
    };
    // The log of a run contains its error. It is read once, as it may be standard input.
    let text = match (&arguments.message, &arguments.log) {
        (None, Some(log)) => log,
        (file, _) => &read_text(file.as_deref().unwrap_or(OsStr::new("-")))?,
    };
    explain(text, &run, &arguments.options, arguments.names_gpu, arguments.json)
}

/// Explains the message of a text for a run.
pub fn explain(text: &str, run: &Run, options: &Options, names_gpu: bool, json: bool) -> Result<Exit, cli::Error> {
    let diagnosis = diagnose_trainer(text, run, options, names_gpu).map_err(plan::Error::from)?;
    let answer = if json {
        let document = diagnosis.json(headroom_languages::english());
        serde_json::to_string_pretty(&document).map_err(plan::Error::from)? + "\n"
    } else {
        report(&diagnosis, &Style::of_stdout())
    };
    print::data(&answer)?;
    Ok(Exit::Success)
}

fn report(diagnosis: &TrainerDiagnosis, style: &Style) -> String {
    let explanation = &diagnosis.explanation;
    let mut parts = vec![style.wrapped(&explanation.text.to_string(), 0)];
    parts.extend(other_messages(&diagnosis.report, diagnosis.explains_last, style));
    parts.extend(differences(explanation, style));
    parts.extend(matches(explanation, style));
    parts.extend(arithmetic(explanation, style));
    if let Some(plan) = &explanation.plan {
        parts.extend(what_helps(plan, &diagnosis.advice(), style));
        parts.push(remarks(&diagnosis.run, style));
    }
    parts.join("\n")
}

/// The command that plans a run.
pub fn command(solution: &TrainerSolution) -> String {
    let model = match solution.input.trainer {
        Kind::Nanochat => "",
        Kind::Hf => solution.model.unwrap_or("MODEL"),
    };
    let words = ["headroom plan", solution.input.trainer.name(), model, &solution.input.command];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
