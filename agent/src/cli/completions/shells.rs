//! Additions to the completions that clap_complete writes: recorded runs, and bash's values after `=`.

use clap_complete::Shell;

use super::super::{
    ROOT,
    args::PROGRAM,
    command::{Command, Words},
};

/// Name of an argument that is a run.
pub const RUN: &str = "RUN";

/// Commands whose arguments are runs.
fn commands() -> impl Iterator<Item = &'static Command> {
    ROOT.tree().into_iter().filter(|command| matches!(command.words, Words::Run | Words::Runs))
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
    local cur="$2" prefix="" data_dir="" at=0 i word
    local -a words=() plain=()
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
    let commands: Vec<&Command> = commands().collect();
    let patterns: Vec<String> = commands.iter().map(|command| format!("\"{}:\"*", command.name)).collect();
    let mut valued: Vec<String> = vec![];
    for option in commands.iter().flat_map(|command| command.all_options()).filter(|option| option.value.is_some()) {
        valued.extend(
            [format!("--{}", option.name)].into_iter().chain(option.short().map(|letter| format!("-{letter}"))),
        );
    }
    valued.sort_unstable();
    valued.dedup();
    let valued: Vec<String> = valued.iter().map(|option| format!("*:*:{option}")).collect();
    let function = BASH.replace("*:*:VALUED", &valued.join("|")).replace("COMMANDS", &patterns.join("|"));
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

fn fish(script: &str) -> String {
    let words: Vec<&str> = commands().map(Command::word).collect();
    format!(
        "{script}complete -c {PROGRAM} -n \"__fish_{PROGRAM}_using_subcommand runs; and __fish_seen_subcommand_from \
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
