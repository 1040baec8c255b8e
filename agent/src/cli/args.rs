//! Options as tables: one row is an option's name, its words in the help and what it sets.
//!
//! Words come from `lexopt`, which yields them one by one in their order. A parser that declares all options first would
//! refuse nanoGPT's `--key=value`, whose keys are the config's to know and whose place among the config files matters.

mod common;
mod error;
mod near;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use lexopt::{Arg, Parser};

pub use common::{Before, COMMON, Common, before_command};
pub use error::UsageError;
pub use near::{among, nearest};

/// One option of a command that fills a `T`.
pub struct Flag<T> {
    /// Its name after the dashes.
    pub name: &'static str,
    /// What stands for its value in the help; `None` for a switch.
    pub value: Option<&'static str>,
    /// Its line in the help; an option without one is hidden.
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

impl<T> Flag<T> {
    fn is_hidden(&self) -> bool {
        self.doc.is_empty()
    }
}

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

/// The command that has all others.
pub const PROGRAM: &str = "headroom";
const HELP: &str = "help";
/// The option of `headroom` alone.
pub const VERSION: Shown = Shown { name: "version", value: None, doc: "Print the version" };

/// Letters, and the options that they stand for in every command that has such an option.
const SHORT: [(char, &str); 4] = [('o', "out"), ('q', "quiet"), ('h', HELP), ('V', VERSION.name)];

/// An option as help, completions and manual show it, whatever it sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name after the dashes.
    pub name: &'static str,
    /// What stands for its value; `None` for a switch.
    pub value: Option<&'static str>,
    /// Its lines in the help.
    pub doc: &'static str,
}

impl Shown {
    /// Its letter.
    pub fn short(&self) -> Option<char> {
        SHORT.iter().find(|(_, name)| *name == self.name).map(|(letter, _)| *letter)
    }
}

/// The options of a table, but for hidden ones.
pub fn shown<T>(flags: &[Flag<T>]) -> Vec<Shown> {
    let visible = flags.iter().filter(|flag| !flag.is_hidden());
    visible.map(|&Flag { name, value, doc, .. }| Shown { name, value, doc }).collect()
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
    parse_with(command, flags, args, into, other, |_, _| false)
}

/// The same, where `takes(name, next)` says that the word behind an option of somebody else's is its value: `--name next`
/// then is [`Word::Other`] `--name=next`.
///
/// # Errors
/// As [`parse`].
pub fn parse_with<T>(
    command: &'static str,
    flags: &[Flag<T>],
    args: impl IntoIterator<Item = OsString>,
    into: &mut T,
    other: impl Fn(&mut T, Word) -> Result<(), UsageError>,
    takes: impl Fn(&str, &OsStr) -> bool,
) -> Result<Parsed, UsageError> {
    let mut parser = Parser::from_args(args);
    let mut common = Common::default();
    while let Some(arg) = parser.next().map_err(words)? {
        let (name, is_short) = match arg {
            Arg::Value(word) => {
                other(into, Word::Plain(word))?;
                continue;
            }
            Arg::Long(name) => (name.to_owned(), false),
            Arg::Short(letter) => {
                let name = SHORT.iter().find(|(short, _)| *short == letter).map(|(_, name)| *name);
                let is_known = |name: &&str| is_of(flags, name) || is_of(COMMON, name);
                let Some(name) = name.filter(is_known) else {
                    let error =
                        UsageError::UnknownOption { command, option: format!("-{letter}"), value: None, near: None };
                    return Err(with_value(error, &mut parser));
                };
                (name.to_owned(), true)
            }
        };
        if name == HELP {
            common.apply();
            return Ok(Parsed::Help);
        }
        if let Some(flag) = flags.iter().find(|flag| flag.name == name) {
            take(flag, is_short, &mut parser, into)?;
        } else if let Some(flag) = COMMON.iter().find(|flag| flag.name == name) {
            take(flag, is_short, &mut parser, &mut common)?;
        } else {
            let value = match parser.optional_value() {
                Some(value) => Some(value),
                None => next_if(&mut parser, |next| takes(&name, next)),
            };
            let text = match value.map(unicode).transpose()? {
                Some(value) => format!("--{name}={value}"),
                None => format!("--{name}"),
            };
            other(into, Word::Other(text)).map_err(|error| with_value(error, &mut parser))?;
        }
    }
    common.apply();
    Ok(Parsed::Taken)
}

#[expect(clippy::needless_pass_by_value, reason = "as map_err hands it over")]
fn words(error: lexopt::Error) -> UsageError {
    UsageError::Words(error.to_string())
}

fn is_of<T>(flags: &[Flag<T>], name: &str) -> bool {
    flags.iter().any(|flag| flag.name == name)
}

/// The next word, where it is one that is wanted.
fn next_if(parser: &mut Parser, is_wanted: impl Fn(&OsStr) -> bool) -> Option<OsString> {
    parser.try_raw_args()?.next_if(is_wanted)
}

/// An unknown option with the value that stands by it, for the hint.
fn with_value(error: UsageError, parser: &mut Parser) -> UsageError {
    let UsageError::UnknownOption { command, option, value, near } = error else { return error };
    let (option, attached) = match option.split_once('=') {
        Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
        None => (option, value),
    };
    let is_value = |word: &OsStr| !word.to_string_lossy().starts_with('-');
    let value = attached.or_else(|| next_if(parser, is_value)?.into_string().ok());
    UsageError::UnknownOption { command, option, value, near }
}

/// A word that `command`, which takes options alone, cannot use.
pub fn refusal<T>(command: &'static str, flags: &[Flag<T>], word: Word) -> UsageError {
    match word {
        Word::Plain(word) => UsageError::UnexpectedWord { command, word: word.to_string_lossy().into_owned() },
        Word::Other(option) => {
            UsageError::UnknownOption { command, near: nearest(flags, &option), option, value: None }
        }
    }
}

fn take<T>(flag: &Flag<T>, is_short: bool, parser: &mut Parser, into: &mut T) -> Result<(), UsageError> {
    let name = flag.name;
    let value = match flag.value {
        // The rest of `-qo` is the next letters.
        None if is_short => String::new(),
        None if parser.optional_value().is_some() => return Err(UsageError::UnexpectedValue { name }),
        None => String::new(),
        Some(value) => match parser.optional_value() {
            Some(attached) => unicode(attached)?,
            // The next option is not this one's value.
            None => match parser.value() {
                Ok(word) if !word.to_string_lossy().starts_with("--") => unicode(word)?,
                _ => return Err(UsageError::MissingValue { name, value }),
            },
        },
    };
    (flag.set)(into, &value).map_err(|Refusal { why, meant }| UsageError::BadValue { name, why, meant })
}

fn unicode(word: OsString) -> Result<String, UsageError> {
    word.into_string().map_err(UsageError::NotUnicode)
}

/// Options, a line or more each, for the help.
pub fn options_help(options: &[Shown]) -> String {
    let left = |option: &Shown| {
        let short = option.short().map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
        match option.value {
            Some(value) => format!("{short}--{} {value}", option.name),
            None => format!("{short}--{}", option.name),
        }
    };
    let width = options.iter().map(|option| left(option).len()).max().unwrap_or(0);
    let mut help = String::new();
    for option in options {
        for (i, line) in option.doc.lines().enumerate() {
            let left = if i == 0 { left(option) } else { String::new() };
            help.push_str(&format!("  {left:width$}  {line}\n"));
        }
    }
    help
}

#[cfg(test)]
mod tests;
