//! `headroom plan TRAINER`: predicts the memory of a run of another trainer than nanoGPT.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    path::PathBuf,
};

use headroom_planner::{
    advice::Knob,
    hardware::{Device, find},
    link::trainer::encode,
    plan::{Plan, RunOnMachine},
    report::Node,
    session::Options,
    trainers::{
        Run, TrainerRequest,
        arguments::{Key, takes},
        fixes::{TrainerAdvice, advise},
        hf,
        input::{self, Input},
        nanochat::{
            self,
            launch::{self, Launch},
        },
        plan, presets,
    },
};

use headroom_text::Text;
use serde_json::Value;

use super::{
    Error, MAX_SOURCE_BYTES, PAGE, allocator_notes, gpus,
    machine::{ALL, PlanArguments},
    read_limited, report, snapshot_file,
};
use crate::cli::{
    self, Exit,
    args::{Flag, ParsedArgs, UsageError, Word, parse_with, shown},
    command::{Command, Words},
    fixes::trainer_fixes,
    print,
    style::{Ink, Style},
};

/// Parsed arguments.
#[derive(Debug, Default)]
pub struct Arguments {
    /// GPU and environment.
    pub options: Options,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether to print only a link to the plan.
    link: bool,
    /// File to which the run is written as a snapshot of PyTorch.
    pub snapshot: Option<PathBuf>,
    /// Text of the script or log with the run.
    pub log: Option<String>,
    /// File with the message, for `diagnose` only.
    pub message: Option<OsString>,
    /// GPUs of the table, for `fit` only.
    pub gpus: Option<Vec<&'static Device>>,
    /// The trainer's command line.
    words: Vec<String>,
    /// The model's `config.json`.
    model: String,
    /// Whether `options.gpu` was given.
    pub names_gpu: bool,
    /// Other words: a file, or a command that starts the trainer.
    pub plain: Vec<OsString>,
}

impl Arguments {
    /// The only other word, if it is a file and not a command.
    fn file(&self) -> Option<&OsStr> {
        match &self.plain[..] {
            [file] if !file.to_string_lossy().contains(char::is_whitespace) => Some(file),
            _ => None,
        }
    }

    /// Whether `--gpu all` was given.
    fn is_for_all_gpus(&self) -> bool {
        self.names_gpu && self.options.gpu.eq_ignore_ascii_case(ALL)
    }

    /// Address of the plan in the page of `headroom serve`.
    fn address(&self, trainer: input::Trainer) -> String {
        format!("{PAGE}#{}", encode(&Input::of_words(trainer, &self.words, self.model.clone()), &self.options))
    }
}

impl PlanArguments for Arguments {
    fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    fn json(&mut self) -> &mut bool {
        &mut self.json
    }

    fn note_gpu(&mut self) {
        self.names_gpu = true;
    }

    fn request_link(&mut self) {
        self.link = true;
    }

    fn write_snapshot(&mut self, file: &str) {
        self.snapshot = Some(file.into());
    }

    fn gpus(&mut self) -> &mut Option<Vec<&'static Device>> {
        &mut self.gpus
    }
}

/// How a trainer's command line is read.
#[derive(Clone, Copy)]
pub struct Trainer {
    trainer: input::Trainer,
    keys: &'static [Key],
    read: fn(&mut Arguments) -> Result<Run, Error>,
    /// Whether the words may be a command that starts the trainer.
    takes_command: bool,
    /// Description of the arguments, for the help.
    pub arguments: &'static str,
}

/// nanochat's `scripts.base_train`.
pub const BASE_TRAIN: Trainer = Trainer {
    trainer: input::Trainer::Nanochat,
    keys: nanochat::KEYS,
    read: |arguments| Ok(Run::Nanochat(nanochat_run(arguments)?)),
    takes_command: true,
    arguments: "\
Accepts the options of `python -m scripts.base_train`, such as --depth=12 or --depth 12, and:
  --compile=False  Plan the eager run; compiled runs of nanochat are not predicted yet
  --vocab-size=N   Vocabulary of the tokenizer [default: 32768]
A run may also come from elsewhere; the options above override it:
  -- COMMAND       The command, as in `-- torchrun -m scripts.base_train -- --depth=12`
  FILE             A shell script with the command, or the log of a run; - is standard input",
};

/// Hugging Face's `Trainer`.
pub const HF_TRAINER: Trainer = Trainer {
    trainer: input::Trainer::Hf,
    keys: hf::KEYS,
    read: |arguments| Ok(Run::Hf(hf_run(arguments)?)),
    takes_command: false,
    arguments: "\
  MODEL          The model's config.json: gemma2, gemma3_text, gpt2, llama, mistral, qwen2,
                 qwen3 or smollm3. Or a name such as Qwen3-0.6B; another one lists all
  --key=value    An option of TrainingArguments, such as --per_device_train_batch_size=2,
                 --gradient_accumulation_steps=4, --bf16, --fp16, --optim=adamw_torch or
                 --gradient_checkpointing; also
                 --attn_implementation=NAME  sdpa or eager [default: sdpa]
                 --max_length=N  Tokens of each sequence [default: 1024]
                 --dtype=NAME    Dtype of the weights [default: that of the config]
                 --lora_r=N      Rank of LoRA adapters [default: no LoRA]
                 --lora_target_modules=NAME,NAME or all-linear [default: PEFT's]
                 --lora_dropout=P [default: 0]
  --key value    The same. After a True/False option, only a truth value counts as its value",
};

const FLAGS: &[Flag<Arguments>] = &[
    Flag::GPU,
    Flag::VRAM,
    Flag::OTHER_PROCESSES,
    Flag::CONTEXT_BYTES,
    Flag::EXPANDABLE_SEGMENTS,
    Flag::TORCH,
    Flag::JSON,
    Flag::SNAPSHOT,
    Flag::LINK,
];

/// Options of `headroom plan hf`. nanochat's script sets the allocator itself, so its form lacks `--alloc-conf`.
const HF_FLAGS: &[Flag<Arguments>] = &[
    Flag::GPU,
    Flag::VRAM,
    Flag::OTHER_PROCESSES,
    Flag::CONTEXT_BYTES,
    Flag::EXPANDABLE_SEGMENTS,
    Flag::ALLOC_CONF,
    Flag::TORCH,
    Flag::JSON,
    Flag::SNAPSHOT,
    Flag::LINK,
];

/// `headroom plan nanochat`.
pub const NANOCHAT: Command = Command {
    name: "plan nanochat",
    summary: "Predict whether a run of nanochat fits on a GPU",
    about: "\
Predicts how much GPU memory nanochat's `scripts.base_train` needs, whether it fits, and
where it would run out of memory.",
    usage: &[
        "headroom plan nanochat --compile=False [--key=value …] [OPTIONS] [FILE]",
        "headroom plan nanochat --compile=False [OPTIONS] -- COMMAND",
    ],
    arguments: BASE_TRAIN.arguments,
    options: || shown(FLAGS),
    words: Words::Files,
    notes: "A SIZE is 11.69GiB, 800MiB, 12GB or a number of bytes.",
    exits: &[(0, "the run fits, with `--gpu all` at least one GPU"), (1, "the run does not fit")],
    examples: &[
        "headroom plan nanochat --compile=False --depth=12 --device-batch-size=8 --gpu \"RTX 4070\"",
        "headroom plan nanochat --compile=False --gpu \"RTX 4070\" runs/speedrun.sh",
        "headroom plan nanochat --compile=False -- python -m scripts.base_train --depth=12",
    ],
    run: |args| run(&NANOCHAT, FLAGS, args, BASE_TRAIN),
    ..Command::EMPTY
};

/// `headroom plan hf`.
pub const HF: Command = Command {
    name: "plan hf",
    summary: "Predict whether a fine-tuning of a Hugging Face model fits on a GPU",
    about: "\
Predicts how much GPU memory `transformers.Trainer` needs for a causal language model, also
with LoRA, whether it fits, and where it would run out of memory.",
    usage: &["headroom plan hf MODEL [--key=value …] [OPTIONS]"],
    arguments: HF_TRAINER.arguments,
    options: || shown(HF_FLAGS),
    words: Words::Files,
    notes: "A SIZE is 11.69GiB, 800MiB, 12GB or a number of bytes.",
    exits: &[(0, "the run fits, with `--gpu all` at least one GPU"), (1, "the run does not fit")],
    examples: &[
        "headroom plan hf Qwen3-0.6B --bf16 --per_device_train_batch_size=2 --lora_r=16 --gpu \"RTX 4070\"",
        "headroom plan hf Qwen3-1.7B --bf16 --lora_r=16 --gpu all",
    ],
    run: |args| run(&HF, HF_FLAGS, args, HF_TRAINER),
    ..Command::EMPTY
};

/// Reads a command line, plans the run, and prints the answer.
fn run(
    command: &'static Command,
    flags: &[Flag<Arguments>],
    args: Vec<OsString>,
    trainer: Trainer,
) -> Result<Exit, cli::Error> {
    let Some((run, arguments)) = read(command, flags, args, trainer)? else {
        return command.print_help();
    };
    if arguments.json && arguments.link {
        return Err(UsageError::Exclusive("json", "link").into());
    }
    if arguments.link && arguments.options.tuned.is_some() {
        return Err(UsageError::Exclusive("alloc-conf", "link").into());
    }
    if arguments.snapshot.is_some() && arguments.options.tuned.is_some() {
        return Err(UsageError::Exclusive("alloc-conf", "snapshot").into());
    }
    if arguments.is_for_all_gpus() {
        return on_all_gpus(&run, &arguments);
    }
    let plan = planned(run, &arguments.options)?;
    if let Some(file) = &arguments.snapshot {
        snapshot_file::write(file, &plan)?;
    }
    let link = || arguments.address(trainer.trainer);
    let answer = if arguments.link {
        link() + "\n"
    } else if arguments.json {
        let mut document = plan.trainer_document(&advise(&plan), &link());
        if arguments.options.tuned.is_some() {
            remove_link(&mut document);
        }
        serde_json::to_string_pretty(&document).map_err(Error::from)? + "\n"
    } else {
        answer(&plan, &advise(&plan), &Style::of_stdout())
    };
    print::data(&answer)?;
    print::note(&allocator_notes(&arguments.options));
    Ok(if plan.fits { Exit::Success } else { Exit::Failure })
}

/// Plans a run on every GPU, and prints the list.
fn on_all_gpus(run: &Run, arguments: &Arguments) -> Result<Exit, cli::Error> {
    let options = &arguments.options;
    let others =
        [(options.vram_bytes.is_some(), "vram"), (arguments.link, "link"), (arguments.snapshot.is_some(), "snapshot")];
    if let Some((_, other)) = others.into_iter().find(|(is_given, _)| *is_given) {
        return Err(UsageError::Exclusive("gpu all", other).into());
    }
    let (answer, fits) = gpus::trainer_answer(run, options, arguments.json).map_err(Error::from)?;
    print::data(&answer)?;
    print::note(&allocator_notes(options));
    Ok(if fits { Exit::Success } else { Exit::Failure })
}

/// Replaces the link by null: the page has no settings of the allocator.
fn remove_link(document: &mut Node) {
    let Node::Object(fields) = document else { return };
    for (_, value) in fields.iter_mut().filter(|(name, _)| *name == "link") {
        *value = Node::Value(Value::Null);
    }
}

/// Reads a command line. `None` if the user requested help.
///
/// # Errors
/// An option is invalid, or the run is not one that Headroom plans.
pub fn read(
    command: &'static Command,
    flags: &[Flag<Arguments>],
    args: Vec<OsString>,
    trainer: Trainer,
) -> Result<Option<(Run, Arguments)>, cli::Error> {
    let mut arguments = Arguments::default();
    let takes = |name: &str, word: &OsStr| word.to_str().is_some_and(|word| takes(trainer.keys, name, word));
    let take = |arguments: &mut Arguments, word| take_word(command.name, trainer, arguments, word);
    if parse_with(command.name, flags, args, &mut arguments, take, takes)? == ParsedArgs::Help {
        return Ok(None);
    }
    Ok(Some(((trainer.read)(&mut arguments)?, arguments)))
}

/// Plans a run on the GPU of the options.
///
/// # Errors
/// The GPU is unknown, or Headroom does not plan the run on it.
pub fn planned(run: Run, options: &Options) -> Result<Plan<TrainerRequest>, Error> {
    Ok(plan(TrainerRequest::new(run, options.machine()?)?)?)
}

/// Reads the run of a command, a script or a log, and the options, which override it.
fn nanochat_run(arguments: &mut Arguments) -> Result<nanochat::Run, Error> {
    arguments.log = arguments.file().map(text_of).transpose()?;
    let launch = match (&arguments.log, &arguments.plain[..]) {
        (Some(text), _) => launch::of_text(text)?,
        (None, []) => Launch::default(),
        (None, words) => {
            let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            launch::of_command(&words)?
        }
    };
    let is_known = |gpu: &String| find(gpu).is_ok();
    if let Some(gpu) = launch.gpu.filter(is_known).filter(|_| !arguments.names_gpu) {
        arguments.options.gpu = gpu;
    }
    arguments.words.splice(..0, launch.options);
    Ok(nanochat::Run::read(&arguments.words)?)
}

/// Text of a file, or of standard input. Progress bars of a log may have bytes that are not UTF-8.
fn text_of(file: &OsStr) -> Result<String, Error> {
    let read = |from: Box<dyn Read>| {
        let mut bytes = Vec::new();
        from.take(MAX_SOURCE_BYTES as u64 + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = if file == "-" { read(Box::new(io::stdin())) } else { read_limited(file) };
    let name = || file.to_string_lossy().into_owned();
    let bytes = bytes.map_err(|error| Error::Unreadable { name: name(), error })?;
    if bytes.len() > MAX_SOURCE_BYTES {
        return Err(Error::TooLong { name: name() });
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads the model's config, or finds the model of that name, and reads the options.
fn hf_run(arguments: &mut Arguments) -> Result<hf::Run, Error> {
    let path = arguments.plain.first().ok_or(Error::NoModelConfig)?;
    let name = path.to_string_lossy().into_owned();
    let bytes = match read_limited(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let preset = presets::find(&name).ok_or(Error::UnknownModel { name })?;
            let config = preset.config();
            arguments.model = config.to_string();
            return Ok(hf::Run::read(&config, &arguments.words)?);
        }
        Err(error) => return Err(Error::Unreadable { name, error }),
    };
    if bytes.len() > MAX_SOURCE_BYTES {
        return Err(Error::LongModelConfig { name });
    }
    let config: Value = serde_json::from_slice(&bytes).map_err(|error| Error::ModelConfig { name, error })?;
    arguments.model = config.to_string();
    Ok(hf::Run::read(&config, &arguments.words)?)
}

/// Takes a word that is not an option of this command. Only a trainer with a command accepts several plain words.
fn take_word(command: &'static str, trainer: Trainer, arguments: &mut Arguments, word: Word) -> Result<(), UsageError> {
    match word {
        Word::Other(word) => arguments.words.push(word),
        Word::Plain(word) if trainer.takes_command || arguments.plain.is_empty() => arguments.plain.push(word),
        Word::Plain(word) => {
            let word = word.to_string_lossy().into_owned();
            return Err(UsageError::UnexpectedWord { command, word });
        }
    }
    Ok(())
}

fn answer(plan: &Plan<TrainerRequest>, advice: &TrainerAdvice, style: &Style) -> String {
    let mut parts = vec![report::verdict_with(plan, &[], style)];
    parts.extend(plan.oom.as_ref().map(|oom| report::message(oom, style)));
    parts.extend(what_helps(plan, advice, style));
    parts.extend([report::phases(plan, style), report::peak(plan, style), report::outside(plan, style)]);
    parts.push(report::basis(plan, style));
    parts.push(remarks(plan.request.run(), style));
    parts.join("\n")
}

/// Remarks on the figures and on options without effect.
pub fn remarks(run: &Run, style: &Style) -> String {
    let remarks: String =
        run.remarks().into_iter().map(|remark| style.wrapped(&Text::from(remark).to_string(), 0)).collect();
    style.paint(Ink::Heading, "Worth knowing") + "\n" + &remarks + &without_effect(run, style)
}

/// The fixes of a run that does not fit, and the largest values that fit.
pub fn what_helps(plan: &Plan<TrainerRequest>, advice: &TrainerAdvice, style: &Style) -> Vec<String> {
    let fixes = (!plan.fits).then(|| trainer_fixes(advice, plan.request.machine().torch, style));
    fixes.into_iter().chain([what_fits(&advice.largest, style)]).collect()
}

/// The largest value of each knob with which the run fits.
pub fn what_fits(largest: &[(Knob, Option<u64>)], style: &Style) -> String {
    let mut text = style.paint(Ink::Heading, "Largest value that fits, if nothing else changes") + "\n";
    for (knob, value) in largest {
        let value = value.map_or_else(|| "none".to_owned(), |value| value.to_string());
        text.push_str(&format!("--{:24} {value:>8}   given: {}\n", knob.key, knob.value));
    }
    text
}

fn without_effect(run: &Run, style: &Style) -> String {
    let keys: Vec<String> = run.without_effect().iter().map(|key| format!("--{key}")).collect();
    if keys.is_empty() {
        return String::new();
    }
    style.wrapped(&format!("These options do not affect memory: {}.", keys.join(", ")), 0)
}
