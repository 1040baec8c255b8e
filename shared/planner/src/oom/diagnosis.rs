//! Diagnosis of a pasted text: the message, its run and the fixes.

#[cfg(test)]
mod tests;
mod trainer;

use serde_json::{Map, Value as Json};

use super::{
    Agreement, Arithmetic, Explanation, Message, Report,
    explain::{as_in_message, explain},
    read,
    solve::{FoundRun, OfTrainers, Search, Solution, TrainerSearch, source_of},
    words,
};
use crate::{
    advice::{Advice, advise},
    nanogpt::{PastedConfig, PastedKind, Source, defaults, from_pasted_text},
    plan::{Plan, RunOnMachine, plan},
    session::{Options, ResolvedSession, resolve},
    trainers::{self, fixes::TrainerFix},
};
use headroom_text::Table;
pub use trainer::{DiagnosisError, TrainerDiagnosis, diagnose_trainer};

/// Version of the JSON schema.
pub const SCHEMA: u32 = 1;

/// Name of nanoGPT as a trainer in JSON.
const NANOGPT: &str = "nanogpt";

/// Result of a diagnosis.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// Messages found in the text.
    pub report: Report,
    /// Explanation of the first message, or of the last one if `explains_last`.
    pub explanation: Explanation,
    /// Whether the explanation is of the last message instead of the first.
    pub explains_last: bool,
    /// Suggested fixes; empty without a config.
    pub advice: Advice,
    /// The resolved run, if a config was given or printed.
    pub resolved: Option<ResolvedSession>,
    /// GPU and environment as described by the message.
    pub options: Options,
    /// Common runs that print this message, best first. Empty until [`Diagnosis::solve`] is called, and if a known run
    /// agrees with the message.
    pub solutions: Vec<Solution>,
    /// Plan of the first exact solution; the advice is based on it.
    pub solved: Option<Plan>,
    /// Common runs of other trainers that print this message.
    pub of_trainers: OfTrainers,
}

/// Diagnoses a text.
///
/// `given` is the run's config. If it is empty, the config is taken from the text. The GPU is the message's unless
/// `names_gpu`: then it is the GPU of `options`.
#[must_use]
pub fn diagnose(text: &str, given: &[Source], options: &Options, names_gpu: bool) -> Diagnosis {
    let mut options = options.clone();
    let printed = if given.is_empty() { sources_in(text, &mut options) } else { vec![] };
    diagnose_run(text, if given.is_empty() { &printed } else { given }, &options, names_gpu)
}

/// Diagnoses a text for a run whose config is exactly `sources`. If `sources` is empty, the run is unknown, even if the
/// text contains a config.
#[must_use]
pub fn diagnose_run(text: &str, sources: &[Source], options: &Options, names_gpu: bool) -> Diagnosis {
    let report = read(text);
    let found = explained(&report, options, names_gpu, |message, options| {
        let resolved = (!sources.is_empty()).then(|| resolve(sources, options));
        let request = resolved.as_ref().and_then(|resolved| resolved.request.clone());
        (explain(message, || plan(request?).ok()), resolved)
    });
    let Explained { explanation, options, run: resolved, is_last } = found;
    let advice = match (&resolved, &explanation.plan) {
        (Some(resolved), Some(plan)) => advise(&resolved.settings, &options, plan),
        _ => Advice::default(),
    };
    Diagnosis {
        report,
        explanation,
        explains_last: is_last,
        advice,
        resolved,
        options,
        solutions: vec![],
        solved: None,
        of_trainers: OfTrainers::default(),
    }
}

/// How well the run of a config agrees with a message, on the GPU of the options. `None` without a plan.
#[must_use]
pub fn agreement(message: &Message, sources: &[Source], options: &Options) -> Option<Agreement> {
    let request = resolve(sources, options).request;
    explain(Some(message), || plan(request?).ok()).agreement
}

/// The explanation of a report's message.
struct Explained<R, T> {
    explanation: Explanation<R>,
    /// GPU and environment as described by the message.
    options: Options,
    run: T,
    /// Whether the explanation is of the last message instead of the first.
    is_last: bool,
}

/// Explains the first message of a report, or the last one if only that agrees with the run. `of` explains a message on
/// the GPU of the options.
fn explained<R: RunOnMachine, T>(
    report: &Report,
    options: &Options,
    names_gpu: bool,
    of: impl Fn(Option<&Message>, &Options) -> (Explanation<R>, T),
) -> Explained<R, T> {
    let of = |message: Option<&Message>| {
        let mut options = options.clone();
        if let Some(message) = message {
            as_in_message(&mut options, message, names_gpu);
        }
        let (explanation, run) = of(message, &options);
        Explained { explanation, options, run, is_last: false }
    };
    let mut found = of(report.first.as_ref());
    // The first message is usually the cause. If it does not agree with the config, the last message may.
    if found.explanation.agreement == Some(Agreement::None) && report.last != report.first {
        let last = of(report.last.as_ref());
        if matches!(last.explanation.agreement, Some(Agreement::Exact | Agreement::Close)) {
            found = Explained { is_last: true, ..last };
        }
    }
    let message = if found.is_last { report.last.as_ref() } else { report.first.as_ref() };
    words::add_circumstances(&mut found.explanation, message, &found.options);
    words::add_traceback(&mut found.explanation, report);
    found
}

/// Extracts the run's config from the text: nanoGPT's printed overrides, a command, or pasted config lines. Logs are
/// long and rarely contain any of these, so a miss must be cheap.
fn sources_in(text: &str, options: &mut Options) -> Vec<Source> {
    let printed = text.contains("Overriding").then(|| from_pasted_text("log", text));
    let found = printed.filter(|pasted| pasted.kind == PastedKind::Log).or_else(|| command_in(text));
    let Some(pasted) = found else { return config_lines(text) };
    if let Some(world_size) = pasted.world_size {
        options.world_size = world_size;
    }
    pasted.sources
}

/// Returns the command at the start of the text or on one of its lines.
fn command_in(text: &str) -> Option<PastedConfig> {
    let first = text.trim_start();
    let starts = text.match_indices("train.py").take(MAX_COMMANDS).filter_map(|(at, _)| {
        let start = line_start(text, at, MAX_LINE_BYTES)?;
        let before = text.get(start..at)?;
        let launch = before.trim_start_matches(['$', '>', ' ']);
        (launch.starts_with("python") || launch.starts_with("torchrun")).then(|| at - launch.len())
    });
    let commands = std::iter::once(first).chain(starts.filter_map(|start| text.get(start..)));
    commands.map(|text| from_pasted_text("command", beginning(text))).find(|found| found.kind == PastedKind::Command)
}

/// Returns unindented lines that set a nanoGPT key. Source lines in a traceback are indented.
fn config_lines(text: &str) -> Vec<Source> {
    let mut lines = String::new();
    for (at, _) in text.match_indices('=').take(MAX_SIGNS) {
        let Some(start) = line_start(text, at, MAX_KEY_BYTES) else { continue };
        let key = text.get(start..at).unwrap_or_default();
        if key.starts_with(' ') || defaults::find(key.trim_end()).is_none() || text[at..].starts_with("==") {
            continue;
        }
        lines.push_str(beginning(&text[start..]).lines().next().unwrap_or_default());
        lines.push('\n');
        if lines.len() > MAX_CONFIG_BYTES {
            break;
        }
    }
    let is_none = lines.is_empty();
    let file = Source::File { name: "config".to_owned(), text: lines };
    if is_none { vec![] } else { vec![file] }
}

/// Maximum number of commands examined.
const MAX_COMMANDS: usize = 1000;
/// Maximum size of a pasted config in bytes.
const MAX_CONFIG_BYTES: usize = 64 * 1024;
/// Maximum number of equals signs examined.
const MAX_SIGNS: usize = 100_000;
/// Maximum distance from the start of a line to an equals sign.
const MAX_KEY_BYTES: usize = 64;
const MAX_LINE_BYTES: usize = 1024;

/// Returns the start of the line that contains `at`, if it is within `bytes_max`.
fn line_start(text: &str, at: usize, bytes_max: usize) -> Option<usize> {
    let from = at.saturating_sub(bytes_max);
    match text.as_bytes()[from..at].iter().rposition(|byte| *byte == b'\n') {
        Some(newline) => Some(from + newline + 1),
        None => (from == 0).then_some(0),
    }
}

/// Returns the start of a text, up to the maximum size of a command.
fn beginning(text: &str) -> &str {
    let mut end = text.len().min(MAX_LINE_BYTES * 16);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Diagnosis {
    /// Returns the JSON contract's document, with sentences in the language of `table`.
    #[must_use]
    pub fn json(&self, table: &Table) -> Json {
        let trainer = match (&self.resolved, self.of_trainers.exact(), self.report.phase_hint.origin) {
            (None, Some(solution), _) => Some(solution.input.trainer.name()),
            (None, None, Some(origin)) => Some(origin.trainer().name()),
            (None, None, None) if !self.solutions.first().is_some_and(Solution::is_exact) => None,
            _ => Some(NANOGPT),
        };
        let mut document = document(self.message(), &self.explanation, trainer, table);
        let of_nanogpt = self.solutions.iter().map(|solution| solution.json(table));
        let solutions = of_nanogpt.chain(self.of_trainers.solutions.iter().map(|solution| solution.json(table)));
        document.insert("solutions".to_owned(), Json::Array(solutions.collect()));
        let fixes = match &self.of_trainers.advice {
            Some((_, advice)) => advice.fixes.iter().map(TrainerFix::json).collect(),
            None => self.advice.fixes.iter().map(|fix| fix.json(table)).collect(),
        };
        document.insert("fixes".to_owned(), Json::Array(fixes));
        Json::Object(document)
    }

    /// Returns whether no known run agrees with the message: none was given or printed, or another one was.
    #[must_use]
    pub fn is_unsolved(&self) -> bool {
        matches!(self.explanation.agreement, None | Some(Agreement::None))
    }

    /// Starts a search for the run. Returns `None` if the given or printed one agrees with the message.
    #[must_use]
    pub fn search(&self) -> Option<Search> {
        if !self.is_unsolved() {
            return None;
        }
        Search::new(self.message()?, self.report.phase_hint, &self.options, true)
    }

    /// Searches for the run if none is known that agrees. Without a config, the advice is for the first exact solution.
    pub fn solve(&mut self) {
        let Some(search) = self.search() else { return };
        // A traceback that names a trainer excludes nanoGPT.
        if self.report.phase_hint.origin.is_none() {
            self.solutions = search.finish();
        }
        if !self.solutions.first().is_some_and(Solution::is_exact) {
            self.solve_trainers();
        }
        if self.resolved.is_some() {
            return;
        }
        let Some(first) = self.solutions.first().filter(|first| first.is_exact()) else { return };
        let resolved = resolve(&[source_of(&first.keys)], &first.options);
        let planned = resolved.request.clone().and_then(|request| plan(request).ok());
        self.advice = planned.as_ref().map(|plan| advise(&resolved.settings, &first.options, plan)).unwrap_or_default();
        self.solved = planned;
    }

    /// Starts a search among the runs of other trainers.
    #[must_use]
    pub fn search_trainers(&self) -> Option<TrainerSearch> {
        let message = self.message().filter(|_| self.is_unsolved())?;
        TrainerSearch::new(message, self.report.phase_hint, &self.options)
    }

    /// Searches the runs of other trainers. Near runs of nanoGPT are dropped for an exact one.
    fn solve_trainers(&mut self) {
        let Some(search) = self.search_trainers() else { return };
        self.of_trainers.solutions = search.finish();
        let Some(exact) = self.of_trainers.exact() else { return };
        self.solutions.clear();
        if self.resolved.is_none() {
            self.of_trainers.advice = exact.plan().map(|plan| {
                let advice = trainers::fixes::advise(&plan);
                (plan, advice)
            });
        }
    }

    /// Returns whether the fixes are for a run that does not match the message and does not fit either.
    #[must_use]
    pub fn advises_another_run(&self) -> bool {
        let does_not_fit = self.explanation.plan.as_ref().is_some_and(|plan| !plan.fits);
        does_not_fit && self.explanation.agreement == Some(Agreement::None) && !self.advice.fixes.is_empty()
    }

    /// Returns whether the known run fits and does not agree with the message, so that no change to it is of use.
    #[must_use]
    pub fn contradicts_fitting_run(&self) -> bool {
        let fits = self.explanation.plan.as_ref().is_some_and(|plan| plan.fits);
        fits && self.explanation.agreement == Some(Agreement::None)
    }

    /// Returns the message that is explained.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        if self.explains_last { self.report.last.as_ref() } else { self.report.first.as_ref() }
    }

    /// Returns the other processes' memory in bytes: computed from the GPU's totals, or else the sum of the listed
    /// processes.
    #[must_use]
    pub fn other_processes_bytes(&self) -> Option<u64> {
        other_processes_bytes(self.message()?, &self.explanation.arithmetic)
    }
}

fn other_processes_bytes(message: &Message, arithmetic: &Arithmetic) -> Option<u64> {
    let knows_itself = message.process.is_some() || message.own_process.is_some();
    let by_sums = arithmetic.others.filter(|_| knows_itself);
    let listed = message.others().map(|other| other.bytes.bytes).fold(0_u64, u64::saturating_add);
    by_sums.or_else(|| (listed > 0).then_some(listed))
}

/// Returns the fields of the JSON contract that describe a message and its explanation.
fn document<R>(
    message: Option<&Message>,
    explanation: &Explanation<R>,
    trainer: Option<&str>,
    table: &Table,
) -> Map<String, Json> {
    let figure = |read: fn(&Message) -> Option<super::Size>| Json::from(message.and_then(read).map(|size| size.bytes));
    let mut document = Map::new();
    let mut put = |key: &str, value: Json| document.insert(key.to_owned(), value);
    put("schema", Json::from(SCHEMA));
    put("kind", Json::from(message.map_or("not_oom", |message| message.kind.name())));
    put("trainer", Json::from(trainer));
    put("requested_bytes", figure(|message| message.requested));
    put("total_bytes", figure(|message| message.total));
    put("free_bytes", figure(|message| message.free));
    put("process_bytes", figure(|message| message.process));
    put("allocated_bytes", figure(|message| message.allocated));
    put("reserved_bytes", figure(|message| message.reserved));
    put("gpu_index", Json::from(message.and_then(|message| message.gpu_index)));
    put("rank", Json::from(message.and_then(|message| message.rank)));
    // Listed as printed. The sum next to it excludes this process.
    let others: Vec<Json> = message.into_iter().flat_map(|message| &message.other_processes).map(other_json).collect();
    put("other_processes", Json::Array(others));
    let others_bytes = message.and_then(|message| other_processes_bytes(message, &explanation.arithmetic));
    put("other_processes_bytes", Json::from(others_bytes));
    put("matches", Json::Array(explanation.matches.iter().map(super::Match::json).collect()));
    put("differences", Json::Array(explanation.differences.iter().map(super::Difference::json).collect()));
    put("causes", Json::Array(explanation.causes.iter().map(|cause| Json::from(cause.name())).collect()));
    put("explanation", Json::from(table.say(&explanation.text)));
    document
}

fn other_json(other: &super::OtherProcess) -> Json {
    let mut row = Map::new();
    row.insert("pid".to_owned(), Json::from(other.pid));
    row.insert("bytes".to_owned(), Json::from(other.bytes.bytes));
    Json::Object(row)
}
