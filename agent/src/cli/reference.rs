//! Reference pages of the documentation, generated from the command tables: options and exit codes.
//!
//! `HEADROOM_WRITE_GOLDEN=1 cargo test -p headroom-agent reference` writes them; without the variable the tests
//! compare.

use std::{fmt::Write, fs, path::Path};

use super::{
    ROOT,
    args::{COMMON, OptionHelp, shown},
    command::Command,
};

/// Head of the page on the command line.
const CLI_HEAD: &str = "\
# Command line

This page is generated from the tables behind `headroom help COMMAND`.
Settings of nanoGPT have underscores (`--batch_size=64`); options of Headroom have hyphens.
`--key value` works as well as `--key=value`. A mistyped command or option gets a suggestion.

## Options of every command

";

/// Head of the page on exit codes.
const EXIT_CODES_HEAD: &str = "\
# Exit codes

This page is generated from the tables behind `headroom help COMMAND`. The numbers are stable.

";

/// Text between the two tables of exit codes.
const EXIT_CODES_OF_COMMANDS: &str = "
An error exits with 3 if the system refuses a file, a folder, a port or the network, or if a named file does not exist.
It exits with 2 if the command line or the config is invalid, and with 1 otherwise.
`train` exits with 130 if it saves and ends after Ctrl-C, SIGTERM or SIGHUP. A signal that kills a command gives 128 plus its number. `headroom watch` exits with the status of its command, also if it cannot record the run: it warns of that before and after.

## By command

Every command can also exit with 2 and 3.

";

/// Text for a table cell: one line, with all markup except code escaped.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

fn options_table(options: &[OptionHelp]) -> String {
    let mut table = "| Option | Meaning |\n| --- | --- |\n".to_owned();
    for option in options {
        let short = option.short().map_or_else(String::new, |letter| format!("`-{letter}`, "));
        let value = option.value.map_or_else(String::new, |value| format!(" {}", value.replace('|', "\\|")));
        let _ = writeln!(table, "| {short}`--{}{value}` | {} |", option.name, cell(option.doc));
    }
    table
}

fn statuses_table(rows: &[(u8, &str)]) -> String {
    let mut table = "| Exit code | Meaning |\n| --- | --- |\n".to_owned();
    for (code, meaning) in rows {
        let _ = writeln!(table, "| {code} | {} |", cell(meaning));
    }
    table
}

fn fenced(language: &str, text: &str) -> String {
    format!("```{language}\n{}\n```\n", text.trim_end())
}

fn section(command: &Command) -> String {
    let mut parts = vec![format!("## {}\n", command.full_name())];
    parts.push(format!("{}\n", command.about.trim_end().replace('<', "&lt;")));
    parts.push(fenced("text", &command.usage.join("\n")));
    if !command.arguments.is_empty() {
        parts.push(fenced("text", command.arguments));
    }
    if !command.subcommands.is_empty() {
        let mut table = "| Command | Purpose |\n| --- | --- |\n".to_owned();
        for below in command.subcommands {
            let link = format!("#{}", below.full_name().replace(' ', "-"));
            let _ = writeln!(table, "| [`{}`]({link}) | {} |", below.full_name(), cell(below.summary));
        }
        parts.push(table);
    }
    let own = (command.options)();
    if !own.is_empty() {
        parts.push(options_table(&own));
    }
    if !command.notes.is_empty() {
        parts.push(fenced("text", command.notes));
    }
    parts.push(statuses_table(&command.statuses()));
    if !command.examples.is_empty() {
        parts.push(fenced("sh", &command.examples.join("\n")));
    }
    parts.join("\n")
}

fn cli_page() -> String {
    let sections: Vec<String> = ROOT.tree().into_iter().map(section).collect();
    format!("{CLI_HEAD}{}\n{}", options_table(&shown(COMMON)), sections.join("\n"))
}

fn exit_codes_page() -> String {
    let mut page = format!("{EXIT_CODES_HEAD}{}{EXIT_CODES_OF_COMMANDS}", statuses_table(&ROOT.statuses()));
    page.push_str("| Command | Exit code | Meaning |\n| --- | --- | --- |\n");
    for command in ROOT.tree().into_iter().filter(|command| !command.name.is_empty()) {
        for (code, meaning) in command.exits {
            let _ = writeln!(page, "| `{}` | {code} | {} |", command.full_name(), cell(meaning));
        }
    }
    page
}

#[track_caller]
fn assert_current(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference").join(name);
    if std::env::var_os("HEADROOM_WRITE_GOLDEN").is_some() {
        fs::write(&path, page).expect("the page can be written");
    }
    let written = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(written == page, "{name} differs from the tables; HEADROOM_WRITE_GOLDEN=1 writes it");
}

#[test]
fn cli_page_matches_the_tables() {
    assert_current("cli.md", &cli_page());
}

#[test]
fn exit_codes_page_matches_the_tables() {
    assert_current("exit-codes.md", &exit_codes_page());
}

#[test]
fn cli_page_lists_every_option_and_status() {
    let page = cli_page();
    for command in ROOT.tree() {
        assert!(page.contains(&format!("\n## {}\n", command.full_name())), "{}", command.full_name());
        for option in command.all_options().into_iter().filter(|option| option.name != "version") {
            assert!(page.contains(&format!("`--{}", option.name)), "{} of {}", option.name, command.full_name());
        }
        for (code, meaning) in command.statuses() {
            assert!(page.contains(&format!("| {code} | {} |", cell(meaning))), "{code} of {}", command.full_name());
        }
    }
}
