//! Suggestions for mistyped commands and options: the nearest name, another command's option, or our equivalent of
//! another program's name.

use std::{ffi::OsString, path::Path};

use headroom_planner::nanogpt::defaults;

use super::{
    ROOT,
    args::{PROGRAM, UsageError, among},
    command::Command,
};

/// Names of commands in other programs, and ours.
const COMMANDS: [(&str, &str); 25] = [
    ("predict", "plan"),
    ("estimate", "plan"),
    ("fit", "plan"),
    ("fits", "plan"),
    ("check", "plan"),
    ("explain", "diagnose"),
    ("oom", "diagnose"),
    ("cards", "gpus"),
    ("devices", "gpus"),
    ("generate", "sample"),
    ("convert", "export"),
    ("tokenize", "data prepare"),
    ("tokenise", "data prepare"),
    ("benchmark", "bench"),
    ("monitor", "serve"),
    ("web", "serve"),
    ("ui", "serve"),
    ("start", "serve"),
    ("server", "serve"),
    ("history", "runs list"),
    ("ls", "runs list"),
    ("resume", "train --init_from=resume"),
    ("version", "--version"),
    ("python", "watch -- python"),
    ("torchrun", "watch -- torchrun"),
];

/// Options of other programs: the command, the given name, and the replacement. `{}` is the value; the last column
/// replaces a missing value.
const OPTIONS: [(&str, &str, &str, &str); 33] = [
    ("serve", "port", "--listen 127.0.0.1:{}", "PORT"),
    ("serve", "p", "--listen 127.0.0.1:{}", "PORT"),
    ("serve", "bind", "--listen {}", "ADDRESS:PORT"),
    ("serve", "addr", "--listen {}", "ADDRESS:PORT"),
    ("serve", "address", "--listen {}", "ADDRESS:PORT"),
    ("serve", "cert", "--tls-cert {}", "FILE"),
    ("serve", "key", "--tls-key {}", "FILE"),
    ("plan", "config", "`headroom plan {}`", "CONFIG.py"),
    ("plan", "card", "--gpu {}", "NAME"),
    ("plan", "memory", "--vram {}", "SIZE"),
    ("plan", "gpu-memory", "--vram {}", "SIZE"),
    ("train", "config", "`headroom train {}`", "CONFIG.py"),
    ("train", "gpu", "--device=cuda", ""),
    ("train", "cpu", "--device=cpu", ""),
    ("train", "resume", "--init_from=resume", ""),
    ("train", "out", "--out_dir={}", "FOLDER"),
    ("sample", "model", "--ckpt {}", "FOLDER"),
    ("sample", "checkpoint", "--ckpt {}", "FOLDER"),
    ("sample", "weights", "--ckpt {}", "FOLDER"),
    ("sample", "out_dir", "--ckpt {}", "FOLDER"),
    ("sample", "tokens", "--max-new-tokens {}", "N"),
    ("sample", "max-tokens", "--max-new-tokens {}", "N"),
    ("sample", "length", "--max-new-tokens {}", "N"),
    ("export", "model", "--ckpt {}", "FOLDER"),
    ("export", "checkpoint", "--ckpt {}", "FOLDER"),
    ("export", "weights", "--ckpt {}", "FOLDER"),
    ("export", "half", "--dtype float16", ""),
    ("export", "fp16", "--dtype float16", ""),
    ("export", "output", "--out {}", "FOLDER"),
    ("data prepare", "output", "--out {}", "FOLDER"),
    ("runs export", "output", "--out {}", "FILE"),
    ("", "colour", "--color {}", "WHEN"),
    ("", "silent", "--quiet", ""),
];

/// Names of settings in other trainers, and nanoGPT's.
const SETTINGS: [(&str, &str); 13] = [
    ("lr", "learning_rate"),
    ("batch", "batch_size"),
    ("bs", "batch_size"),
    ("micro_batch_size", "batch_size"),
    ("epochs", "max_iters"),
    ("steps", "max_iters"),
    ("layers", "n_layer"),
    ("heads", "n_head"),
    ("d_model", "n_embd"),
    ("seq_len", "block_size"),
    ("context", "block_size"),
    ("context_length", "block_size"),
    ("grad_accum", "gradient_accumulation_steps"),
];

/// Limit of listed commands; a longer list is not helpful.
const COMMANDS_MAX: usize = 7;

impl UsageError {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownCommand { group, command, rest } => Some(command_hint(group, command, rest)),
            Self::UnknownOption { command, option, value, near } => {
                Some(option_hint(command, option, value.as_deref(), near.as_deref()))
            }
            Self::UnknownWord { meant: Some(meant), .. } => Some(format!("did you mean {meant}?")),
            Self::UnexpectedWord { command, .. }
            | Self::UnknownWord { command, .. }
            | Self::Missing { command, .. } => Some(help_hint(command)),
            Self::MissingValue { name, value } => Some(format!("--{name} {value}")),
            Self::UnexpectedValue { name } => Some(format!("write --{name}, or leave it out")),
            Self::BadValue { name, meant: Some(meant), .. } => Some(format!("did you mean --{name} {meant}?")),
            Self::BadVariable { name, meant: Some(meant), .. } => Some(format!("did you mean {name}={meant}?")),
            Self::BadValue { .. }
            | Self::BadVariable { .. }
            | Self::Exclusive(..)
            | Self::NotUnicode(_)
            | Self::Words(_) => None,
        }
    }
}

/// Hint to a command's help.
fn help_hint(command: &str) -> String {
    if command == PROGRAM {
        format!("`{PROGRAM} --help` lists the commands")
    } else {
        format!("`{PROGRAM} {command} --help` lists what it takes")
    }
}

/// Suggestion for an unknown command. `group` is the parent command, and `rest` the words after it.
fn command_hint(group: &str, given: &str, rest: &[OsString]) -> String {
    let commands = ROOT.tree();
    let within: Vec<&Command> = commands.iter().copied().filter(|command| is_within(command.name, group)).collect();
    if let Some(word) = among(within.iter().map(|command| command.word()), given) {
        return format!("did you mean `{PROGRAM}{}{word}{}`?", with_space(group), repeated(rest));
    }
    if group == "runs" && rest.is_empty() {
        return format!("did you mean `{PROGRAM} runs show {given}`?");
    }
    let elsewhere = commands.iter().filter(|command| command.word() == given && !command.name.is_empty());
    let named: Vec<String> = elsewhere.map(|command| format!("`{}`", command.full_name())).collect();
    if !named.is_empty() {
        return format!("did you mean {}?", either(&named));
    }
    if let Some((_, meant)) = COMMANDS.iter().find(|(name, _)| group.is_empty() && *name == given) {
        return format!("did you mean `{PROGRAM} {meant}`?");
    }
    let ending = Path::new(given).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    match ending {
        "py" if group.is_empty() => format!("did you mean `{PROGRAM} plan {given}`?"),
        "txt" | "log" | "out" if group.is_empty() => format!("did you mean `{PROGRAM} diagnose {given}`?"),
        _ if group.is_empty() => help_hint(PROGRAM),
        _ => format!("`{PROGRAM} {group} --help` lists its commands"),
    }
}

/// Limit of words that a hint repeats; a longer command is shown without them.
const REPEATED_MAX: usize = 4;

/// Words as written after a command, each with a leading space. Empty if a shell would interpret one of them.
fn repeated(words: &[OsString]) -> String {
    let is_plain = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c));
    let words: Option<Vec<&str>> =
        words.iter().map(|word| word.to_str().filter(|word| !word.is_empty() && is_plain(word))).collect();
    let words = words.filter(|words| words.len() <= REPEATED_MAX).unwrap_or_default();
    words.iter().map(|word| format!(" {word}")).collect()
}

fn with_space(group: &str) -> String {
    if group.is_empty() { " ".to_owned() } else { format!(" {group} ") }
}

fn is_within(name: &str, group: &str) -> bool {
    match name.rsplit_once(' ') {
        Some((parent, _)) => parent == group,
        None => group.is_empty() && !name.is_empty(),
    }
}

/// Suggestion for an option that `command` does not have. `near` is the closest one that it has.
fn option_hint(command: &str, given: &str, value: Option<&str>, near: Option<&str>) -> String {
    known_option(command, given, value, near).unwrap_or_else(|| help_hint(command))
}

/// Suggestion for an option that `command` does not have. `None` if it resembles nothing.
pub fn known_option(command: &str, given: &str, value: Option<&str>, near: Option<&str>) -> Option<String> {
    let name = given.trim_start_matches('-');
    if let Some(instead) = instead(command, name, value) {
        return Some(format!("did you mean {instead}?"));
    }
    if let Some(elsewhere) = elsewhere(command, given, name) {
        return Some(elsewhere);
    }
    if let Some(near) = near {
        return Some(format!("did you mean {}?", near.replace('…', value.unwrap_or("…"))));
    }
    let others = OPTIONS.iter().filter(|row| row.0 == command || row.0.is_empty()).map(|row| row.1);
    if let Some(instead) = among(others, name).and_then(|other| instead(command, other, value)) {
        return Some(format!("did you mean {instead}?"));
    }
    // A name that other programs use for an option of another command.
    let whole = |row: &(&str, &str, &str, &str)| {
        let option = row.2.replace("{}", value.unwrap_or(row.3));
        if option.starts_with('`') { option } else { format!("`{PROGRAM} {} {option}`", row.0) }
    };
    let elsewhere: Vec<String> = OPTIONS.iter().filter(|row| row.1 == name).map(whole).collect();
    (!elsewhere.is_empty()).then(|| format!("did you mean {}?", either(&elsewhere)))
}

/// Replacement for an option of other programs.
fn instead(command: &str, name: &str, value: Option<&str>) -> Option<String> {
    let is_meant = |row: &&(&str, &str, &str, &str)| (row.0 == command || row.0.is_empty()) && row.1 == name;
    if let Some((_, _, instead, placeholder)) = OPTIONS.iter().find(is_meant) {
        return Some(instead.replace("{}", value.unwrap_or(placeholder)));
    }
    if !ROOT.tree().iter().any(|known| known.name == command && known.takes_settings) {
        return None;
    }
    let setting = name.replace('-', "_");
    let key = match SETTINGS.iter().find(|(other, _)| *other == setting) {
        Some((_, key)) => *key,
        // A key with dashes, even if another command has such an option.
        None if setting != name && defaults::find(&setting).is_some() => &setting,
        None => return None,
    };
    Some(format!("--{key}={}", value.unwrap_or("…")))
}

/// Suggestion of other commands with this option.
fn elsewhere(command: &str, given: &str, name: &str) -> Option<String> {
    let commands = ROOT.tree();
    let has = |other: &&Command| other.name != command && (other.options)().iter().any(|option| option.name == name);
    let named = |commands: Vec<&Command>| -> Vec<String> {
        commands.iter().map(|command| format!("`{}`", command.full_name())).collect()
    };
    // A subcommand is not listed beside its command.
    let parent_has = |command: &&Command| {
        let parent = command.name.rsplit_once(' ').and_then(|(parent, _)| commands.iter().find(|c| c.name == parent));
        parent.is_some_and(has)
    };
    let having = commands.iter().copied().filter(|command| has(command) && !parent_has(command));
    let having = named(having.collect());
    if (1..=COMMANDS_MAX).contains(&having.len()) {
        return Some(format!("{given} is an option of {}", all(&having)));
    }
    if having.is_empty() && defaults::find(name).is_some() {
        let taking = named(commands.iter().copied().filter(|command| command.takes_settings).collect());
        return Some(format!("{given} is a setting of nanoGPT, for {}", all(&taking)));
    }
    None
}

/// Joins names as "a, b and c".
fn all(names: &[String]) -> String {
    joined(names, " and ")
}

/// Joins names as "a, b or c".
fn either(names: &[String]) -> String {
    joined(names, " or ")
}

fn joined(names: &[String], last: &str) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [names @ .., end] => format!("{}{last}{end}", names.join(", ")),
    }
}
