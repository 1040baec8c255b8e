//! Parser of nanoGPT's config dialect. Its input is config files, `--key=value` arguments, pasted commands and logs;
//! its output is settings with their origin, or a patched config.
//!
//! nanoGPT executes a config as Python. This parser evaluates the part of Python that configs use. It reports whatever
//! it did not evaluate, with file, line and column; nothing is skipped silently and no input fails. It opens no file.

mod below;
mod command_line;
pub mod defaults;
mod eval;
mod formats;
mod indirect;
mod lexer;
mod lines;
mod literal;
mod names;
mod parser;
mod pasted;
mod patch;
mod problem;
#[cfg(test)]
mod properties;
mod reason;
mod settings;
mod site;
mod statement;
pub mod stock;
mod value;
mod words;

use serde::Serialize;

use headroom_text::{self as text, Key};

pub use below::{with_file_below, with_file_in_log};
pub use formats::{Format, recognize};
pub(crate) use lexer::is_name;
pub use names::Names;
pub use pasted::{
    AFTER_CONFIG, PastedConfig, PastedKind, VOCABULARY_COMMENT, command_range, from_pasted_text, names_launcher,
};
pub(crate) use pasted::{commands, n_processes};
pub use patch::{patch, without_own_comments};
pub use problem::{MAX_PROBLEMS, Problem, Problems, Severity};
pub(crate) use settings::UNREADABLE;
pub use settings::executed_line;
pub use settings::{Origin, Setting, Settings, Span, UnevaluatedValue, UnreadFile};
pub use value::Value;

/// Maximum length of a source in bytes. Configs have a few kilobytes, logs a few hundred.
pub const MAX_SOURCE_BYTES: usize = 5_000_000;
/// Maximum number of sources.
pub const MAX_SOURCES: usize = 256;

/// An argument of nanoGPT's command line, or its trace in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Source {
    /// A config file with its text.
    File {
        /// Name as given on the command line.
        name: String,
        /// The file's whole text.
        text: String,
    },
    /// A config file given by name without its text: one of nanoGPT's stock configs, or a file that was not read.
    Named {
        /// Name as given on the command line.
        name: String,
    },
    /// An argument, as in `--batch_size=32`.
    Override {
        /// The argument with its dashes.
        text: String,
    },
    /// An argument that `train.py` printed, which nanoGPT or a fork has accepted.
    Printed {
        /// The argument with its dashes.
        text: String,
    },
}

/// Reads the sources in the order of nanoGPT's command line. Later sources take precedence.
#[must_use]
pub fn read(sources: &[Source]) -> Settings {
    let mut settings = Settings::default();
    for (i, source) in sources.iter().take(MAX_SOURCES).enumerate() {
        let (name, text) = match source {
            Source::File { name, text } => (name, text.as_str()),
            Source::Named { name } => (name, ""),
            Source::Override { text } | Source::Printed { text } => (text, text.as_str()),
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
            Source::Printed { text } => command_line::read_printed(text, i, &mut settings),
            Source::Named { name } => match stock::find(name) {
                Some(stock) => {
                    statement::read_stock(&stock.text(), i, &mut settings);
                    settings.problems.push(Problem { severity: Severity::Note, ..whole(text::STOCK_CONFIG, None) });
                }
                None => {
                    let (name, statement) = (shortened(name), String::new());
                    settings.unread.push(UnreadFile { name, statement, follows_settings: false });
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
    // Prose causes a syntax error, or an expression that is not evaluated.
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

/// Returns the text, shortened for use in a message.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}
