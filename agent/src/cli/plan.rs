//! `headroom plan`: predicts the memory of a run on one GPU.
//!
//! [`options`] parses the arguments and [`report`] formats the answer. This module reads the files, prints problems and
//! selects the exit status.

mod code_comments;
mod gpus;
pub mod machine;
pub mod options;
pub mod report;
pub mod snapshot_file;
pub mod trainer;

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use headroom_planner::{
    advice::advise,
    link::encode,
    nanogpt::{Format, MAX_SOURCE_BYTES, MAX_SOURCES, Problem, Settings, Severity, Source, recognize, stock},
    oom::diagnosis::DiagnosisError,
    plan::{Plan, PlanError, plan},
    report::Node,
    session::{Finding, MachineError, Options, ResolvedSession, resolve},
    trainers::{arguments::ArgumentError, hf, nanochat::launch::LaunchError, presets},
};
use headroom_text::{self as text, Text};
use thiserror::Error;

use super::{
    Exit,
    args::{Flag, ParsedArgs, UsageError, among, nearest, parse_with},
    print,
    style::Style,
    suggestions,
};
use headroom_agent_core::utf8::NotText;
use headroom_train::keys::stops_nanogpt;
pub use options::{COMMAND, OPTIMIZER_NAMES};
use options::{EVAL_BATCH_SIZE, FLAGS, NanogptArgument, Request, is_value, take_word};

/// Default address of `headroom serve`, for links.
const PAGE: &str = "http://127.0.0.1:8420/";

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum Error {
    /// A config file cannot be read.
    #[error("cannot read {name}: {error}")]
    Unreadable {
        /// Name as given.
        name: String,
        /// What the system reports.
        error: io::Error,
    },
    /// A config file is longer than any source that is read.
    #[error("cannot read {name}: it is longer than {} MB", MAX_SOURCE_BYTES / 1_000_000)]
    TooLong {
        /// Name as given.
        name: String,
    },
    /// A config file has another format, such as YAML.
    #[error("{name}: {message}")]
    Format {
        /// Name as given.
        name: String,
        /// Which format it is.
        message: Text,
        /// How to write its settings.
        hint: Option<Text>,
    },
    /// A config file is not UTF-8, so Python would reject it too.
    #[error("{0}, and Python stops here")]
    NotText(NotText),
    /// Too many sources, far more than a nanoGPT command line has.
    #[error("{count} config files and settings; at most {MAX_SOURCES} are read")]
    TooMany {
        /// Number of sources.
        count: usize,
    },
    /// The run exceeds any GPU.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A Hugging Face model without its config.
    #[error("cannot plan a Hugging Face model: its config.json or its name is missing")]
    NoModelConfig,
    /// A model that is no file, and whose config is not known.
    #[error("cannot find the model {name}: it is not a file, and no known model has this name")]
    UnknownModel {
        /// Name as given.
        name: String,
    },
    /// A model's config is longer than any source that is read.
    #[error("cannot read {name}: it is longer than {MAX_SOURCE_BYTES} bytes")]
    LongModelConfig {
        /// Name as given.
        name: String,
    },
    /// A model's config is not JSON.
    #[error("cannot read {name}: {error}")]
    ModelConfig {
        /// Name as given.
        name: String,
        /// The error with its place.
        error: serde_json::Error,
    },
    /// A run of Hugging Face's trainer cannot be planned.
    #[error(transparent)]
    Hf(#[from] hf::RunError),
    /// A trainer's command line cannot be planned.
    #[error(transparent)]
    Trainer(#[from] ArgumentError),
    /// A text has no run of nanochat that Headroom plans.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A run cannot be planned on the GPU of a message.
    #[error(transparent)]
    Diagnosis(#[from] DiagnosisError),
    /// The run has nothing that can be changed.
    #[error("cannot find what fits: the run has no batch size")]
    NothingToFit,
    /// The machine is not known.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The plan cannot be serialized as JSON.
    #[error("cannot write the plan as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Error {
    /// Suggested remedy.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unreadable { name, error } if error.kind() == io::ErrorKind::NotFound => {
                meant_config(name).or_else(|| {
                    Some("paths start from the folder you are in; a setting is written --key=value".to_owned())
                })
            }
            Self::Format { hint, .. } => hint.as_ref().map(ToString::to_string),
            Self::TooLong { .. } => Some("give a config of nanoGPT, which has a few lines of Python".to_owned()),
            Self::NotText(error) => Some(error.hint()),
            Self::NoModelConfig | Self::UnknownModel { .. } => {
                let names: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).collect();
                Some(format!("give the path of the model's config.json, or one of {}", names.join(", ")))
            }
            Self::LongModelConfig { .. } => Some("give the config.json of the model's repository".to_owned()),
            Self::Plan(_) => Some("is a number in the config larger than meant?".to_owned()),
            _ => None,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The arguments are invalid, a config file cannot be read, or the run cannot be planned.
pub fn run(mut args: Vec<OsString>) -> Result<Exit, super::Error> {
    if let Some(command) = args.first().and_then(|word| COMMAND.subcommand(word.to_str()?)) {
        args.remove(0);
        return (command.run)(args);
    }
    let mut request = Request::default();
    let takes = |key: &str, word: &OsStr| is_value(key, word, EVAL_BATCH_SIZE);
    if parse_with(COMMAND.name, FLAGS, args, &mut request, take_word, takes)? == ParsedArgs::Help {
        return COMMAND.print_help();
    }
    if request.json && request.link {
        return Err(UsageError::Exclusive("json", "link").into());
    }
    if request.link && request.options.tuned.is_some() {
        return Err(UsageError::Exclusive("alloc-conf", "link").into());
    }
    if request.snapshot.is_some() && request.options.tuned.is_some() {
        return Err(UsageError::Exclusive("alloc-conf", "snapshot").into());
    }
    let is_for_all_gpus = request.is_for_all_gpus();
    if is_for_all_gpus {
        if request.options.vram_bytes.is_some() {
            return Err(UsageError::Exclusive("gpu all", "vram").into());
        }
        if request.link {
            return Err(UsageError::Exclusive("gpu all", "link").into());
        }
        if request.snapshot.is_some() {
            return Err(UsageError::Exclusive("gpu all", "snapshot").into());
        }
        request.options.gpu = Options::default().gpu;
    }
    take_gpu_of_plan(&mut request);
    let sources = sources(&request.given)?;
    let resolved = resolve(&sources, &request.options);
    let problems = problems(&resolved);
    let Some(asked) = planned(&resolved, &problems) else {
        return Ok(Exit::Usage);
    };
    let notes = said(&problems, &resolved.settings)
        + &code_comments::notes(&sources, &asked.train)
        + &allocator_notes(&request.options);
    let (answer, fits) = if is_for_all_gpus {
        gpus::answer(&resolved.settings, &request.options, request.json).map_err(Error::from)?
    } else {
        let plan = plan(asked).map_err(Error::from)?;
        if let Some(file) = &request.snapshot {
            snapshot_file::write(file, &plan)?;
        }
        (answer(&request, &sources, &resolved, &plan)?, plan.fits)
    };
    // The answer comes first, also if both streams go to one terminal.
    print::data(&answer)?;
    print::note(&notes);
    if !is_for_all_gpus && (request.json || request.link) {
        print::note(&findings(&resolved, |_| true));
    }
    Ok(if fits { Exit::Success } else { Exit::Failure })
}

/// Uses the GPU of a plan that is given as JSON, unless an option names one. A GPU given by its memory has no name.
pub fn take_gpu_of_plan(request: &mut Request) {
    if request.names_gpu {
        return;
    }
    match (request.options.vram_bytes, request.given.iter().find_map(gpu_of_plan)) {
        (None, Some((gpu, vram_bytes))) => {
            (request.options.gpu, request.options.vram_bytes) = (gpu, vram_bytes);
        }
        (Some(_), _) => request.options.gpu.clear(),
        (None, None) => {}
    }
}

/// The run to plan. Without one, the errors are printed.
pub fn planned(resolved: &ResolvedSession, problems: &[Problem]) -> Option<headroom_planner::plan::Request> {
    let request = resolved.request.clone().filter(|_| !problems.iter().any(stops_nanogpt));
    if request.is_none() {
        let errors = findings(resolved, |severity| severity == Severity::Error);
        print::error(&(said(problems, &resolved.settings) + &errors));
    }
    request
}

/// Remarks on settings of the allocator, a line each.
pub fn allocator_notes(options: &Options) -> String {
    machine::allocator_remarks(options).into_iter().map(|remark| remark + "\n").collect()
}

/// Names of the built-in configs among the sources.
pub fn stock_configs(sources: &[Source]) -> Vec<&str> {
    let named = sources.iter().map(|source| match source {
        Source::Named { name } => Some(name.as_str()),
        _ => None,
    });
    named.flatten().collect()
}

fn answer(request: &Request, sources: &[Source], resolved: &ResolvedSession, plan: &Plan) -> Result<String, Error> {
    if request.link {
        return Ok(format!("{PAGE}#{}\n", encode(&resolved.settings, &request.options)));
    }
    let advice = advise(&resolved.settings, &request.options, plan);
    if request.json {
        let mut document = plan.document(&resolved.config, &advice, headroom_languages::english());
        if let Node::Object(fields) = &mut document {
            let names = stock_configs(sources).into_iter().map(|name| Node::Value(name.into())).collect();
            fields.push(("stock_configs", Node::List(names)));
        }
        return Ok(serde_json::to_string_pretty(&document)? + "\n");
    }
    Ok(report::report(plan, &advice, &resolved.findings, &Style::of_stdout()))
}

/// Suggestion for a config that does not exist: a stock config of nanoGPT with a similar name, or the arguments alone
/// where a whole command is given.
fn meant_config(name: &str) -> Option<String> {
    let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
    if base.starts_with("python") || base.starts_with("torchrun") {
        return Some("give the arguments of train.py alone, as in `headroom plan CONFIG.py --batch_size=8`".to_owned());
    }
    let stem = |file: &'static str| file.trim_end_matches(".py");
    let (mut stems, base) = (stock::STOCK.iter().map(|stock| stem(stock.name)), base.trim_end_matches(".py"));
    if let Some(stem) = stems.clone().find(|stem| *stem == base) {
        return Some(format!("did you mean config/{stem}.py, which is built in?"));
    }
    among(stems.by_ref(), base).map(|near| format!("did you mean config/{near}.py?"))
}

/// Reads the config files and settings. A stock config of nanoGPT that is given by its name is built in.
///
/// # Errors
/// There are too many, or a file cannot be read.
pub fn sources(given: &[NanogptArgument]) -> Result<Vec<Source>, Error> {
    if given.len() > MAX_SOURCES {
        return Err(Error::TooMany { count: given.len() });
    }
    let source = |given: &NanogptArgument| match given {
        NanogptArgument::Config(path) => match stock_name(path) {
            Some(name) => Ok(Source::Named { name }),
            None => read_config(path),
        },
        NanogptArgument::Setting(text) => Ok(Source::Override { text: text.clone() }),
    };
    given.iter().map(source).collect()
}

/// GPU and memory of a plan that is given as JSON.
fn gpu_of_plan(given: &NanogptArgument) -> Option<(String, Option<u64>)> {
    let NanogptArgument::Config(path) = given else { return None };
    let is_json = Path::new(path).extension().is_some_and(|ending| ending == "json");
    let text = is_json.then(|| read_limited(path).ok()).flatten()?;
    let text = String::from_utf8(text).ok()?;
    match recognize(&text)? {
        Format::Plan { gpu, vram_bytes, .. } if !gpu.is_empty() || vram_bytes.is_some() => Some((gpu, vram_bytes)),
        _ => None,
    }
}

/// Name of a stock config that is given as such and is not on disk. An existing file takes precedence, also a link to a
/// missing one.
fn stock_name(path: &OsStr) -> Option<String> {
    let is_missing = || matches!(fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound);
    path.to_str().and_then(stock::given).filter(|_| is_missing())
}

/// Reads a file up to one byte over the limit of a source. That suffices to reject it, and bounds endless files such as
/// `/dev/zero`.
fn read_limited(path: &OsStr) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_SOURCE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_config(path: &OsStr) -> Result<Source, Error> {
    let name = path.to_string_lossy().into_owned();
    let bytes = match read_limited(path) {
        Ok(bytes) => bytes,
        Err(error) => return Err(Error::Unreadable { name, error }),
    };
    if bytes.len() > MAX_SOURCE_BYTES {
        return Err(Error::TooLong { name });
    }
    match String::from_utf8(bytes) {
        Ok(text) => {
            // Python skips a byte order mark too.
            let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
            match recognize(&text) {
                Some(Format::Settings(text) | Format::Plan { config: text, .. }) => Ok(Source::File { name, text }),
                Some(Format::Unsupported(message, hint)) => Err(Error::Format { name, message, hint }),
                Some(Format::Link(_)) | None => Ok(Source::File { name, text }),
            }
        }
        Err(error) => Err(Error::NotText(NotText::in_file(name, error.utf8_error().valid_up_to(), error.as_bytes()))),
    }
}

/// Problems of the config, adjusted for this command's own key and options.
pub fn problems(resolved: &ResolvedSession) -> Vec<Problem> {
    let mut problems = resolved.settings.problems.as_slice().to_vec();
    problems.retain(|problem| problem.message != text::unknown_key(EVAL_BATCH_SIZE));
    // nanoGPT stops at the first error in an argument.
    let mut stopped_at = BTreeSet::new();
    problems.retain(|problem| !stops_nanogpt(problem) || stopped_at.insert(problem.source.clone()));
    suggest_options(COMMAND.name, FLAGS, &mut problems);
    problems
}

/// Adds a hint to each unknown `--name=value` that is an option of Headroom or resembles one.
pub fn suggest_options<T>(command: &str, flags: &[Flag<T>], problems: &mut [Problem]) {
    for problem in problems {
        if problem.hint.is_some() || !problem.message.is(&text::unknown_key("")) {
            continue;
        }
        let Some((option, value)) = problem.source.split_once('=') else { continue };
        let near = nearest(flags, option);
        problem.hint = suggestions::known_option(command, option, Some(value), near.as_deref()).map(text::verbatim);
    }
}

/// Formats problems with their hints, one per line.
pub fn said(problems: &[Problem], settings: &Settings) -> String {
    let mut said = String::new();
    let mut hinted = false;
    for problem in problems {
        // A blank line separates a hint from the next problem.
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

/// Formats the findings of the wanted severities, one per line.
pub fn findings(resolved: &ResolvedSession, wanted: impl Fn(Severity) -> bool) -> String {
    resolved.findings.iter().filter(|finding| wanted(finding.severity)).map(finding_text).collect()
}

fn finding_text(finding: &Finding) -> String {
    let hint = match (finding.key, finding.severity) {
        ("gpu", Severity::Error) => {
            "\nhint: `headroom gpus` lists all GPUs; for any other, pass its memory with --vram 11.69GiB\n"
        }
        _ => "",
    };
    let at = finding.place.as_ref().map_or_else(|| option_or_key(finding.key), ToString::to_string);
    format!("{at}: {}\n{hint}", finding.message)
}

/// A finding's key as written on the command line.
fn option_or_key(key: &str) -> String {
    let option = key.replace('_', "-");
    let is_option = FLAGS.iter().any(|flag| flag.name == option);
    if is_option { format!("--{option}") } else { key.to_owned() }
}
