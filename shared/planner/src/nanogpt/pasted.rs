//! Classification of pasted text: a config, the command that started a run, or the output of a run. Extracts nanoGPT's
//! arguments from it.

use std::ops::Range;

use headroom_text::{self as text, decimal};
use serde::Serialize;

use super::defaults::{self, DEFAULT_VOCAB_SIZE};
use super::lines::lines;
use super::problem::{Problem, Problems, Severity};
use super::value::Value;
use super::{Format, MAX_SOURCE_BYTES, MAX_SOURCES, Settings, Source, below, read, recognize, shortened, words};
pub use command::names_launcher;
use command::{Program, command};
pub(crate) use command::{commands, n_processes};

mod command;

/// Kind of a pasted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PastedKind {
    /// A config file.
    Config,
    /// `python train.py …`, `torchrun … train.py …`, or only arguments.
    Command,
    /// Output of `train.py`.
    Log,
    /// A short description of a run, such as "124M, batch 64".
    Words,
    /// JSON with settings: of a plan, from Hugging Face, or of nanoGPT's keys.
    Json,
    /// JSON or YAML that cannot be planned, or the command of another program than nanoGPT's `train.py`.
    Unsupported,
}

/// Result of classifying a text.
#[derive(Clone, Debug, PartialEq)]
pub struct PastedConfig {
    /// Kind of the text.
    pub kind: PastedKind,
    /// Arguments of nanoGPT, in order.
    pub sources: Vec<Source>,
    /// Words of a command up to `train.py`, such as `uv`, `run` and `nanoGPT/train.py`. Empty without a script.
    pub launch: Vec<String>,
    /// Total number of processes, if a command starts them with a launcher: processes per node times nodes.
    pub world_size: Option<u64>,
    /// Number of parameters that a log prints, in millions.
    pub parameters: Option<String>,
    /// Problems with the command.
    pub problems: Problems,
}

impl PastedConfig {
    fn empty() -> Self {
        let (kind, problems) = (PastedKind::Config, Problems::default());
        Self { kind, sources: vec![], launch: vec![], world_size: None, parameters: None, problems }
    }

    /// Reads the sources; the problems of this text come first.
    #[must_use]
    pub fn read(&self) -> Settings {
        let mut settings = read(&self.sources);
        let mut problems = self.problems.clone();
        for problem in settings.problems.as_slice() {
            problems.push(problem.clone());
        }
        settings.problems = problems;
        let is_comment = |line: &str| matches!(line.trim_start().as_bytes(), [] | [b'#' | b'`', ..]);
        let is_empty = |source: &Source| matches!(source, Source::File { text, .. } if text.lines().all(is_comment));
        settings.found_nothing |= match self.kind {
            PastedKind::Unsupported => true,
            // The defaults of train.py would be the plan of another run.
            PastedKind::Config | PastedKind::Log => {
                settings.sets_nothing() && settings.unread.is_empty() && !self.sources.iter().all(is_empty)
            }
            PastedKind::Command | PastedKind::Words | PastedKind::Json => false,
        };
        settings.parameters.clone_from(&self.parameters);
        settings
    }
}

/// Classifies a pasted text. `name` is used only as a config's name in messages.
#[must_use]
pub fn from_pasted_text(name: &str, text: &str) -> PastedConfig {
    let mut pasted = PastedConfig::empty();
    // The output of a run becomes comments of the same length, so that positions stay valid. Output alone stays, because
    // it is no run of train.py's defaults.
    let without_output = with_comments_at(text, &lines_of_output(text));
    let has_code = start_of_command(&without_output) < without_output.len();
    if text.len() <= MAX_SOURCE_BYTES {
        if lines(text).any(|(_, line)| OF_A_LOG.iter().any(|start| line.starts_with(start))) {
            log(text, &mut pasted);
            let sets_nothing = || {
                let text = without_output.clone();
                read(&[Source::File { name: name.into(), text }]).sets_nothing()
            };
            // A config may be pasted together with the end of its log.
            if !pasted.sources.is_empty() || sets_nothing() {
                pasted.kind = PastedKind::Log;
                return pasted;
            }
        }
        let text = if has_code { &without_output } else { text };
        let start = start_of_command(text);
        match command(&text[start..], &mut pasted) {
            Some(program @ (Program::Training | Program::Arguments)) => {
                pasted.kind = PastedKind::Command;
                let end = start + commands(&text[start..]).1;
                let below = text.get(end..).unwrap_or_default();
                below::read_files(below, &mut pasted.sources);
                if matches!(program, Program::Training) {
                    refuse_vocabulary(&mut pasted);
                    warn_of_commands(below, &mut pasted);
                }
                let comments = lines(&text[..start]).filter_map(|(_, line)| line.strip_prefix(VOCABULARY_COMMENT));
                let vocabulary = comments.filter_map(|size| size.trim().parse::<u64>().ok()).last();
                let argument = vocabulary.map(|size| Source::Override { text: format!("--vocab_size={size}") });
                pasted.sources.extend(argument);
                return pasted;
            }
            Some(Program::Other(script)) => {
                pasted.kind = PastedKind::Unsupported;
                let (message, hint) = (text::other_program(shortened(&script)), Some(text::WRITE_TRAIN_PY.into()));
                let (severity, source) = (Severity::Error, shortened(name));
                pasted.problems.push(Problem { severity, source, line: 0, column: 0, message, hint });
                return pasted;
            }
            None => {}
        }
    }
    let text = if has_code { &without_output } else { text };
    let fences: Vec<usize> = lines(text).filter(|(_, line)| line.starts_with("```")).map(|(at, _)| at).collect();
    let mut text = with_comments_at(text, &fences);
    match recognize(&text) {
        Some(Format::Settings(config) | Format::Plan { config, .. }) => {
            pasted.kind = PastedKind::Json;
            pasted.sources.push(Source::File { name: name.into(), text: config });
            return pasted;
        }
        Some(Format::Unsupported(message, hint)) => {
            pasted.kind = PastedKind::Unsupported;
            let (severity, source) = (Severity::Error, shortened(name));
            pasted.problems.push(Problem { severity, source, line: 0, column: 0, message, hint });
            return pasted;
        }
        Some(Format::Link(_)) | None => {}
    }
    // A text that sets a key is a config. Otherwise it may be a short description.
    if text.len() <= words::MAX_BYTES {
        let file = Source::File { name: name.into(), text: text.clone() };
        let said = read(&[file]).sets_nothing().then(|| words::config(&text)).flatten();
        if let Some(config) = said {
            pasted.kind = PastedKind::Words;
            text = config;
        }
    }
    pasted.sources.push(Source::File { name: name.into(), text });
    pasted
}

/// Offsets of the lines that a run prints: nanoGPT's own, Python's tracebacks, and CUDA's out-of-memory messages.
fn lines_of_output(text: &str) -> Vec<usize> {
    let is_printed = |line: &str| {
        let is_progress = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        let code = line.split('#').next().unwrap_or_default();
        AFTER_CONFIG.iter().any(|start| line.starts_with(start))
            || ["iter ", "step "].iter().any(|start| line.strip_prefix(start).is_some_and(is_progress))
            || ["CUDA out of memory", "CUDA error: out of memory"].iter().any(|words| code.contains(words))
    };
    let mut is_traceback = false;
    let mut found = Vec::new();
    for (at, line) in lines(text) {
        // A traceback ends with the error, which is the first line that is not indented.
        let is_within = std::mem::replace(&mut is_traceback, line.starts_with("Traceback (most recent call last)"));
        if is_within || is_printed(line) {
            found.push(at);
            is_traceback |= is_within && line.starts_with(' ');
        }
    }
    found
}

/// The text with comments of the same length in place of some lines.
fn with_comments_at(text: &str, lines: &[usize]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for &at in lines {
        // A line may be empty or begin with a character of several bytes.
        let n_bytes = text[at..].chars().next().filter(|first| *first != '\n').map_or(0, char::len_utf8);
        bytes[at..at + n_bytes].fill(b'#');
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// Offset of the first line that is neither a comment, a Markdown fence nor a notebook's cell magic.
fn start_of_command(text: &str) -> usize {
    let is_above = |line: &str| matches!(line.trim_start().as_bytes(), [] | [b'#' | b'`', ..] | [b'%', b'%', ..]);
    lines(text).find(|(_, line)| !is_above(line)).map_or(text.len(), |(at, _)| at)
}

/// Returns the byte range of the commands at the start of a text, below its comments.
#[must_use]
pub fn command_range(text: &str) -> Range<usize> {
    let start = start_of_command(text);
    start..text.len().min(start + commands(&text[start..]).1)
}

/// Start of a comment above a command that gives the vocabulary size of the data set. nanoGPT has no argument for it.
pub const VOCABULARY_COMMENT: &str = "# headroom (data): vocab_size = ";

/// Lines that only `train.py` prints. The last one appears even if no setting is changed.
const OF_A_LOG: [&str; 3] = ["Overriding config with ", "Overriding: ", "tokens per iteration will be: "];

/// Beginnings of the lines that `train.py` prints after its settings. They end the text of a config.
pub const AFTER_CONFIG: [&str; 10] = [
    "Overriding",
    "tokens per iteration will be:",
    "found vocab_size = ",
    "defaulting to vocab_size",
    "Initializing",
    "Resuming training from",
    "number of parameters:",
    "Traceback (most recent call last)",
    "step 0: train loss",
    "iter 0: loss",
];

/// Maximum number of lines at the start of a log that are searched for the command.
const MAX_LINES_BEFORE: usize = 50;

fn log(text: &str, pasted: &mut PastedConfig) {
    // The config whose text is being printed, and its start.
    let mut open: Option<(&str, usize)> = None;
    let mut lines_for_command = MAX_LINES_BEFORE;
    // The command's arguments, which nanoGPT prints too. They count if the copied part of the log lacks those lines.
    let mut arguments = Vec::new();
    let mut has_printed_arguments = false;
    for (at, line) in lines(text) {
        // The output shows that the program is nanoGPT's or a fork, whatever its name.
        if lines_for_command > 0 && command(&text[at..], pasted).is_some() {
            // The log contains the text of a config only if it was copied too.
            let sources = std::mem::take(&mut pasted.sources);
            (pasted.sources, arguments) =
                sources.into_iter().partition(|source| matches!(source, Source::Named { .. }));
            lines_for_command = 0;
        }
        lines_for_command = lines_for_command.saturating_sub(1);
        if !AFTER_CONFIG.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        lines_for_command = 0;
        if let Some((name, start)) = open.take() {
            add_file(pasted, name, &text[start..at]);
        }
        if let Some(name) = line.strip_prefix("Overriding config with ") {
            let start = text[at..].find('\n').map_or(text.len(), |n| at + n + 1);
            open = Some((name.trim_end().trim_end_matches(':'), start));
        } else if let Some((key, value)) = line.strip_prefix("Overriding: ").and_then(|rest| rest.split_once(" = ")) {
            has_printed_arguments = true;
            add(pasted, printed_override(key, value));
        } else if let Some(rest) = line.strip_prefix("found vocab_size = ") {
            let size = rest.split(' ').next().unwrap_or_default();
            add(pasted, printed_override("vocab_size", size));
        } else if line.starts_with("defaulting to vocab_size") {
            add(pasted, printed_override("vocab_size", &DEFAULT_VOCAB_SIZE.to_string()));
        } else if let Some(model) = line.strip_prefix("Initializing from OpenAI GPT-2 weights: ") {
            add(pasted, printed_override("init_from", model.trim_end()));
        } else if let Some(rest) = line.strip_prefix("number of parameters: ") {
            let millions = rest.split_once('M').map(|(millions, _)| millions);
            let is_number = |millions: &&str| millions.len() < 20 && decimal::parse(millions).is_some();
            pasted.parameters = millions.filter(is_number).map(Into::into);
        }
    }
    if let Some((name, start)) = open {
        add_file(pasted, name, &text[start..]);
    }
    if !has_printed_arguments {
        arguments.into_iter().for_each(|argument| add(pasted, argument));
    }
}

/// Adds the config that nanoGPT prints, instead of its name in the command. A config whose text is not in the log is
/// only named.
fn add_file(pasted: &mut PastedConfig, name: &str, text: &str) {
    let is_same = |source: &Source| matches!(source, Source::Named { name: other } if other == name);
    if !text.trim().is_empty() {
        pasted.sources.retain(|source| !is_same(source));
        add(pasted, Source::File { name: name.into(), text: text.into() });
    } else if !pasted.sources.iter().any(|source| matches!(source, Source::File { name: other, .. } if other == name)) {
        add(pasted, Source::Named { name: name.into() });
    }
}

/// Returns the argument that made nanoGPT print `Overriding: key = value`. nanoGPT prints strings without quotes.
fn printed_override(key: &str, value: &str) -> Source {
    let is_str = defaults::find(key).is_some_and(|k| k.default.type_name() == "str");
    // A word is read as a string. A string that looks like a number or a constant must be quoted.
    let reads_as_other =
        value.starts_with(|c: char| !c.is_ascii_alphabetic() && c != '/') || matches!(value, "True" | "False" | "None");
    let value = if is_str && reads_as_other { Value::Str(value.into()).to_string() } else { value.into() };
    Source::Printed { text: format!("--{key}={value}") }
}

/// Adds a source unless it is already present: every process of a torchrun prints the same.
fn add(pasted: &mut PastedConfig, source: Source) {
    if pasted.sources.len() <= MAX_SOURCES && !pasted.sources.contains(&source) {
        pasted.sources.push(source);
    }
}

/// Adds a warning if the lines below a command start another training run.
fn warn_of_commands(below: &str, pasted: &mut PastedConfig) {
    for (at, line) in lines(below).filter(|(_, line)| line.contains("train.py")) {
        let mut other = PastedConfig::empty();
        if matches!(command(&below[at..], &mut other), Some(Program::Training)) {
            return warn_of_command(line, pasted);
        }
    }
}

/// Adds the warning that a further command is not read.
fn warn_of_command(command: &str, pasted: &mut PastedConfig) {
    let message = text::of_name(shortened(command), text::NOT_READ);
    let (severity, source) = (Severity::Warning, shortened("command line"));
    pasted.problems.push_once(Problem { severity, source, line: 0, column: 0, message, hint: None });
}

/// Adds a problem for an argument that sets the vocabulary size. `train.py` has no such key, unless a config defines it.
fn refuse_vocabulary(pasted: &mut PastedConfig) {
    const FLAG: &str = "--vocab_size=";
    if pasted.sources.iter().any(|source| matches!(source, Source::File { text, .. } if text.contains("vocab_size"))) {
        return;
    }
    let is_flag = |source: &&Source| matches!(source, Source::Override { text } if text.starts_with(FLAG));
    if let Some(Source::Override { text }) = pasted.sources.iter().find(is_flag) {
        let (message, hint) = (text::unknown_key("vocab_size"), Some(text::VOCABULARY_OF_DATA.into()));
        let (severity, source) = (Severity::Error, shortened(text));
        pasted.problems.push(Problem { severity, source, line: 0, column: 0, message, hint });
    }
}

#[cfg(test)]
mod tests;
