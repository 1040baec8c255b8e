//! The log of `headroom serve` on standard error: its levels, its format and its options.

use std::{env, io, str::FromStr};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::{Layer, Registry, filter::Targets, fmt, layer::SubscriberExt};

use crate::cli::{
    args::{InvalidValue, among},
    print,
    style::Style,
};
use headroom_agent_core::logging::AREAS;

/// Environment variable with the levels, unless `--log` is given.
pub const VARIABLE: &str = "HEADROOM_LOG";
/// Names of the levels, from none to all.
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];
/// Level of areas without their own.
const DEFAULT_LEVEL: LevelFilter = LevelFilter::WARN;
/// Prefix of the targets of events without an area.
const PROGRAM: &str = "headroom";

/// The level of each area.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels(Targets);

impl Default for Levels {
    fn default() -> Self {
        Self::of(DEFAULT_LEVEL)
    }
}

impl Levels {
    /// Sets one level for this program's events. Other crates' events are never logged, because they may contain
    /// secrets.
    fn of(level: LevelFilter) -> Self {
        let targets = AREAS.iter().copied().chain([PROGRAM]).map(|target| (target, level));
        Self(targets.collect::<Targets>().with_default(LevelFilter::OFF))
    }

    /// Parses a level, or a comma-separated list of `LEVEL` and `AREA=LEVEL`.
    ///
    /// # Errors
    /// A level or an area does not exist.
    pub fn read(text: &str) -> Result<Self, InvalidValue> {
        let (mut general, mut own) = (DEFAULT_LEVEL, Vec::new());
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None => general = level(word)?,
                Some((area, word)) => {
                    let known = AREAS.iter().find(|known| **known == area.trim());
                    let known = known.ok_or_else(|| {
                        let InvalidValue { why, meant } = InvalidValue::not_one_of(area.trim(), AREAS);
                        InvalidValue { why, meant: meant.map(|area| format!("{area}={}", word.trim())) }
                    })?;
                    own.push((*known, level(word.trim())?));
                }
            }
        }
        let Self(targets) = Self::of(general);
        Ok(Self(own.into_iter().fold(targets, |targets, (area, level)| targets.with_target(area, level))))
    }

    /// Returns the levels of the option or else of the environment variable.
    ///
    /// # Errors
    /// The variable is invalid.
    pub fn chosen(given: Option<Self>) -> Result<Self, InvalidValue> {
        match (given, env::var(VARIABLE)) {
            (Some(levels), _) => Ok(levels),
            (None, Ok(text)) => Self::read(&text),
            (None, Err(_)) => Ok(Self::default()),
        }
    }
}

fn level(word: &str) -> Result<LevelFilter, InvalidValue> {
    let known = LEVELS.iter().find(|known| known.eq_ignore_ascii_case(word));
    known.and_then(|known| LevelFilter::from_str(known).ok()).ok_or_else(|| {
        let mut error = InvalidValue::not_one_of(word, LEVELS);
        // The area was given without a level.
        error.meant = among(AREAS.iter().copied(), word).map(|area| format!("{area}=debug")).or(error.meant);
        error
    })
}

/// Format of a log event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// A JSON object on a line.
    Json,
}

impl LogFormat {
    /// Parses the name of a format.
    ///
    /// # Errors
    /// The format does not exist.
    pub fn read(word: &str) -> Result<Self, InvalidValue> {
        match word {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(InvalidValue::not_one_of(word, &["text", "json"])),
        }
    }
}

/// Starts to print the log of this process.
pub fn start(Levels(levels): Levels, format: LogFormat) {
    // A second start has no effect; only tests could cause one.
    let _ = tracing::subscriber::set_global_default(Registry::default().with(layer(format).with_filter(levels)));
}

fn layer(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = fmt::layer().with_writer(|| StandardError).log_internal_errors(false);
    match format {
        LogFormat::Text => layer.with_ansi(Style::colours_stderr()).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed(),
    }
}

/// Writes whole lines. Write errors do not end the server.
struct StandardError;

impl io::Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        print::log(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[track_caller]
    fn is_on(levels: &str, target: &str, level: Level) -> bool {
        Levels::read(levels).expect("levels").0.would_enable(target, &level)
    }

    #[test]
    fn levels_apply_to_areas() {
        for (levels, target, level, expected) in [
            ("", "history", Level::WARN, true),
            ("", "history", Level::INFO, false),
            ("info", "http", Level::INFO, true),
            ("DEBUG,http=warn", "http", Level::DEBUG, false),
            ("http=warn,debug", "http", Level::DEBUG, false),
            ("debug, http = warn", "runs", Level::DEBUG, true),
            ("http=trace", "http", Level::TRACE, true),
            ("http=trace", "runs", Level::INFO, false),
            ("off", "runs", Level::ERROR, false),
            ("off,runs=error", "runs", Level::ERROR, true),
            ("debug", "headroom::store", Level::DEBUG, true),
            ("trace", "hyper::proto", Level::ERROR, false),
        ] {
            assert_eq!(is_on(levels, target, level), expected, "{levels} {target} {level}");
        }
    }

    #[test]
    fn unknown_levels_and_areas_are_errors_with_suggestions() {
        for (levels, meant) in [
            ("degub", Some("debug")),
            ("webhok", Some("webhook=debug")),
            ("histroy=debug", Some("history=debug")),
            ("x", None),
        ] {
            let error = Levels::read(levels).expect_err(levels);
            assert_eq!(error.meant.as_deref(), meant, "{levels}: {}", error.why);
        }
    }
}
