//! A run put together before it starts: keys, data, weights, and where it is computed. Nothing is allocated for it yet.

use std::path::{Path, PathBuf};

use headroom_shared::{
    gpt::{GptConfig, GptShape},
    nanogpt::{Problem, Settings, Source, read},
    text,
    tokenizer::CharTokenizer,
};

use super::{Error, engine::Engine, options::Request, report};
use crate::{
    cli::{
        data,
        plan::{self, said},
        print,
    },
    data::{
        BUILTIN, corpus,
        dataset::{self, Dataset},
        prepare,
    },
    train::{
        STORIES,
        checkpoint::{self, Checkpoint},
        pretrained::Pretrained,
        settings::{InitFrom, RunSettings, SEED},
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
}

/// A run as its keys say it, and what it goes on from.
struct Keys {
    settings: Settings,
    run: RunSettings,
    checkpoint: Option<Checkpoint>,
}

/// A run that is planned and not trained: its data may be elsewhere.
pub struct Planned {
    /// What its keys say.
    pub run: RunSettings,
    /// The model's shape.
    pub gpt: GptConfig,
    /// On what it would be computed.
    pub engine: Engine,
}

impl Planned {
    /// None where the config cannot be meant, which was said. Nothing is written.
    ///
    /// # Errors
    /// Anything that a plan needs is missing.
    pub fn of(request: &Request, given: Vec<Source>) -> Result<Option<Self>, Error> {
        let Some(Keys { run, checkpoint, .. }) = keys(given)? else { return Ok(None) };
        let ids = match dataset::resolve(&run.dataset, Path::new(".")) {
            Ok(folder) => Ids::of(&Dataset::open(&folder)?),
            Err(_) if run.dataset == BUILTIN => {
                let stories = CharTokenizer::of_text(&corpus::corpus(corpus::SEED, corpus::BYTES));
                Ids { count: stories.vocab_size() as u64, is_known: true }
            }
            Err(_) => {
                let count = u64::from(dataset::DEFAULT_VOCAB_SIZE);
                if checkpoint.is_none() && !run.names_vocab_size && !matches!(run.init_from, InitFrom::Weights(_)) {
                    let name = &run.dataset;
                    print::note(&format!("The data set {name} is not here: planned with GPT-2's {count} tokens.\n"));
                }
                Ids { count, is_known: false }
            }
        };
        let (gpt, _) = model(&run, ids, checkpoint.as_ref())?;
        let engine = Engine::of(request, &run, &gpt)?;
        Ok(Some(Self { run, gpt, engine }))
    }
}

impl Start {
    /// None where the config cannot be meant, which was said.
    ///
    /// # Errors
    /// Anything that a run needs is missing.
    pub fn of(request: &Request, given: Vec<Source>) -> Result<Option<Self>, Error> {
        let Some(Keys { settings, run, checkpoint }) = keys(given)? else { return Ok(None) };
        let dataset = open(&run.dataset)?;
        let (gpt, weights) = model(&run, Ids::of(&dataset), checkpoint.as_ref())?;
        let dataset = dataset.with_vocab_size(u32::try_from(gpt.vocab_size()).unwrap_or(u32::MAX));
        let engine = Engine::of(request, &run, &gpt)?;
        Ok(Some(Self { settings, run, gpt, dataset, engine, checkpoint, weights }))
    }
}

/// Reads what was given; none where it cannot be meant, which was said.
fn keys(given: Vec<Source>) -> Result<Option<Keys>, Error> {
    let mut settings = with_builtin(&given);
    let mut run = RunSettings::read(&mut settings);
    let mut checkpoint = None;
    if let Ok(RunSettings { init_from: InitFrom::Resume, out_dir, .. }) = &run
        && !settings.problems.as_slice().iter().any(stops)
    {
        let found = checkpoint::load(out_dir)?;
        settings = with_checkpoint(&found, given);
        run = RunSettings::read(&mut settings);
        checkpoint = Some(found);
    }
    if report_problems(&settings) {
        return Ok(None);
    }
    Ok(Some(Keys { settings, run: run?, checkpoint }))
}

/// The token ids of a data set.
#[derive(Clone, Copy)]
struct Ids {
    /// All are below this.
    count: u64,
    /// Whether the data say so; else one beyond the model is found as it is read.
    is_known: bool,
}

impl Ids {
    fn of(dataset: &Dataset) -> Self {
        Self { count: u64::from(dataset.vocab_size()), is_known: dataset.has_meta() }
    }
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
fn with_checkpoint(checkpoint: &Checkpoint, given: Vec<Source>) -> Settings {
    let mut kept = Settings::default();
    for (key, value) in &checkpoint.meta.config {
        // Where weights come from and what computes are of this start, and not of the run.
        if !["init_from", "device"].contains(&key.as_str())
            && let Some(value) = report::python(value)
        {
            kept.assign(key, value);
        }
    }
    let mut all = vec![Source::File { name: checkpoint::FILE.to_owned(), text: kept.to_config() }];
    all.extend(given);
    read(&all)
}

/// Says what is wrong with the config; whether nothing can be made of it.
fn report_problems(settings: &Settings) -> bool {
    let mut problems: Vec<Problem> = settings.problems.as_slice().to_vec();
    problems.retain(|problem| !is_of_seed(problem));
    print::note(&said(&problems, settings));
    problems.iter().any(stops)
}

/// The seed is a key of ours, though no setting of nanoGPT.
fn is_of_seed(problem: &Problem) -> bool {
    [text::unknown_key(SEED), text::not_a_setting(SEED)].contains(&problem.message)
}

fn stops(problem: &Problem) -> bool {
    plan::stops_nanogpt(problem) && !is_of_seed(problem)
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
fn model(run: &RunSettings, ids: Ids, checkpoint: Option<&Checkpoint>) -> Result<(GptConfig, Option<Vec<f32>>), Error> {
    let needed = if ids.is_known { ids.count } else { 0 };
    let enough = |gpt: GptConfig| match gpt.vocab_size() {
        model if model < needed => Err(Error::Vocabulary { model, data: needed, dataset: run.dataset.clone() }),
        _ => Ok(gpt),
    };
    if let Some(checkpoint) = checkpoint {
        // The model is the checkpoint's; what it drops is the run's.
        let shape = GptShape { dropout: run.shape.dropout, ..checkpoint.meta.gpt.shape() };
        return Ok((enough(GptConfig::new(shape)?)?, None));
    }
    match &run.init_from {
        InitFrom::Weights(name) => {
            let path = weights(name).ok_or_else(|| Error::NoWeights { name: name.clone() })?;
            let found = Pretrained::load(&path)?.fitted(run.shape.block_size, run.shape.dropout)?;
            print::note(&report::weights(&path, &found));
            Ok((enough(found.config)?, Some(found.params)))
        }
        InitFrom::Scratch | InitFrom::Resume => {
            let vocab_size = if run.names_vocab_size { run.shape.vocab_size } else { ids.count };
            Ok((enough(GptConfig::new(GptShape { vocab_size, ..run.shape })?)?, None))
        }
    }
}

/// Where weights of that name are: the path itself, or what Hugging Face's tools have downloaded.
fn weights(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(name);
    if path.exists() {
        return Some(path);
    }
    if !matches!(name, "gpt2" | "gpt2-medium" | "gpt2-large" | "gpt2-xl") {
        return None;
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("HOME").or_else(|| variable("USERPROFILE"));
    let hub = variable("HF_HUB_CACHE")
        .or_else(|| Some(variable("HF_HOME")?.join("hub")))
        .or_else(|| Some(home()?.join(".cache/huggingface/hub")))?;
    let folders = [format!("models--{name}"), format!("models--openai-community--{name}")];
    let snapshots = folders.iter().filter_map(|folder| std::fs::read_dir(hub.join(folder).join("snapshots")).ok());
    snapshots.flatten().flatten().map(|snapshot| snapshot.path()).find(|path| path.join("model.safetensors").exists())
}
