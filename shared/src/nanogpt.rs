//! The one reader of nanoGPT's config dialect: config files, `--key=value` arguments, pasted commands and logs in;
//! settings with their origin, and a patched config, out.
//!
//! nanoGPT runs a config as Python. This reads the part of Python that configs use and says, with file, line and
//! column, what it did not evaluate; nothing is skipped silently and no input fails. It opens no file.

mod below;
mod command_line;
pub mod defaults;
mod eval;
mod lexer;
mod literal;
mod names;
mod parser;
mod pasted;
mod patch;
pub mod printed;
mod problem;
#[cfg(test)]
mod properties;
mod settings;
mod statement;
pub mod stock;
mod value;
mod words;

use serde::Serialize;

use crate::text::{self, Key};

pub use below::with_file_below;
pub use names::Names;
pub(crate) use parser::is_name;
pub use pasted::{Pasted, PastedKind, from_pasted_text};
pub use patch::{patch, without_outdated_comments};
pub use problem::{MAX_PROBLEMS, Problem, Problems, Severity};
pub(crate) use settings::UNREADABLE;
pub use settings::executed_line;
pub use settings::{Origin, Setting, Settings, Span};
pub use value::Value;

/// Longest text of one source. Configs have a few kilobytes, logs a few hundred.
pub const MAX_SOURCE_BYTES: usize = 5_000_000;
/// Most sources in one reading.
pub const MAX_SOURCES: usize = 256;

/// One thing on nanoGPT's command line, or in the log that it left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// A config file with its text.
    File {
        /// As given on the command line.
        name: String,
        /// All of it.
        text: String,
    },
    /// A config file that is named and whose text is missing: a stock config of nanoGPT's, or one that was not read.
    Named {
        /// As given on the command line.
        name: String,
    },
    /// An argument, as in `--batch_size=32`.
    Override {
        /// With its dashes.
        text: String,
    },
}

/// Reads the sources in the order of nanoGPT's command line: later ones win.
#[must_use]
pub fn read(sources: &[Source]) -> Settings {
    let mut settings = Settings::default();
    for (i, source) in sources.iter().take(MAX_SOURCES).enumerate() {
        let (name, text) = match source {
            Source::File { name, text } => (name, text.as_str()),
            Source::Named { name } => (name, ""),
            Source::Override { text } => (text, text.as_str()),
        };
        settings.source_names.push(shortened(name));
        let whole = |message: Key, hint: Option<Key>| Problem {
            severity: Severity::Error,
            source: shortened(name),
            line: 0,
            column: 0,
            message: message.into(),
            hint: hint.map(Into::into),
        };
        if text.len() > MAX_SOURCE_BYTES {
            settings.problems.push(whole(text::SOURCE_TOO_LONG, None));
            continue;
        }
        match source {
            Source::File { text, .. } => statement::read_file(text, i, &mut settings),
            Source::Override { text } => command_line::read_override(text, i, &mut settings),
            Source::Named { name } => match stock::find(name) {
                Some(stock) => {
                    statement::read_stock(&stock.text(), i, &mut settings);
                    settings.problems.push(Problem { severity: Severity::Note, ..whole(text::STOCK_CONFIG, None) });
                }
                None => {
                    settings.unread.push(shortened(name));
                    settings.problems.push(whole(text::CONFIG_NOT_READ, Some(text::OPEN_OR_PASTE_IT)));
                }
            },
        }
    }
    let file = |source: &Source| match source {
        Source::File { name, .. } => Some(shortened(name)),
        _ => None,
    };
    let files: Vec<String> = sources.iter().filter_map(file).collect();
    // Prose is a fault of syntax, or an expression that nobody evaluates.
    let is_prose = |problem: &Problem| match problem.severity {
        Severity::Error => true,
        Severity::Warning => problem.message.is(&text::not_evaluated("")),
        Severity::Note => false,
    };
    let mut prose = settings.problems.as_slice().iter().filter(|problem| is_prose(problem));
    let prose = prose.find(|problem| files.contains(&problem.source)).map(|problem| problem.source.clone());
    if let Some(source) = prose.filter(|_| settings.sets_nothing() && settings.unread.is_empty()) {
        settings.found_nothing = true;
        let (severity, message) = (Severity::Error, text::NO_SETTINGS_FOUND.into());
        settings.problems.push(Problem { severity, source, line: 0, column: 0, message, hint: None });
    }
    if sources.len() > MAX_SOURCES {
        let message = text::too_many_sources(MAX_SOURCES, sources.len());
        let source = shortened("command line");
        settings.problems.push(Problem { severity: Severity::Error, source, line: 0, column: 0, message, hint: None });
    }
    settings
}

/// The text, or its start, for a message that must stay short.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}
