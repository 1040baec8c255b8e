//! `headroom completions`: shell completions, generated from the tables of parser and help.
//!
//! clap_complete writes them and handles each shell's quoting. It requires a `clap::Command`, which is generated from
//! ours. clap does no parsing here: it cannot describe nanoGPT's `--key=value` among config files.

mod shells;

use std::{ffi::OsString, path::PathBuf};

use clap::{
    Arg, ArgAction, ValueHint,
    builder::{PossibleValue, PossibleValuesParser},
};
use clap_complete::Shell;
use headroom_planner::{
    hardware::{self, Device},
    nanogpt::defaults,
};

use super::{
    Error, Exit, ROOT,
    args::{OptionHelp, PROGRAM, ParsedArgs, UsageError, Word, among, parse, refusal},
    command::{Command, Words},
    plan::OPTIMIZER_NAMES,
    print,
    runs::StatusWord,
};
use headroom_agent_core::{folders, store::Archive};
use headroom_train::settings::SEED;

/// Values of options whose help lists them in prose, and of nanoGPT's settings.
pub const VALUES: &[(&str, &[&str])] = &[
    ("color", &["auto", "always", "never"]),
    ("status", &["queued", "running", "stalled", "done", "stopped", "failed", "lost"]),
    ("optimizer", &OPTIMIZER_NAMES),
    ("cross-entropy", &["whole", "chunked", "fused"]),
    ("recompute", &["auto", "none", "gelu", "attention", "block"]),
    ("dtype", &["bfloat16", "float16", "float32"]),
    ("init_from", &["scratch", "resume", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"]),
    ("device", &["auto", "cuda", "cpu"]),
    ("log", &["off", "error", "warn", "info", "debug", "trace"]),
    ("log-format", &["text", "json"]),
];

const SHELLS: [(&str, Shell); 4] =
    [("bash", Shell::Bash), ("zsh", Shell::Zsh), ("fish", Shell::Fish), ("powershell", Shell::PowerShell)];

/// Hidden command that prints the words of recorded runs for completions.
pub const RUN_WORDS: &str = "run-words";
/// Limit of runs that are offered, the newest first.
const RUNS_MAX: usize = 200;

/// Lists recorded runs for a shell: on each line a word, a tab and a description. Empty without history.
pub fn run_words(args: &[OsString]) -> String {
    let mut data_dir = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let attached = arg.to_str().and_then(|arg| arg.strip_prefix("--data-dir="));
        data_dir = attached.map(PathBuf::from).or_else(|| args.next().map(PathBuf::from));
    }
    let Ok(folder) = folders::data(data_dir.as_deref()) else { return String::new() };
    let runs = Archive::new(&folder).runs(RUNS_MAX).unwrap_or_default();
    let is_plain = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    let visible = |name: &str| name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let mut lines: Vec<String> = runs
        .iter()
        .map(|run| format!("{}\t{}, {}\n", run.id, visible(&run.name), StatusWord::of(run.status).name()))
        .collect();
    // A name selects a run only if no other run has it.
    let is_unique = |name: &str| runs.iter().filter(|run| run.name == name).count() == 1;
    let named = runs.iter().filter(|run| is_plain(&run.name) && is_unique(&run.name));
    lines.extend(named.map(|run| format!("{}\t{}, {}\n", run.name, run.id, StatusWord::of(run.status).name())));
    lines.concat()
}

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
            let (_, shell) = known.ok_or_else(|| {
                let given = word.to_string_lossy().into_owned();
                let meant = among(SHELLS.into_iter().map(|(name, _)| name), &given);
                UsageError::UnknownWord { command: COMMAND.name, word: given, meant: meant.map(str::to_owned) }
            })?;
            request.shell = Some(*shell);
            Ok(())
        }
        other => Err(refusal::<Request>(COMMAND.name, &[], other)),
    };
    if parse(COMMAND.name, &[], args, &mut request, take)? == ParsedArgs::Help {
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
    let script = String::from_utf8_lossy(&script).into_owned();
    // bash compares words by case, unlike the other shells and `--gpu` itself.
    let script = if shell == Shell::Bash { in_any_case(&script, &gpus().join(" ")) } else { script };
    shells::extended(shell, &script)
}

/// Completes words of a list in bash whatever their case.
fn in_any_case(script: &str, words: &str) -> String {
    let compared = format!("compgen -W \"{words}\" -- \"${{cur}}\"");
    let folded = format!("compgen -W \"{words}\" -- \"$(tr '[:upper:] ' '[:lower:]-' <<< \"${{cur}}\")\"");
    script.replace(&compared, &folded)
}

/// Converts a command to clap's description.
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
        // The trainer's own seed is a setting too.
        let keys = defaults::KEYS.iter().map(|key| (key.name, key.default.type_name()));
        for (name, type_name) in keys.chain([(SEED, "int")]) {
            described = described.arg(setting(name, type_name));
        }
    }
    described = match command.words {
        Words::None => described,
        Words::Files => described.arg(Arg::new("FILE").num_args(0..).value_hint(ValueHint::FilePath)),
        Words::Name => described.arg(Arg::new("NAME").value_hint(ValueHint::Other)),
        Words::Run => described.arg(Arg::new(shells::RUN).value_hint(ValueHint::Other)),
        Words::Runs => described.arg(Arg::new(shells::RUN).num_args(0..).value_hint(ValueHint::Other)),
        Words::Program => described
            .arg(Arg::new("COMMAND").num_args(1..).trailing_var_arg(true).value_hint(ValueHint::CommandWithArguments)),
        Words::Choice(words) => described.arg(Arg::new("WORD").value_parser(PossibleValuesParser::new(words))),
        Words::Command => described.subcommands(ROOT.subcommands.iter().map(|command| named(command))),
    };
    described.subcommands(command.subcommands.iter().map(|command| self::described(command)))
}

/// The names of a command and of its subcommands, as `headroom help` takes them.
fn named(command: &Command) -> clap::Command {
    let named = clap::Command::new(command.word()).about(command.summary).disable_help_flag(true);
    named.disable_help_subcommand(true).subcommands(command.subcommands.iter().map(|command| self::named(command)))
}

fn option(option: &OptionHelp) -> Arg {
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

/// Adds the possible values of an option.
fn with_values(arg: Arg, name: &str, placeholder: &'static str) -> Arg {
    let of_name = VALUES.iter().find(|(option, _)| *option == name).map(|(_, values)| *values);
    match (name, placeholder) {
        ("gpu", "NAME") => {
            let named = |(word, device): (String, &Device)| PossibleValue::new(word).help(device.name.clone());
            arg.value_parser(PossibleValuesParser::new(gpus().into_iter().zip(hardware::devices()).map(named)))
        }
        (_, choice) if choice.contains('|') => arg.value_parser(PossibleValuesParser::new(choice.split('|'))),
        _ if of_name.is_some() => arg.value_parser(PossibleValuesParser::new(of_name.unwrap_or_default().iter())),
        (_, "FILE" | "CONFIG.py") => arg.value_hint(ValueHint::FilePath),
        (_, "FOLDER") | ("out_dir" | "dataset", _) => arg.value_hint(ValueHint::DirPath),
        _ => arg.value_hint(ValueHint::Other),
    }
}

/// One word per GPU: shells split completions at spaces.
fn gpus() -> Vec<String> {
    let word = |name: &str| {
        let short =
            ["GeForce ", "Tesla ", "NVIDIA "].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        let word = |name: &str| name.to_lowercase().replace(' ', "-");
        // The maker's prefix stays if it distinguishes two GPUs.
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
                    // fish lists options without dashes.
                    let has = script.contains(&format!("--{}", option.name))
                        || script.contains(&format!("-l {}", option.name));
                    assert!(has, "{name} lacks --{} of {}", option.name, command.name);
                }
            }
        }
    }

    /// In debug builds clap checks names and short options for conflicts.
    #[test]
    fn the_description_is_sound() {
        described(&ROOT).debug_assert();
    }
}
