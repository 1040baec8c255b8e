//! Option tables: each row has an option's name, its help text and its setter.
//!
//! `lexopt` yields the words one by one in order. A parser with declared options would reject nanoGPT's `--key=value`.
//! Only the config knows these keys, and their position among the config files matters.

mod common;
mod error;
mod near;

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use lexopt::{Arg, Parser};

pub use common::{ArgumentsByPosition, COMMON, Common, before_command};
pub use error::UsageError;
pub use near::among;

/// One option of a command, which fills a `T`.
pub struct Flag<T> {
    /// Name without the dashes.
    pub name: &'static str,
    /// Placeholder of the value in the help. `None` for a switch.
    pub value: Option<&'static str>,
    /// Help text. An option with an empty one is hidden.
    pub doc: &'static str,
    /// Setter; the value is empty for a switch.
    pub set: fn(&mut T, &str) -> Result<(), InvalidValue>,
}

/// Most similar option of the table, or of those that every command has, with its dashes, if similar enough.
pub fn nearest<T>(flags: &[Flag<T>], option: &str) -> Option<String> {
    let name = option.trim_start_matches('-').split('=').next().unwrap_or_default();
    let visible = flags.iter().filter(|flag| !flag.is_hidden()).map(|flag| flag.name);
    among(visible.chain(COMMON.iter().map(|flag| flag.name)), name).map(|name| format!("--{name}"))
}

/// Why an option's value is invalid.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// Description of the problem.
    pub why: String,
    /// Suggested value.
    pub meant: Option<String>,
}

impl InvalidValue {
    /// The error for an unknown word; suggests the most similar name.
    pub fn not_one_of(word: &str, names: &[&str]) -> Self {
        let meant = among(names.iter().copied(), word).map(str::to_owned);
        Self { why: format!("{word:?} is not one of {}", names.join(", ")), meant }
    }
}

impl From<String> for InvalidValue {
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

/// Request of a command that uses the data directory.
pub trait InDataFolder {
    /// Sets the directory.
    fn set_data_folder(&mut self, folder: PathBuf);
}

impl<T: InDataFolder> Flag<T> {
    /// The `--data-dir` option of all commands.
    pub const DATA_DIR: Self = Self {
        name: "data-dir",
        value: Some("FOLDER"),
        doc: "Data folder, with the history and the tokens\n[default: HEADROOM_DATA_DIR, else ~/.local/share/headroom]",
        set: |request, folder| {
            if folder.is_empty() {
                return Err("a folder has a name".to_owned().into());
            }
            request.set_data_folder(folder.into());
            Ok(())
        },
    };
}

/// Limit of threads.
const MAX_THREADS: usize = 1024;

/// Parses a number of threads.
///
/// # Errors
/// The value is not a number from 1 to the limit.
pub fn threads(n: &str) -> Result<usize, InvalidValue> {
    match n.parse() {
        Ok(n @ 1..=MAX_THREADS) => Ok(n),
        _ => Err(format!("{n:?} is no number of threads, 1 to {MAX_THREADS}").into()),
    }
}

/// A word that is not an option of the command.
#[derive(Debug, PartialEq, Eq)]
pub enum Word {
    /// A word without dashes.
    Plain(OsString),
    /// `--name=value`, or `--name` without a value, unchanged.
    Other(String),
}

/// Result of parsing.
#[derive(Debug, PartialEq, Eq)]
pub enum ParsedArgs {
    /// All words were valid.
    Taken,
    /// The user requested help.
    Help,
}

/// Name of the main command.
pub const PROGRAM: &str = "headroom";
const HELP: &str = "help";
/// The version option, of `headroom` alone.
pub const VERSION: OptionHelp = OptionHelp { name: "version", value: None, doc: "Print the version" };

/// Short options, in every command that has the long option.
const SHORT: [(char, &str); 4] = [('o', "out"), ('q', "quiet"), ('h', HELP), ('V', VERSION.name)];

/// An option as displayed in help, completions and manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHelp {
    /// Name without the dashes.
    pub name: &'static str,
    /// Placeholder of the value. `None` for a switch.
    pub value: Option<&'static str>,
    /// Help text.
    pub doc: &'static str,
}

impl OptionHelp {
    /// Letter of the short option.
    pub fn short(&self) -> Option<char> {
        SHORT.iter().find(|(_, name)| *name == self.name).map(|(letter, _)| *letter)
    }
}

/// The visible options of a table.
pub fn shown<T>(flags: &[Flag<T>]) -> Vec<OptionHelp> {
    let visible = flags.iter().filter(|flag| !flag.is_hidden());
    visible.map(|&Flag { name, value, doc, .. }| OptionHelp { name, value, doc }).collect()
}

/// Parses the words of `command` in order: sets options in `into`, and passes everything else to `other`.
///
/// # Errors
/// A value is missing, superfluous or invalid, or `other` rejects a word.
pub fn parse<T>(
    command: &'static str,
    flags: &[Flag<T>],
    args: impl IntoIterator<Item = OsString>,
    into: &mut T,
    other: impl Fn(&mut T, Word) -> Result<(), UsageError>,
) -> Result<ParsedArgs, UsageError> {
    parse_with(command, flags, args, into, other, |_, _| false)
}

/// Parses like [`parse`] with foreign options that take a value. If `takes(name, next)`, then `--name next` becomes
/// [`Word::Other`] `--name=next`.
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
) -> Result<ParsedArgs, UsageError> {
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
            return Ok(ParsedArgs::Help);
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
    Ok(ParsedArgs::Taken)
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn words(error: lexopt::Error) -> UsageError {
    UsageError::Words(error.to_string())
}

fn is_of<T>(flags: &[Flag<T>], name: &str) -> bool {
    flags.iter().any(|flag| flag.name == name)
}

/// Takes the next word if `is_wanted` accepts it.
fn next_if(parser: &mut Parser, is_wanted: impl Fn(&OsStr) -> bool) -> Option<OsString> {
    parser.try_raw_args()?.next_if(is_wanted)
}

/// Adds the value of an unknown option, for the hint.
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

/// Error for a word that `command` does not accept.
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
        // In `-qo`, the rest is further letters.
        None if is_short => String::new(),
        None if parser.optional_value().is_some() => return Err(UsageError::UnexpectedValue { name }),
        None => String::new(),
        Some(value) => match parser.optional_value() {
            Some(attached) => unicode(attached)?,
            // An option is not the value of the previous option.
            None => match parser.value() {
                Ok(word) if !word.to_string_lossy().starts_with("--") => unicode(word)?,
                _ => return Err(UsageError::MissingValue { name, value }),
            },
        },
    };
    (flag.set)(into, &value).map_err(|InvalidValue { why, meant }| UsageError::BadValue { name, why, meant })
}

fn unicode(word: OsString) -> Result<String, UsageError> {
    word.into_string().map_err(UsageError::NotUnicode)
}

/// Formats the options for the help.
pub fn options_help(options: &[OptionHelp]) -> String {
    let left = |option: &OptionHelp| {
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
