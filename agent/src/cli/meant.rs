//! What a mistaken command or option may have meant: the nearest name, another command's option, or the name that other
//! programs use for ours.

use std::path::Path;

use headroom_shared::nanogpt::defaults;

use super::{
    ROOT,
    args::{PROGRAM, among},
    command::Command,
};

/// Commands by what other programs call them.
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

/// Options by what other programs call them: the command, what was given, and what to write; `{}` is its value, and the
/// last column stands for that where there is none.
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

/// nanoGPT's settings by what other trainers call them.
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

/// More commands than these say nothing.
const COMMANDS_MAX: usize = 4;

/// Where the help of a command is.
pub fn help(command: &str) -> String {
    if command == PROGRAM {
        format!("`{PROGRAM} --help` lists the commands")
    } else {
        format!("`{PROGRAM} {command} --help` lists what it takes")
    }
}

/// What a word that is no command may have meant; `group` is the command whose subcommand it would be.
pub fn command(group: &str, given: &str) -> String {
    let commands = ROOT.tree();
    let within: Vec<&Command> = commands.iter().copied().filter(|command| is_within(command.name, group)).collect();
    if let Some(word) = among(within.iter().map(|command| command.word()), given) {
        return format!("did you mean `{PROGRAM}{}{word}`?", with_space(group));
    }
    if group == "runs" {
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
        _ if group.is_empty() => help(PROGRAM),
        _ => format!("`{PROGRAM} {group} --help` lists its commands"),
    }
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

/// What an option that `command` does not have may have meant. `near` is one that it has.
pub fn option(command: &str, given: &str, value: Option<&str>, near: Option<&str>) -> String {
    let name = given.trim_start_matches('-');
    if let Some(instead) = instead(command, name, value) {
        return format!("did you mean {instead}?");
    }
    if let Some(elsewhere) = elsewhere(command, given, name) {
        return elsewhere;
    }
    match near {
        Some(near) => format!("did you mean {}?", near.replace('…', value.unwrap_or("…"))),
        None => help(command),
    }
}

/// The same for an option that stands among nanoGPT's settings; none where there is nothing to say.
pub fn setting(command: &str, name: &str, value: &str) -> Option<String> {
    instead(command, name, Some(value))
}

/// What to write in the place of an option that other programs have.
fn instead(command: &str, name: &str, value: Option<&str>) -> Option<String> {
    let is_meant = |row: &&(&str, &str, &str, &str)| (row.0 == command || row.0.is_empty()) && row.1 == name;
    if let Some((_, _, instead, placeholder)) = OPTIONS.iter().find(is_meant) {
        return Some(instead.replace("{}", value.unwrap_or(placeholder)));
    }
    let takes_settings = ROOT.tree().iter().any(|known| known.name == command && known.takes_settings);
    let setting = name.replace('-', "_");
    let (_, key) = SETTINGS.iter().find(|(other, _)| takes_settings && *other == setting)?;
    Some(format!("--{key}={}", value.unwrap_or("…")))
}

/// Which other commands have this option.
fn elsewhere(command: &str, given: &str, name: &str) -> Option<String> {
    let commands = ROOT.tree();
    let has = |other: &&Command| other.name != command && (other.options)().iter().any(|option| option.name == name);
    let named = |commands: Vec<&Command>| -> Vec<String> {
        commands.iter().map(|command| format!("`{}`", command.full_name())).collect()
    };
    let having = named(commands.iter().copied().filter(|command| has(command)).collect());
    if (1..=COMMANDS_MAX).contains(&having.len()) {
        return Some(format!("{given} is an option of {}", all(&having)));
    }
    if having.is_empty() && defaults::find(name).is_some() {
        let taking = named(commands.iter().copied().filter(|command| command.takes_settings).collect());
        return Some(format!("{given} is a setting of nanoGPT, for {}", all(&taking)));
    }
    None
}

/// "a, b and c".
fn all(names: &[String]) -> String {
    joined(names, " and ")
}

/// "a, b or c".
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
