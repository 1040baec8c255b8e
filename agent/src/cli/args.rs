//! Options as tables: one row is an option's name, its words in the help and what it sets.
//!
//! Words come from `lexopt`, which yields them one by one in their order. A parser that declares all options first would
//! refuse nanoGPT's `--key=value`, whose keys are the config's to know and whose place among the config files matters.

use std::{ffi::OsString, path::PathBuf};

use lexopt::{Arg, Parser};
use thiserror::Error;

/// One option of a command that fills a `T`.
pub struct Flag<T> {
    /// Its name after the dashes.
    pub name: &'static str,
    /// What stands for its value in the help; `None` for a switch.
    pub value: Option<&'static str>,
    /// Its line in the help.
    pub doc: &'static str,
    /// Takes the value, which is empty for a switch.
    pub set: fn(&mut T, &str) -> Result<(), Refusal>,
}

/// Why an option's value was not taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong with it.
    pub why: String,
    /// What may have been meant in its place.
    pub meant: Option<String>,
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self { why, meant: None }
    }
}

impl<T> Clone for Flag<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Flag<T> {}

/// What is asked of a command that works in the folder of history and tokens.
pub trait InDataFolder {
    /// Takes the folder that was named.
    fn set_data_folder(&mut self, folder: PathBuf);
}

impl<T: InDataFolder> Flag<T> {
    /// The folder, alike in all commands.
    pub const DATA_DIR: Self = Self {
        name: "data-dir",
        value: Some("FOLDER"),
        doc: "Where history and tokens are kept\n[default: HEADROOM_DATA_DIR, else the user's data folder]",
        set: |request, folder| {
            if folder.is_empty() {
                return Err("a folder has a name".to_owned().into());
            }
            request.set_data_folder(folder.into());
            Ok(())
        },
    };
}

/// The most threads that are started.
const MAX_THREADS: usize = 1024;

/// How many threads are to compute.
///
/// # Errors
/// It is no number, or none that a machine has.
pub fn threads(n: &str) -> Result<usize, Refusal> {
    match n.parse() {
        Ok(n @ 1..=MAX_THREADS) => Ok(n),
        _ => Err(format!("{n:?} is no number of threads, 1 to {MAX_THREADS}").into()),
    }
}

/// What is no option of the command.
#[derive(Debug, PartialEq, Eq)]
pub enum Word {
    /// A word without dashes.
    Plain(OsString),
    /// `--name=value`, or `--name` without a value, as it stands.
    Other(String),
}

/// What the words of a command came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// They were taken.
    Taken,
    /// Help is asked for.
    Help,
}

/// A command line that cannot be used.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum UsageError {
    /// No such command.
    #[error("there is no command {command:?}")]
    UnknownCommand {
        /// As given.
        command: String,
    },
    /// No such option.
    #[error("{command} has no option {option}")]
    UnknownOption {
        /// The command.
        command: &'static str,
        /// As given, with its dashes.
        option: String,
        /// One that may have been meant.
        near: Option<String>,
    },
    /// A word where none belongs.
    #[error("{command} takes no {word:?}")]
    UnexpectedWord {
        /// The command.
        command: &'static str,
        /// As given.
        word: String,
    },
    /// A word or an option that has to be there.
    #[error("{command} needs {what}")]
    Missing {
        /// The command.
        command: &'static str,
        /// What it needs, as it is written.
        what: &'static str,
    },
    /// An option without its value.
    #[error("--{name} needs a value")]
    MissingValue {
        /// The option.
        name: &'static str,
        /// What stands for its value in the help.
        value: &'static str,
    },
    /// A switch with a value.
    #[error("--{name} is a switch and takes no value")]
    UnexpectedValue {
        /// The switch.
        name: &'static str,
    },
    /// A value that is not understood.
    #[error("--{name}: {why}")]
    BadValue {
        /// The option.
        name: &'static str,
        /// What is wrong with it.
        why: String,
        /// A value that may have been meant.
        meant: Option<String>,
    },
    /// Two options that exclude each other.
    #[error("--{0} and --{1} exclude each other")]
    Exclusive(&'static str, &'static str),
    /// Not a text.
    #[error("an argument is not UTF-8: {0:?}")]
    NotUnicode(OsString),
    /// Words that do not make a command line at all.
    #[error("{0}")]
    Words(String),
}

impl UsageError {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownCommand { .. } => Some("`headroom help` lists the commands".to_owned()),
            Self::UnknownOption { near: Some(near), .. } => Some(format!("did you mean {near}?")),
            Self::UnknownOption { command, .. }
            | Self::UnexpectedWord { command, .. }
            | Self::Missing { command, .. } => Some(format!("`headroom {command} --help` lists what it takes")),
            Self::MissingValue { name, value } => Some(format!("--{name} {value}")),
            Self::UnexpectedValue { name } => Some(format!("write --{name}, or leave it out")),
            Self::BadValue { name, meant: Some(meant), .. } => Some(format!("did you mean --{name} {meant}?")),
            Self::BadValue { .. } | Self::Exclusive(..) | Self::NotUnicode(_) | Self::Words(_) => None,
        }
    }
}

/// Reads the words of `command`: options into `into`, and everything else to `other`, in the order they stand in.
///
/// # Errors
/// A value is missing, superfluous or not understood, or `other` refuses a word.
pub fn parse<T>(
    command: &'static str,
    flags: &[Flag<T>],
    args: impl IntoIterator<Item = OsString>,
    into: &mut T,
    other: impl Fn(&mut T, Word) -> Result<(), UsageError>,
) -> Result<Parsed, UsageError> {
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|error| UsageError::Words(error.to_string()))? {
        let name = match arg {
            Arg::Short('h') => return Ok(Parsed::Help),
            Arg::Short(letter) => {
                return Err(UsageError::UnknownOption { command, option: format!("-{letter}"), near: None });
            }
            Arg::Value(word) => {
                other(into, Word::Plain(word))?;
                continue;
            }
            Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Long(name) => name.to_owned(),
        };
        let attached = parser.optional_value().map(unicode).transpose()?;
        match (flags.iter().find(|flag| flag.name == name), attached) {
            (Some(flag), attached) => take(flag, attached, &mut parser, into)?,
            (None, Some(value)) => other(into, Word::Other(format!("--{name}={value}")))?,
            (None, None) => other(into, Word::Other(format!("--{name}")))?,
        }
    }
    Ok(Parsed::Taken)
}

fn take<T>(flag: &Flag<T>, attached: Option<String>, parser: &mut Parser, into: &mut T) -> Result<(), UsageError> {
    let name = flag.name;
    let value = match (flag.value, attached) {
        (None, None) => String::new(),
        (None, Some(_)) => return Err(UsageError::UnexpectedValue { name }),
        (Some(_), Some(value)) => value,
        (Some(value), None) => match parser.value() {
            // The next option is not this one's value.
            Ok(word) if !word.to_string_lossy().starts_with("--") => unicode(word)?,
            _ => return Err(UsageError::MissingValue { name, value }),
        },
    };
    (flag.set)(into, &value).map_err(|Refusal { why, meant }| UsageError::BadValue { name, why, meant })
}

fn unicode(word: OsString) -> Result<String, UsageError> {
    word.into_string().map_err(UsageError::NotUnicode)
}

/// An option of the table that is near enough to have been meant, with its dashes.
pub fn nearest<T>(flags: &[Flag<T>], option: &str) -> Option<String> {
    let name = option.trim_start_matches('-').split('=').next().unwrap_or_default().to_ascii_lowercase();
    let plain = |name: &str| name.replace(['-', '_'], "");
    let wanted = plain(&name);
    let same_start = |flag: &&Flag<T>| {
        let known = plain(flag.name);
        wanted.len() >= 3 && (known.starts_with(&wanted) || wanted.starts_with(&known))
    };
    let close = |flag: &&Flag<T>| edits(&plain(flag.name), &wanted) <= 1 + usize::from(wanted.len() > 5);
    flags.iter().find(same_start).or_else(|| flags.iter().find(close)).map(|flag| format!("--{}", flag.name))
}

/// Levenshtein distance in characters; a name longer than any option is near none.
fn edits(known: &str, given: &str) -> usize {
    const LONGEST: usize = 40;
    let known: Vec<char> = known.chars().collect();
    let mut row: Vec<usize> = (0..=known.len()).collect();
    for (i, given) in given.chars().take(LONGEST).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, known) in known.iter().enumerate() {
            let replaced = diagonal + usize::from(given != *known);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[known.len()]
}

/// The options of a table, a line or more each, for the help.
pub fn options_help<T>(flags: &[Flag<T>]) -> String {
    let left = |flag: &Flag<T>| match flag.value {
        Some(value) => format!("--{} {value}", flag.name),
        None => format!("--{}", flag.name),
    };
    let width = flags.iter().map(|flag| left(flag).len()).max().unwrap_or(0);
    let mut help = String::new();
    for flag in flags {
        for (i, line) in flag.doc.lines().enumerate() {
            let left = if i == 0 { left(flag) } else { String::new() };
            help.push_str(&format!("  {left:width$}  {line}\n"));
        }
    }
    help
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        card: String,
        json: bool,
        words: Vec<String>,
    }

    const FLAGS: [Flag<Seen>; 2] = [
        Flag {
            name: "card",
            value: Some("NAME"),
            doc: "The card\n[default: none]",
            set: |seen, value| {
                value.clone_into(&mut seen.card);
                if value.is_empty() { Err("it is empty".to_owned().into()) } else { Ok(()) }
            },
        },
        Flag {
            name: "json",
            value: None,
            doc: "Print JSON",
            set: |seen, _| {
                seen.json = true;
                Ok(())
            },
        },
    ];

    fn parsed(args: &[&str]) -> Result<(Parsed, Seen), UsageError> {
        let mut seen = Seen::default();
        let parsed = parse("plan", &FLAGS, args.iter().map(Into::into), &mut seen, |seen, word| {
            seen.words.push(format!("{word:?}"));
            Ok(())
        })?;
        Ok((parsed, seen))
    }

    #[track_caller]
    fn check(args: &[&str], card: &str, json: bool, words: &[&str]) {
        let (taken, seen) = parsed(args).expect("they are taken");
        assert_eq!(taken, Parsed::Taken);
        assert_eq!((seen.card.as_str(), seen.json), (card, json));
        assert_eq!(seen.words, words);
    }

    #[test]
    fn an_option_takes_its_value_either_way() {
        check(&["--card", "RTX 4070", "--json"], "RTX 4070", true, &[]);
        check(&["--card=RTX 4070"], "RTX 4070", false, &[]);
        check(&["--card=a=b"], "a=b", false, &[]);
    }

    #[test]
    fn everything_else_comes_in_its_order() {
        check(
            &["a.py", "--batch_size=64", "--card", "L4", "b.py", "--compile", "c=d", "--x=", "--", "--card"],
            "L4",
            false,
            &[
                "Plain(\"a.py\")",
                "Other(\"--batch_size=64\")",
                "Plain(\"b.py\")",
                "Other(\"--compile\")",
                "Plain(\"c=d\")",
                "Other(\"--x=\")",
                "Plain(\"--card\")",
            ],
        );
    }

    #[test]
    fn help_ends_the_reading() {
        for help in ["-h", "--help"] {
            assert_eq!(parsed(&["--json", help, "-x"]).expect("help").0, Parsed::Help);
        }
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        for (args, said) in [
            (&["--card"][..], "--card needs a value"),
            (&["--card", "--json"], "--card needs a value"),
            (&["--card="], "--card: it is empty"),
            (&["--json=1"], "--json is a switch and takes no value"),
            (&["-x"], "plan has no option -x"),
        ] {
            assert_eq!(parsed(args).expect_err("it is refused").to_string(), said, "{args:?}");
        }
    }

    #[test]
    fn a_misspelt_option_finds_its_own() {
        for (option, near) in
            [("--cards=4", Some("--card")), ("--jsn", Some("--json")), ("--car", Some("--card")), ("--weight", None)]
        {
            assert_eq!(nearest(&FLAGS, option).as_deref(), near, "{option}");
        }
    }

    #[test]
    fn the_help_lines_up() {
        assert_eq!(
            options_help(&FLAGS),
            "  --card NAME  The card\n               [default: none]\n  --json       Print JSON\n"
        );
    }
}
