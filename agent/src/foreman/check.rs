//! What `headroom train` would say of an order, asked before there is a run of it: a run that waits for hours and then
//! ends at its first line, or trains something else than its config says, is nobody's wish.
//!
//! Whether it fits is not asked: what is free now is not what is free in its turn. Whether any card trains it is.

use std::path::Path;

use headroom_kernels::cuda;
use headroom_shared::nanogpt::{Problem, Severity, Source, defaults};

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
    let refused = |why: Vec<String>| Error::Config { config: new.config.name.clone(), why: why.join(" ") };
    if !errors.is_empty() {
        return Err(refused(told(&errors, 0)));
    }
    // What sets a key and is not evaluated means another run than the one that would be trained.
    if keys.settings.unevaluated.iter().any(|(name, _)| defaults::find(name).is_some()) {
        return Err(refused(told(&rest, keys.settings.problems.omitted())));
    }
    let of_key = |key: &str, message: String, hint: Option<String>| {
        let said = hint.map_or_else(|| message.clone(), |hint| format!("{message} ({hint})"));
        refused(vec![match keys.settings.values.get(key) {
            Some(setting) if !keys.settings.source_name(&setting.origin).starts_with("--") => {
                let (source, at) = (keys.settings.source_name(&setting.origin), setting.origin);
                format!("{source}:{}:{}: {said}.", at.line, at.column)
            }
            _ => format!("{}: {said}.", new.config.name),
        }])
    };
    let run = keys.run.as_ref().map_err(|error| of_key(error.key(), error.to_string(), error.hint()))?;
    if run.init_from == InitFrom::Resume {
        let why = "init_from is 'resume', and a new run has no checkpoint to go on from";
        return Err(of_key("init_from", why.to_owned(), Some("a run that ended is gone on with itself".to_owned())));
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
        let bare = Problem { hint: None, ..problem.clone() };
        problem.hint.as_ref().map_or_else(|| format!("{bare}."), |hint| format!("{bare} ({hint})."))
    };
    let mut told: Vec<String> = problems.iter().take(TOLD_MAX).map(said).collect();
    match problems.len().saturating_sub(TOLD_MAX) as u64 + n_omitted {
        0 => {}
        n => told.push(format!("And {n} more.")),
    }
    told
}
