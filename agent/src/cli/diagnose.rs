//! `headroom diagnose`: explains an out-of-memory error and suggests fixes.

mod trainer;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
};

use headroom_planner::{
    nanogpt::{Severity, Value},
    oom::{
        Diagnosis, Explanation, Kind, Message, Report, diagnose, shape,
        solve::{FoundRun, Solution, headline, missing_figures, not_shown},
    },
    trainers::{
        input::{InputError, Trainer},
        launch::input_in,
    },
};
use headroom_text::{self as text, units::human_size};

use super::{
    Exit,
    args::{Flag, ParsedArgs, UsageError, Word, parse_with, shown},
    command::{Command, Words},
    fixes, plan,
    plan::options::{self, EVAL_BATCH_SIZE, NanogptArgument, Request},
    print,
    style::{Ink, Style},
};
use headroom_train::keys::stops_nanogpt;

/// Size limit of the text. Beyond 5 MB, only both ends are examined.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// `--config` takes a file, since a bare word is the text with the message.
const CONFIG: Flag<Request> = Flag {
    name: "config",
    value: Some("CONFIG.py"),
    doc: "Config of the run; repeatable. Without it, the settings\nprinted in the log are used",
    set: |request, path| {
        request.given.push(NanogptArgument::Config(path.into()));
        Ok(())
    },
};

fn flags() -> Vec<Flag<Request>> {
    let of_plan = options::FLAGS.iter().filter(|flag| !["link", "alloc-conf"].contains(&flag.name));
    [CONFIG].into_iter().chain(of_plan.copied()).collect()
}

/// Runs the command.
///
/// # Errors
/// The arguments are invalid, or a file cannot be read.
pub fn run(mut args: Vec<OsString>) -> Result<Exit, super::Error> {
    if let Some(command) = args.first().and_then(|word| COMMAND.subcommand(word.to_str()?)) {
        args.remove(0);
        return (command.run)(args);
    }
    let mut request = Request::default();
    let takes = |key: &str, word: &OsStr| options::is_value(key, word, EVAL_BATCH_SIZE);
    if parse_with(COMMAND.name, &flags(), args, &mut request, take_word, takes)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    let text = read_text(request.text.as_deref().unwrap_or(OsStr::new("-")))?;
    let sources = plan::sources(&request.given)?;
    let of_trainer = if sources.is_empty() { input_in(&text) } else { None };
    let of_trainer = of_trainer.map(|input| input.map_err(InputError::from).and_then(|input| input.read()));
    if let Some(Ok(run)) = &of_trainer {
        return trainer::explain(&text, run, &request.options, request.names_gpu, request.json);
    }
    let mut diagnosis = diagnose(&text, &sources, &request.options, request.names_gpu);
    diagnosis.solve();
    // An invalid config from the command line is an error. A config in the text may be incomplete.
    if let Some(resolved) = diagnosis.resolved.as_ref().filter(|_| !sources.is_empty()) {
        let problems = plan::problems(resolved);
        if resolved.request.is_none() || problems.iter().any(stops_nanogpt) {
            let errors = plan::findings(resolved, |severity| severity == Severity::Error);
            print::error(&(plan::said(&problems, &resolved.settings) + &errors));
            return Ok(Exit::Usage);
        }
    }
    if request.json {
        let json =
            serde_json::to_string_pretty(&diagnosis.json(headroom_languages::english())).map_err(plan::Error::from)?;
        print::data(&(json + "\n"))?;
    } else {
        print::data(&report(&diagnosis, &Style::of_stdout()))?;
    }
    // The figures are compared with common runs instead.
    if let Some(Err(error)) = of_trainer {
        print::note(&format!("{error}\n"));
    }
    if let Some(resolved) = &diagnosis.resolved {
        print::note(&plan::said(&plan::problems(resolved), &resolved.settings));
        print::note(&plan::findings(resolved, |_| true));
    }
    Ok(Exit::Success)
}

/// The first bare word is the text; all others are parsed as in `headroom plan`.
fn take_word(request: &mut Request, word: Word) -> Result<(), UsageError> {
    match word {
        Word::Plain(word) if !word.to_string_lossy().contains('=') => {
            if request.text.is_some() {
                let word = word.to_string_lossy().into_owned();
                return Err(UsageError::UnexpectedWord { command: "diagnose", word });
            }
            request.text = Some(word);
            Ok(())
        }
        other => {
            request.given.push(options::nanogpt_word(COMMAND.name, &flags(), EVAL_BATCH_SIZE, other)?);
            Ok(())
        }
    }
}

fn read_text(path: &OsStr) -> Result<String, plan::Error> {
    let (text, name) = match path == "-" {
        true => (text_of(io::stdin().lock()), "standard input".into()),
        false => (File::open(path).and_then(text_of), path.to_string_lossy()),
    };
    text.map_err(|error| plan::Error::Unreadable { name: name.into_owned(), error })
}

/// Reads a text. Binary data is refused by its beginning, before the rest takes memory.
fn text_of(mut from: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.by_ref().take(EXAMINED_BYTES).read_to_end(&mut bytes)?;
    if is_binary(&decoded(bytes.clone())) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is binary data, not text"));
    }
    from.take(MAX_TEXT_BYTES - EXAMINED_BYTES).read_to_end(&mut bytes)?;
    Ok(decoded(bytes))
}

/// Decodes any bytes: a log may contain anything, and PowerShell writes UTF-16.
fn decoded(bytes: Vec<u8>) -> String {
    let wide = |read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..].chunks_exact(2).map(|pair| read([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes.as_slice() {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        // Valid text is not copied, as it may be long.
        _ => String::from_utf8(bytes).unwrap_or_else(|error| without_invalid(error.as_bytes())),
    }
}

/// Replaces invalid UTF-8 by a character that is not longer.
fn without_invalid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            text.push_str(INVALID);
        }
    }
    text
}

/// Replacement of invalid UTF-8: the control character "substitute".
const INVALID: &str = "\u{1a}";
/// Beginning of a text that is examined, in characters.
const EXAMINED_CHARS: usize = 64 << 10;
/// Upper bound of its bytes.
const EXAMINED_BYTES: u64 = 4 * EXAMINED_CHARS as u64;

/// Whether more than a tenth of a text are characters that no log has.
fn is_binary(text: &str) -> bool {
    let is_of_logs = |c: char| !c.is_control() || c.is_whitespace() || "\u{1b}\u{8}\u{7}".contains(c);
    let (mut n, mut n_other) = (0, 0);
    for c in text.chars().take(EXAMINED_CHARS) {
        n += 1;
        n_other += usize::from(!is_of_logs(c));
    }
    n_other > n / 10
}

fn report(diagnosis: &Diagnosis, style: &Style) -> String {
    let mut parts = vec![style.wrapped(&diagnosis.explanation.text.to_string(), 0)];
    parts.extend(other_messages(&diagnosis.report, diagnosis.explains_last, style));
    parts.extend(differences(&diagnosis.explanation, style));
    parts.extend(solutions(diagnosis, style));
    parts.extend(matches(&diagnosis.explanation, style));
    parts.extend(arithmetic(&diagnosis.explanation, style));
    match &diagnosis.explanation.plan {
        Some(plan) => {
            if diagnosis.advises_another_run() {
                parts.push(style.wrapped(headroom_languages::english().word(text::FIXES_OF_THE_PLAN), 0));
            }
            if !diagnosis.contradicts_fitting_run() {
                parts.extend(fixes::fixes(plan, &diagnosis.advice, style));
            }
        }
        None if diagnosis.message().is_some_and(|message| message.kind == Kind::Pytorch) => {
            if let Some(planned) = &diagnosis.solved {
                parts.extend(fixes::fixes(planned, &diagnosis.advice, style));
            }
            if let Some((planned, advice)) = &diagnosis.of_trainers.advice {
                parts.extend(plan::trainer::what_helps(planned, advice, style));
            }
            parts.push(style.wrapped(&with_config(diagnosis), 0));
        }
        None => {}
    }
    parts.join("\n")
}

/// The command that explains the message with the run's config.
fn with_config(diagnosis: &Diagnosis) -> String {
    let origin = diagnosis.report.phase_hint.origin.map(headroom_planner::oom::Origin::trainer);
    let command = match origin {
        Some(Trainer::Nanochat) => "the options (headroom diagnose nanochat --compile=False --key=value …)",
        Some(Trainer::Hf) => "the model and the options (headroom diagnose hf MODEL --key=value …)",
        None => "the config (--config CONFIG.py --key=value …)",
    };
    format!("With {command} Headroom says which tensor it was, and what to change.")
}

fn other_messages(report: &Report, explains_last: bool, style: &Style) -> Option<String> {
    let (first, last) = (report.first.as_ref()?, report.last.as_ref()?);
    (report.n_messages > 1).then(|| {
        let text = format!(
            "{} messages: this is the {}; the first is on line {}, the last on line {}.",
            report.n_messages,
            if explains_last { "last, as it agrees with the config" } else { "first" },
            first.line,
            last.line
        );
        style.wrapped(&text, 0)
    })
}

/// Formats the figures in which the message and the config disagree.
fn differences<R>(explanation: &Explanation<R>, style: &Style) -> Option<String> {
    let differences = &explanation.differences;
    if differences.is_empty() {
        return None;
    }
    let english = headroom_languages::english();
    let mut text = style.wrapped(english.word(text::DISAGREES_WITH_CONFIG), 0);
    for difference in differences {
        text.push_str(&style.wrapped(&difference.text().to_string(), 2));
    }
    text.push_str(&style.wrapped(english.word(text::OTHER_CAUSES), 0));
    Some(text)
}

/// Formats the runs that produce the message, each with its arguments. Without one, says which figures the message
/// lacks.
fn solutions(diagnosis: &Diagnosis, style: &Style) -> Option<String> {
    let message = diagnosis.message().filter(|message| message.kind == Kind::Pytorch)?;
    let (of_nanogpt, of_trainers) = (&diagnosis.solutions, &diagnosis.of_trainers.solutions);
    if of_nanogpt.is_empty()
        && of_trainers.is_empty()
        && (missing_figures(message).is_none() || !diagnosis.is_unsolved())
    {
        return None;
    }
    let has_config = diagnosis.explanation.agreement.is_some();
    let mut text = String::new();
    if !of_nanogpt.is_empty() || of_trainers.is_empty() {
        let arguments = |solution: &Solution| {
            let arguments = solution.keys.iter().map(|(key, value)| format!("--{key}={}", argument(value)));
            arguments.collect::<Vec<_>>().join(" ")
        };
        text.push_str(&listed(of_nanogpt, arguments, message, has_config, style));
    }
    if !of_trainers.is_empty() {
        text.push_str(&listed(of_trainers, trainer::command, message, has_config, style));
    }
    Some(text)
}

/// Lists runs with their arguments below a headline.
fn listed<S: FoundRun>(
    solutions: &[S],
    arguments: impl Fn(&S) -> String,
    message: &Message,
    has_config: bool,
    style: &Style,
) -> String {
    let mut text = style.wrapped(&headline(solutions, message, has_config).to_string(), 0);
    let is_named = solutions.len() == 1 && solutions[0].is_exact();
    for solution in solutions {
        if !is_named {
            text.push_str(&style.wrapped(&solution.described(human_size).to_string(), 2));
        }
        text.push_str(&style.wrapped(&arguments(solution), 4));
    }
    if let Some(not_shown) = not_shown(solutions) {
        text.push_str(&style.wrapped(&not_shown.to_string(), 0));
    }
    text
}

/// A value as written on nanoGPT's command line.
fn argument(value: &Value) -> String {
    match value {
        Value::Str(words) => words.clone(),
        value => value.to_string(),
    }
}

fn matches<R>(explanation: &Explanation<R>, style: &Style) -> Option<String> {
    let matches = &explanation.matches;
    if matches.is_empty() {
        return None;
    }
    let mut text = style.paint(Ink::Heading, "Tensors of that size") + "\n";
    for found in matches {
        let phase = found.phase.map_or_else(String::new, |phase| format!(", {}", phase.text_in()));
        let exact = if found.exact { "  (to the digit)" } else { "" };
        let line = format!("{} {} {}{phase}{exact}", found.tensor, shape(&found.shape), found.dtype.name());
        text.push_str(&style.wrapped(&line, 2));
    }
    Some(text)
}

/// Formats the distribution of the GPU's memory.
fn arithmetic<R>(explanation: &Explanation<R>, style: &Style) -> Option<String> {
    let sums = &explanation.arithmetic;
    sums.total?;
    let mut text = style.paint(Ink::Heading, "On the GPU") + "\n";
    let others = if sums.context.is_some() { "other processes" } else { "others and CUDA context" };
    for (name, bytes) in [
        (others, sums.others),
        ("CUDA context", sums.context),
        ("allocated", sums.allocated),
        ("reserved, not allocated", sums.unallocated),
        ("free", sums.free),
        ("GPU", sums.total),
        ("requested", sums.requested),
        ("missing", sums.missing),
    ] {
        if let Some(bytes) = bytes {
            text.push_str(&format!("{name:24}  {:>10}\n", human_size(bytes)));
        }
    }
    Some(text)
}

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "diagnose",
    summary: "Explain an out-of-memory error",
    about: "\
Explains an out-of-memory error: which tensor, in which phase, and what to change.",
    usage: &["headroom diagnose [FILE|-] [--config CONFIG.py] [--key=value …] [OPTIONS]"],
    arguments: "\
  FILE           A text that contains the error, such as a traceback or a whole log
                 [default: standard input, as with -]
  --key=value    A nanoGPT setting, as on its command line; or --key value",
    options: || shown(&flags()),
    takes_settings: true,
    words: Words::Files,
    subcommands: &[&trainer::NANOCHAT, &trainer::HF],
    notes: "\
A text with a command or a log of nanochat, or with a command that names a known Hugging Face
model, needs no config. Without any, common runs of nanoGPT, nanochat and Hugging Face models are
compared with the message.",
    exits: &[(0, "the text is read")],
    examples: &[
        "headroom diagnose train.log",
        "headroom diagnose - --config config/train_gpt2.py --batch_size=64 < message.txt",
    ],
    run,
};
