//! The way from a text to what to do: the message, the run it is of, and the changes that help.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value as Json};

use super::{Arithmetic, Explanation, Message, Report, explain::card_of, explain::explain, read};
use crate::{
    advice::{Advice, advise},
    nanogpt::{PastedKind, Source, from_pasted_text},
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
    /// What to change; empty without a config.
    pub advice: Advice,
    /// The run, where a config was given or printed.
    pub resolved: Option<Resolved>,
    /// The card and its surroundings as the message has them.
    pub options: Options,
}

/// Diagnoses a text. `given` is the run's config; where there is none, what the log itself prints of it is taken. The
/// card is the message's unless `options` is of one that was named.
#[must_use]
pub fn diagnose(text: &str, given: &[Source], options: &Options, names_gpu: bool) -> Diagnosis {
    let report = read(text);
    let mut options = options.clone();
    if let Some(message) = &report.first {
        as_in_message(&mut options, message, names_gpu);
    }
    let printed = if given.is_empty() { sources_in(text, &mut options) } else { vec![] };
    let sources = if given.is_empty() { &printed[..] } else { given };
    let resolved = (!sources.is_empty()).then(|| resolve(sources, &options));
    let mut explanation = explain(&report, resolved.as_ref().and_then(|resolved| resolved.request.clone()));
    super::words::add_traceback(&mut explanation, &report);
    let advice = match (&resolved, &explanation.plan) {
        (Some(resolved), Some(plan)) => advise(&resolved.settings, &options, plan),
        _ => Advice::default(),
    };
    Diagnosis { report, explanation, advice, resolved, options }
}

/// What nanoGPT printed of its config, or the command that a log begins with.
fn sources_in(text: &str, options: &mut Options) -> Vec<Source> {
    let pasted = from_pasted_text("log", text);
    if pasted.kind == PastedKind::Config {
        return vec![];
    }
    if let Some(world_size) = pasted.world_size {
        options.world_size = world_size;
    }
    pasted.sources
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
        let message = self.report.first.as_ref();
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

    /// What other processes hold: by the card's sums, else what the message lists.
    #[must_use]
    pub fn other_processes_bytes(&self) -> Option<u64> {
        let message = self.report.first.as_ref()?;
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
