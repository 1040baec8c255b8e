//! Validates an order as `headroom train` would, before the run exists. A queued run must not wait for hours and then
//! fail at once, or train something other than its config describes.
//!
//! Free memory is not checked, as it changes until the run starts. Whether the kernels support the model is checked.

use std::path::Path;

use headroom_kernels::cuda;
use headroom_planner::nanogpt::{Problem, Severity, Source, defaults};
use headroom_protocol::message::Message;
use headroom_text::{self as text, Text};

use super::{Error, allowlist::Config};
use headroom_train::{
    data::dataset::{self, Dataset, DatasetError, Split},
    device::DeviceSpec,
    gpu::GpuError,
    keys::Keys,
    model::{self, Ids},
    settings::{InitFrom, Precision},
};

/// Limit of reported config lines; the rest are counted.
const REPORTED_MAX: usize = 20;

/// Parts of a new run.
#[derive(Clone, Copy, Debug)]
pub struct NewRun<'a> {
    /// Config of the run.
    pub config: &'a Config,
    /// Arguments after the config, such as `--device=cpu`.
    pub words: &'a [String],
    /// Directory of the data set. `None` for built-in data that does not exist yet.
    pub dataset: Option<&'a Path>,
    /// Working directory of the run.
    pub root: &'a Path,
}

/// Returns config lines that are ignored, with their positions.
///
/// # Errors
/// Python or the trainer would stop; includes every reason and its position.
pub fn validate_run(new: NewRun<'_>) -> Result<Vec<Message>, Error> {
    let file = Source::File { name: new.config.name.clone(), text: new.config.text.clone() };
    let words = new.words.iter().filter(|word| word.starts_with("--"));
    let words = words.map(|word| Source::Override { text: word.clone() });
    let keys = Keys::read(&[file].into_iter().chain(words).collect::<Vec<_>>());
    let (errors, rest): (Vec<Problem>, Vec<Problem>) =
        keys.problems().into_iter().partition(|problem| problem.severity == Severity::Error);
    let refused = |why: Vec<Message>| Error::Config { config: new.config.name.clone(), why };
    if !errors.is_empty() {
        return Err(refused(messages(&errors, 0)));
    }
    // A key whose value cannot be evaluated would make the plan differ from the run.
    if keys.settings.unevaluated.iter().any(|(name, _)| defaults::find(name).is_some()) {
        return Err(refused(messages(&rest, keys.settings.problems.omitted())));
    }
    let of_key = |key: &str, message: Text, hint: Option<Text>| {
        refused(vec![match keys.settings.values.get(key) {
            Some(setting) if !keys.settings.source_name(&setting.origin).starts_with("--") => {
                let (source, at) = (keys.settings.source_name(&setting.origin), setting.origin);
                note(source, (at.line, at.column), message, hint)
            }
            _ => note(&new.config.name, (0, 0), message, hint),
        }])
    };
    let run = keys.run.as_ref().map_err(|error| of_key(error.key(), error.text(), error.hint()))?;
    if run.init_from == InitFrom::Resume {
        let hint = Some(text::TRY_RESUME_ITSELF.into());
        return Err(of_key("init_from", text::ORDER_RESUMES.into(), hint));
    }
    let is_on_gpu = matches!(run.device, DeviceSpec::Cuda(_));
    let of_gpu = |key, error: GpuError| of_key(key, error.text(), error.hint());
    if is_on_gpu && run.precision == Some(Precision::Float32) {
        return Err(of_gpu("dtype", GpuError::Float32));
    }
    let weights_key = if matches!(run.init_from, InitFrom::Weights(_)) { "init_from" } else { "vocab_size" };
    let shape = |ids| model::check(run, ids, new.root).map_err(|error| of_key(weights_key, error.text(), error.hint()));
    let gpt = if let Some(folder) = new.dataset {
        let of_data = |error: DatasetError| of_key("block_size", error.text(), error.hint());
        let dataset = Dataset::open(folder).map_err(of_data)?;
        let gpt = shape(Ids::of(&dataset))?;
        has_rows(&dataset, gpt.block_size()).map_err(of_data)?;
        gpt
    } else {
        // The number of tokens affects neither the validity of the model nor the kernels' support.
        shape(Ids { count: u64::from(dataset::DEFAULT_VOCAB_SIZE), is_known: false })?
    };
    if is_on_gpu {
        let key = if run.init_from == InitFrom::Scratch { "n_embd" } else { "init_from" };
        cuda::shape::check(&gpt).map_err(|error| of_gpu(key, error.into()))?;
    }
    Ok(messages(&rest, keys.settings.problems.omitted()))
}

/// Checks that both splits have at least one sequence.
fn has_rows(dataset: &Dataset, block_size: u64) -> Result<(), DatasetError> {
    let block_size = usize::try_from(block_size).unwrap_or(usize::MAX);
    [Split::Train, Split::Val].into_iter().try_for_each(|split| dataset.n_offsets(split, block_size).map(drop))
}

/// The first problems, one per line.
fn messages(problems: &[Problem], n_omitted: u64) -> Vec<Message> {
    let said = |problem: &Problem| {
        note(&problem.source, (problem.line, problem.column), problem.message.clone(), problem.hint.clone())
    };
    let mut messages: Vec<Message> = problems.iter().take(REPORTED_MAX).map(said).collect();
    match problems.len().saturating_sub(REPORTED_MAX) as u64 + n_omitted {
        0 => {}
        n => messages.push(text::notes_more(n).into()),
    }
    messages
}

/// Formats a problem with its line and column, both 0 for a whole source, and its hint.
fn note(source: &str, (line, column): (u32, u32), what: Text, hint: Option<Text>) -> Message {
    let (at_line, at_column) = (u64::from(line), u64::from(column));
    let note = match (line, hint) {
        (0, None) => text::note_of(source, what),
        (0, Some(hint)) => text::note_of_try(source, what, hint),
        (_, None) => text::note_at(source, at_line, at_column, what),
        (_, Some(hint)) => text::note_at_try(source, at_line, at_column, what, hint),
    };
    note.into()
}
