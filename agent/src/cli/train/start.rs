//! A run put together before it starts: keys, data, weights, and where it is computed. Nothing is allocated for it yet.

use std::path::{Path, PathBuf};

use headroom_shared::{
    gpt::{
        GptConfig,
        presets::{GPT2_BLOCK_SIZE, Preset},
    },
    nanogpt::{Settings, Source, Value, read},
    tokenizer::CharTokenizer,
};

use super::{Error, engine::Engine, options::Request, report};
use crate::{
    cli::{data, plan::said, print},
    data::{
        BUILTIN, corpus,
        dataset::{self, Dataset},
        prepare,
        tokenizer::Tokenizer,
    },
    train::{
        STORIES,
        checkpoint::{self, Checkpoint, CheckpointError, Meta, Needed, State, Which},
        keys::Keys,
        model::{self, Ids},
        pretrained::Pretrained,
        settings::{InitFrom, RunSettings},
    },
};

/// The name in messages of the config where nothing else is asked for.
const STORIES_NAME: &str = "config/stories.py (built in)";

/// A run that can start.
pub struct Start {
    /// Its keys.
    pub settings: Settings,
    /// What they say.
    pub run: RunSettings,
    /// The model's shape.
    pub gpt: GptConfig,
    /// What it learns from.
    pub dataset: Dataset,
    /// On what it is computed.
    pub engine: Engine,
    /// What it goes on from.
    pub checkpoint: Option<Checkpoint>,
    /// What it starts from, where that is neither a checkpoint nor fresh.
    pub weights: Option<Vec<f32>>,
    /// The disk space that its checkpoints take.
    pub disk: Needed,
    /// Whether it saves to another folder than its keys say, since that one is taken.
    pub is_moved: bool,
}

/// A run that is planned and not trained: its data may be elsewhere.
pub struct Planned {
    /// What its keys say.
    pub run: RunSettings,
    /// The model's shape.
    pub gpt: GptConfig,
    /// On what it would be computed.
    pub engine: Engine,
    /// The disk space that its checkpoints would take.
    pub disk: Needed,
}

impl Planned {
    /// None where the config cannot be meant, which was said. Nothing is written.
    ///
    /// # Errors
    /// Anything that a plan needs is missing.
    pub fn of(request: &Request, given: Vec<Source>) -> Result<Option<Self>, Error> {
        // Of weights and of a checkpoint their headers say it all, and the rest may have gigabytes.
        let read = keys(given, checkpoint::load_meta, |meta| meta)?;
        let Some((Keys { settings, run }, meta)) = read else { return Ok(None) };
        let run = run?;
        let mut tokenizer = None;
        let ids = match dataset::resolve(&run.dataset, Path::new(".")) {
            Ok(folder) => {
                let dataset = Dataset::open(&folder)?;
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
            (Some(meta), _) => model::of_checkpoint(&run, ids, meta)?,
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
        let disk = disk(&settings, &run, gpt, &engine, tokenizer.as_ref())?;
        Ok(Some(Self { run, gpt, engine, disk }))
    }
}

impl Start {
    /// None where the config cannot be meant, which was said.
    ///
    /// # Errors
    /// Anything that a run needs is missing.
    pub fn of(request: &Request, given: Vec<Source>) -> Result<Option<Self>, Error> {
        let read = keys(given, checkpoint::load, |checkpoint: &Checkpoint| &checkpoint.meta)?;
        let Some((Keys { settings, run }, checkpoint)) = read else { return Ok(None) };
        let mut run = run?;
        let is_moved = claim_folder(request, &settings, &mut run)?;
        let dataset = open(&run.dataset)?;
        let (gpt, weights) = model_of(&run, Ids::of(&dataset), checkpoint.as_ref())?;
        let dataset = dataset.with_vocab_size(u32::try_from(gpt.vocab_size()).unwrap_or(u32::MAX));
        let engine = Engine::of(request, &run, &gpt)?;
        let disk = disk(&settings, &run, gpt, &engine, dataset.tokenizer().ok().as_ref())?;
        Ok(Some(Self { settings, run, gpt, dataset, engine, checkpoint, weights, disk, is_moved }))
    }
}

/// Reads what was given, and of the checkpoint that it goes on from what `load` does; none where it cannot be meant,
/// which was said.
fn keys<C>(
    given: Vec<Source>,
    load: impl FnOnce(&Path) -> Result<C, CheckpointError>,
    meta: impl FnOnce(&C) -> &Meta,
) -> Result<Option<(Keys, Option<C>)>, Error> {
    let mut keys = Keys::of(with_builtin(&given));
    let mut checkpoint = None;
    if let Ok(RunSettings { init_from: InitFrom::Resume, out_dir, .. }) = &keys.run
        && !keys.stops()
    {
        let found = load(out_dir)?;
        let meta = meta(&found);
        let mut settings = with_checkpoint(meta, given);
        print::note(&keep_shape(&mut settings, &meta.gpt));
        keys = Keys::of(settings);
        checkpoint = Some(found);
    }
    Ok((!report_problems(&keys)).then_some((keys, checkpoint)))
}

/// What was given, after the built-in config where no run of one's own is asked for.
fn with_builtin(given: &[Source]) -> Settings {
    let settings = read(given);
    let is_own = given.iter().any(|source| matches!(source, Source::File { .. }))
        || ["dataset", "init_from"].into_iter().any(|key| settings.is_set(key));
    if is_own {
        return settings;
    }
    let builtin = Source::File { name: STORIES_NAME.to_owned(), text: STORIES.to_owned() };
    read(&[&[builtin], given].concat())
}

/// A checkpoint's keys, then what was given.
fn with_checkpoint(checkpoint: &Meta, given: Vec<Source>) -> Settings {
    let mut kept = Settings::default();
    for (key, value) in &checkpoint.config {
        // The source of weights, the device and the folder, which may have been renamed, are of this start.
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

/// The keys whose values a resumed run takes from its checkpoint, as nanoGPT does.
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

/// Puts the checkpoint's shape in the place of any other that was given, and warns of each such key.
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

/// Folders that are tried for a new run whose folder nobody named.
const FOLDERS_MAX: u32 = 10_000;

/// Makes sure that a new run replaces no checkpoint. Where nobody named the folder, the run moves to the next one that is
/// free; whether it did.
///
/// # Errors
/// [`CheckpointError::Exists`]: the folder that was named has a checkpoint.
fn claim_folder(request: &Request, settings: &Settings, run: &mut RunSettings) -> Result<bool, Error> {
    if run.init_from == InitFrom::Resume || run.eval_only || request.force {
        return Ok(false);
    }
    let Some(path) = checkpoint::find(&run.out_dir) else { return Ok(false) };
    let named = settings.values.get("out_dir").map(|setting| settings.source_name(&setting.origin));
    if named.is_some_and(|source| source != STORIES_NAME) {
        return Err(CheckpointError::Exists { path }.into());
    }
    let numbered = |n| {
        let mut name = run.out_dir.clone().into_os_string();
        name.push(format!("-{n}"));
        PathBuf::from(name)
    };
    let mut folders = (2..=FOLDERS_MAX).map(numbered);
    let free = folders.find(|folder| checkpoint::find(folder).is_none()).ok_or(CheckpointError::Exists { path })?;
    print::note(&format!(
        "{} has the checkpoint of another run. This run saves to {}.\n",
        run.out_dir.display(),
        free.display()
    ));
    run.out_dir = free;
    Ok(true)
}

/// The disk space that a run's checkpoints take.
fn disk(
    settings: &Settings,
    run: &RunSettings,
    gpt: GptConfig,
    engine: &Engine,
    tokenizer: Option<&Tokenizer>,
) -> Result<Needed, Error> {
    let config = run.config(settings, &engine.device_name());
    let state = State::longest(&run.dataset);
    let tokenizer = tokenizer.and_then(Tokenizer::kept);
    Ok(checkpoint::needed(&run.out_dir, &Meta { gpt, config, state, tokenizer })?)
}

/// Says what is wrong with the config; whether nothing can be made of it.
fn report_problems(keys: &Keys) -> bool {
    let said = said(&keys.problems(), &keys.settings);
    if keys.stops() {
        print::error(&said);
    } else {
        print::note(&said);
    }
    keys.stops()
}

/// Opens a data set; the built-in one is made where it is missing.
fn open(name: &str) -> Result<Dataset, Error> {
    let here = Path::new(".");
    if name == BUILTIN && dataset::resolve(name, here).is_err() {
        let out: PathBuf = here.join("data").join(BUILTIN);
        prepare::prepare(&data::builtin(), prepare::Kind::Char, &out, false)?;
        print::note(&format!("Made the built-in stories, {} MB, in {}.\n", corpus::BYTES / 1_000_000, out.display()));
    }
    Ok(Dataset::open(&dataset::resolve(name, here)?)?)
}

/// The model's shape, and its weights where they are neither fresh nor a checkpoint's.
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
            let found = Pretrained::load(&path, Which::default())?.fitted(run.shape.block_size, run.shape.dropout)?;
            print::note(&report::weights(&path, &found.notes));
            Ok((model::enough(found.config, run, ids)?, Some(found.params)))
        }
        InitFrom::Scratch | InitFrom::Resume => Ok((model::fresh(run, ids)?, None)),
    }
}
