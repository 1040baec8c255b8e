//! Options that every command takes, and what may stand before a command.

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use super::{Flag, HELP, PROGRAM, SHORT, UsageError, VERSION, nearest, take, unicode, with_value, words};
use crate::cli::{
    print,
    style::{self, When},
};

/// Options that every command takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    quiet: bool,
    colour: Option<When>,
}

impl Common {
    /// Puts them into effect, for this whole process; what was not given stays as it is.
    pub fn apply(self) {
        if self.quiet {
            print::silence_notes();
        }
        if let Some(when) = self.colour {
            style::set_colour(when);
        }
    }
}

/// Their table. `--help` is among them, and stands for itself.
pub const COMMON: &[Flag<Common>] = &[
    Flag {
        name: "color",
        value: Some("WHEN"),
        doc: "Colour the output: auto, always or never; NO_COLOR\nand CLICOLOR_FORCE count too [default: auto]",
        set: |common, word| {
            common.colour = Some(match word {
                "auto" => When::Auto,
                "always" => When::Always,
                "never" => When::Never,
                _ => return Err(format!("{word:?} is none of auto, always, never").into()),
            });
            Ok(())
        },
    },
    Flag {
        name: "quiet",
        value: None,
        doc: "Print results and errors only, no notes and no progress",
        set: |common, _| {
            common.quiet = true;
            Ok(())
        },
    },
    Flag { name: HELP, value: None, doc: "Print this help", set: |_, _| Ok(()) },
];

/// What stands before the command: options of all commands, and its name.
#[derive(Debug, PartialEq, Eq)]
pub enum Before {
    /// A command, and the words behind it.
    Command(OsString, Vec<OsString>),
    /// `--help`, and the words behind it.
    Help(Vec<OsString>),
    /// `--version`.
    Version,
    /// Nothing.
    Nothing,
}

/// Reads up to the command.
///
/// # Errors
/// An option that is none of all commands, or not understood.
pub fn before_command(args: impl IntoIterator<Item = OsString>) -> Result<Before, UsageError> {
    let mut parser = Parser::from_args(args);
    let mut common = Common::default();
    let before = loop {
        let (name, is_short) = match parser.next().map_err(words)? {
            None => break Before::Nothing,
            Some(Arg::Value(command)) => break Before::Command(command, rest(&mut parser)),
            Some(Arg::Long(name)) => (name.to_owned(), false),
            Some(Arg::Short(letter)) => {
                let name = SHORT.iter().find(|(short, _)| *short == letter).map(|(_, name)| (*name).to_owned());
                (name.unwrap_or_else(|| letter.to_string()), true)
            }
        };
        match COMMON.iter().find(|flag| flag.name == name) {
            Some(flag) if flag.name == HELP => break Before::Help(rest(&mut parser)),
            Some(flag) => take(flag, is_short, &mut parser, &mut common)?,
            None if name == VERSION.name => break Before::Version,
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
