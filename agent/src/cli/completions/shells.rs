//! Additions to the completions that clap_complete writes: recorded runs, bash's files and values after `=`, and the
//! command after `headroom watch --`.

use clap_complete::Shell;
use headroom_planner::nanogpt::defaults;

use super::super::{
    ROOT,
    args::PROGRAM,
    command::{Command, Words},
};
use headroom_train::settings::SEED;

/// Name of an argument that is a run.
pub const RUN: &str = "RUN";

/// Commands whose arguments are runs.
fn commands() -> impl Iterator<Item = &'static Command> {
    of_words(&[Words::Run, Words::Runs])
}

/// Commands with arguments of these kinds.
fn of_words(kinds: &'static [Words]) -> impl Iterator<Item = &'static Command> {
    ROOT.tree().into_iter().filter(|command| kinds.contains(&command.words))
}

/// Adapts a script of clap_complete to a shell.
pub fn extended(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => bash(script),
        Shell::Zsh => zsh(script),
        Shell::Fish => fish(script),
        Shell::PowerShell => powershell(script),
        _ => script.to_owned(),
    }
}

/// Function of bash that completes before clap_complete's. Bash splits `--option=value` at `=` into three words, unless
/// `COMP_WORDBREAKS` lacks it.
const BASH: &str = r#"
_headroom() {
    local cur="$2" prefix="" data_dir="" at=0 program=0 i word
    local -a words=() plain=()
    for ((i = 1; i < COMP_CWORD && program == 0; i++)); do
        [[ "${COMP_WORDS[i]}" == "--" ]] && program=$((i + 1))
    done
    if [[ $program -gt 0 && " ${COMP_WORDS[*]:1:program - 2} " == *" "@(WATCH)" "* ]]; then
        COMPREPLY=()
        if [[ $program -eq $COMP_CWORD ]]; then
            COMPREPLY=($(compgen -c -- "$cur"))
        elif declare -F _command_offset >/dev/null; then
            # The command's own completions, from bash-completion; files without it.
            _command_offset $program
        fi
        return 0
    fi
    for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
        word="${COMP_WORDS[i]}"
        if [[ "$word" == "=" && $i -gt 1 ]]; then
            if [[ $i -eq $COMP_CWORD ]]; then
                words+=("")
                at=$((${#words[@]} - 1))
                cur=""
            fi
            continue
        fi
        if [[ $i -eq $COMP_CWORD && "$word" == --*=* ]]; then
            words+=("${word%%=*}")
            prefix="${word%%=*}="
            cur="${word#*=}"
            word="$cur"
        fi
        words+=("$word")
        [[ $i -eq $COMP_CWORD ]] && at=$((${#words[@]} - 1))
    done
    local prev="$3"
    [[ $at -gt 0 ]] && prev="${words[at - 1]}"
    for ((i = 0; i < at; i++)); do
        [[ "${words[i]}" == -* ]] || plain+=("${words[i]}")
        [[ "${words[i]}" == --data-dir ]] && data_dir="${words[i + 1]}"
    done
    COMP_WORDS=("${words[@]}")
    COMP_CWORD=$at
    case "${plain[1]} ${plain[2]}:$cur:$prev" in
        *:-*:*|*:*:VALUED) ;;
        FILES)
            # Files, by `complete -o default`.
            COMPREPLY=()
            return 0
            ;;
        COMMANDS)
            compopt +o default +o bashdefault 2>/dev/null
            COMPREPLY=($(compgen -W "$("$1" run-words ${data_dir:+--data-dir "$data_dir"} 2>/dev/null | cut -f 1)" -- "$cur"))
            return 0
            ;;
    esac
    _headroom_generated "$1" "$cur" "$prev"
    [[ -z "$prefix" ]] || COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
}

if [["#;

fn bash(script: &str) -> String {
    // A command of one word has its first argument, or nothing, as the second word.
    let pattern = |command: &Command| match command.name.contains(' ') {
        true => format!("\"{}:\"*", command.name),
        false => format!("\"{} \"*", command.name),
    };
    let patterns =
        |commands: &[&Command]| commands.iter().map(|command| pattern(command)).collect::<Vec<_>>().join("|");
    let (of_runs, of_files): (Vec<_>, Vec<_>) = (commands().collect(), of_words(&[Words::Files]).collect());
    let mut valued: Vec<String> = vec![];
    for command in of_runs.iter().chain(&of_files) {
        for option in command.all_options().into_iter().filter(|option| option.value.is_some()) {
            valued.push(format!("--{}", option.name));
            valued.extend(option.short().map(|letter| format!("-{letter}")));
        }
        if command.takes_settings {
            valued.extend(defaults::KEYS.iter().map(|key| key.name).chain([SEED]).map(|key| format!("--{key}")));
        }
    }
    valued.sort_unstable();
    valued.dedup();
    let valued: Vec<String> = valued.iter().map(|option| format!("*:*:{option}")).collect();
    let programs: Vec<&str> = of_words(&[Words::Program]).map(Command::word).collect();
    let function = BASH
        .replace("*:*:VALUED", &valued.join("|"))
        .replace("COMMANDS", &patterns(&of_runs))
        .replace("FILES", &patterns(&of_files))
        .replace("WATCH", &programs.join("|"));
    let script = script.replacen("_headroom() {", "_headroom_generated() {", 1);
    script.replacen("\nif [[", &function, 1)
}

/// Function of zsh that lists the runs with their names.
const ZSH: &str = r#"
_headroom_runs() {
    local -a runs
    local data_dir=${words[(r)--data-dir=*]#*=}
    runs=(${(f)"$($words[1] run-words ${data_dir:+--data-dir=$data_dir} 2>/dev/null)"})
    (( $#runs )) || return 1
    runs=("${(@)runs/$'\t'/:}")
    _describe -V 'run' runs
}
"#;

fn zsh(script: &str) -> String {
    let script = script.replace(&format!(":{RUN}:'"), &format!(":{RUN}:_headroom_runs'"));
    // zsh passes the words of the subcommand alone, without the program.
    let function = ZSH.replace("$words[1]", PROGRAM);
    script.replacen("\nautoload -U is-at-least\n", &format!("\nautoload -U is-at-least\n{function}"), 1)
}

/// Function of fish that completes the command after `--`, as if it stood alone.
const FISH: &str = "\
function __fish_headroom_program
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return 1
    set -e words[1..$at]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end
";

fn fish(script: &str) -> String {
    let words: Vec<&str> = commands().map(Command::word).collect();
    let programs: String = of_words(&[Words::Program])
        .map(|command| {
            format!(
                "complete -c {PROGRAM} -n \"__fish_{PROGRAM}_using_subcommand {}; and contains -- -- (commandline -opc)\" \
                 -f -a \"(__fish_headroom_program)\"\n",
                command.name
            )
        })
        .collect();
    format!(
        "{script}{FISH}{programs}complete -c {PROGRAM} -n \"__fish_{PROGRAM}_using_subcommand runs; and __fish_seen_subcommand_from \
         {}\" -k -f -a \"({PROGRAM} run-words 2>/dev/null)\"\n",
        words.join(" ")
    )
}

fn powershell(script: &str) -> String {
    commands().fold(script.to_owned(), |script, command| {
        let case = format!("'{PROGRAM};{}' {{\n", command.name.replace(' ', ";"));
        let runs = format!(
            "            & {PROGRAM} run-words 2>$null | ForEach-Object {{ $run = ($_ -split \"`t\")[0]; \
             [CompletionResult]::new($run, $run, [CompletionResultType]::ParameterValue, $_) }}\n"
        );
        script.replacen(&case, &format!("{case}{runs}"), 1)
    })
}
