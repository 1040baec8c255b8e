//! Common options of all commands, and the words before a command.

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use super::{Flag, HELP, InvalidValue, PROGRAM, SHORT, UsageError, VERSION, nearest, take, unicode, with_value, words};
use crate::cli::{
    print,
    style::{self, ColorChoice},
};

/// Common options of all commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    quiet: bool,
    colour: Option<ColorChoice>,
}

impl Common {
    /// Applies the given options to the whole process.
    pub fn apply(self) {
        if self.quiet {
            print::silence_notes();
        }
        if let Some(when) = self.colour {
            style::set_colour(when);
        }
    }
}

/// Table of the common options. `--help` is listed, but parsed separately.
pub const COMMON: &[Flag<Common>] = &[
    Flag {
        name: "color",
        value: Some("WHEN"),
        doc: "Colour the output: auto, always or never; NO_COLOR and\nCLICOLOR_FORCE also apply [default: auto]",
        set: |common, word| {
            common.colour = Some(match word {
                "auto" => ColorChoice::Auto,
                "always" => ColorChoice::Always,
                "never" => ColorChoice::Never,
                _ => return Err(InvalidValue::not_one_of(word, &["auto", "always", "never"])),
            });
            Ok(())
        },
    },
    Flag {
        name: "quiet",
        value: None,
        doc: "Print only results and errors",
        set: |common, _| {
            common.quiet = true;
            Ok(())
        },
    },
    Flag { name: HELP, value: None, doc: "Print this help", set: |_, _| Ok(()) },
];

/// Words before and after the command name.
#[derive(Debug, PartialEq, Eq)]
pub enum ArgumentsByPosition {
    /// A command, and the words after it.
    Command(OsString, Vec<OsString>),
    /// `--help`, and the words after it.
    Help(Vec<OsString>),
    Version,
    /// No words.
    Nothing,
}

/// Parses the words up to the command.
///
/// # Errors
/// An option is unknown or invalid.
pub fn before_command(args: impl IntoIterator<Item = OsString>) -> Result<ArgumentsByPosition, UsageError> {
    let mut parser = Parser::from_args(args);
    let mut common = Common::default();
    let before = loop {
        let (name, is_short) = match parser.next().map_err(words)? {
            None => break ArgumentsByPosition::Nothing,
            Some(Arg::Value(command)) => break ArgumentsByPosition::Command(command, rest(&mut parser)),
            Some(Arg::Long(name)) => (name.to_owned(), false),
            Some(Arg::Short(letter)) => {
                let name = SHORT.iter().find(|(short, _)| *short == letter).map(|(_, name)| (*name).to_owned());
                (name.unwrap_or_else(|| letter.to_string()), true)
            }
        };
        match COMMON.iter().find(|flag| flag.name == name) {
            Some(flag) if flag.name == HELP => break ArgumentsByPosition::Help(rest(&mut parser)),
            Some(flag) => take(flag, is_short, &mut parser, &mut common)?,
            None if name == VERSION.name => break ArgumentsByPosition::Version,
            None => {
                let dashes = if is_short && name.chars().count() == 1 { "-" } else { "--" };
                let value = parser.optional_value().map(unicode).transpose()?;
                let near = nearest(COMMON, &name);
                let option = format!("{dashes}{name}");
                let error = UsageError::UnknownOption { command: PROGRAM, option, value, near };
                return Err(with_value(error, &mut parser));
            }
        }
    };
    common.apply();
    Ok(before)
}

fn rest(parser: &mut Parser) -> Vec<OsString> {
    parser.try_raw_args().map(Iterator::collect).unwrap_or_default()
}
