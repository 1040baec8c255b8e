//! `headroom plan`: a run as it would be started, planned for one card.
//!
//! [`options`] reads the words and [`report`] draws the answer; here are the files, the problems and the exit status.

pub mod options;
mod report;

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
};

use headroom_shared::{
    advice::advise,
    link::encode,
    nanogpt::{MAX_SOURCE_BYTES, MAX_SOURCES, Problem, Settings, Severity, Source, stock},
    plan::{Plan, PlanError, plan},
    session::{Finding, Resolved, resolve},
    text,
};
use thiserror::Error;

use super::{
    Exit,
    args::{Parsed, UsageError, nearest, parse_with},
    meant, print,
    style::Style,
};
use crate::{train::keys::stops_nanogpt, utf8::NotText};
pub use options::COMMAND;
use options::{EVAL_BATCH_SIZE, FLAGS, Given, Request, is_value, take_word};

/// Where `headroom serve` answers unless told otherwise; a link opens there.
const PAGE: &str = "http://127.0.0.1:8420/";

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum Error {
    /// A config file.
    #[error("{name}: {error}")]
    Unreadable {
        /// As given.
        name: String,
        /// What the system says.
        error: io::Error,
    },
    /// A config file that Python would not read either.
    #[error("{0}, and Python stops here")]
    NotText(NotText),
    /// More than is read, and far more than a command line of nanoGPT has.
    #[error("{count} config files and settings; at most {MAX_SOURCES} are read")]
    TooMany {
        /// How many were given.
        count: usize,
    },
    /// Beyond any card.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A plan that JSON cannot hold.
    #[error("the plan cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unreadable { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                Some("paths start from the folder you are in; a setting is written --key=value".to_owned())
            }
            Self::NotText(error) => Some(error.hint()),
            Self::Plan(_) => Some("is a number in the config larger than meant?".to_owned()),
            _ => None,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The words cannot be used, a config file cannot be read, or there is nothing to plan.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    let takes = |key: &str, word: &OsStr| is_value(key, word, EVAL_BATCH_SIZE);
    if parse_with(COMMAND.name, FLAGS, args, &mut request, take_word, takes)? == Parsed::Help {
        return COMMAND.print_help();
    }
    if request.json && request.link {
        return Err(UsageError::Exclusive("json", "link").into());
    }
    if request.options.vram_bytes.is_some() && !request.names_gpu {
        request.options.gpu.clear();
    }
    let resolved = resolve(&sources_or_stock(&request.given)?, &request.options);
    let problems = problems(&resolved);
    let Some(asked) = resolved.request.clone().filter(|_| !problems.iter().any(stops_nanogpt)) else {
        print::error(
            &(said(&problems, &resolved.settings) + &findings(&resolved, |severity| severity == Severity::Error)),
        );
        return Ok(Exit::Usage);
    };
    let plan = plan(asked).map_err(Error::from)?;
    // The answer first, also where both streams end on one screen.
    print::data(&answer(&request, &resolved, &plan)?)?;
    print::note(&said(&problems, &resolved.settings));
    if request.json || request.link {
        print::note(&findings(&resolved, |_| true));
    }
    Ok(if plan.fits { Exit::Success } else { Exit::Failure })
}

fn answer(request: &Request, resolved: &Resolved, plan: &Plan) -> Result<String, Error> {
    if request.link {
        return Ok(format!("{PAGE}#{}\n", encode(&resolved.settings, &request.options)));
    }
    let advice = advise(&resolved.settings, &request.options, plan);
    if request.json {
        return Ok(serde_json::to_string_pretty(&plan.document(&resolved.config, &advice, text::english()))? + "\n");
    }
    Ok(report::report(plan, &advice, &resolved.findings, &Style::of_stdout()))
}

/// The config files, read, and the settings. A stock config of nanoGPT's that is not on disk is taken by its name.
pub fn sources_or_stock(given: &[Given]) -> Result<Vec<Source>, Error> {
    let mut all = Vec::new();
    for one in given {
        match stock_name(one) {
            Some(name) => all.push(Source::Named { name: name.to_owned() }),
            None => all.extend(sources(std::slice::from_ref(one))?),
        }
    }
    if all.len() > MAX_SOURCES { Err(Error::TooMany { count: all.len() }) } else { Ok(all) }
}

/// The name of a stock config that is not on disk. A file that is there always wins.
fn stock_name(given: &Given) -> Option<&str> {
    let Given::Config(path) = given else { return None };
    let is_missing = || matches!(File::open(path), Err(error) if error.kind() == io::ErrorKind::NotFound);
    path.to_str().filter(|name| stock::find(name).is_some() && is_missing())
}

/// The config files, read, and the settings.
pub fn sources(given: &[Given]) -> Result<Vec<Source>, Error> {
    if given.len() > MAX_SOURCES {
        return Err(Error::TooMany { count: given.len() });
    }
    given
        .iter()
        .map(|given| match given {
            Given::Config(path) => read_config(path),
            Given::Setting(text) => Ok(Source::Override { text: text.clone() }),
        })
        .collect()
}

fn read_config(path: &OsStr) -> Result<Source, Error> {
    let name = path.to_string_lossy().into_owned();
    // One byte over the limit is enough for the reader to refuse the file, and /dev/zero ends.
    let limit = MAX_SOURCE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Err(Error::Unreadable { name, error });
    }
    match String::from_utf8(bytes) {
        // As Python does with a byte order mark.
        Ok(text) => Ok(Source::File { name, text: text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text) }),
        Err(error) => Err(Error::NotText(NotText::in_file(name, error.utf8_error().valid_up_to(), error.as_bytes()))),
    }
}

/// What the reader says, in the light of what it cannot know: our own key and options.
pub fn problems(resolved: &Resolved) -> Vec<Problem> {
    let mut problems = resolved.settings.problems.as_slice().to_vec();
    problems.retain(|problem| problem.message != text::unknown_key(EVAL_BATCH_SIZE));
    // nanoGPT stops at the first thing that is wrong with an argument.
    let mut stopped_at = BTreeSet::new();
    problems.retain(|problem| !stops_nanogpt(problem) || stopped_at.insert(problem.source.clone()));
    for problem in &mut problems {
        if problem.hint.is_none() && problem.message.is(&text::unknown_key("")) {
            problem.hint = meant_option(&problem.source).map(text::did_you_mean);
        }
    }
    problems
}

/// An option of ours, or a setting of nanoGPT's, that `--name=value` may have meant.
fn meant_option(argument: &str) -> Option<String> {
    let (name, value) = argument.trim_start_matches('-').split_once('=')?;
    meant::setting(COMMAND.name, name, value).or_else(|| nearest(FLAGS, argument))
}

/// Problems with their hints, a line each.
pub fn said(problems: &[Problem], settings: &Settings) -> String {
    let mut said = String::new();
    let mut hinted = false;
    for problem in problems {
        // A hint belongs to what stands above it.
        said.push_str(if hinted { "\n" } else { "" });
        said.push_str(&format!("{problem}\n"));
        hinted = problem.hint.is_some();
    }
    match settings.problems.omitted() {
        0 => {}
        n => said.push_str(&format!("and {n} more\n")),
    }
    said
}

/// Findings of the wanted kinds, a line each.
pub fn findings(resolved: &Resolved, wanted: impl Fn(Severity) -> bool) -> String {
    resolved.findings.iter().filter(|finding| wanted(finding.severity)).map(finding_text).collect()
}

fn finding_text(finding: &Finding) -> String {
    let hint = match (finding.key, finding.severity) {
        ("gpu", Severity::Error) => "\nhint: `headroom gpus` lists every card; --vram 11.69GiB stands for any other\n",
        _ => "",
    };
    let at = finding.place.as_ref().map_or_else(|| option_or_key(finding.key), ToString::to_string);
    format!("{at}: {}\n{hint}", finding.message)
}

/// A finding's key as it is written on the command line.
fn option_or_key(key: &str) -> String {
    let option = key.replace('_', "-");
    let is_option = FLAGS.iter().any(|flag| flag.name == option);
    if is_option { format!("--{option}") } else { key.to_owned() }
}
