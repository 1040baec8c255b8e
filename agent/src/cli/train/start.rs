//! Prepares a run before it starts: keys, data, weights and device. Allocates no training memory.

use std::{
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use headroom_planner::{
    gpt::{
        GptConfig,
        presets::{GPT2_BLOCK_SIZE, Preset},
    },
    nanogpt::{Settings, Source, Value, read},
};
use headroom_tokenizer::CharTokenizer;

use super::{
    Error, LISTED_MAX, STORIES_NAME,
    engine::Engine,
    folder::RunFolder,
    options::{FLAGS, Request},
    plan_output, report, resumed,
};
use crate::cli::{
    data,
    plan::{said, suggest_options},
    print,
};
use headroom_train::{
    STORIES,
    checkpoint::{self, Checkpoint, CheckpointChoice, CheckpointError, DiskSpaceNeeded, Meta, State},
    data::{
        BUILTIN, corpus,
        dataset::{self, Dataset, Split},
        prepare,
        tokenizer::Tokenizer,
    },
    gpu,
    keys::Keys,
    model::{self, Ids},
    pretrained::Pretrained,
    resume::{self, Candidate},
    settings::{InitFrom, Precision, RunSettings},
};

/// Limit of the wait for another run that writes the built-in data set, which takes a few seconds.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Time between two attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// A run that can start.
pub struct StartableRun {
    /// Config keys.
    pub settings: Settings,
    /// Settings from the keys.
    pub run: RunSettings,
    /// Shape of the model.
    pub gpt: GptConfig,
    /// Training data.
    pub dataset: Dataset,
    /// Device that computes the run.
    pub engine: Engine,
    /// Checkpoint to resume from.
    pub checkpoint: Option<Checkpoint>,
    /// Initial weights, if they are neither a checkpoint's nor random.
    pub weights: Option<Vec<f32>>,
    /// Disk space for checkpoints. `None` for an evaluation alone, which saves nothing.
    pub disk: Option<DiskSpaceNeeded>,
    /// Choice of the checkpoint directory.
    pub folder: RunFolder,
    /// Whether a resumed run has another data set than its checkpoint.
    pub is_other_data: bool,
}

/// A run that is planned but not trained. Its data may be on another machine.
pub struct PlannedRun {
    /// Settings from the keys.
    pub run: RunSettings,
    /// Shape of the model.
    pub gpt: GptConfig,
    /// Device that would compute the run.
    pub engine: Engine,
    /// Disk space for checkpoints. `None` for an evaluation alone, which saves nothing.
    pub disk: Option<DiskSpaceNeeded>,
}

impl PlannedRun {
    /// Prepares a plan and writes nothing. `None` if the config is invalid, which was printed.
    ///
    /// # Errors
    /// Anything that a plan needs is missing.
    pub fn of(request: &Request, given: Vec<Source>) -> Result<Option<Self>, Error> {
        // The headers of weights and checkpoints suffice; the rest may be gigabytes.
        let read = keys(request, given, checkpoint::load_meta, |meta| meta)?;
        let Some(ParsedRun { keys: Keys { settings, run }, checkpoint: meta, is_folder_chosen }) = read else {
            return Ok(None);
        };
        let mut run = run?;
        let mut tokenizer = None;
        let ids = match dataset::resolve(&run.dataset, Path::new(".")) {
            Ok(folder) => {
                let dataset = Dataset::open(&folder)?;
                warn_of_characters(&dataset);
                tokenizer = dataset.tokenizer().ok();
                Ids::of(&dataset)
            }
            Err(_) if run.dataset == BUILTIN => {
                let stories = CharTokenizer::of_text(&corpus::corpus(corpus::SEED, corpus::BYTES));
                let count = stories.vocab_size() as u64;
                tokenizer = Some(Tokenizer::Char(stories));
                Ids { count, is_known: true }
            }
            Err(_) => {
                let count = u64::from(dataset::DEFAULT_VOCAB_SIZE);
                if meta.is_none() && !run.names_vocab_size && !matches!(run.init_from, InitFrom::Weights(_)) {
                    let name = &run.dataset;
                    print::note(&format!("The data set {name} is not here: planned with GPT-2's {count} tokens.\n"));
                }
                Ids { count, is_known: false }
            }
        };
        let gpt = match (&meta, &run.init_from) {
            (Some(meta), _) => {
                let gpt = model::of_checkpoint(&run, ids, meta)?;
                check_data(&run, meta, tokenizer.as_ref())?;
                gpt
            }
            (None, InitFrom::Weights(name)) => {
                let weights = match (model::weights(name, Path::new(".")), Preset::named(name)) {
                    (Ok(path), _) => {
                        let (weights, notes) = Pretrained::shape(&path).map_err(Error::from)?;
                        print::note(&report::weights(&path, &notes));
                        weights
                    }
                    (Err(_), Some(preset)) => {
                        print::note(&format!("The weights {name} are not here: planned with their shape.\n"));
                        GptConfig::new(preset.shape(GPT2_BLOCK_SIZE, 0.0))?
                    }
                    (Err(error), None) => return Err(error.into()),
                };
                model::of_weights(&run, ids, weights)?
            }
            (None, InitFrom::Scratch | InitFrom::Resume) => model::fresh(&run, ids)?,
        };
        let engine = Engine::of(request, &run, &gpt)?;
        if !matches!(engine, Engine::Elsewhere(_)) {
            warn_of_other_run(RunFolder::choose(request, &settings, &mut run, is_folder_chosen))?;
        }
        let disk = disk(&settings, &run, gpt, &engine, tokenizer.as_ref())?;
        Ok(Some(Self { run, gpt, engine, disk }))
    }
}

impl StartableRun {
    /// Summary of the run before its start.
    pub fn summary(&self) -> String {
        let Self { gpt, run, dataset, engine, disk, .. } = self;
        let shape = gpt.shape();
        let tokens = run.batch_size * run.gradient_accumulation_steps * shape.block_size;
        format!(
            "A GPT of {} parameters: n_layer {}, n_head {}, n_embd {}, block_size {}, vocab_size {}.\n\
             Data: {}, {} training and {} validation tokens; {tokens} tokens per iteration, {} iterations.\n\
             On {}. Checkpoints are written to {}.\n{}{}",
            gpt.n_parameters().unwrap_or_default(),
            shape.n_layer,
            shape.n_head,
            shape.n_embd,
            shape.block_size,
            shape.vocab_size,
            dataset.folder().display(),
            dataset.n_tokens(Split::Train),
            dataset.n_tokens(Split::Val),
            run.max_iters,
            plan_output::engine(engine),
            run.out_dir.display(),
            plan_output::words(engine),
            plan_output::disk(&run.out_dir, *disk),
        )
    }

    /// Prepares a run. `None` if the config is invalid, which was printed.
    ///
    /// # Errors
    /// Anything that a run needs is missing.
    pub fn of(request: &Request, given: Vec<Source>) -> Result<Option<Self>, Error> {
        let read = keys(request, given, checkpoint::load, |checkpoint: &Checkpoint| &checkpoint.meta)?;
        let Some(ParsedRun { keys: Keys { settings, run }, checkpoint, is_folder_chosen }) = read else {
            return Ok(None);
        };
        let mut run = run?;
        // Before the built-in data set is written.
        gpu::check_device(run.device, run.precision == Some(Precision::Float32))?;
        let folder = RunFolder::choose(request, &settings, &mut run, is_folder_chosen)?;
        if let InitFrom::Weights(name) = &run.init_from {
            // A mistake in the command line is reported before one in the data.
            model::weights(name, Path::new("."))?;
        }
        let dataset = open(&run.dataset)?;
        warn_of_characters(&dataset);
        let (gpt, weights) = model_of(&run, Ids::of(&dataset), checkpoint.as_ref())?;
        let is_other_data = match &checkpoint {
            Some(checkpoint) => check_data(&run, &checkpoint.meta, dataset.tokenizer().ok().as_ref())?,
            None => false,
        };
        let dataset = dataset.with_vocab_size(u32::try_from(gpt.vocab_size()).unwrap_or(u32::MAX));
        let engine = Engine::of(request, &run, &gpt)?;
        let disk = disk(&settings, &run, gpt, &engine, dataset.tokenizer().ok().as_ref())?;
        Ok(Some(Self { settings, run, gpt, dataset, engine, checkpoint, weights, disk, folder, is_other_data }))
    }
}

/// Warns that the planned run's directory has the checkpoint of another run, so that the run would not start. Its plan
/// does not depend on it.
fn warn_of_other_run(folder: Result<RunFolder, Error>) -> Result<(), Error> {
    match folder {
        Err(Error::Checkpoint(error @ CheckpointError::Exists { .. })) => {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            print::error(&format!("warning: {}{hint}\n", error.text()));
            Ok(())
        }
        folder => folder.map(drop),
    }
}

/// Checks the data of a resumed run, and warns of another data set. Returns whether it is another one.
fn check_data(run: &RunSettings, meta: &Meta, tokenizer: Option<&Tokenizer>) -> Result<bool, Error> {
    resumed::check_tokens(run, meta, tokenizer.and_then(Tokenizer::kept).as_ref())?;
    let other = resumed::other_dataset(run, meta);
    if let Some(other) = other {
        resumed::warn_of_other_dataset(run, other);
    }
    Ok(other.is_some())
}

/// Warns of a `meta.pkl` whose characters cannot be used: nanoGPT trains with it, and no text can be sampled.
fn warn_of_characters(dataset: &Dataset) {
    if let Some(why) = dataset.invalid_characters() {
        let path = dataset.folder().join(dataset::META);
        print::error(&format!(
            "warning: cannot use the characters of {}: {why}; the model trains, and `headroom sample` needs --tokenizer\n",
            path.display()
        ));
    }
}

/// Keys of a command line, and the checkpoint that it resumes.
struct ParsedRun<C> {
    keys: Keys,
    checkpoint: Option<C>,
    /// Whether the checkpoint's directory was chosen automatically.
    is_folder_chosen: bool,
}

/// Reads the keys, and the checkpoint to resume by `load`. `None` if the command line is invalid, which was printed.
fn keys<C>(
    request: &Request,
    given: Vec<Source>,
    load: impl FnOnce(&Path) -> Result<C, CheckpointError>,
    meta: impl FnOnce(&C) -> &Meta,
) -> Result<Option<ParsedRun<C>>, Error> {
    let mut keys = Keys::of(with_builtin(&given));
    let mut checkpoint = None;
    let mut chosen = None;
    if let Ok(run) = &keys.run
        && run.init_from == InitFrom::Resume
        && !keys.stops()
    {
        if !keys.settings.is_set("out_dir") {
            chosen = folder_to_resume(request, &keys.settings, run)?;
        }
        let dir = chosen.as_deref().map_or(&*run.out_dir, Path::new);
        checkpoint::check_is_folder(dir)?;
        let found = load(dir)?;
        let meta = meta(&found);
        resumed::warn_of_newer(dir, meta);
        let mut settings = with_checkpoint(meta, given);
        if let Some(out_dir) = &chosen {
            settings.assign("out_dir", Value::Str(out_dir.clone()));
        }
        print::error(&keep_shape(&mut settings, &meta.gpt));
        keys = Keys::of(settings);
        checkpoint = Some(found);
    }
    let is_folder_chosen = chosen.is_some();
    Ok((!report_problems(&keys)).then_some(ParsedRun { keys, checkpoint, is_folder_chosen }))
}

/// Directory of the run to resume if no key names one: the newest of the same data set. `None` if no directory here has
/// a checkpoint.
///
/// # Errors
/// [`Error::SeveralRuns`]: runs of several data sets, or of other data sets only.
fn folder_to_resume(request: &Request, settings: &Settings, run: &RunSettings) -> Result<Option<String>, Error> {
    let dataset = settings.is_set("dataset").then_some(run.dataset.as_str());
    let runs_of = |dataset| resume::candidates(Path::new("."), dataset).unwrap_or_default();
    let mut runs = runs_of(dataset);
    let unset = read(&[]).value("out_dir").map(|out_dir| out_dir.to_string()).unwrap_or_default();
    let of_stories = with_builtin(&[]).get_str("out_dir").unwrap_or_default();
    if let Some(chosen) = resume::choose(&runs, &[unset.trim_matches('\''), &of_stories]) {
        print::note(&report::resumes(chosen, &runs));
        return Ok(Some(chosen.out_dir.clone()));
    }
    let of_other = dataset.filter(|_| runs.is_empty()).map(str::to_owned);
    if of_other.is_some() {
        runs = runs_of(None);
    }
    if runs.is_empty() {
        return Ok(None);
    }
    let command = |candidate: &Candidate| {
        let run = RunSettings { out_dir: candidate.out_dir.clone().into(), ..run.clone() };
        format!("{}  # {}", report::resume_command(request, &run, true), report::candidate(candidate))
    };
    let commands = runs.iter().take(LISTED_MAX).map(command).collect();
    Err(Error::SeveralRuns { of_other, commands })
}

/// The given keys, on top of the built-in config unless the user names a config, data set or weights.
fn with_builtin(given: &[Source]) -> Settings {
    let settings = read(given);
    let is_own = given.iter().any(|source| matches!(source, Source::File { .. } | Source::Named { .. }))
        || ["dataset", "init_from"].into_iter().any(|key| settings.is_set(key));
    if is_own {
        return settings;
    }
    let builtin = Source::File { name: STORIES_NAME.to_owned(), text: STORIES.to_owned() };
    read(&[&[builtin], given].concat())
}

/// Keys of a checkpoint, overridden by the given ones.
fn with_checkpoint(checkpoint: &Meta, given: Vec<Source>) -> Settings {
    let mut kept = Settings::default();
    for (key, value) in &checkpoint.config {
        // The weights' source, the device and the directory, which may have been renamed, belong to this start.
        if !["init_from", "device", "out_dir"].contains(&key.as_str())
            && let Some(value) = report::python(value)
        {
            kept.assign(key, value);
        }
    }
    for (key, value) in shape_keys(&checkpoint.gpt).into_iter().filter(|(key, _)| *key != "vocab_size") {
        kept.assign(key, value);
    }
    let mut all = vec![Source::File { name: checkpoint::FILE.to_owned(), text: kept.to_config() }];
    all.extend(given);
    read(&all)
}

/// Keys whose values a resumed run takes from its checkpoint, as nanoGPT does.
fn shape_keys(gpt: &GptConfig) -> [(&'static str, Value); 6] {
    let int = |value: u64| Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
    [
        ("n_layer", int(gpt.n_layer())),
        ("n_head", int(gpt.n_head())),
        ("n_embd", int(gpt.n_embd())),
        ("block_size", int(gpt.block_size())),
        ("bias", Value::Bool(gpt.bias())),
        ("vocab_size", int(gpt.vocab_size())),
    ]
}

/// Overrides given shape keys with the checkpoint's, and warns of each difference.
fn keep_shape(settings: &mut Settings, gpt: &GptConfig) -> String {
    let mut warnings = String::new();
    for (key, kept) in shape_keys(gpt) {
        let Some(given) = settings.values.get(key).map(|setting| setting.value.clone()) else { continue };
        if given.to_string() != kept.to_string() {
            warnings.push_str(&format!(
                "warning: {key} = {given} is ignored: a resumed run keeps its checkpoint's {key} = {kept}.\n"
            ));
            settings.assign(key, kept);
        }
    }
    warnings
}

/// Disk space for a run's checkpoints. `None` for an evaluation alone.
fn disk(
    settings: &Settings,
    run: &RunSettings,
    gpt: GptConfig,
    engine: &Engine,
    tokenizer: Option<&Tokenizer>,
) -> Result<Option<DiskSpaceNeeded>, Error> {
    if run.eval_only {
        return Ok(None);
    }
    let config = run.config(settings, &engine.device_name());
    let state = State::longest(&run.dataset);
    let tokenizer = tokenizer.and_then(Tokenizer::kept);
    Ok(Some(checkpoint::needed(&run.out_dir, &Meta { gpt, config, state, tokenizer })?))
}

/// Prints the config's problems. Returns whether they prevent the run.
fn report_problems(keys: &Keys) -> bool {
    let mut problems = keys.problems();
    suggest_options("train", FLAGS, &mut problems);
    print::error(&said(&problems, &keys.settings));
    let unread: Vec<_> = keys.unread_keys().collect();
    if let [first, ..] = unread[..] {
        print::error(&format!(
            "headroom: cannot start the run: the value of {} is unknown\n\nhint: write it as a literal in the config, or \
             pass --{first}=VALUE\n",
            unread.join(", ")
        ));
    }
    keys.stops()
}

/// Opens a data set. Creates the built-in one if it is missing.
fn open(name: &str) -> Result<Dataset, Error> {
    let here = Path::new(".");
    if name == BUILTIN && dataset::resolve(name, here).is_err() {
        let out: PathBuf = here.join("data").join(BUILTIN);
        prepare_builtin(&out)?;
        print::note(&format!("Wrote the built-in stories, {} MB, to {}.\n", corpus::BYTES / 1_000_000, out.display()));
    }
    Ok(Dataset::open(&dataset::resolve(name, here)?)?)
}

/// Writes the built-in data set. Waits while another run writes it.
fn prepare_builtin(out: &Path) -> Result<(), Error> {
    let start = Instant::now();
    loop {
        match prepare::prepare(&data::builtin(), prepare::Kind::Char, out, false) {
            Err(prepare::Error::Busy { .. }) if start.elapsed() < BUSY_MAX => thread::sleep(BUSY_PAUSE),
            prepared => return Ok(prepared.map(drop)?),
        }
    }
}

/// Shape of the model, and its weights if they are neither random nor a checkpoint's.
fn model_of(
    run: &RunSettings,
    ids: Ids,
    checkpoint: Option<&Checkpoint>,
) -> Result<(GptConfig, Option<Vec<f32>>), Error> {
    if let Some(checkpoint) = checkpoint {
        return Ok((model::of_checkpoint(run, ids, &checkpoint.meta)?, None));
    }
    match &run.init_from {
        InitFrom::Weights(name) => {
            let path = model::weights(name, Path::new("."))?;
            let found = Pretrained::load(&path, CheckpointChoice::default())?
                .fitted(run.shape.block_size, run.shape.dropout)?;
            print::note(&report::weights(&path, &found.notes));
            Ok((model::enough(found.config, run, ids)?, Some(found.params)))
        }
        InitFrom::Scratch | InitFrom::Resume => Ok((model::fresh(run, ids)?, None)),
    }
}
