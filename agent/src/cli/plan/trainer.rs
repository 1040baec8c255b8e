//! `headroom plan TRAINER`: predicts the memory of a run of another trainer than nanoGPT.

use std::ffi::{OsStr, OsString};

use headroom_planner::{
    plan::Plan,
    session::Options,
    trainers::{Knob, Run, TrainerRequest, arguments::ArgumentError, largest_that_fits, nanochat, plan},
};

use super::{
    Error,
    machine::{OnMachine, put},
    report,
};
use crate::cli::{
    self, Exit,
    args::{Flag, ParsedArgs, UsageError, Word, parse_with, shown},
    command::Command,
    print,
    style::{Ink, Style},
};

/// Parsed arguments.
#[derive(Debug, Default)]
struct Arguments {
    /// GPU and environment.
    options: Options,
    /// Whether to print JSON.
    json: bool,
    /// The trainer's command line.
    words: Vec<String>,
}

impl OnMachine for Arguments {
    fn options(&mut self) -> &mut Options {
        &mut self.options
    }
}

const FLAGS: &[Flag<Arguments>] = &[
    Flag::GPU,
    Flag::VRAM,
    Flag::OTHER_PROCESSES,
    Flag::CONTEXT_BYTES,
    Flag::EXPANDABLE_SEGMENTS,
    Flag::TORCH,
    Flag {
        name: "json",
        value: None,
        doc: "Print the plan as JSON, schema 1",
        set: |arguments, _| put(&mut arguments.json, true),
    },
];

/// `headroom plan nanochat`.
pub const NANOCHAT: Command = Command {
    name: "plan nanochat",
    summary: "Predict whether a run of nanochat fits on a GPU",
    about: "\
Predicts how much GPU memory nanochat's `scripts.base_train` needs, whether it fits, and
where it would run out of memory.",
    usage: &["headroom plan nanochat --compile=False [--key=value …] [OPTIONS]"],
    arguments: "\
Accepts the options of `python -m scripts.base_train`, such as --depth=12 or --depth 12, and:
  --compile=False  Plan the eager run; compiled runs of nanochat are not predicted yet
  --vocab-size=N   Vocabulary of the tokenizer [default: 32768]",
    options: || shown(FLAGS),
    notes: "A SIZE is 11.69GiB, 800MiB, 12GB or a number of bytes.",
    exits: &[(0, "the run fits"), (1, "the run does not fit")],
    examples: &["headroom plan nanochat --compile=False --depth=12 --device-batch-size=8 --gpu \"RTX 4070\""],
    run: |args| run(NANOCHAT.name, args, |words| nanochat::Run::read(words).map(Run::Nanochat)),
    ..Command::EMPTY
};

/// Reads a command line, plans the run, and prints the answer.
fn run(
    name: &'static str,
    args: Vec<OsString>,
    read: fn(&[String]) -> Result<Run, ArgumentError>,
) -> Result<Exit, cli::Error> {
    let mut arguments = Arguments::default();
    // `--key value` is one word; the trainer's reader reports a key that has no value.
    let takes = |_: &str, word: &OsStr| !word.to_string_lossy().starts_with("--");
    if parse_with(name, FLAGS, args, &mut arguments, |arguments, word| take_word(name, arguments, word), takes)?
        == ParsedArgs::Help
    {
        return NANOCHAT.print_help();
    }
    let run = read(&arguments.words).map_err(Error::from)?;
    let machine = arguments.options.machine().map_err(Error::from)?;
    let request = TrainerRequest::new(run, machine).map_err(Error::from)?;
    let plan = plan(request.clone()).map_err(Error::from)?;
    let largest: Vec<_> =
        request.run().knobs().into_iter().map(|knob| (knob, largest_that_fits(&request, knob))).collect();
    let answer = if arguments.json {
        serde_json::to_string_pretty(&plan.trainer_document(&largest)).map_err(Error::from)? + "\n"
    } else {
        answer(&plan, &largest, &Style::of_stdout())
    };
    print::data(&answer)?;
    Ok(if plan.fits { Exit::Success } else { Exit::Failure })
}

fn take_word(name: &'static str, arguments: &mut Arguments, word: Word) -> Result<(), UsageError> {
    match word {
        Word::Other(word) => arguments.words.push(word),
        Word::Plain(word) => {
            return Err(UsageError::UnexpectedWord { command: name, word: word.to_string_lossy().into_owned() });
        }
    }
    Ok(())
}

fn answer(plan: &Plan<TrainerRequest>, largest: &[(Knob, Option<u64>)], style: &Style) -> String {
    let mut parts = vec![report::verdict_with(plan, &[], style)];
    parts.extend(plan.oom.as_ref().map(|oom| report::message(oom, style)));
    parts.push(what_fits(largest, style));
    parts.extend([report::phases(plan, style), report::peak(plan, style), report::outside(plan, style)]);
    parts.push(report::basis(plan, style));
    let run = plan.request.run();
    let remarks: String = run.remarks().iter().map(|remark| style.wrapped(remark, 0)).collect();
    parts.push(style.paint(Ink::Heading, "Worth knowing") + "\n" + &remarks + &without_effect(run, style));
    parts.join("\n")
}

/// The largest value of each knob with which the run fits.
fn what_fits(largest: &[(Knob, Option<u64>)], style: &Style) -> String {
    let mut text = style.paint(Ink::Heading, "Largest value that fits, if nothing else changes") + "\n";
    for (knob, value) in largest {
        let value = value.map_or_else(|| "none".to_owned(), |value| value.to_string());
        text.push_str(&format!("--{:24} {value:>8}   given: {}\n", knob.key, knob.value));
    }
    text
}

fn without_effect(run: &Run, style: &Style) -> String {
    let keys: Vec<String> = run.without_effect().map(|key| format!("--{key}")).collect();
    if keys.is_empty() {
        return String::new();
    }
    style.wrapped(&format!("These options change no memory: {}.", keys.join(", ")), 0)
}
