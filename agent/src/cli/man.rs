//! `headroom man`: manual pages, one per command, generated from the tables of parser and help.
//!
//! The roff crate provides escaping and macros. clap_mangen builds on it too, but does not support several usages, exit
//! statuses and examples. Its usage of a command with forty settings fills a screen.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use roff::{Inline, Roff, bold, italic, roman};
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, OptionHelp, PROGRAM, ParsedArgs, Word, parse, refusal, shown},
    command::{Command, Words},
    find, print,
};

/// Why no page was written.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory or a file in it cannot be written.
    #[error("cannot write {}: {error}", .path.display())]
    Write {
        /// Path of the file or directory.
        path: PathBuf,
        /// What the system reports.
        error: io::Error,
    },
}

/// The command, for help, completions and this manual.
pub const COMMAND: Command = Command {
    name: "man",
    summary: "Print or install the manual pages",
    about: "\
Prints a manual page, for `man -l -`, or writes pages into a folder: that of a command with
those of its subcommands, or all of them.",
    usage: &["headroom man [COMMAND [SUBCOMMAND]]", "headroom man [COMMAND [SUBCOMMAND]] --out FOLDER"],
    options: || shown(FLAGS),
    words: Words::Command,
    exits: &[(0, "the page is printed, or the pages are written")],
    examples: &["headroom man plan | man -l -", "headroom man --out ~/.local/share/man/man1"],
    run,
    ..Command::EMPTY
};

#[derive(Default)]
struct Request {
    out: Option<PathBuf>,
    words: Vec<OsString>,
}

const FLAGS: &[Flag<Request>] = &[Flag {
    name: "out",
    value: Some("FOLDER"),
    doc: "Write the manual pages into this folder; create it if needed",
    set: |request, folder| {
        request.out = Some(folder.into());
        Ok(())
    },
}];

fn run(args: Vec<OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let take = |request: &mut Request, word: Word| match word {
        Word::Plain(word) => {
            request.words.push(word);
            Ok(())
        }
        other => Err(refusal(COMMAND.name, FLAGS, other)),
    };
    if parse(COMMAND.name, FLAGS, args, &mut request, take)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    let command = find(request.words)?;
    match request.out {
        Some(folder) => print::data(&write(command, &folder)?)?,
        None => print::data(&page(command))?,
    }
    Ok(Exit::Success)
}

/// Writes the pages of a command and its subcommands. Returns their paths, one per line.
fn write(command: &'static Command, folder: &Path) -> Result<String, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| Error::Write { path, error }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let mut written = String::new();
    for command in command.tree() {
        let path = folder.join(format!("{}.1", title(command)));
        fs::write(&path, page(command)).map_err(failed(&path))?;
        written.push_str(&format!("{}\n", path.display()));
    }
    Ok(written)
}

/// Title of a page, such as `headroom-runs-export`.
fn title(command: &Command) -> String {
    command.full_name().replace(' ', "-")
}

fn page(command: &Command) -> String {
    let mut roff = Roff::new();
    let title = title(command);
    let version = concat!("headroom ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", [title.to_uppercase().as_str(), "1", "", version, "Headroom"]);
    heading(&mut roff, "NAME");
    roff.text([roman(format!("{title} - {}", lower(command.summary)))]);
    heading(&mut roff, "SYNOPSIS");
    verbatim(&mut roff, &command.usage.join("\n"));
    heading(&mut roff, "DESCRIPTION");
    for (at, paragraph) in command.about.split("\n\n").enumerate() {
        if at > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(paragraph.replace('\n', " "))]);
    }
    if !command.arguments.is_empty() {
        roff.control("PP", []);
        verbatim(&mut roff, command.arguments);
    }
    if !command.subcommands.is_empty() {
        heading(&mut roff, "COMMANDS");
        for below in command.subcommands {
            roff.control("TP", []);
            roff.text([bold(self::title(below)), roman("(1)")]);
            roff.text([roman(below.summary)]);
        }
    }
    heading(&mut roff, "OPTIONS");
    for option in command.all_options() {
        roff.control("TP", []);
        roff.text(option_line(&option));
        roff.text([roman(option.doc.replace('\n', " "))]);
    }
    if !command.notes.is_empty() {
        heading(&mut roff, "NOTES");
        verbatim(&mut roff, command.notes);
    }
    heading(&mut roff, "EXIT STATUS");
    for (code, what) in command.statuses() {
        roff.control("TP", []);
        roff.text([bold(code.to_string())]);
        roff.text([roman(what)]);
    }
    if !command.examples.is_empty() {
        heading(&mut roff, "EXAMPLES");
        verbatim(&mut roff, &command.examples.join("\n"));
    }
    if !command.name.is_empty() {
        heading(&mut roff, "SEE ALSO");
        roff.text([bold(PROGRAM), roman("(1)")]);
    }
    roff.render()
}

/// A summary in lower case, for the middle of a line.
fn lower(summary: &str) -> String {
    let mut chars = summary.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

fn heading(roff: &mut Roff, name: &str) {
    roff.control("SH", [name]);
}

/// Adds text with its line breaks and spaces.
fn verbatim(roff: &mut Roff, text: &str) {
    roff.control("nf", []);
    for line in text.lines() {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

fn option_line(option: &OptionHelp) -> Vec<Inline> {
    let mut line = Vec::new();
    if let Some(letter) = option.short() {
        line.extend([bold(format!("-{letter}")), roman(", ")]);
    }
    line.push(bold(format!("--{}", option.name)));
    if let Some(value) = option.value {
        line.extend([roman(" "), italic(value)]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ROOT;

    /// Text of a page without macros, fonts and escapes.
    fn plain(page: &str) -> String {
        page.replace("\\fB", "")
            .replace("\\fI", "")
            .replace("\\fR", "")
            .replace("\\-", "-")
            .replace("\\&", "")
            .replace("\\*(Aq", "'")
    }

    #[test]
    fn every_page_has_its_commands_options_and_statuses() {
        for command in ROOT.tree() {
            let page = plain(&page(command));
            for below in command.subcommands {
                assert!(page.contains(&format!("{}(1)", title(below))), "{} in\n{page}", below.name);
            }
            for option in command.all_options() {
                assert!(page.contains(&format!("--{}", option.name)), "{} in\n{page}", option.name);
            }
            for (code, what) in command.statuses() {
                assert!(page.contains(&format!("\n{code}\n{what}\n")), "{code} in\n{page}");
            }
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\""] {
                assert!(page.contains(&format!(".SH {section}\n")), "{section} in\n{page}");
            }
        }
    }
}
