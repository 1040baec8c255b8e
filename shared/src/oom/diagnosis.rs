//! The way from a text to what to do: the message, the run it is of, and the changes that help.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value as Json};

use super::{Agreement, Arithmetic, Explanation, Message, Report, explain::card_of, explain::explain, read};
use crate::{
    advice::{Advice, advise},
    nanogpt::{Pasted, PastedKind, Source, defaults, from_pasted_text},
    session::{Options, Resolved, resolve},
    text::Table,
};

/// The schema's number.
pub const SCHEMA: u32 = 1;

/// Everything that is made of a text.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The messages in it.
    pub report: Report,
    /// What the first of them means.
    pub explanation: Explanation,
    /// Whether that is of the last message in the place of the first.
    pub explains_last: bool,
    /// What to change; empty without a config.
    pub advice: Advice,
    /// The run, where a config was given or printed.
    pub resolved: Option<Resolved>,
    /// The card and its surroundings as the message has them.
    pub options: Options,
}

/// Diagnoses a text. `given` is the run's config; where there is none, what the text itself has of it is taken. The card is
/// the message's unless `options` is of one that was named.
#[must_use]
pub fn diagnose(text: &str, given: &[Source], options: &Options, names_gpu: bool) -> Diagnosis {
    let mut options = options.clone();
    let printed = if given.is_empty() { sources_in(text, &mut options) } else { vec![] };
    diagnose_run(text, if given.is_empty() { &printed } else { given }, &options, names_gpu)
}

/// The same of a run whose config is `sources` and nothing else: where there are none it is not known, whatever the text
/// has.
#[must_use]
pub fn diagnose_run(text: &str, sources: &[Source], options: &Options, names_gpu: bool) -> Diagnosis {
    let report = read(text);
    let of = |message: Option<&Message>| {
        let mut options = options.clone();
        if let Some(message) = message {
            as_in_message(&mut options, message, names_gpu);
        }
        let resolved = (!sources.is_empty()).then(|| resolve(sources, &options));
        let request = resolved.as_ref().and_then(|resolved| resolved.request.clone());
        (explain(message, request), resolved, options)
    };
    let mut found = of(report.first.as_ref());
    // The first is most often the cause; where it is of another run than the config, the last may be of this one.
    let mut explains_last = false;
    if found.0.agreement == Some(Agreement::None) && report.last != report.first {
        let last = of(report.last.as_ref());
        if matches!(last.0.agreement, Some(Agreement::Exact | Agreement::Close)) {
            (found, explains_last) = (last, true);
        }
    }
    let (mut explanation, resolved, options) = found;
    let message = if explains_last { report.last.as_ref() } else { report.first.as_ref() };
    super::words::add_circumstances(&mut explanation, message, &options);
    super::words::add_traceback(&mut explanation, &report);
    let advice = match (&resolved, &explanation.plan) {
        (Some(resolved), Some(plan)) => advise(&resolved.settings, &options, plan),
        _ => Advice::default(),
    };
    Diagnosis { report, explanation, explains_last, advice, resolved, options }
}

/// What the text has of the run's config: what nanoGPT printed of it, a command, or lines of a config pasted along. A log is
/// long and seldom has any of it, so what is not there must cost little.
fn sources_in(text: &str, options: &mut Options) -> Vec<Source> {
    let printed = text.contains("Overriding").then(|| from_pasted_text("log", text));
    let found = printed.filter(|pasted| pasted.kind == PastedKind::Log).or_else(|| command_in(text));
    let Some(pasted) = found else { return config_lines(text) };
    if let Some(world_size) = pasted.world_size {
        options.world_size = world_size;
    }
    pasted.sources
}

/// The command that the text begins with, or that stands on a line of it.
fn command_in(text: &str) -> Option<Pasted> {
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

/// Lines that set a key of nanoGPT, at their beginning: a traceback's own are indented.
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

/// Commands that are looked at.
const MAX_COMMANDS: usize = 1000;
/// More than a config has; a text of nothing else is no config.
const MAX_CONFIG_BYTES: usize = 64 * 1024;
/// Equals signs that are looked at.
const MAX_SIGNS: usize = 100_000;
/// What may stand before a sign or a program's name on its line.
const MAX_KEY_BYTES: usize = 64;
const MAX_LINE_BYTES: usize = 1024;

/// Where the line of a place begins, if that is near.
fn line_start(text: &str, at: usize, bytes_max: usize) -> Option<usize> {
    let from = at.saturating_sub(bytes_max);
    match text.as_bytes()[from..at].iter().rposition(|byte| *byte == b'\n') {
        Some(newline) => Some(from + newline + 1),
        None => (from == 0).then_some(0),
    }
}

/// As much of a text as a command may have.
fn beginning(text: &str) -> &str {
    let mut end = text.len().min(MAX_LINE_BYTES * 16);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The card as the message found it: which it is, its memory, the others' share, and what this process has outside
/// PyTorch.
fn as_in_message(options: &mut Options, message: &Message, names_gpu: bool) {
    let arithmetic = Arithmetic::of(message);
    if let Some(total) = arithmetic.total {
        if !names_gpu {
            options.gpu = card_of(message).map_or_else(String::new, |card| card.name.to_string());
        }
        options.vram_bytes = Some(total);
    }
    if let Some(others) = arithmetic.others {
        options.other_processes_bytes = others;
        // An old message has the context among the others.
        options.context_bytes = Some(arithmetic.context.unwrap_or(0));
    }
}

impl Diagnosis {
    /// The JSON contract's document, its sentences in a language.
    #[must_use]
    pub fn json(&self, table: &Table) -> Json {
        let message = self.message();
        let figure =
            |read: fn(&Message) -> Option<super::Size>| Json::from(message.and_then(read).map(|size| size.bytes));
        let mut document = Map::new();
        let mut put = |key: &str, value: Json| document.insert(key.to_owned(), value);
        put("schema", Json::from(SCHEMA));
        put("kind", Json::from(message.map_or("not_oom", |message| message.kind.name())));
        put("requested_bytes", figure(|message| message.requested));
        put("total_bytes", figure(|message| message.total));
        put("free_bytes", figure(|message| message.free));
        put("process_bytes", figure(|message| message.process));
        put("allocated_bytes", figure(|message| message.allocated));
        put("reserved_bytes", figure(|message| message.reserved));
        put("gpu_index", Json::from(message.and_then(|message| message.gpu_index)));
        put("rank", Json::from(message.and_then(|message| message.rank)));
        // As printed; the sum beside it leaves this process out.
        let others: Vec<Json> =
            message.into_iter().flat_map(|message| &message.other_processes).map(other_json).collect();
        put("other_processes", Json::Array(others));
        put("other_processes_bytes", Json::from(self.other_processes_bytes()));
        put("matches", Json::Array(self.explanation.matches.iter().map(super::Match::json).collect()));
        put("causes", Json::Array(self.explanation.causes.iter().map(|cause| Json::from(cause.name())).collect()));
        put("explanation", Json::from(table.say(&self.explanation.text)));
        put("fixes", Json::Array(self.advice.fixes.iter().map(|fix| fix.json(table)).collect()));
        Json::Object(document)
    }

    /// Whether the changes are for a run that the message is not of, and that does not fit either.
    #[must_use]
    pub fn advises_another_run(&self) -> bool {
        let does_not_fit = self.explanation.plan.as_ref().is_some_and(|plan| !plan.fits);
        does_not_fit && self.explanation.agreement == Some(Agreement::None) && !self.advice.fixes.is_empty()
    }

    /// The message that is explained.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        if self.explains_last { self.report.last.as_ref() } else { self.report.first.as_ref() }
    }

    /// What other processes hold: by the card's sums, else what the message lists.
    #[must_use]
    pub fn other_processes_bytes(&self) -> Option<u64> {
        let message = self.message()?;
        let knows_itself = message.process.is_some() || message.own_process.is_some();
        let by_sums = self.explanation.arithmetic.others.filter(|_| knows_itself);
        let listed = message.others().map(|other| other.bytes.bytes).fold(0_u64, u64::saturating_add);
        by_sums.or_else(|| (listed > 0).then_some(listed))
    }
}

fn other_json(other: &super::OtherProcess) -> Json {
    let mut row = Map::new();
    row.insert("pid".to_owned(), Json::from(other.pid));
    row.insert("bytes".to_owned(), Json::from(other.bytes.bytes));
    Json::Object(row)
}
