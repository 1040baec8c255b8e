//! What `headroom train` would say of an order, asked before there is a run of it: a run that waits for hours and then
//! ends at its first line, or trains something else than its config says, is nobody's wish.
//!
//! Whether it fits is not asked: what is free now is not what is free in its turn. Whether any card trains it is.

use std::path::Path;

use headroom_kernels::cuda;
use headroom_shared::{
    nanogpt::{Problem, Severity, Source, defaults},
    text,
};

use super::{Error, allowed::Config};
use crate::{
    data::dataset::{self, Dataset, DatasetError, Split},
    train::{
        card::CardError,
        device::Wanted,
        keys::Keys,
        model::{self, Ids},
        settings::{InitFrom, Precision},
    },
};

/// Lines of a config that are told of: more nobody reads on a page, and the rest are counted.
const TOLD_MAX: usize = 20;

/// What a new run is made of.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// What the config says.
    pub config: &'a Config,
    /// The words that come behind it, as in `--device=cpu`.
    pub words: &'a [String],
    /// Where its data lie; none of built-in data that are still to be made.
    pub dataset: Option<&'a Path>,
    /// Where it runs.
    pub root: &'a Path,
}

/// Lines of the config that are not understood, or mean nothing here, with their places: the run goes without them.
///
/// # Errors
/// Python or the trainer would stop: with every reason, and where it is written.
pub fn check(new: New<'_>) -> Result<Vec<String>, Error> {
    let file = Source::File { name: new.config.name.clone(), text: new.config.text.clone() };
    let words = new.words.iter().filter(|word| word.starts_with("--"));
    let words = words.map(|word| Source::Override { text: word.clone() });
    let keys = Keys::read(&[file].into_iter().chain(words).collect::<Vec<_>>());
    let (errors, rest): (Vec<Problem>, Vec<Problem>) =
        keys.problems().into_iter().partition(|problem| problem.severity == Severity::Error);
    let refused = |why: Vec<String>| Error::Config { config: new.config.name.clone(), why: why.join("\n") };
    if !errors.is_empty() {
        return Err(refused(told(&errors, 0)));
    }
    // What sets a key and is not evaluated means another run than the one that would be trained.
    if keys.settings.unevaluated.iter().any(|(name, _)| defaults::find(name).is_some()) {
        return Err(refused(told(&rest, keys.settings.problems.omitted())));
    }
    let of_key = |key: &str, message: String, hint: Option<String>| {
        refused(vec![match keys.settings.values.get(key) {
            Some(setting) if !keys.settings.source_name(&setting.origin).starts_with("--") => {
                let (source, at) = (keys.settings.source_name(&setting.origin), setting.origin);
                note(source, (at.line, at.column), &message, hint.as_deref())
            }
            _ => note(&new.config.name, (0, 0), &message, hint.as_deref()),
        }])
    };
    let run = keys.run.as_ref().map_err(|error| of_key(error.key(), error.to_string(), error.hint()))?;
    if run.init_from == InitFrom::Resume {
        let hint = Some(text::TRY_RESUME_ITSELF.to_string());
        return Err(of_key("init_from", text::ORDER_RESUMES.to_string(), hint));
    }
    let is_on_card = matches!(run.device, Wanted::Cuda(_));
    let of_card = |key, error: CardError| of_key(key, error.to_string(), error.hint());
    if is_on_card && run.precision == Some(Precision::Float32) {
        return Err(of_card("dtype", CardError::Float32));
    }
    let weights_key = if matches!(run.init_from, InitFrom::Weights(_)) { "init_from" } else { "vocab_size" };
    let shape =
        |ids| model::check(run, ids, new.root).map_err(|error| of_key(weights_key, error.to_string(), error.hint()));
    let gpt = if let Some(folder) = new.dataset {
        let of_data = |error: DatasetError| of_key("block_size", error.to_string(), error.hint());
        let dataset = Dataset::open(folder).map_err(of_data)?;
        let gpt = shape(Ids::of(&dataset))?;
        has_rows(&dataset, gpt.block_size()).map_err(of_data)?;
        gpt
    } else {
        // How many tokens there will be changes neither whether it is a model nor which kernels take it.
        shape(Ids { count: u64::from(dataset::DEFAULT_VOCAB_SIZE), is_known: false })?
    };
    if is_on_card {
        let key = if run.init_from == InitFrom::Scratch { "n_embd" } else { "init_from" };
        cuda::shape::check(&gpt).map_err(|error| of_card(key, error.into()))?;
    }
    Ok(told(&rest, keys.settings.problems.omitted()))
}

/// Whether both halves have a row for the model.
fn has_rows(dataset: &Dataset, block_size: u64) -> Result<(), DatasetError> {
    let block_size = usize::try_from(block_size).unwrap_or(usize::MAX);
    [Split::Train, Split::Val].into_iter().try_for_each(|split| dataset.n_offsets(split, block_size).map(drop))
}

/// Problems in a line each, the first ones.
fn told(problems: &[Problem], n_omitted: u64) -> Vec<String> {
    let said = |problem: &Problem| {
        let hint = problem.hint.as_ref().map(ToString::to_string);
        note(&problem.source, (problem.line, problem.column), &problem.message.to_string(), hint.as_deref())
    };
    let mut told: Vec<String> = problems.iter().take(TOLD_MAX).map(said).collect();
    match problems.len().saturating_sub(TOLD_MAX) as u64 + n_omitted {
        0 => {}
        n => told.push(text::notes_more(n).to_string()),
    }
    told
}

/// What is wrong, with the line and column where it stands, both 0 for a whole source, and what to write instead.
fn note(source: &str, (line, column): (u32, u32), what: &str, hint: Option<&str>) -> String {
    let (at_line, at_column) = (u64::from(line), u64::from(column));
    let note = match (line, hint) {
        (0, None) => text::note_of(source, what),
        (0, Some(hint)) => text::note_of_try(source, what, hint),
        (_, None) => text::note_at(source, at_line, at_column, what),
        (_, Some(hint)) => text::note_at_try(source, at_line, at_column, what, hint),
    };
    note.to_string()
}
