//! Classification of pasted text: a config, the command that started a run, or the output of a run. Extracts nanoGPT's
//! arguments from it.

use headroom_text::{self as text, decimal};
use serde::Serialize;

use super::defaults::{self, DEFAULT_VOCAB_SIZE};
use super::lines::lines;
use super::problem::{Problem, Problems, Severity};
use super::value::Value;
use super::{Format, MAX_SOURCE_BYTES, MAX_SOURCES, Settings, Source, below, read, recognize, shortened, words};

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
    /// Total number of processes, if a command starts them with torchrun: processes per node times nodes.
    pub world_size: Option<u64>,
    /// Number of parameters that a log prints, in millions.
    pub parameters: Option<String>,
    /// Problems with the command.
    pub problems: Problems,
}

impl PastedConfig {
    fn empty() -> Self {
        let (kind, problems) = (PastedKind::Config, Problems::default());
        Self { kind, sources: vec![], world_size: None, parameters: None, problems }
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
    if text.len() <= MAX_SOURCE_BYTES {
        if lines(text).any(|(_, line)| OF_A_LOG.iter().any(|start| line.starts_with(start))) {
            pasted.kind = PastedKind::Log;
            log(text, &mut pasted);
            return pasted;
        }
        let start = lines(text).find(|(_, line)| !matches!(line.trim_start().as_bytes(), [] | [b'#' | b'`', ..]));
        let start = start.map_or(text.len(), |(at, _)| at);
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
    // Markdown fences become comments of the same length, so that positions stay valid.
    let mut text = text.to_owned();
    let fences: Vec<usize> = lines(&text).filter(|(_, line)| line.starts_with("```")).map(|(at, _)| at).collect();
    for at in fences {
        text.replace_range(at..=at, "#");
    }
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
/// Maximum length of a command in characters. The bound stops an unclosed quote from making the whole text one word.
const MAX_COMMAND_CHARS: usize = 64 * 1024;

fn log(text: &str, pasted: &mut PastedConfig) {
    // The config whose text is being printed, and its start.
    let mut open: Option<(&str, usize)> = None;
    let mut lines_for_command = MAX_LINES_BEFORE;
    for (at, line) in lines(text) {
        // The output shows that the program is nanoGPT's or a fork, whatever its name.
        if lines_for_command > 0 && command(&text[at..], pasted).is_some() {
            // The log contains the command's arguments as well, with their values, but the text of a config only if
            // it was copied too.
            pasted.sources.retain(|source| matches!(source, Source::Named { .. }));
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

/// Python program that a command starts.
enum Program {
    /// nanoGPT's `train.py`.
    Training,
    /// None: there are only arguments.
    Arguments,
    /// Another one, with the name of its file.
    Other(String),
}

/// Reads the command at the start of `text`. Returns the program that it starts. Of several programs, a training run is
/// the one that counts.
fn command(text: &str, pasted: &mut PastedConfig) -> Option<Program> {
    let mut other = None;
    let mut found = None;
    for words in commands(text).0 {
        let basename = |word: &str| word.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        let is_launcher = |word: &String| {
            let base = basename(word);
            base.starts_with("python") || base.starts_with("torchrun") || word.starts_with("torch.distributed")
        };
        let launcher = words.iter().position(is_launcher);
        let script = words.iter().position(|word| word.ends_with(".py"));
        let (launch, arguments) = match (launcher, script) {
            (Some(first), Some(script)) if first < script => words.split_at(script + 1),
            (_, Some(0)) if basename(&words[0]) == "train.py" => words.split_at(1),
            _ if words.first().is_some_and(|word| word.starts_with("--") && word.contains('=')) => words.split_at(0),
            _ => continue,
        };
        if found.is_some() {
            if launch.last().is_some_and(|script| basename(script) == "train.py") {
                warn_of_command(&words.join(" "), pasted);
            }
            continue;
        }
        if launch.iter().any(|word| basename(word).starts_with("torchrun") || word.starts_with("torch.distributed")) {
            pasted.world_size = world_size(launch, &mut pasted.problems);
        }
        if let Some(script) = launch.last().map(|script| basename(script)).filter(|script| script != "train.py") {
            other.get_or_insert(Program::Other(script));
            continue;
        }
        let mut words = arguments.iter().take(MAX_SOURCES + 1).peekable();
        while let Some(word) = words.next() {
            let is_flag = word.starts_with("--") && !word.contains('=');
            let apart = if is_flag { words.next_if(|next| is_value(next)) } else { None };
            let is_file = !word.contains('=') && !word.starts_with('-') && decimal::parse(word).is_none();
            pasted.sources.push(match apart {
                Some(value) => Source::Override { text: format!("{word} {value}") },
                None if is_file => Source::Named { name: word.clone() },
                None => Source::Override { text: word.clone() },
            });
        }
        found = Some(if launch.is_empty() { Program::Arguments } else { Program::Training });
    }
    found.or(other)
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

/// Returns whether a word is the value of the flag before it, where nanoGPT's form is `--key=value`.
fn is_value(word: &str) -> bool {
    !word.starts_with("--") && !word.contains('=') && !word.ends_with(".py")
}

/// Returns torchrun's processes per node times nodes. Returns `None` and adds a problem if the number depends on the
/// machine.
fn world_size(launch: &[String], problems: &mut Problems) -> Option<u64> {
    let mut product = Some(1_u64);
    for (i, word) in launch.iter().enumerate() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, value),
            None => (word.as_str(), launch.get(i + 1).map_or("", String::as_str)),
        };
        let flag = flag.trim_start_matches('-').replace('-', "_");
        if !word.starts_with('-') || !matches!(flag.as_str(), "nproc_per_node" | "nnodes") {
            continue;
        }
        // The number of nodes may be a range `min:max`.
        let (least, most) = value.split_once(':').unwrap_or((value, value));
        match least.parse::<u64>() {
            Ok(n) if n > 0 && least == most => product = product.and_then(|p| p.checked_mul(n)),
            _ => {
                problems.push(Problem {
                    severity: Severity::Warning,
                    source: shortened(word),
                    line: 0,
                    column: 0,
                    message: text::processes_unknown(shortened(value)),
                    hint: Some(text::write_a_number(flag.as_str())),
                });
                product = None;
            }
        }
    }
    product
}

/// Splits the commands on the first line of `text` into words. Returns them with their length in bytes. A backslash
/// continues the line, and so does an argument at the start of the next one. Shell quotes are respected; `|`, `&`, `;`,
/// `<`, `>` and `#` end a command.
fn commands(text: &str) -> (Vec<Vec<String>>, usize) {
    let mut all = vec![];
    let mut words: Vec<String> = vec![];
    let mut word: Option<String> = None;
    let mut chars = text.chars().take(MAX_COMMAND_CHARS).peekable();
    let mut quote = None;
    let mut length = 0;
    while let Some(c) = chars.next() {
        length += c.len_utf8();
        match (c, quote) {
            ('\\', None | Some('"')) => match chars.peek().copied() {
                Some('\r' | '\n') => {
                    // CR LF is a single line break.
                    let first = chars.next();
                    let second = chars.next_if(|second| first == Some('\r') && *second == '\n');
                    length += first.iter().chain(&second).map(|c| c.len_utf8()).sum::<usize>();
                }
                // In a Windows path the backslash is kept.
                Some(next) if next.is_ascii_alphanumeric() || next == '.' => word.get_or_insert_default().push(c),
                Some(next) => {
                    word.get_or_insert_default().push(next);
                    chars.next();
                    length += next.len_utf8();
                }
                None => {}
            },
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\n' | '\r', None) if begins_with_argument(&text[length..]) => words.extend(word.take()),
            ('\n' | '\r', None) => break,
            ('#', None) if word.is_none() => break,
            (' ' | '\t', None) => words.extend(word.take()),
            ('|' | '&' | ';' | '<' | '>', None) => {
                // A number before a redirection is a file descriptor.
                let stream =
                    matches!(c, '<' | '>') && word.as_ref().is_some_and(|w| w.bytes().all(|b| b.is_ascii_digit()));
                words.extend(word.take().filter(|_| !stream));
                all.push(std::mem::take(&mut words));
            }
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    // A shell prompt that was copied with the command.
    for words in &mut all {
        if words.first().is_some_and(|word| matches!(word.as_str(), "$" | "%" | ">" | ">>>")) {
            words.remove(0);
        }
    }
    (all, length)
}

/// Returns whether the text after a line break begins with an argument.
fn begins_with_argument(text: &str) -> bool {
    let line = text.strip_prefix('\n').unwrap_or(text);
    line.trim_start_matches([' ', '\t']).starts_with("--")
}

#[cfg(test)]
mod tests;
