//! `headroom train`: nanoGPT's train.py on this machine's CPU.
//!
//! [`options`] reads the words, [`report`] words what happens; here a run is put together: keys, data, weights, memory.

mod options;
mod report;

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    thread,
    time::Duration,
};

use headroom_kernels::{
    fast::{Trainer, TrainerError, gemm_rate},
    training::{Training, TrainingError},
};
use headroom_shared::{
    gpt::{
        GptConfig, GptConfigError, GptShape,
        buffers::{Buffers, cpu_training},
        tensors::TensorTooLarge,
    },
    nanogpt::{Problem, Settings, Source, read},
    text,
    units::human_size,
};
use thiserror::Error;

use super::{
    Exit,
    args::{Parsed, parse},
    plan::{self, said, sources},
    print,
};
use crate::{
    data::{
        corpus,
        dataset::{self, Dataset, DatasetError},
        prepare,
    },
    train::{
        checkpoint::{self, Checkpoint, CheckpointError, State, Store},
        memory::available_bytes,
        pretrained::{Pretrained, PretrainedError},
        run::{Ending, Event, Run, RunError},
        settings::{InitFrom, RunSettings, SEED, SettingsError},
    },
};
pub use options::help;
use options::{FLAGS, Request, take_word};

/// The config where nothing else is asked for.
const STORIES: &str = include_str!("../../config/stories.py");
/// Its name in messages.
const STORIES_NAME: &str = "config/stories.py (built in)";
/// Its data set, which is made where it is missing.
const BUILTIN: &str = "builtin";
/// How long the threads multiply before a run, so that its operations can be told as a share of that.
const RATE_TIME: Duration = Duration::from_millis(100);

/// Why nothing is trained.
#[derive(Debug, Error)]
pub enum Error {
    /// A config file.
    #[error(transparent)]
    Config(#[from] plan::Error),
    /// A value no run can have.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// What a checkpoint's or the data's vocabulary makes of the shape.
    #[error(transparent)]
    Shape(#[from] GptConfigError),
    /// The data.
    #[error(transparent)]
    Data(#[from] DatasetError),
    /// The built-in data.
    #[error(transparent)]
    Prepare(#[from] prepare::Error),
    /// A vocabulary that the data leave.
    #[error("the model has {model} tokens, and the data set {dataset} has {data}")]
    Vocabulary {
        /// The model's.
        model: u64,
        /// The data's.
        data: u64,
        /// Its name.
        dataset: String,
    },
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Weights.
    #[error(transparent)]
    Weights(#[from] PretrainedError),
    /// Weights that are named and not here.
    #[error("there are no weights {name:?} on this machine")]
    NoWeights {
        /// As given.
        name: String,
    },
    /// A model beyond any machine.
    #[error(transparent)]
    Tensor(#[from] TensorTooLarge),
    /// A model beyond this one.
    #[error("the run takes {} of memory, and this machine has {} left", human_size(*planned_bytes), human_size(*available_bytes))]
    DoesNotFit {
        /// What it takes.
        planned_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// The model or its threads.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// What it was to be given.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// The interrupt key.
    #[error("Ctrl-C cannot be listened for: {0}")]
    Signal(io::Error),
    /// The run itself.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Error {
    /// What to try instead.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.hint(),
            Self::Settings(error) => error.hint(),
            Self::Data(error) => error.hint(),
            Self::Prepare(error) => error.hint(),
            Self::Checkpoint(error) => error.hint(),
            Self::Weights(error) => error.hint(),
            Self::Run(error) => error.hint(),
            Self::Vocabulary { .. } => Some("name the data set that the model was trained on, or leave --vocab_size out".to_owned()),
            Self::NoWeights { .. } => Some(
                "--init_from= takes a safetensors file, its folder, scratch, resume, or gpt2, gpt2-medium, gpt2-large or \
                 gpt2-xl once a tool of Hugging Face has downloaded it"
                    .to_owned(),
            ),
            Self::DoesNotFit { .. } => Some("a smaller --batch_size= takes less; `headroom train --plan` says what".to_owned()),
            Self::Shape(_) | Self::Tensor(_) | Self::Trainer(_) | Self::Training(_) | Self::Signal(_) => None,
        }
    }

    /// Whether what was asked for can be meant at all.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Settings(_) | Self::Shape(_) | Self::Tensor(_))
    }
}

/// Runs the command.
///
/// # Errors
/// The words cannot be used, the run cannot start, or it ended early.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<Exit, super::Error> {
    let mut request = Request::default();
    if parse("train", FLAGS, args, &mut request, take_word)? == Parsed::Help {
        print::data(&help())?;
        return Ok(Exit::Success);
    }
    let given = sources(&request.given).map_err(Error::from)?;
    let Some(mut start) = Start::of(&request, given).map_err(super::Error::from)? else { return Ok(Exit::Usage) };
    if request.plan {
        print::data(&report::plan(&start.gpt, &start.planned, request.json))?;
        let fits = available_bytes().is_none_or(|available| start.planned.bytes() <= available);
        return Ok(if fits { Exit::Success } else { Exit::Failure });
    }
    start.train(&request).map_err(super::Error::from)
}

/// A run that can start.
struct Start {
    settings: Settings,
    run: RunSettings,
    gpt: GptConfig,
    dataset: Dataset,
    planned: Buffers,
    threads: usize,
    checkpoint: Option<Checkpoint>,
    weights: Option<Vec<f32>>,
}

impl Start {
    /// None where the config cannot be meant, which was said.
    fn of(request: &Request, given: Vec<Source>) -> Result<Option<Self>, Error> {
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
        let run = run?;
        let dataset = open(&run.dataset)?;
        let (gpt, weights) = model(&run, &dataset, checkpoint.as_ref())?;
        let dataset = dataset.with_vocab_size(u32::try_from(gpt.vocab_size()).unwrap_or(u32::MAX));
        let threads = request.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
        let planned = cpu_training(&gpt, run.batch_size, threads as u64)?;
        Ok(Some(Self { settings, run, gpt, dataset, planned, threads, checkpoint, weights }))
    }

    fn train(&mut self, request: &Request) -> Result<Exit, Error> {
        print::note(&report::start(&self.gpt, &self.run, &self.dataset, &self.planned, self.threads));
        let planned_bytes = self.planned.bytes();
        if let Some(available_bytes) = available_bytes().filter(|&available| available < planned_bytes) {
            return Err(Error::DoesNotFit { planned_bytes, available_bytes });
        }
        let store = Store::open(&self.run.out_dir)?;
        if store.n_removed() > 0 {
            print::note(&format!("Removed {} unfinished files of a run that was killed.\n", store.n_removed()));
        }
        let mut trainer = Trainer::new(&self.gpt, self.run.batch_size, self.threads)?;
        debug_assert_eq!(trainer.allocated_bytes(), planned_bytes, "what is allocated is what was planned");
        print::note(&report::allocated(trainer.allocated_bytes(), planned_bytes));
        let state = self.fill(&mut trainer)?;
        let peak_flops = Some(gemm_rate(trainer.team(), RATE_TIME));
        let stop = interrupts()?;
        let run = Run {
            config: self.run.config(&self.settings),
            settings: &self.run,
            gpt: self.gpt,
            trainer: &mut trainer,
            tokenizer: self.dataset.tokenizer().ok().map(|tokenizer| tokenizer.kept()),
            dataset: &self.dataset,
            store: &store,
            state,
            peak_flops,
            on_save_error: request.on_save_error,
        };
        let mut unread = None;
        let ending = run.run(&stop, &mut |event| {
            if let Event::NotSaved { .. } = event {
                print::note(&report::event(&event, &self.run, false));
            }
            let line = report::event(&event, &self.run, request.json);
            if let Err(error) = print::data(&line) {
                // Whoever read has gone; what was learnt is kept.
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
                unread = Some(error);
            }
        })?;
        match ending {
            Ending::Done => print::note(&report::done(&self.run)),
            Ending::Stopped => {
                let command = report::resume_command(&request.given, &self.run.out_dir);
                print::note(&format!("\nStopped and saved. Go on with:\n  {command}\n"));
            }
        }
        Ok(if unread.is_some_and(|error| !error.is_closed_pipe()) { Exit::Failure } else { Exit::Success })
    }

    /// Gives the model its weights, and the run its place.
    fn fill(&mut self, trainer: &mut dyn Training) -> Result<State, TrainingError> {
        if let Some(checkpoint) = self.checkpoint.take() {
            trainer.set_params(&checkpoint.params)?;
            trainer.set_moments(&checkpoint.exp_avg, &checkpoint.exp_avg_sq)?;
            return Ok(checkpoint.meta.state);
        }
        match self.weights.take() {
            Some(weights) => trainer.set_params(&weights)?,
            None => trainer.initialize(self.run.seed)?,
        }
        Ok(State::default())
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
        if key != "init_from"
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
        prepare::prepare(&super::data::builtin(), prepare::Kind::Char, &out, false)?;
        print::note(&format!("Made the built-in stories, {} MB, in {}.\n", corpus::BYTES / 1_000_000, out.display()));
    }
    Ok(Dataset::open(&dataset::resolve(name, here)?)?)
}

/// The model's shape, and its weights where they are neither fresh nor a checkpoint's.
fn model(
    run: &RunSettings,
    dataset: &Dataset,
    checkpoint: Option<&Checkpoint>,
) -> Result<(GptConfig, Option<Vec<f32>>), Error> {
    // Without a meta.pkl nothing says how many ids there are; one beyond the model is found as it is read.
    let needed = if dataset.has_meta() { u64::from(dataset.vocab_size()) } else { 0 };
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
            let vocab_size = if run.names_vocab_size { run.shape.vocab_size } else { u64::from(dataset.vocab_size()) };
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

/// What the interrupt key sets; pressed again it ends the program, as it does otherwise.
fn interrupts() -> Result<Arc<AtomicBool>, Error> {
    use signal_hook::{consts::TERM_SIGNALS, flag};
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_default(signal, Arc::clone(&stop)).map_err(Error::Signal)?;
        flag::register(signal, Arc::clone(&stop)).map_err(Error::Signal)?;
    }
    Ok(stop)
}
