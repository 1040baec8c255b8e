//! `headroom completions`: a shell's completions, made of the same tables as parser and help.
//!
//! clap_complete writes them, which knows each shell's quoting. It takes a `clap::Command`, so one is made of ours; clap
//! parses nothing here, since nanoGPT's `--key=value` among config files is not a command line that it can describe.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ValueHint, builder::PossibleValuesParser};
use clap_complete::Shell;
use headroom_shared::{hardware, nanogpt::defaults};

use super::{
    Error, Exit, ROOT,
    args::{PROGRAM, Parsed, Shown, UsageError, Word, parse, refusal},
    command::{Command, Words},
    print,
};
use crate::train::settings::SEED;

/// Values of options whose help names them in words, and of nanoGPT's settings.
pub const VALUES: &[(&str, &[&str])] = &[
    ("color", &["auto", "always", "never"]),
    ("status", &["queued", "running", "stalled", "done", "stopped", "failed", "lost"]),
    ("optimizer", &["adamw-fused", "adamw-foreach", "adamw-8bit"]),
    ("cross-entropy", &["whole", "chunked", "fused"]),
    ("recompute", &["auto", "none", "gelu", "attention", "block"]),
    ("dtype", &["bfloat16", "float16", "float32"]),
    ("init_from", &["scratch", "resume", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]),
    ("device", &["cuda", "cpu"]),
];

const SHELLS: [(&str, Shell); 4] =
    [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish), ("powershell", Shell::PowerShell)];

/// The command, for help, completions and the manual.
pub const COMMAND: Command = Command {
    name: "completions",
    summary: "Print completions for a shell",
    about: "\
Prints completions for a shell: commands, options, the names of GPUs, nanoGPT's settings.",
    usage: &["headroom completions bash|zsh|fish|powershell"],
    words: Words::Choice(&["bash", "zsh", "fish", "powershell"]),
    exits: &[(0, "the completions are printed")],
    examples: &[
        "headroom completions bash > ~/.local/share/bash-completion/completions/headroom",
        "headroom completions zsh > ~/.zfunc/_headroom      # with fpath+=~/.zfunc before compinit",
        "headroom completions fish > ~/.config/fish/completions/headroom.fish",
        "headroom completions powershell >> $PROFILE",
    ],
    run,
    ..Command::EMPTY
};

#[derive(Default)]
struct Request {
    shell: Option<Shell>,
}

fn run(args: Vec<OsString>) -> Result<Exit, Error> {
    let mut request = Request::default();
    let take = |request: &mut Request, word: Word| match word {
        Word::Plain(word) if request.shell.is_none() => {
            let known = SHELLS.iter().find(|(name, _)| word == *name);
            let (_, shell) = known.ok_or_else(|| refusal::<Request>(COMMAND.name, &[], Word::Plain(word)))?;
            request.shell = Some(*shell);
            Ok(())
        }
        other => Err(refusal::<Request>(COMMAND.name, &[], other)),
    };
    if parse(COMMAND.name, &[], args, &mut request, take)? == Parsed::Help {
        return COMMAND.print_help();
    }
    let shell =
        request.shell.ok_or(UsageError::Missing { command: COMMAND.name, what: "bash, zsh, fish or powershell" })?;
    print::data(&script(shell))?;
    Ok(Exit::Success)
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut described(&ROOT), PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// A command as clap describes one.
fn described(command: &Command) -> clap::Command {
    let name = if command.name.is_empty() { PROGRAM } else { command.word() };
    let mut described = clap::Command::new(name)
        .about(command.summary)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .disable_version_flag(true);
    for option in command.all_options() {
        described = described.arg(self::option(&option));
    }
    if command.takes_settings {
        // The trainer's own seed is a setting as well.
        let keys = defaults::KEYS.iter().map(|key| (key.name, key.default.type_name()));
        for (name, type_name) in keys.chain([(SEED, "int")]) {
            described = described.arg(setting(name, type_name));
        }
    }
    described = match command.words {
        Words::None => described,
        Words::Files => described.arg(Arg::new("FILE").num_args(0..).value_hint(ValueHint::FilePath)),
        Words::Name => described.arg(Arg::new("NAME").value_hint(ValueHint::Other)),
        Words::Program => described
            .arg(Arg::new("COMMAND").num_args(1..).trailing_var_arg(true).value_hint(ValueHint::CommandWithArguments)),
        Words::Choice(words) => described.arg(Arg::new("WORD").value_parser(PossibleValuesParser::new(words))),
        Words::Command => {
            let commands = ROOT.subcommands.iter().map(|command| command.word());
            described.arg(Arg::new("COMMAND").value_parser(PossibleValuesParser::new(commands)))
        }
    };
    described.subcommands(command.subcommands.iter().map(|command| self::described(command)))
}

fn option(option: &Shown) -> Arg {
    let mut arg = Arg::new(option.name).long(option.name).help(option.doc.replace('\n', " "));
    if let Some(letter) = option.short() {
        arg = arg.short(letter);
    }
    match option.value {
        None => arg.action(ArgAction::SetTrue),
        Some(placeholder) => with_values(arg.value_name(placeholder), option.name, placeholder),
    }
}

fn setting(name: &'static str, type_name: &'static str) -> Arg {
    let arg = Arg::new(name).long(name).help(format!("nanoGPT's setting, {type_name}"));
    with_values(arg.value_name(type_name), name, if type_name == "bool" { "True|False" } else { type_name })
}

/// Says what completes the value of an option.
fn with_values(arg: Arg, name: &str, placeholder: &'static str) -> Arg {
    let of_name = VALUES.iter().find(|(option, _)| *option == name).map(|(_, values)| *values);
    match (name, placeholder) {
        ("gpu", "NAME") => arg.value_parser(PossibleValuesParser::new(gpus())),
        (_, choice) if choice.contains('|') => arg.value_parser(PossibleValuesParser::new(choice.split('|'))),
        _ if of_name.is_some() => arg.value_parser(PossibleValuesParser::new(of_name.unwrap_or_default().iter())),
        (_, "FILE" | "CONFIG.py") => arg.value_hint(ValueHint::FilePath),
        (_, "FOLDER") | ("out_dir" | "dataset", _) => arg.value_hint(ValueHint::DirPath),
        _ => arg.value_hint(ValueHint::Other),
    }
}

/// Every GPU by one word: a shell breaks a completion at its blanks.
fn gpus() -> Vec<String> {
    let word = |name: &str| {
        let short =
            ["GeForce ", "Tesla ", "NVIDIA "].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        let word = |name: &str| name.to_lowercase().replace(' ', "-");
        // Where the maker's word is what tells two apart, it stays.
        let is_found = hardware::find(&word(short)).is_ok_and(|device| device.name == name);
        if is_found { word(short) } else { word(name) }
    };
    hardware::devices().iter().map(|device| word(&device.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gpu_is_found_by_its_completion() {
        let words = gpus();
        for (device, word) in hardware::devices().iter().zip(&words) {
            assert!(!word.contains(|char: char| char.is_whitespace()), "{word}");
            assert_eq!(hardware::find(word).map(|found| &found.name), Ok(&device.name), "{word}");
        }
    }

    #[test]
    fn every_shell_has_every_command_and_option() {
        for (name, shell) in SHELLS {
            let script = script(shell);
            for command in ROOT.tree() {
                assert!(script.contains(command.word()), "{name} lacks {}", command.name);
                for option in command.all_options() {
                    // fish writes options without their dashes.
                    let has = script.contains(&format!("--{}", option.name))
                        || script.contains(&format!("-l {}", option.name));
                    assert!(has, "{name} lacks --{} of {}", option.name, command.name);
                }
            }
        }
    }

    /// clap checks names, letters and words for contradictions where it is built for tests.
    #[test]
    fn the_description_is_sound() {
        described(&ROOT).debug_assert();
    }
}
