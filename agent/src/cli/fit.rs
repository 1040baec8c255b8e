//! `headroom fit`: the largest run that fits a GPU, and the GPUs that a run fits.

mod table;

use std::ffi::{OsStr, OsString};

use headroom_planner::{
    fit::{FitAnswer, NanogptRun, ScalableRun, TrainerRun, common_gpus, fit},
    hardware::Device,
    plan::{Plan, RunOnMachine, plan},
    session::resolve,
};
use serde_json::{Map, Value};

use super::{
    Exit,
    args::{Flag, ParsedArgs, UsageError, Word, parse_with, shown},
    command::{Command, Words},
    plan::{
        self, Error,
        options::{self, EVAL_BATCH_SIZE, Request, is_value, nanogpt_word},
        report,
        trainer::{self, Arguments, BASE_TRAIN, HF_TRAINER, Trainer},
    },
    print,
    style::Style,
};

/// Options of the nanoGPT form: those of `headroom plan`, with the GPUs of the table in place of its last one, the
/// link.
const FLAGS: [Flag<Request>; options::FLAGS.len()] = {
    let mut flags = [Flag::GPUS; options::FLAGS.len()];
    let mut i = 0;
    while i + 1 < flags.len() {
        flags[i] = options::FLAGS[i];
        i += 1;
    }
    flags
};

/// Options of the other trainers.
const TRAINER_FLAGS: &[Flag<Arguments>] = &[
    Flag::GPU,
    Flag::GPUS,
    Flag::VRAM,
    Flag::OTHER_PROCESSES,
    Flag::CONTEXT_BYTES,
    Flag::EXPANDABLE_SEGMENTS,
    Flag::TORCH,
    Flag::JSON,
];

const NOTES: &str = "\
A SIZE is 11.69GiB, 800MiB, 12GB or a number of bytes.

The largest values are those whose whole band of estimates fits, each if nothing else changes.
The table has the memory left for several batch sizes on common GPUs, or on those of --gpus.";

const EXITS: &[(u8, &str)] = &[(0, "the run as given fits"), (1, "the run as given does not fit")];

/// `headroom fit`.
pub const COMMAND: Command = Command {
    name: "fit",
    summary: "Find what fits: the largest run for a GPU, and the GPUs for a run",
    about: "\
Finds the largest batch size, sequence length and depth of a run that fit a GPU, the memory
that the run leaves on other GPUs, and the smallest GPU for it.",
    usage: &["headroom fit [CONFIG.py …] [--key=value …] [OPTIONS]"],
    arguments: options::ARGUMENTS,
    options: || shown(&FLAGS),
    takes_settings: true,
    words: Words::Files,
    subcommands: &[&NANOCHAT, &HF],
    notes: NOTES,
    exits: EXITS,
    examples: &[
        "headroom fit config/train_gpt2.py --gpu \"RTX 4060\"",
        "headroom fit --n_layer=24 --n_head=16 --n_embd=1024 --gpus \"RTX 3090, RTX 4090, A100 40GB\"",
    ],
    run,
};

/// `headroom fit nanochat`.
const NANOCHAT: Command = Command {
    name: "fit nanochat",
    summary: "Find what fits of a run of nanochat",
    about: "\
Finds the largest --device-batch-size, --max-seq-len and --depth of nanochat's
`scripts.base_train` that fit a GPU, the memory left on other GPUs, and the smallest GPU.",
    usage: &[
        "headroom fit nanochat --compile=False [--key=value …] [OPTIONS] [FILE]",
        "headroom fit nanochat --compile=False [OPTIONS] -- COMMAND",
    ],
    arguments: BASE_TRAIN.arguments,
    options: || shown(TRAINER_FLAGS),
    words: Words::Files,
    notes: NOTES,
    exits: EXITS,
    examples: &["headroom fit nanochat --compile=False --depth=12 --gpu \"RTX 4070\""],
    run: |args| run_trainer(&NANOCHAT, args, BASE_TRAIN),
    ..Command::EMPTY
};

/// `headroom fit hf`.
const HF: Command = Command {
    name: "fit hf",
    summary: "Find what fits of a fine-tuning of a Hugging Face model",
    about: "\
Finds the largest batch size, sequence length and LoRA rank of a fine-tuning with
`transformers.Trainer` that fit a GPU, the memory left on other GPUs, and the smallest GPU.",
    usage: &["headroom fit hf MODEL [--key=value …] [OPTIONS]"],
    arguments: HF_TRAINER.arguments,
    options: || shown(TRAINER_FLAGS),
    words: Words::Files,
    notes: NOTES,
    exits: EXITS,
    examples: &["headroom fit hf Qwen3-0.6B --bf16 --gradient_checkpointing --lora_r=16 --gpu \"RTX 4060\""],
    run: |args| run_trainer(&HF, args, HF_TRAINER),
    ..Command::EMPTY
};

/// Runs the command for nanoGPT.
fn run(mut args: Vec<OsString>) -> Result<Exit, super::Error> {
    if let Some(command) = args.first().and_then(|word| COMMAND.subcommand(word.to_str()?)) {
        args.remove(0);
        return (command.run)(args);
    }
    let mut request = Request::default();
    let takes = |key: &str, word: &OsStr| is_value(key, word, EVAL_BATCH_SIZE);
    if parse_with(COMMAND.name, &FLAGS, args, &mut request, take_word, takes)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    if request.is_for_all_gpus() {
        return Err(UsageError::BadValue {
            name: "gpu",
            why: "the largest values belong to one GPU".to_owned(),
            meant: Some("RTX 4070 --gpus all".to_owned()),
        }
        .into());
    }
    plan::take_gpu_of_plan(&mut request);
    let resolved = resolve(&plan::sources(&request.given)?, &request.options);
    let problems = plan::problems(&resolved);
    let Some(asked) = plan::planned(&resolved, &problems) else {
        return Ok(Exit::Usage);
    };
    let planned = plan(asked).map_err(Error::from)?;
    let config = resolved.config.iter().map(|(key, value)| (key.to_owned(), value.to_json())).collect();
    let answer = Answer {
        plan: &planned,
        trainer: "nanogpt",
        config,
        verdict: report::verdict,
        remarks: |_, _| String::new(),
        json: request.json,
    };
    let exit = answer.print(NanogptRun::new(&resolved.settings, &request.options), request.gpus.as_deref())?;
    let notes = plan::said(&problems, &resolved.settings) + &plan::allocator_notes(&request.options);
    print::note(&(notes + &plan::findings(&resolved, |_| true)));
    Ok(exit)
}

/// Runs the command for another trainer.
fn run_trainer(command: &'static Command, args: Vec<OsString>, trainer: Trainer) -> Result<Exit, super::Error> {
    let Some((run, arguments)) = trainer::read(command, TRAINER_FLAGS, args, trainer)? else {
        return command.print_help();
    };
    let plan = trainer::planned(run, &arguments.options)?;
    let run = plan.request.run();
    let Arguments { json, options, gpus, .. } = &arguments;
    let answer = Answer {
        plan: &plan,
        trainer: run.trainer(),
        config: run.config(),
        verdict: |plan, style| report::verdict_with(plan, &[], style),
        remarks: |plan, style| "\n".to_owned() + &trainer::remarks(plan.request.run(), style),
        json: *json,
    };
    answer.print(TrainerRun::new(run, options), gpus.as_deref())
}

fn take_word(request: &mut Request, word: Word) -> Result<(), UsageError> {
    request.given.push(nanogpt_word(COMMAND.name, &FLAGS, EVAL_BATCH_SIZE, word)?);
    Ok(())
}

/// What the answer starts from.
struct Answer<'a, R> {
    /// The run as given.
    plan: &'a Plan<R>,
    trainer: &'static str,
    config: Map<String, Value>,
    /// Formats the verdict.
    verdict: fn(&Plan<R>, &Style) -> String,
    /// Formats what follows the table.
    remarks: fn(&Plan<R>, &Style) -> String,
    json: bool,
}

impl<R: RunOnMachine> Answer<'_, R> {
    /// Computes what fits, and prints it. The table has these GPUs, or common ones.
    fn print(self, run: impl ScalableRun, gpus: Option<&[&Device]>) -> Result<Exit, super::Error> {
        let Self { plan, trainer, config, json, .. } = &self;
        let common = common_gpus();
        let found = fit(run, gpus.unwrap_or(&common)).ok_or(Error::NothingToFit)?;
        let device = &plan.request.machine().device;
        let answer = if *json {
            let document = found.document(trainer, config.clone(), device, plan.room());
            serde_json::to_string_pretty(&document).map_err(Error::from)? + "\n"
        } else {
            self.text(&found, &Style::of_stdout())
        };
        print::data(&answer)?;
        Ok(if plan.fits { Exit::Success } else { Exit::Failure })
    }

    fn text(&self, found: &FitAnswer, style: &Style) -> String {
        let device = &self.plan.request.machine().device;
        let parts = [
            (self.verdict)(self.plan, style),
            table::limits(&found.limits, device, style),
            table::smallest(found.smallest.as_ref(), style),
            table::gpus(found, style),
        ];
        parts.join("\n") + &(self.remarks)(self.plan, style)
    }
}
