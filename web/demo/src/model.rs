//! Opens a model: its files, the memory plan, the device and the weights.

use headroom_kernels::{
    decode::Decoder,
    weights::{
        self, Catalogue, Header, Hints, MAX_CONFIG_JSON_BYTES, Note, PREFIX_BYTES, READ_BYTES, WeightsError,
        header_range, zeros,
    },
    wgpu::{Generator, Gpu, GpuError, Options, Request},
};
use headroom_planner::{
    gpt::{GptConfig, presets::GPT2_VOCAB_SIZE},
    nanogpt::defaults::DEFAULT_VOCAB_SIZE,
};
use headroom_protocol::demo::{
    DemoBackend, Failure, FailureKind, ModelPlans, ModelReport, Plan, Source, WorkerResponse, files::Role,
};
use headroom_text::{self as text, Text};
use headroom_tokenizer::{
    CharTokenizer,
    bpe::{BpeError, ByteBpe},
};
use web_sys::File;

use crate::{
    engine::{Backend, Engine, EngineError},
    host::{self, Data, NoWebGpu},
    session::Session,
    tokenizer::{self, Tokenizer},
    ways::{self, Machine},
};

/// Maximum size of a tokenizer file in bytes. GPT-2's has 1.4 MB.
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;

fn failure(kind: FailureKind, text: impl Into<Text>) -> Failure {
    Failure { kind, text: text.into(), hint: None }
}

fn of_weights(name: &str, error: &WeightsError) -> Failure {
    let text = text::demo_in_file(name, error.text());
    Failure { kind: FailureKind::Files, text, hint: error.hint().map(Text::from) }
}

fn unread(name: &str, reason: String) -> Failure {
    failure(FailureKind::Files, text::demo_unread(name, reason))
}

/// Opens a model and reports progress to the page.
pub async fn open(
    source: Source,
    files: Vec<File>,
    way: Option<DemoBackend>,
    gpu_bytes: Option<u64>,
) -> Result<Session, Failure> {
    let folder = Folder::of(source, &files).await?;
    let hints = match &folder.config {
        Some(config) => {
            let text = whole(config, "config.json", MAX_CONFIG_JSON_BYTES).await?;
            // Errors about this file already contain its name.
            Hints::from_config_json(&text).map_err(|error| {
                let text = text::demo_sentence(error.text());
                Failure { kind: FailureKind::Files, text, hint: error.hint().map(Text::from) }
            })?
        }
        None => Hints::default(),
    };
    let header = header(&folder).await?;
    let catalogue = Catalogue::new(&header, &hints).map_err(|error| of_weights(&folder.file, &error))?;
    let config = *catalogue.config();
    let tokenizer = folder.tokenizer(&catalogue).await?;

    let gpu = request_gpu().await;
    let software = gpu.as_ref().map(Gpu::is_software).map_err(Clone::clone);
    let machine = Machine { gpu: software, gpu_bytes, machine_bytes: host::machine_bytes() };
    let of_other_size = tokenizer::note(tokenizer.vocab_size(), config.vocab_size());
    let mut opened = ModelPlans {
        name: folder.name.clone(),
        n_layer: config.n_layer(),
        n_head: config.n_head(),
        n_embd: config.n_embd(),
        block_size: config.block_size(),
        vocab_size: config.vocab_size(),
        n_parameters: config.n_parameters().unwrap_or(u64::MAX),
        notes: catalogue.notes().iter().map(Note::text).chain(of_other_size).collect(),
        plans: machine.plans(&config),
        way: None,
        why: text::WHY_CHOSEN.into(),
    };
    let (way, backend) = allocate(way, &machine, gpu.as_ref().ok(), &config, &mut opened).await?;
    let backend = load(&folder, &catalogue, backend).await?;
    let engine = Engine::new(backend, config.block_size());
    let gpu = gpu.ok().filter(|_| way.is_webgpu());
    if let Some(gpu) = &gpu {
        gpu.on_lost(|error| crate::lost(failure(FailureKind::Device, error.text())));
    }
    host::tell(&WorkerResponse::Ready(ModelReport {
        way,
        device: engine
            .instructions()
            .map_or_else(|| gpu.as_ref().map(Gpu::name).unwrap_or_default().to_owned(), str::to_owned),
        tensors: engine.tensors(),
    }));
    Ok(Session::new(engine, tokenizer, &config))
}

/// The files of a model, by role.
struct Folder {
    /// The name of the weights file; empty for the model shipped with the page.
    name: String,
    /// The file name used in messages.
    file: String,
    weights: Data,
    config: Option<Data>,
    tokenizer_json: Option<Data>,
    vocab: Option<Data>,
    merges: Option<Data>,
}

impl Folder {
    async fn of(source: Source, files: &[File]) -> Result<Self, Failure> {
        let none = |weights, name: String, file: &str| {
            let file = file.to_owned();
            Self { name, file, weights, config: None, tokenizer_json: None, vocab: None, merges: None }
        };
        if let Source::Shipped(address) = source {
            let progress = |read_bytes, all_bytes| host::tell(&WorkerResponse::Progress { read_bytes, all_bytes });
            let weights = Data::fetch(&address, progress).await;
            let weights = weights.map_err(|reason| failure(FailureKind::Files, text::demo_not_fetched(reason)))?;
            return Ok(none(weights, String::new(), address.rsplit('/').next().unwrap_or_default()));
        }
        let of_role = |role| files.iter().filter(move |file| Role::of(&file.name()) == role);
        let first = |role| of_role(role).next().map(Data::of_file);
        let mut weights = of_role(Role::Safetensors).peekable();
        let mut unknown = of_role(Role::Unknown);
        let (first_weights, second) = match weights.peek() {
            Some(_) => (weights.next(), weights.next()),
            None => (unknown.next(), unknown.next()),
        };
        let weights = match (first_weights, second) {
            (Some(file), None) => file,
            (Some(_), Some(_)) => return Err(failure(FailureKind::Files, text::DEMO_SEVERAL_WEIGHTS)),
            (None, _) => return Err(failure(FailureKind::Files, text::DEMO_NO_WEIGHTS)),
        };
        Ok(Self {
            config: first(Role::Config),
            tokenizer_json: first(Role::TokenizerJson),
            vocab: first(Role::Vocab),
            merges: first(Role::Merges),
            ..none(Data::of_file(weights), weights.name(), &weights.name())
        })
    }

    /// Creates the tokenizer from the metadata of the weights, or from a tokenizer file.
    async fn tokenizer(&self, catalogue: &Catalogue) -> Result<Tokenizer, Failure> {
        let vocab_size = catalogue.config().vocab_size();
        let tokenizer = match (catalogue.tokenizer(), &self.tokenizer_json, (&self.vocab, &self.merges)) {
            (Some(weights::Tokenizer::Char(chars)), ..) => {
                let broken = |_| failure(FailureKind::Files, text::demo_no_tokenizer(text::count(vocab_size)));
                Tokenizer::Char(CharTokenizer::try_from(chars.clone()).map_err(broken)?)
            }
            (_, Some(file), _) => {
                let bytes = whole(file, "tokenizer.json", MAX_TOKENIZER_BYTES).await?;
                match CharTokenizer::of_tokenizer_json(&bytes) {
                    Some(chars) => Tokenizer::Char(chars),
                    None => byte_pairs(ByteBpe::from_tokenizer_json(&bytes))?,
                }
            }
            (_, None, (Some(vocab), Some(merges))) => {
                let vocab = whole(vocab, "vocab.json", MAX_TOKENIZER_BYTES).await?;
                let merges = whole(merges, "merges.txt", MAX_TOKENIZER_BYTES).await?;
                byte_pairs(ByteBpe::from_vocab_and_merges(&vocab, &merges))?
            }
            // nanoGPT rounds the size of GPT-2's vocabulary up.
            (known, ..) if known.is_some() || (GPT2_VOCAB_SIZE..=DEFAULT_VOCAB_SIZE).contains(&vocab_size) => {
                return Err(failure(FailureKind::Files, text::DEMO_NO_GPT2_TOKENIZER));
            }
            _ => return Err(failure(FailureKind::Files, text::demo_no_tokenizer(text::count(vocab_size)))),
        };
        Ok(tokenizer)
    }
}

fn byte_pairs(read: Result<ByteBpe, BpeError>) -> Result<Tokenizer, Failure> {
    let tokenizer = read.map_err(|error| failure(FailureKind::Files, error.text()))?;
    Ok(Tokenizer::Bpe(Box::new(tokenizer)))
}

/// Reads a small file completely. Fails if the file is larger than `bytes_max`.
async fn whole(data: &Data, name: &str, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    if data.bytes() > bytes_max {
        let text = text::demo_too_long(name, text::size(data.bytes()), text::size(bytes_max));
        return Err(failure(FailureKind::Files, text));
    }
    data.read(0..data.bytes()).await.map_err(|reason| unread(name, reason))
}

async fn header(folder: &Folder) -> Result<Header, Failure> {
    let data = &folder.weights;
    let unread = |reason| unread(&folder.file, reason);
    let prefix = data.read(0..PREFIX_BYTES as u64).await.map_err(unread)?;
    let range = header_range(&prefix, data.bytes()).map_err(|error| of_weights(&folder.file, &error))?;
    let header = data.read(range).await.map_err(unread)?;
    Header::parse(&header, data.bytes()).map_err(|error| of_weights(&folder.file, &error))
}

async fn request_gpu() -> Result<Gpu, Text> {
    match host::webgpu() {
        Ok(()) => Gpu::request(Request::default()).await.map_err(|error| match error {
            GpuError::NoAdapter { .. } => text::NO_WEBGPU_ADAPTER.into(),
            error => error.text(),
        }),
        Err(NoWebGpu::NotSecure) => Err(text::NO_WEBGPU_NOT_SECURE.into()),
        Err(NoWebGpu::NotThere) => Err(text::NO_WEBGPU.into()),
    }
}

/// Allocates every buffer of the best available backend. This happens before any weight is read, so that a model that
/// does not fit fails early.
async fn allocate(
    chosen: Option<DemoBackend>,
    machine: &Machine,
    gpu: Option<&Gpu>,
    config: &GptConfig,
    opened: &mut ModelPlans,
) -> Result<(DemoBackend, Backend), Failure> {
    // The plan is sent first, because allocating gigabytes takes time.
    host::tell(&WorkerResponse::Opened(opened.clone()));
    let order = machine.order();
    for way in order.into_iter().filter(|&way| chosen.is_none_or(|chosen| chosen == way)) {
        let is_open = |plan: &Plan| plan.refusal.is_none() && (chosen.is_some() || machine.takes(plan));
        if !opened.plans.iter().any(|plan| plan.way == way && is_open(plan)) {
            continue;
        }
        match backend(way, gpu, config).await {
            Ok(backend) => {
                opened.way = Some(way);
                opened.why = if chosen.is_some() { machine.why_chosen(way).into() } else { machine.why(way) };
                host::tell(&WorkerResponse::Opened(opened.clone()));
                return Ok((way, backend));
            }
            Err(error) => {
                if let Some(plan) = opened.plans.iter_mut().find(|plan| plan.way == way) {
                    plan.refusal = Some(error.text());
                }
                if matches!(error, EngineError::Gpu(GpuError::DeviceLost { .. } | GpuError::Refused { .. })) {
                    host::tell(&WorkerResponse::Opened(opened.clone()));
                    return Err(failure(FailureKind::Device, error.text()));
                }
            }
        }
    }
    host::tell(&WorkerResponse::Opened(opened.clone()));
    if let (Err(error), Some(true)) = (&machine.gpu, chosen.map(DemoBackend::is_webgpu)) {
        return Err(failure(FailureKind::Device, error.clone()));
    }
    let refused = opened.plans.iter().find(|plan| chosen == Some(plan.way)).and_then(|plan| {
        let why = plan.refusal.clone()?;
        // GPU errors are already sentences.
        Some(if plan.way.is_webgpu() { why } else { text::demo_way_refused(plan.way.text(), why) })
    });
    Err(failure(FailureKind::DoesNotFit, refused.unwrap_or_else(|| text::DEMO_FITS_NOWHERE.into())))
}

async fn backend(way: DemoBackend, gpu: Option<&Gpu>, config: &GptConfig) -> Result<Backend, EngineError> {
    match gpu.filter(|_| way.is_webgpu()) {
        Some(gpu) => {
            let options = Options { inference: ways::inference(way), ..Options::default() };
            Ok(Backend::Gpu(Box::new(Generator::new(gpu, config, options).await?)))
        }
        None => Ok(Backend::Cpu(Box::new(Decoder::empty(config, ways::storage(way))?))),
    }
}

/// Loads the weights one parameter at a time, so that no second copy of all weights exists.
async fn load(folder: &Folder, catalogue: &Catalogue, mut backend: Backend) -> Result<Backend, Failure> {
    /// Time between two progress messages, short enough for a smooth progress bar.
    const TELL_EVERY_MILLIS: f64 = 50.0;
    let all_bytes = folder.weights.bytes();
    let (mut read_bytes, mut reported_millis) = (0, f64::NEG_INFINITY);
    for entry in catalogue.layout().entries() {
        let full = |_| failure(FailureKind::Device, text::demo_staging_full(entry.name.as_str()));
        let mut values = zeros(entry.range.len()).map_err(full)?;
        for read in catalogue.reads_of(entry, READ_BYTES) {
            let bytes = folder.weights.read(read.range.clone()).await.map_err(|reason| unread(&folder.file, reason))?;
            catalogue.take_one(&read, &bytes, &mut values).map_err(|error| of_weights(&folder.file, &error))?;
            read_bytes += read.range.end - read.range.start;
            if host::now_millis() - reported_millis > TELL_EVERY_MILLIS {
                host::tell(&WorkerResponse::Progress { read_bytes, all_bytes });
                reported_millis = host::now_millis();
            }
        }
        let (tensor, layer) = (entry.parameter.tensor, entry.parameter.layer);
        let written = match &mut backend {
            Backend::Cpu(decoder) => {
                let layer = layer.and_then(|layer| usize::try_from(layer).ok());
                decoder.load(tensor, layer, &values).map_err(EngineError::from)
            }
            Backend::Gpu(generator) => {
                let written = generator.write_parameter(tensor, layer, &values).map_err(EngineError::from);
                generator.flush();
                written
            }
        };
        written.map_err(|error| failure(FailureKind::Device, error.sentence()))?;
    }
    Ok(backend)
}
