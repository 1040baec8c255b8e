//! The way from a text to what to do: the message, the run it is of, and the changes that help.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value as Json};

use super::{Agreement, Arithmetic, Explanation, Message, Report, explain::card_of, explain::explain, read};
use crate::{
    advice::{Advice, advise},
    nanogpt::{PastedKind, Source, defaults, from_pasted_text},
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
    let report = read(text);
    let mut options = options.clone();
    let printed = if given.is_empty() { sources_in(text, &mut options) } else { vec![] };
    let sources = if given.is_empty() { &printed[..] } else { given };
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

/// What the text has of the run's config: what nanoGPT printed of it, a command, or lines of a config pasted along.
fn sources_in(text: &str, options: &mut Options) -> Vec<Source> {
    let mut pasted = from_pasted_text("log", text);
    if pasted.kind == PastedKind::Config {
        let starts_run =
            |line: &&str| line.contains("train.py") && (line.contains("python") || line.contains("torchrun"));
        let command = text.lines().map(|line| line.trim_start_matches(['$', '>', ' '])).find(starts_run);
        match command.map(|command| from_pasted_text("command", command)) {
            Some(command) if command.kind == PastedKind::Command => pasted = command,
            _ => return config_lines(text),
        }
    }
    if let Some(world_size) = pasted.world_size {
        options.world_size = world_size;
    }
    pasted.sources
}

/// Lines that set a key of nanoGPT, at their beginning: a traceback's own are indented.
fn config_lines(text: &str) -> Vec<Source> {
    let sets_key = |line: &&str| {
        let (key, value) = line.split_once('=').unwrap_or_default();
        defaults::find(key.trim_end()).is_some() && !key.starts_with(' ') && !value.starts_with('=')
    };
    let lines: Vec<&str> = text.lines().filter(sets_key).take(MAX_CONFIG_LINES).collect();
    let file = Source::File { name: "config".to_owned(), text: lines.join("\n") + "\n" };
    if lines.is_empty() { vec![] } else { vec![file] }
}

/// A config has a few dozen keys.
const MAX_CONFIG_LINES: usize = 1000;

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
        put("explanation", Json::from(table.say(&self.explanation.text)));
        put("fixes", Json::Array(self.advice.fixes.iter().map(|fix| fix.json(table)).collect()));
        Json::Object(document)
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
