//! Commands that start a training run, as people copy them from a shell, a script or a notebook.

use headroom_text::{self as text, decimal};

use super::super::problem::{Problem, Problems, Severity};
use super::super::{MAX_SOURCES, Source, shortened};
use super::{PastedConfig, warn_of_command};

/// Maximum length of a command in characters. The bound stops an unclosed quote from making the whole text one word.
const MAX_COMMAND_CHARS: usize = 64 * 1024;

/// A program that starts several processes, with its options for their number.
struct Launcher {
    /// Start of its name.
    name: &'static str,
    /// Options whose product is the number of processes.
    options: &'static [&'static str],
    /// Option without which the number depends on the machine.
    required: Option<&'static str>,
}

/// Programs that start several processes.
const LAUNCHERS: [Launcher; 4] = [
    Launcher { name: "torchrun", options: &["nproc_per_node", "nnodes"], required: None },
    Launcher { name: "torch.distributed", options: &["nproc_per_node", "nnodes"], required: None },
    Launcher { name: "deepspeed", options: &["num_gpus", "num_nodes"], required: Some("num_gpus") },
    Launcher { name: "accelerate", options: &["num_processes"], required: Some("num_processes") },
];

/// Reports whether a text may contain a command that starts several processes.
#[must_use]
pub fn names_launcher(text: &str) -> bool {
    LAUNCHERS.iter().any(|launcher| text.contains(launcher.name))
}

/// Name of a program without its directory.
fn basename(word: &str) -> &str {
    word.rsplit(['/', '\\']).next().unwrap_or_default()
}

/// Python program that a command starts.
pub(super) enum Program {
    /// nanoGPT's `train.py`.
    Training,
    /// None: there are only arguments.
    Arguments,
    /// Another one, with the name of its file.
    Other(String),
}

/// Reads the command at the start of `text`. Returns the program that it starts. Of several programs, a training run is
/// the one that counts.
pub(super) fn command(text: &str, pasted: &mut PastedConfig) -> Option<Program> {
    let mut other = None;
    let mut found = None;
    for words in commands(text).0 {
        let runs_python = |word: &String| {
            let name = basename(word);
            name.starts_with("python") || matches!(name, "uv" | "%run") || launcher(word).is_some()
        };
        let first = words.iter().position(runs_python);
        let script = words.iter().position(|word| word.ends_with(".py"));
        let shell_script = words.iter().take(2).position(|word| word.ends_with(".sh"));
        let has_argument = words.iter().any(|word| word.starts_with("--"));
        let (launch, arguments) = match (first, script) {
            (Some(first), Some(script)) if first < script => words.split_at(script + 1),
            (_, Some(0)) if basename(&words[0]) == "train.py" => words.split_at(1),
            _ if words.first().is_some_and(|word| word.starts_with("--") && word.contains('=')) => words.split_at(0),
            // Another launcher, such as srun. Prose has no arguments.
            (_, Some(script)) if basename(&words[script]) == "train.py" && has_argument => words.split_at(script + 1),
            _ => match shell_script {
                Some(script) => words.split_at(script + 1),
                None => continue,
            },
        };
        if found.is_some() {
            if launch.last().is_some_and(|script| basename(script) == "train.py") {
                warn_of_command(&words.join(" "), pasted);
            }
            continue;
        }
        if let Some(launcher) = launch.iter().find_map(|word| launcher(word)) {
            pasted.world_size = world_size(launcher, launch, &mut pasted.problems);
        }
        if let Some(script) = launch.last().map(|script| basename(script)).filter(|script| *script != "train.py") {
            other.get_or_insert(Program::Other(script.to_owned()));
            continue;
        }
        pasted.launch = launch.to_vec();
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

/// Returns whether a word is the value of the flag before it, where nanoGPT's form is `--key=value`.
fn is_value(word: &str) -> bool {
    !word.starts_with("--") && !word.contains('=') && !word.ends_with(".py")
}

/// The launcher that a word names.
fn launcher(word: &str) -> Option<&'static Launcher> {
    LAUNCHERS.iter().find(|launcher| basename(word).starts_with(launcher.name))
}

/// Number of processes that the words before a script start. `None` if it depends on the machine.
pub(crate) fn n_processes(launch: &[String]) -> Option<u64> {
    match launch.iter().find_map(|word| launcher(word)) {
        Some(launcher) => world_size(launcher, launch, &mut Problems::default()),
        None => Some(1),
    }
}

/// Returns the number of processes that a launcher starts. Returns `None` and adds a problem if the number depends on
/// the machine.
fn world_size(launcher: &Launcher, launch: &[String], problems: &mut Problems) -> Option<u64> {
    let mut product = Some(1_u64);
    let mut missing = launcher.required;
    let mut refuse = |source: &str, value: &str, option: &str| {
        problems.push(Problem {
            severity: Severity::Warning,
            source: shortened(source),
            line: 0,
            column: 0,
            message: text::processes_unknown(shortened(value)),
            hint: Some(text::write_a_number(option)),
        });
    };
    for (i, word) in launch.iter().enumerate() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, value),
            None => (word.as_str(), launch.get(i + 1).map_or("", String::as_str)),
        };
        let flag = flag.trim_start_matches('-').replace('-', "_");
        if !word.starts_with('-') || !launcher.options.contains(&flag.as_str()) {
            continue;
        }
        missing = missing.filter(|option| *option != flag);
        // The number of nodes may be a range `min:max`.
        let (least, most) = value.split_once(':').unwrap_or((value, value));
        match least.parse::<u64>() {
            Ok(n) if n > 0 && least == most => product = product.and_then(|p| p.checked_mul(n)),
            _ => {
                refuse(word, value, &flag);
                product = None;
            }
        }
    }
    if let Some(option) = missing {
        refuse(launcher.name, launcher.name, option);
        product = None;
    }
    product
}

/// Splits the commands on the first line of `text` into words. Returns them with their length in bytes. A backslash
/// continues the line, and so does an argument at the start of the next one. Shell quotes are respected; `|`, `&`, `;`,
/// `<`, `>` and `#` end a command.
pub(crate) fn commands(text: &str) -> (Vec<Vec<String>>, usize) {
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
    // A shell prompt that was copied with the command, or a notebook's mark of a shell command.
    for words in &mut all {
        if let Some(command) = words.first_mut().and_then(|word| word.strip_prefix('!')) {
            words[0] = command.to_owned();
        }
        if words.first().is_some_and(|word| matches!(word.as_str(), "" | "$" | "%" | ">" | ">>>")) {
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
