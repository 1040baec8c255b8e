//! `headroom diagnose`: what an out-of-memory message means, and what to change.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
};

use headroom_shared::{
    nanogpt::Severity,
    oom::{Diagnosis, Kind, diagnose, shape},
    text,
    units::human_size,
};

use super::{
    Exit,
    args::{Flag, Parsed, UsageError, Word, parse_with, shown},
    command::{Command, Words},
    fixes, plan,
    plan::options::{self, EVAL_BATCH_SIZE, Given, Request},
    print,
    style::{Ink, Style},
};
use crate::train::keys::stops_nanogpt;

/// The longest text that is read; both ends of a longer one than 5 MB are looked at.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// `--config` takes a file, since a bare word is the text with the message.
const CONFIG: Flag<Request> = Flag {
    name: "config",
    value: Some("CONFIG.py"),
    doc: "The run's config; may come several times. Without one, what\nthe log prints of it is taken",
    set: |request, path| {
        request.given.push(Given::Config(path.into()));
        Ok(())
    },
};

fn flags() -> Vec<Flag<Request>> {
    let of_plan = options::FLAGS.iter().filter(|flag| flag.name != "link");
    [CONFIG].into_iter().chain(of_plan.copied()).collect()
}

/// Runs the command.
///
/// # Errors
/// The words cannot be used, or a file cannot be read.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let takes = |key: &str, word: &OsStr| options::is_value(key, word, EVAL_BATCH_SIZE);
    if parse_with(COMMAND.name, &flags(), args, &mut request, take_word, takes)? == Parsed::Help {
        return COMMAND.print_help();
    }
    let text = read_text(request.text.as_deref().unwrap_or(OsStr::new("-")))?;
    let sources = plan::sources_or_stock(&request.given)?;
    let diagnosis = diagnose(&text, &sources, &request.options, request.names_gpu);
    // A config that was given and cannot be meant is told before anything is made of it; one in the text may be half there.
    if let Some(resolved) = diagnosis.resolved.as_ref().filter(|_| !sources.is_empty()) {
        let problems = plan::problems(resolved);
        if resolved.request.is_none() || problems.iter().any(stops_nanogpt) {
            let errors = plan::findings(resolved, |severity| severity == Severity::Error);
            print::error(&(plan::said(&problems, &resolved.settings) + &errors));
            return Ok(Exit::Usage);
        }
    }
    if request.json {
        let json = serde_json::to_string_pretty(&diagnosis.json(text::english())).map_err(plan::Error::from)?;
        print::data(&(json + "\n"))?;
    } else {
        print::data(&report(&diagnosis, &Style::of_stdout()))?;
    }
    if let Some(resolved) = &diagnosis.resolved {
        print::note(&plan::said(&plan::problems(resolved), &resolved.settings));
        print::note(&plan::findings(resolved, |_| true));
    }
    Ok(Exit::Success)
}

/// The first bare word is the text; everything else is as in `headroom plan`.
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
    let mut bytes = Vec::new();
    let read = if path == "-" {
        io::stdin().lock().take(MAX_TEXT_BYTES).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MAX_TEXT_BYTES).read_to_end(&mut bytes))
    };
    match read {
        Ok(_) => Ok(decoded(&bytes)),
        Err(error) => Err(plan::Error::Unreadable { name: path.to_string_lossy().into_owned(), error }),
    }
}

/// Any bytes as text: a log may hold anything, and PowerShell writes UTF-16.
fn decoded(bytes: &[u8]) -> String {
    let wide = |read: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes[2..].chunks_exact(2).map(|pair| read([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

fn report(diagnosis: &Diagnosis, style: &Style) -> String {
    let mut parts = vec![style.wrapped(&diagnosis.explanation.text.to_string(), 0)];
    parts.extend(other_messages(diagnosis, style));
    parts.extend(matches(diagnosis, style));
    parts.extend(arithmetic(diagnosis, style));
    match &diagnosis.explanation.plan {
        Some(plan) => {
            if diagnosis.advises_another_run() {
                parts.push(style.wrapped(text::english().word(text::FIXES_OF_THE_PLAN), 0));
            }
            parts.extend(fixes::fixes(plan, &diagnosis.advice, style));
        }
        None if diagnosis.message().is_some_and(|message| message.kind == Kind::Pytorch) => {
            parts.push(style.wrapped("With the config (--config CONFIG.py --key=value …) Headroom says which tensor it was, and what to change.", 0));
        }
        None => {}
    }
    parts.join("\n")
}

fn other_messages(diagnosis: &Diagnosis, style: &Style) -> Option<String> {
    let report = &diagnosis.report;
    let (first, last) = (report.first.as_ref()?, report.last.as_ref()?);
    (report.n_messages > 1).then(|| {
        let text = format!(
            "{} messages: this is the {}; the first is on line {}, the last on line {}.",
            report.n_messages,
            if diagnosis.explains_last { "last, as it agrees with the config" } else { "first" },
            first.line,
            last.line
        );
        style.wrapped(&text, 0)
    })
}

fn matches(diagnosis: &Diagnosis, style: &Style) -> Option<String> {
    let matches = &diagnosis.explanation.matches;
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

/// Who holds the card.
fn arithmetic(diagnosis: &Diagnosis, style: &Style) -> Option<String> {
    let sums = &diagnosis.explanation.arithmetic;
    sums.total?;
    let mut text = style.paint(Ink::Heading, "On the card") + "\n";
    let others = if sums.context.is_some() { "other processes" } else { "others and CUDA context" };
    for (name, bytes) in [
        (others, sums.others),
        ("CUDA context", sums.context),
        ("allocated", sums.allocated),
        ("reserved, not allocated", sums.unallocated),
        ("free", sums.free),
        ("card", sums.total),
        ("asked for", sums.requested),
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
  FILE           Any text that contains the error; a traceback or a whole log will do.
                 Reads standard input if FILE is - or left out
  --key=value    Any setting of nanoGPT, as on its command line; --key value works too",
    options: || shown(&flags()),
    takes_settings: true,
    words: Words::Files,
    exits: &[(0, "the text was read")],
    examples: &[
        "headroom diagnose train.log",
        "headroom diagnose - --config config/train_gpt2.py --batch_size=64 < message.txt",
    ],
    run,
    ..Command::EMPTY
};
